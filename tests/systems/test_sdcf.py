import numpy as np
import pytest
from scipy import stats

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.systems.fedrec import ItemGradients
from hushrec.systems.sdcf import Config

from .runs import HAND_WORKED, digest, hand_worked, run, some_ratings

GOLDEN = "a5944d0cc42ec1d3d63b93c8ef6a78e9266b71c96838d8f9803523dd7609c404"
TINY = {"flip": 0.25, "report_if_set": 0.75, "report_if_unset": 0.1, "temperature": 0.0, "learning_rate": 0.01}
TELL_ALL = {"flip": 0.0, "report_if_set": 1.0, "report_if_unset": 1.0, "temperature": 0.0}


def test_hand_worked_round() -> None:
    """All items are reported, without Langevin noise; gamma = 1/4, U = (1, 2), V = (1, 2), Lambda = L.

    Errors: user 0 on item 0: 1 - 4 = -3, and the one that it draws for the unrated item 1 can only be that one.
    User 1: 2 - 5 = -3 and 4 - 3 = 1.
    Uploads of user 0: (-3*1 + L*1) / 4 and (-3*1 + L*2) / 4; of user 1: (-3*2 + L*1) / 4 and (1*2 + L*2) / 4.
    V_0 = 1 - (-9 + 2 L) / 4 and V_1 = 2 - (-1 + 4 L) / 4: sums, not means.
    U_0 = 1 - (-3*1 + L*1) / 4 and U_1 = 2 - (-3*1 + 1*2 + L*2) / 4.
    """
    finished = hand_worked("sdcf", **TELL_ALL)
    (precision,) = Config(num_factors=1).step(1, Draws(0)).precisions[0]
    assert finished.item_factors.ravel() == pytest.approx([3.25 - precision / 2, 2.25 - precision], rel=1e-6)
    assert finished.user_factors.ravel() == pytest.approx([1.75 - precision / 4, 2.25 - precision / 2], rel=1e-6)


def test_precisions_have_their_prior_and_stay() -> None:
    """Kolmogorov-Smirnov of 5000 against Gamma(3, scale 0.2), fixed seed, false-alarm rate 1e-6."""
    config = Config(num_factors=5000, prior_shape=3.0, prior_scale=0.2)
    drawn = config.step(1, Draws(0)).precisions
    assert stats.kstest(drawn[0], stats.gamma(3.0, scale=0.2).cdf).pvalue > 1e-6
    np.testing.assert_array_equal(config.step(9, Draws(0)).precisions, drawn)


def test_learning_rate_and_noise_decay() -> None:
    """Round 3 with decay 1/2: gamma / 4; the deviation is temperature * sqrt(gamma): half of the first."""
    config = Config(learning_rate=0.04, decay=0.5, temperature=0.5)
    first, third = config.step(1, Draws(0)), config.step(3, Draws(0))
    assert (first.learning_rate, first.noise_deviation) == pytest.approx((0.04, 0.1))
    assert (third.learning_rate, third.noise_deviation) == pytest.approx((0.01, 0.05))


def test_without_flips_only_rated_items_are_reported() -> None:
    ratings = some_ratings()
    finished = run(
        "sdcf", ratings, flip=0.0, report_if_set=1.0, report_if_unset=0.0, num_rounds=2, cohort_size=1000
    )
    for sent in finished.sent(ItemGradients):
        np.testing.assert_array_equal(sent.message.items.values, ratings.rows.items)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"flip": 1.5}, "flip=1.5 is not in"),
        ({"report_if_set": -0.1}, "report_if_set=-0.1 is not in"),
        ({"report_if_unset": 2.0}, "report_if_unset=2.0 is not in"),
        ({"temperature": -1.0}, "temperature= must not be below 0"),
        ({"prior_shape": 0.0}, "prior_shape= must be above 0"),
        ({"participation": 0.0}, "participation="),
    ],
)
def test_settings_that_cannot_be(values: dict[str, float], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        run("sdcf", HAND_WORKED, **values)


def test_golden_transcript() -> None:
    """Without Langevin noise, whose logarithms and cosines are not the same on every machine."""
    finished = run("sdcf", some_ratings(6, 20), num_factors=3, num_rounds=2, **TINY)
    assert digest(finished) == GOLDEN
