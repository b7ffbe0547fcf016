from fractions import Fraction

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.systems.fedrec import ItemGradients
from hushrec.systems.fedrec_plus_plus import DenoiserFactors
from hushrec.systems.sdcf import Config

from .runs import assert_same, digest, hand_worked, losing, run, some_ratings
from .test_sdcf import TELL_ALL, TINY

GOLDEN = "1ed9a74f508dbf85f0be8267cf97e6e21068249bfd2b9b44fc7fb259031b916b"
TELL_RATED = {"flip": 0.0, "report_if_set": 1.0, "report_if_unset": 0.0, "temperature": 0.0}


def test_hand_worked_round() -> None:
    """As SDCF's hand-worked round, with user 1 as denoiser. User 0's upload for the unrated item 1,
    (-3*1 + L*2) / 4, is taken out again: V_1 = 2 - (1*2 + L*2) / 4. V_0, U_0 and U_1 are as in SDCF.
    """
    finished = hand_worked("sdcf-denoised", **TELL_ALL)
    (precision,) = Config(num_factors=1).step(1, Draws(0)).precisions[0]
    assert finished.item_factors.ravel() == pytest.approx([3.25 - precision / 2, 1.5 - precision / 2], rel=1e-6)
    assert finished.user_factors.ravel() == pytest.approx([1.75 - precision / 4, 2.25 - precision / 2], rel=1e-6)


def test_the_sum_is_over_rated_and_reported_items() -> None:
    """Without Langevin noise, by Python integers: uploads of SDCF for items that their sender rated, for denoisers
    those of all items that they rated.
    """
    ratings, who_denoises, total = some_ratings(), [2, 3, 17], np.zeros((30, 5), object)
    values = {"num_rounds": 1, "flip": 0.5, "report_if_set": 0.75, "report_if_unset": 0.1, "temperature": 0.0}
    first = run("sdcf-denoised", ratings, denoisers=3, who_denoises=who_denoises, **values)
    reported = run("sdcf", ratings, cohort_size=1, **values)
    all_rated = run("sdcf", ratings, num_rounds=1, cohort_size=1, **TELL_RATED)
    uploads = {int(sent.numbers[0]): sent.message for sent in reported.sent(ItemGradients)}
    own = {int(sent.numbers[0]): sent.message for sent in all_rated.sent(ItemGradients)}
    num_left_out = 0
    for client in range(ratings.num_users):
        message = own[client] if client in who_denoises else uploads[client]
        rated = ratings.rows.items[ratings.rows.starts[client] : ratings.rows.starts[client + 1]]
        for item, row in zip(message.items.values, message.gradients.values, strict=True):
            if item in rated:
                total[item] += [round(Fraction(float(number)) * 2**FRACTION_BITS) for number in row]
            else:
                num_left_out += 1
    assert num_left_out > 100
    expected = first.states[0].item_factors - total.astype(np.float64) / 2**FRACTION_BITS
    np.testing.assert_array_equal(first.item_factors, expected.astype(np.float32))


def test_denoising_removes_something_and_keeps_users() -> None:
    """After one round U is SDCF's, V is not."""
    values = {"num_rounds": 1, "temperature": 0.1}
    plain, denoised = (
        run("sdcf", some_ratings(), **values),
        run("sdcf-denoised", some_ratings(), denoisers=3, **values),
    )
    np.testing.assert_array_equal(plain.user_factors, denoised.user_factors)
    assert (plain.item_factors != denoised.item_factors).any()


def test_without_denoisers_it_is_sdcf() -> None:
    assert_same(run("sdcf-denoised", some_ratings(), denoisers=0), run("sdcf", some_ratings()))


def test_who_denoises_does_not_matter_where_rated_items_are_told() -> None:
    """A denoiser lists all it rated. Where everyone reports all they rated, with whatever else, no role is
    special, save for the Langevin noise, which is off.
    """
    values = {"flip": 0.0, "report_if_set": 1.0, "report_if_unset": 0.3, "temperature": 0.0}
    results = [
        run("sdcf-denoised", some_ratings(), denoisers=len(who), who_denoises=who, **values)
        for who in ([1], [5, 6, 7], list(range(12)))
    ]
    for other in results[1:]:
        assert_same(other, results[0])
    assert_same(results[0], run("sdcf", some_ratings(), **TELL_RATED))


def test_a_lost_denoisers_clients_do_not_count() -> None:
    values = {"flip": 0.0, "report_if_set": 1.0, "report_if_unset": 0.3, "temperature": 0.0}
    finished = run(
        "sdcf-denoised",
        some_ratings(),
        denoisers=3,
        who_denoises=[4, 9, 11],
        losses=losing((2, DenoiserFactors, 4)),
        **values,
    )
    left_out = np.flatnonzero(finished.states[2].counted_round != 2)
    assert len(left_out) == 8
    clean = run("sdcf", some_ratings(), losses=losing(*((2, None, one) for one in left_out)), **TELL_RATED)
    assert_same(finished, clean)


def test_more_denoisers_than_half_are_refused() -> None:
    with pytest.raises(HushrecError, match="13 denoisers for 24 clients"):
        run("sdcf-denoised", some_ratings(), denoisers=13)
    with pytest.raises(HushrecError, match="denoisers= must not be below 0"):
        run("sdcf-denoised", some_ratings(), denoisers=-1)


def test_golden_transcript() -> None:
    finished = run("sdcf-denoised", some_ratings(6, 20), num_factors=3, num_rounds=2, **TINY)
    assert digest(finished) == GOLDEN
