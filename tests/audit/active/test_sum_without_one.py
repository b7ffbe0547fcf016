"""Sums of the same clients, once without one: what the two differ by is that one's."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hushrec
from audit.active.test_lies import deployed, found, job_of, lied_to
from audit.attacks.sums import NONE, seen
from hushrec.audit.active import sum_without_one
from hushrec.audit.scoreboard import Own, Stage
from hushrec.audit.sums import SeenSum
from hushrec.audit.uploads import items_of
from hushrec.data import Interactions
from hushrec.privacy.secure_sum.messages import LeaveOut, SendKeys, SendShares
from hushrec.protocol import Answer, Ask, Collect, Recorded, View

BOTH = ("sum without one", "sum begun again")


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=30,items=200,ratings=450")


def own_with(num_items: int) -> Own:
    return Own({}, {}, np.random.default_rng(0), num_items=num_items)


def numbers(*values: int) -> Any:
    return np.array(values, np.int32)


# --- Hand-worked -----------------------------------------------------------------------------------------


def asks_of(turn: int) -> tuple[list[Ask], list[Any]]:
    """What a lie sends in place of two asks of an honest round, and what that round is told of them."""
    told: list[Any] = []

    def honest() -> Any:
        told.append((yield Ask(numbers(2, 5, 9), SendKeys(), Collect())).lost.tolist())
        told.append((yield Ask(numbers(2, 5, 9), LeaveOut(numbers(1, 4)), Collect())).lost.tolist())

    stage: Any = Stage(honest(), [], (), turn)
    steps, asks = sum_without_one.tell(stage, own_with(10)), []
    ask = next(steps)
    try:
        while True:
            asks.append(ask)
            ask = steps.send(Answer(numbers(9)))
    except StopIteration:
        return asks, told


def test_one_is_said_to_be_lost_in_the_second_round_only() -> None:
    """Client 9 is lost indeed; client 9, 5 or 2 is left out besides, and no items are."""
    for turn in (0, 1):
        (keys, items), told = asks_of(turn)
        left_out = np.setdiff1d(numbers(2, 5, 9), keys.to).tolist()
        assert len(left_out) == turn
        assert told[0] == sorted({9, *left_out})
        assert items.to.tolist() == [2, 5, 9]
        assert items.request.items.tolist() == []  # type: ignore[attr-defined]


def looked(monkeypatch: pytest.MonkeyPatch, counting: list[SeenSum], dense: list[SeenSum] | None = None) -> Any:
    """What is made of these sums, where 0, 1 and 2 of 6 items were asked first."""
    monkeypatch.setattr(sum_without_one, "sums_in", lambda *_: counting)
    monkeypatch.setattr(sum_without_one, "dense_sums_in", lambda *_: dense or [])
    shares: Any = SimpleNamespace(message=object.__new__(SendShares))
    view: View = [Recorded(1, numbers(0, 1, 2), SendKeys()), shares, Recorded(2, numbers(0, 2), SendKeys())]
    return sum_without_one.look(None, view, own_with(6))


def test_counts_fall_by_the_items_of_who_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without client 1, items 0, 3 and 5 have one rater less, and item 4 by chance one more."""
    told = looked(monkeypatch, [seen([0, 1, 2], [3, 2, 0, 1, 0, 2], 1), seen([0, 2], [2, 2, 0, 0, 1, 1], 2)])
    assert told.victims.tolist() == [1]
    assert items_of(told.pairs).tolist() == [0, 3, 5]


def test_without_two_sums_the_catalogue_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was unmasked, or only the first sum: no more is known than a blind guess knows."""
    for sums in ([], [seen([0, 1, 2], [3, 2, 0, 1, 0, 2], 1)]):
        told = looked(monkeypatch, sums)
        assert len(told.victims) == 1
        assert items_of(told.pairs).tolist() == list(range(6))


def dense(participants: list[int], rows: list[list[float]], vectors: Any) -> SeenSum:
    counts, totals = np.empty(0, np.int64), np.array(rows)
    return seen(participants, [])._replace(counts=counts, totals=totals, vectors=vectors)


def test_rows_that_are_not_zero_are_the_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of client 1: (1, 0) of item 1 and (0, -2) of item 4, zeros of the others."""
    less = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 0.0], [7.0, 8.0], [9.0, 1.0]]
    more = [list(row) for row in less]
    more[1][0] += 1
    more[4][1] -= 2
    told = looked(monkeypatch, [], [dense([0, 1, 2], more, NONE), dense([0, 2], less, NONE)])
    assert told.victims.tolist() == [1]
    assert items_of(told.pairs).tolist() == [1, 4]


def test_of_dense_rows_those_that_do_not_fit_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """x = (1, 0): rows are 2 (x.v) x of others, -4 (1 - x.v) x of the own items 2 and 5."""
    vectors = np.array([[0.2, 0.3], [0.5, 0.1], [0.4, 0.2], [0.1, 0.9], [0.3, 0.4], [0.25, 0.5]])
    along = 2 * vectors[:, 0]
    along[[2, 5]] = -4 * (1 - vectors[[2, 5], 0])
    rows = np.stack([along, np.zeros(6)], axis=1)
    less = np.full((6, 2), 0.5)
    both = [dense([0, 1, 2], (less + rows).tolist(), vectors), dense([0, 2], less.tolist(), vectors)]
    assert items_of(looked(monkeypatch, [], both).pairs).tolist() == [2, 5]


def test_of_a_ranking_upload_what_is_pulled_up_is_the_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """U = (2, -1, 1): items 0 and 3 have it -.5 and -.25 times, item 5 has it .75 times. Nobody rated anything."""
    rows, less = np.zeros((6, 3)), np.full((6, 3), 0.5)
    for item, slope in ((0, -0.5), (3, -0.25), (5, 0.75)):
        rows[item] = np.array([2.0, -1.0, 1.0]) * slope
    few, many = seen([0, 2], [2, 2, 0, 0, 1, 1], 2), seen([0, 1, 2], [3, 2, 0, 1, 1, 2], 1)
    told = looked(monkeypatch, [many._replace(totals=less + rows), few._replace(totals=less)])
    assert items_of(told.pairs).tolist() == [0, 3]
    rows[5, 0] += 0.1  # a multiple of another vector: nothing is ranked, and what is listed is the one's own
    told = looked(monkeypatch, [many._replace(totals=less + rows), few._replace(totals=less)])
    assert items_of(told.pairs).tolist() == [0, 3, 5]


# --- Systems ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    "settings", [{}, {"participation": 0.5}, {"secure_together": 10, "secure_least_raters": 3}]
)
def test_secure_sums_tell_all_of_who_is_left_out(name: str, settings: dict[str, Any], data: Interactions) -> None:
    """What an honest server looks after, a lying one does not."""
    finding = found(job_of("fedrec", data, rho=0, secure_sums=True, **settings), name)
    assert finding.score == 1
    assert finding.chance < 0.6
    assert finding.num_victims == 2, "one for each round"
    assert finding.refusal == ""


def test_of_ranking_clients_as_well(data: Interactions) -> None:
    """Told twice in one round, so that the same pairs are drawn; in two rounds others are."""
    values: dict[str, Any] = {"rho": 0, "denoisers": 0, "secure_sums": True}
    finding = found(job_of("fedrec-bpr", data, **values), "sum begun again")
    assert finding.score > 0.95


def test_a_guard_does_not_see_it_while_rounds_are_left(data: Interactions) -> None:
    finding = deployed(job_of("fedrec", data, rho=0, secure_sums=True, num_rounds=3), "sum without one")
    assert finding.rounds[0] == 1
    assert "asked for round 4 of 3" in finding.refusal
    refused = deployed(job_of("fedrec", data, rho=0, secure_sums=True, num_rounds=1), "sum without one")
    assert refused.score == refused.chance


@pytest.mark.parametrize(
    ("name", "settings"),
    [("fcf", {}), ("fedmf", {"encryption": "none"}), ("fedncf", {"participation": 1.0}), ("sdcf", {})],
)
def test_other_systems_tell_as_much_as_an_upload(name: str, settings: dict[str, Any], data: Interactions) -> None:
    finding = found(job_of(name, data, num_rounds=3, secure_sums=True, **settings), "sum begun again")
    assert finding.score > finding.chance


def test_noise_of_the_clients_leaves_nothing(data: Interactions) -> None:
    """With budgets for more sums than are made, so that nobody refuses."""
    settings: dict[str, Any] = {"rho": 0, "secure_sums": True, "epsilon_total": 8.0, "most_sums": 12}
    finding = found(job_of("fedrec", data, **settings), "sum without one")
    assert finding.refusal == ""
    assert finding.score < finding.chance + 0.1


def test_it_is_left_out_without_secure_sums(data: Interactions) -> None:
    done = lied_to(job_of("fedrec", data, rho=0), *BOTH)
    assert not done.findings
    assert set(done.left_out.values()) == {"the run makes no secure sums; switch them on"}
