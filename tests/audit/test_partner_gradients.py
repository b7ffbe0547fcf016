"""What a partner makes of the gradients it is sent, against what really happened, step by step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from hushrec.audit.driver import Onlooker
from hushrec.audit.partner_gradients import Behind, Letter, Recovered, behind, received_letters
from hushrec.audit.scoreboard import Arrays
from hushrec.data import Deal, Interactions, copies, join, synthetic
from hushrec.protocol import Cohort, Handler, Role, Seat
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from systems.partner_runs import interactions

FEDCORE = SYSTEMS["fedcore"]


class Watched(NamedTuple):
    """Letters to b in the last round, b's vectors and layers at each step, and what is behind the letters."""

    letters: list[Letter]
    steps: list[tuple[np.ndarray, np.ndarray]]
    truth: Behind
    holds: dict[int, Arrays]
    num_received: int


def dealt(num_partners: int = 2) -> Interactions:
    """Users that all partners have, and some of their own."""
    data = synthetic(num_users=90, num_items=60, num_ratings=3500, seed=1)
    return next(copies(data, Deal(num_partners, 0.6, 0.6), 0)).train


def in_pairs() -> Interactions:
    """Three partners; users that two of them have, or all."""
    rated: dict[str, dict[str, dict[str, float]]] = {"a": {}, "b": {}, "c": {}}
    generator = np.random.default_rng(0)
    for group in ("ab", "ac", "bc", "abc"):
        for number in range(20):
            for name in group:
                items = generator.choice(40, 10, replace=False)
                rated[name][f"{group}-{number}"] = {f"i{item}": float(1 + (number + item) % 5) for item in items}
    return join({name: interactions(own) for name, own in rated.items()})


def watched(train: Interactions, **settings: Any) -> Watched:
    """A small run. Partners compute a step from their vectors as they are then: b's are noted."""
    values = {"num_rounds": 2, "batch_size": 64, "num_factors": 4, "inference": "none", **settings}
    steps: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    (step_type,) = [kind for kind in FEDCORE.handlers if kind.__name__ == "TakeStep"]
    handler = FEDCORE.handlers[step_type]

    def noted(cohort: Cohort[Any], request: Any, config: Any, draws: Any) -> Any:
        reply, b = handler.answer(cohort, request, config, draws), cohort.private.partners[1]
        steps[int(request.step)] = b.user_factors.copy(), b.layers.copy()
        return reply

    system = replace(FEDCORE, handlers={**FEDCORE.handlers, step_type: Handler(noted, handler.reads)})
    job, found = Job(system, system.configure(values), 0, train), list[Watched]()
    onlooker = Onlooker(job)

    def look(progress: Progress) -> None:
        onlooker.begin(progress)
        holds = {number: onlooker.truth().holds(number) for number in range(FEDCORE.holders.num_parties(train))}
        view = progress.transcript.seen_by(Seat(Role.PARTNER, 1))
        letters = received_letters(view, holds[1])
        nothing = np.empty((sum(len(letter.rows) for letter in letters), 0))
        truth = behind(Recovered(letters, nothing, nothing), onlooker.truth())
        received = [one for one in view if type(one.message).__name__ == "UserGradients"]
        num_received = sum(int((one.addressees == 1).sum()) for one in received)
        found.append(Watched(letters, list(steps.values()), truth, holds, num_received))
        progress.transcript.recorded.clear()

    run_job(job, RuntimeOptions(1, keep_payloads=True), on_round=look)
    return found[-1]


@pytest.mark.parametrize("deal", [dealt, partial(dealt, 3), in_pairs], ids=["two", "three", "in pairs"])
@pytest.mark.parametrize("settings", [{}, {"privatizer": "dp+average"}, {"model": "neucf"}])
def test_copies_are_followed_from_the_mail_alone(
    deal: Callable[[], Interactions], settings: dict[str, Any]
) -> None:
    train = deal()
    found, others = watched(train, **settings), FEDCORE.holders.num_parties(train) - 1
    assert found.num_received > 8 * others
    assert [letter.step for letter in found.letters] == np.repeat(np.arange(8), others).tolist()
    common = found.holds[1]["common_users"]
    for letter in found.letters:
        vectors, layers = found.steps[letter.step]
        place = np.array([np.flatnonzero(common == number)[0] for number in letter.users], np.int64)
        np.testing.assert_allclose(letter.copies, vectors[place], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(letter.layers, layers, rtol=1e-5, atol=1e-7)
    first, last = found.steps[0][0], found.steps[7][0]
    assert np.abs(first - last).max() > 1e-4, "there is something to follow"


@pytest.mark.parametrize("deal", [dealt, partial(dealt, 3), in_pairs], ids=["two", "three", "in pairs"])
def test_ratings_behind_rows_are_those_that_make_them(deal: Callable[[], Interactions]) -> None:
    """Row 2 e V / 64 of the first step, with a's item vectors as the round began; e from the copies of b."""
    train = deal()
    found, others = watched(train), FEDCORE.holders.num_parties(train) - 1
    a = found.holds[0]
    rows = np.concatenate([letter.rows for letter in found.letters])
    copies = np.concatenate([letter.copies for letter in found.letters])
    users = np.concatenate([letter.users for letter in found.letters])
    assert len(np.unique(found.truth.rows)) == len(found.truth.rows)
    assert (len(found.truth.rows) == len(rows)) == (others == 1), "letters of c are not a's"
    np.testing.assert_array_equal(users[found.truth.rows], found.truth.users)
    is_first = found.truth.rows < sum(len(letter.rows) for letter in found.letters if letter.step == 0)
    place, items = found.truth.rows[is_first], a["item_factors_before"][found.truth.items[is_first]]
    errors = np.sum(copies[place] * items, axis=1) - found.truth.ratings[is_first]
    assert len(place) in [len(letter.rows) for letter in found.letters[:others]]
    np.testing.assert_allclose(rows[place], 2 * errors[:, None] * items / 64, atol=1e-6)


def test_averaged_rows_have_several_ratings_behind_them() -> None:
    """A row is the mean of what its ratings give alone."""
    found = watched(dealt(), privatizer="average")
    num_rows = sum(len(letter.rows) for letter in found.letters)
    counts = np.bincount(found.truth.rows, minlength=num_rows)
    assert counts.min() == 1
    assert counts.max() > 1
    letter, a = found.letters[0], found.holds[0]
    is_first = found.truth.rows < len(letter.rows)
    place, items = found.truth.rows[is_first], a["item_factors_before"][found.truth.items[is_first]]
    errors = np.sum(letter.copies[place] * items, axis=1) - found.truth.ratings[is_first]
    means = np.zeros(letter.rows.shape)
    np.add.at(means, place, 2 * errors[:, None] * items / 64)
    np.testing.assert_allclose(letter.rows, means / counts[: len(letter.rows), None], atol=1e-6)


def test_without_mail_there_is_nothing() -> None:
    found = watched(dealt())
    assert received_letters([], found.holds[1]) == []
