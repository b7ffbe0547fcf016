"""What a server learns of secure sums is what plain sums are, unmasked out of its own view."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hushrec
from audit.conftest import NOTHING
from audit.test_driver import job_of
from hushrec.audit.scoreboard import Truth
from hushrec.audit.sums import (
    Remembered,
    SeenSum,
    everything,
    f1_beside_popular,
    judged,
    judged_alike,
    others_with,
    remember,
    sums_in,
)
from hushrec.audit.uploads import paired
from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.protocol import Role, View
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import run_job
from hushrec.settings import to_dict


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=40,items=30,ratings=400")


def views_of(data: Interactions, name: str = "fedrec", losses: Any = None, **values: Any) -> list[View]:
    """What the server saw in each round."""
    found: list[View] = []

    def look(progress: Progress) -> None:
        found.append(progress.transcript.seen_by(Role.SERVER))
        progress.transcript.recorded.clear()

    options = RuntimeOptions(1, keep_payloads=True, losses=losses, cohort_size=7)
    run_job(job_of(name, data, **values), options, on_round=look)
    return found


def sums_of(view: View, data: Interactions, name: str = "fedrec", **values: Any) -> list[SeenSum]:
    return sums_in(view, to_dict(job_of(name, data, **values).config))


def counts_of(data: Interactions, clients: Any) -> list[int]:
    is_in = np.isin(data.users, clients)
    return np.bincount(data.items[is_in], minlength=data.num_items).tolist()  # type: ignore[no-any-return]


def summed_by_hand(view: View, num_items: int) -> np.ndarray[Any, Any]:
    """Gradients uploaded in the clear, item by item."""
    total = np.zeros((num_items, 4))
    for one in view:
        if hasattr(one.message, "gradients"):
            np.add.at(total, one.message.items.values, one.message.gradients.values.astype(np.float64))  # type: ignore[attr-defined]
    return total


def test_what_is_unmasked_is_the_plain_sum(data: Interactions) -> None:
    """Counts are those of the data, rows those that are uploaded in the clear without the switch."""
    values = {"rho": 0, "secure_sums": True, "participation": 0.5}
    plain = views_of(data, rho=0, participation=0.5)
    for number, view in enumerate(views_of(data, **values)):
        (seen,) = sums_of(view, data, **values)
        assert len(seen.participants) == 20
        assert seen.counts.tolist() == counts_of(data, seen.participants)
        np.testing.assert_allclose(seen.totals, summed_by_hand(plain[number], data.num_items), atol=1e-6)
        assert seen.vectors.shape == (data.num_items, 4)


@pytest.mark.parametrize("step", ["SendKeys", "SendShares", "ItemFactors"])
def test_who_is_lost_is_not_in_it(data: Interactions, step: str) -> None:
    values = {"rho": 0, "secure_sums": True}

    def losses(number: int, request: Any, to: Any) -> Any:
        return np.isin(to, [3, 8]) & (number == 2) & (request.__name__ == step)

    views = views_of(data, losses=losses, **values)
    whole, without = (sums_of(view, data, **values)[0] for view in views)
    assert np.setdiff1d(whole.participants, without.participants).tolist() == [3, 8]
    assert (whole.counts - without.counts).tolist() == counts_of(data, [3, 8])


def test_who_stays_out_with_others_is_not_in_it_either(data: Interactions) -> None:
    """Client 3 sends no key in round 2: with it three more are not in the sum."""
    values = {"rho": 0, "secure_sums": True, "secure_together": 4}

    def losses(number: int, request: Any, to: Any) -> Any:
        return (to == 3) & (number == 2) & (request.__name__ == "SendKeys")

    whole, without = (sums_of(view, data, **values)[0] for view in views_of(data, losses=losses, **values))
    out = np.setdiff1d(whole.participants, without.participants)
    assert len(out) == 4
    assert 3 in out
    assert (whole.counts - without.counts).tolist() == counts_of(data, out)


def test_shares_over_denoisers_end_with_the_same_sums_and_lists_besides(data: Interactions) -> None:
    values = {"rho": 2, "shares": 2, "denoisers": 2}
    (seen,) = sums_of(views_of(data, "fedrec++", **values)[0], data, "fedrec++", **values)
    plain = views_of(data, rho=0)[0]
    assert seen.counts.tolist() == counts_of(data, np.arange(40))
    np.testing.assert_allclose(seen.totals, summed_by_hand(plain, data.num_items), atol=1e-6)
    assert seen.listed is not None
    assert np.isin(paired(data.users, data.items), seen.listed).all()


def test_of_items_that_are_left_out_the_server_has_the_count_by_which_they_are(data: Interactions) -> None:
    values = {"rho": 0, "secure_sums": True, "secure_least_raters": 14}
    (seen,) = sums_of(views_of(data, **values)[0], data, **values)
    true = np.array(counts_of(data, np.arange(40)))
    assert seen.counts.tolist() == true.tolist()
    assert 0 < (true < 14).sum() < 30
    assert (seen.totals.any(axis=1) == (true >= 14)).all()


def test_a_run_without_sums_is_left_out(data: Interactions) -> None:
    with pytest.raises(HushrecError, match="switch on secure sums or shares"):
        remember(None, views_of(data, rho=0)[0], NOTHING)


# --- How right a guess is ---


def test_blind_is_what_others_have(owning: Callable[..., Truth]) -> None:
    """Item 0: both; 1: client 0; 2: client 1. To client 0 the others have 0 and 2, once each, and not 1."""
    train = owning([[0, 1], [0, 2]], 4).train
    pairs = everything(np.array([0, 1]), 4)
    assert others_with(pairs, train).tolist() == [1, 0, 1, 0, 1, 1, 0, 0]
    outcome = judged(pairs, np.array([2, 1, 1, 0, 2, 1, 1, 0.0]), train)
    # Own 0 and 1 against 2 and 3, by scores 2 1 1 0: right, right, half, right. By others 1 0 1 0: half, right,
    # wrong, half.
    assert outcome.scores.tolist() == [3.5 / 4, 3.5 / 4]
    assert outcome.chances.tolist() == [0.5, 0.5]


def test_as_many_popular_items_are_the_blind_guess(owning: Callable[..., Truth]) -> None:
    """Client 0 has 1 and 2, of which 2 is guessed; the item that most others have is 0: F1 2/3, and 0."""
    train = owning([[1, 2], [0], [0, 3]], 4).train
    outcome = f1_beside_popular(paired(np.array([0]), np.array([2])), np.array([0]), train)
    assert outcome.scores.tolist() == [pytest.approx(2 / 3)]
    assert outcome.chances.tolist() == [0.0]


def test_sums_of_the_last_round_alone() -> None:
    one = SeenSum(1, np.arange(3), np.ones(2, np.int64), np.empty((0, 0)), np.empty((0, 0)))
    known = Remembered((one, one._replace(round_number=2)), 2)
    assert [seen.round_number for seen in known.of_last_round()] == [2]


def test_scores_that_are_the_same_for_all_are_judged_as_all_pairs_are() -> None:
    """With ties, somebody who has nothing and somebody who has everything."""
    generator = np.random.default_rng(0)
    has = generator.random((9, 12)) < 0.4
    has[3], has[5] = False, True
    users, items = (column.astype(np.int32) for column in np.nonzero(has))
    ids = np.arange(9), np.arange(12)
    train = Interactions(users, items, None, None, None, *ids, None, None, "made", "", False)
    victims, scores = np.array([0, 1, 2, 3, 5, 7, 8]), generator.integers(0, 5, 12).astype(np.float64)
    slow = judged(everything(victims, 12), np.tile(scores, len(victims)), train)
    quick = judged_alike(victims, scores, train)
    np.testing.assert_array_equal(quick.victims, slow.victims)
    np.testing.assert_allclose(quick.right, slow.right)
    np.testing.assert_allclose(quick.blind, slow.blind)
