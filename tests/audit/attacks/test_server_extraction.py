"""A copy of the server's model, from what it tells clients who collude."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hushrec
from audit.conftest import Scored, Told, sent
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.attacks.server_extraction import ATTACK, Copied, copy_server, ease, judge
from hushrec.audit.driver import Onlooker
from hushrec.audit.scoreboard import Own, Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Ragged, Role, Seat
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job

UNTOLD = ATTACKS["server extraction untold"]
Owning = Callable[..., Truth]


def holding(owned: dict[int, list[int]], num_items: int) -> Own:
    size = np.array(num_items)
    each = {client: {"items": np.array(items), "num_items": size} for client, items in owned.items()}
    return Own({}, {}, np.random.default_rng(0), each)


def copied(own: Own, *rounds: dict[int, list[tuple[int, float]]], kind: type[Message] = Told) -> Copied:
    found = None
    for number, told in enumerate(rounds, start=1):
        found = copy_server(found, [sent(told, kind, number)], own)
    assert found is not None
    return found


def hidden(truth: Truth, scores: NDArray[np.float32]) -> Truth:
    return truth._replace(server_scores=lambda users: scores[users])


def test_ease_is_ridge_regression_of_each_item_on_the_others() -> None:
    """Column j of B minimises |x_j - X b|^2 + penalty |b|^2 with b_j = 0."""
    labels = np.random.default_rng(0).random((6, 5)).astype(np.float32)
    expected = np.empty((6, 5))
    for item in range(5):
        others = np.delete(labels, item, axis=1).astype(np.float64)
        weights = np.linalg.solve(others.T @ others + 3.0 * np.eye(4), others.T @ labels[:, item])
        expected[:, item] = others @ weights
    np.testing.assert_allclose(ease(labels, penalty=3.0), expected, rtol=1e-4)


def test_what_is_known_by_hand() -> None:
    """Client 4 is told item 2 twice: the last score stays. Its own item 0 is never taken for a told one.

    After round 5 what was told in round 2 is too old to be learned from, but is still remembered as told.
    """
    own = holding({7: [1], 4: [0]}, 5)
    found = copied(own, {}, {4: [(2, 0.9), (0, 0.1)], 7: [(3, 0.4)]}, {4: [(2, 0.6)], 7: []})
    assert found.clients.tolist() == [4, 7]
    assert found.copied[[0, 1], [2, 3]].tolist() == pytest.approx([0.6, 0.4])
    np.testing.assert_array_equal(found.told_round, [[2, 0, 3, 0, 0], [0, 0, 0, 2, 0]])
    labels = np.array([[1, 0, 0.6, 0, 0], [0, 1, 0, 0.4, 0]], np.float32)
    np.testing.assert_allclose(found.copied[:, [0, 1, 4]], ease(labels)[:, [0, 1, 4]])
    np.testing.assert_allclose(found.alone[0], ease(np.eye(2, 5, dtype=np.float32)))
    for number in (4, 5):
        found = copy_server(found, [sent({7: [(4, number / 10)]}, Told, number)], own)
    np.testing.assert_array_equal(found.told_round, [[2, 0, 3, 0, 0], [0, 0, 0, 2, 5]])
    labels = np.array([[1, 0, 0.6, 0, 0], [0, 1, 0, 0, 0.5]], np.float32)
    np.testing.assert_allclose(found.copied[:, [0, 1, 3]], ease(labels)[:, [0, 1, 3]])


def test_before_anything_is_told_the_copy_knows_no_more_than_own_data(owning: Owning) -> None:
    found = copied(holding({0: [0, 1], 1: [1, 2]}, 50), {0: [], 1: []})
    np.testing.assert_array_equal(found.copied, found.alone[0])
    scores = np.random.default_rng(0).random((2, 50), np.float32)
    outcome = judge(found, hidden(owning([[0, 1], [1, 2]], 50), scores))
    assert outcome.scores.tolist() == outcome.chances.tolist()


def test_agreement_by_hand(owning: Owning) -> None:
    """Client 1 has item 0 of 24 items; the server ranks 23, 22, ... first, so its list is 4 to 23.

    The copy was told 23, 22 and 21, and takes the others from the first on: 1 to 17, of which 4 to 17 are right:
    17 of 20. Own data alone: 1 to 20, of which 4 to 20 are right: 17 as well. Of items that were never told, the
    server's list is 1 to 20, and so is everybody's.
    """
    scores = np.tile(np.arange(24, dtype=np.float32), (2, 1))
    truth = hidden(owning([[], [0]], 24), scores)
    found = copied(holding({1: [0]}, 24), {1: [(23, 0.9), (22, 0.8), (21, 0.7)]})
    outcome = judge(found, truth)
    assert outcome.victims.tolist() == [1]
    assert (outcome.scores.tolist(), outcome.chances.tolist()) == ([17 / 20], [17 / 20])
    assert UNTOLD.judge(found, truth).scores.tolist() == [1.0]


@pytest.mark.parametrize("is_true", [True, False])
def test_told_scores_reveal_the_model_if_they_are_of_it(owning: Owning, is_true: bool) -> None:
    """40 clients, 300 items, the 60 best told. If they are of the model, nearly all; if not, as own data alone.

    Of random lists 20/300 agree; the mean of 40 has a standard error of about 0.008.
    """
    generator = np.random.default_rng(0)
    owned = [generator.choice(300, 10, replace=False).tolist() for _ in range(40)]
    scores, others = generator.random((2, 40, 300), np.float32)
    answers = scores if is_true else others
    best = np.argsort(-answers, axis=1)[:, :60]
    told = {client: [(int(item), float(answers[client, item])) for item in best[client]] for client in range(40)}
    truth = hidden(owning(owned, 300), scores)
    outcome = judge(copied(holding(dict(enumerate(owned)), 300), told), truth)
    assert outcome.chances.mean() == pytest.approx(20 / 300, abs=0.03)
    assert outcome.scores.mean() == pytest.approx(1.0 if is_true else outcome.chances.mean(), abs=0.03)


def test_the_copy_knows_more_of_the_model_than_it_was_told(owning: Owning) -> None:
    """There are two kinds of clients. Each is told other items; what one was told helps the rest of its kind."""
    generator = np.random.default_rng(1)
    kinds = np.arange(80) % 2
    scores = (0.2 + 0.6 * generator.random((2, 120)))[kinds].astype(np.float32)
    owned = [[int(kind)] for kind in kinds]
    items = [generator.choice(120, 30, replace=False).tolist() for _ in range(80)]
    told = {client: [(item, float(scores[client, item])) for item in items[client]] for client in range(80)}
    found = copied(holding(dict(enumerate(owned)), 120), told)
    outcome = UNTOLD.judge(found, hidden(owning(owned, 120), scores))
    assert outcome.scores.mean() > outcome.chances.mean() + 0.2


def test_only_what_a_server_tells_is_read() -> None:
    own = holding({0: [0]}, 9)
    found = copied(own, {0: [(3, 0.9)]}, kind=Scored)
    assert not found.told_round.any()


def test_nobody_to_recommend_to(owning: Owning) -> None:
    truth = hidden(owning([[0, 1]], 2), np.ones((1, 2), np.float32))
    with pytest.raises(HushrecError, match="no item is left that could be recommended to those who collude"):
        judge(copied(holding({0: [0, 1]}, 2), {0: []}), truth)


# --- In a run --------------------------------------------------------------------------------------------


def small_job(num_rounds: int = 3) -> Job:
    system, data = SYSTEMS["ptf-fedrec"], hushrec.load("synthetic:users=100,items=60,ratings=2500")
    return job_for(system, system.configure({"num_rounds": num_rounds, "client_factors": 4}), 0, data)


def last_looks(job: Job, change: Callable[[Progress, NDArray[np.int32]], None]) -> tuple[Copied, Copied]:
    """What the attack makes of the last round, before and after something is changed."""
    found, onlooker, again = list[Copied](), Onlooker(job), Onlooker(job)

    def on_round(progress: Progress) -> None:
        onlooker.begin(progress)
        guess = onlooker.guess(ATTACK)
        if progress.round_number == job.config.num_rounds:
            change(progress, guess.clients)
        again.begin(progress)
        found[:] = guess, again.guess(ATTACK)
        progress.transcript.recorded.clear()

    run_job(job, RuntimeOptions(1, keep_payloads=True), on_round=on_round)
    return found[0], found[1]


def test_a_guess_is_not_made_of_what_others_have() -> None:
    """The server forgets its model, the other clients their items, and their messages are lost."""

    def change(progress: Progress, clients: NDArray[np.int32]) -> None:
        progress.state = replace(progress.state, parameters=np.zeros_like(progress.state.parameters))
        private: Any = progress.private
        for row in np.flatnonzero(~np.isin(private.numbers, clients)):
            private.slot_items[private.starts[row] : private.starts[row + 1]] = 0
        recorded = progress.transcript.recorded
        recorded[:] = [one._replace(numbers=clients, message=one.message.take(clients)) for one in recorded]

    guess, same = last_looks(small_job(), change)
    assert len(guess.clients) == 10
    assert (guess.told_round == 3).any()
    for one, other in zip(guess, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_guess_is_made_of_what_was_told() -> None:
    def change(progress: Progress, _clients: NDArray[np.int32]) -> None:
        recorded = progress.transcript.recorded
        for place, one in enumerate(recorded):
            if ATTACK.reads(type(one.message)):
                message: Any = one.message
                scores = Ragged(message.scores.starts, 1 - message.scores.values)
                recorded[place] = one._replace(message=replace(message, scores=scores))

    guess, other = last_looks(small_job(), change)
    assert not np.array_equal(guess.copied, other.copied)
    np.testing.assert_array_equal(guess.alone, other.alone)


def test_who_colludes() -> None:
    """1 of 100, 10 and 50; a larger share has those of a smaller. Each one's items are its own."""
    job, shares = small_job(2), ("1%", "10%", "50%")
    guesses: dict[str, Copied] = {}

    def on_round(progress: Progress) -> None:
        onlooker = Onlooker(job)
        onlooker.begin(progress)
        guesses.update({share: onlooker.guess(ATTACKS[f"server extraction {share}"]) for share in shares})

    run_job(job, RuntimeOptions(1, keep_payloads=True), on_round=on_round)
    few, some, half = (guesses[share].clients.tolist() for share in shares)
    assert [len(few), len(some), len(half)] == [1, 10, 50]
    assert set(few) < set(some) < set(half)
    for row, client in enumerate(half):
        items = job.train.items[job.train.users == client]
        assert np.flatnonzero(guesses["50%"].is_own[row]).tolist() == sorted(items.tolist())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"share": 0.0}, r"the attack .* has a share of 0; choose one in \(0, 1\]"),
        ({"share": 1.5}, r"the attack .* has a share of 1.5; choose one in \(0, 1\]"),
        (
            {"seats": (Seat(Role.CLIENT, 3),)},
            "the attack .* draws who sits there; give it one seat without a number",
        ),
        (
            {"seats": (Seat(Role.CLIENT), Seat(Role.SERVER))},
            "the attack .* draws who sits there; give it one seat.*",
        ),
        ({"share": None}, "the attack .* needs data of its own; number its first seat"),
    ],
)
def test_shares_that_cannot_be(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(HushrecError, match=rf"\A{told}\Z"):
        replace(ATTACK, **changes)
