"""Items that point the same way are taken for one user's, by hand and on small runs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.test_owners import audited, scores
from hushrec.audit.attacks.linked_items import ATTACK, Linked, judge, link
from hushrec.audit.scoreboard import Own, Truth
from hushrec.audit.verdicts import verdicts
from hushrec.data import Interactions, owned, synthetic
from hushrec.protocol import Message, Ragged, Recorded, Role, View, ragged, shared
from hushrec.registry import SYSTEMS


@dataclass(frozen=True)
class Held(Message):
    """Reveals: what is held."""

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    items: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class Sent(Message):
    """Reveals: vectors."""

    sender, receiver = Role.ORCHESTRATOR, Role.OWNER
    window: NDArray[np.int64] = shared(np.int64, 0, low=0)
    vectors: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Sums(Message):
    """Reveals: sums."""

    sender, receiver = Role.OWNER, Role.ORCHESTRATOR
    items: Ragged = ragged(np.int32, low=0)
    sums: Ragged = ragged(np.int64, 2)


OWNER = np.array([0], np.int32)


def window(number: int, vectors: list[list[float]], sums: dict[int, list[float]]) -> View:
    rows = np.round(np.array(list(sums.values())) * 2.0**40).astype(np.int64)
    items = np.array(list(sums), np.int32)
    return [
        Recorded(1, OWNER, Sent(np.array(number), Ragged.one(np.array(vectors, np.float32)))),
        Recorded(1, OWNER, Sums(Ragged.one(items), Ragged.one(rows))),
    ]


def own(ridge: float) -> Own:
    return Own({"regularization": ridge}, {}, np.random.default_rng(0))


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=120, num_items=160, num_ratings=6000, seed=1)
    times = np.random.default_rng(0).permutation(len(data)).astype(np.int64)
    return owned(replace(data.as_signed(), timestamps=times), "4", 0)


def test_hand_worked_windows() -> None:
    """Items 2, 4, 6, 8, held in another order; ridge 0.5; v = (1, 2), w = (3, -1).

    Window 0, psi = (1, 0), (0, 1), (1, 1), (2, 0): g_2 = -v + psi_2/2 = (-0.5, -2), g_4 = 2v + psi_4/2 = (2, 4.5),
    g_6 = w + psi_6/2 = (3.5, -0.5), g_8 = v + w + psi_8/2 = (5, 1): 2 and 4 are linked, 6 and 8 are alone.
    Window 1, the same vectors: g_6 = w + psi_6/2, g_8 = -w/2 + psi_8/2 = (-0.5, 0.5): these two are.
    """
    vectors = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]
    view = [
        Recorded(1, OWNER, Held(Ragged.one(np.array([8, 2, 6, 4], np.int32)))),
        *window(0, vectors, {2: [-0.5, -2.0], 4: [2.0, 4.5], 6: [3.5, -0.5], 8: [5.0, 1.0]}),
        *window(1, vectors, {6: [3.5, -0.5], 8: [-0.5, 0.5]}),
    ]
    linked = link(view, own(0.5))
    assert linked.windows == [0, 1]
    assert [items.tolist() for items in linked.sets] == [[2, 4], [6, 8]]
    assert [len(items) for items in linked.drawn] == [2, 2]
    assert set(linked.drawn[0].tolist()) <= {2, 4, 6, 8}


def test_a_set_is_as_right_as_the_user_who_had_most_of_it_in_that_window(train: Interactions) -> None:
    """Window 0: user 1 had items 2 and 4 (one with each of two owners), user 3 had 6. Window 1: user 3 had 2.

    {2, 4} of window 0 is user 1's; of {2, 6} user 1 or 3 had a half; {2, 4} in window 1 is half right, for user 3.
    """
    held = {
        0: {"users": np.array([1, 3, 3]), "items": np.array([2, 6, 2]), "windows": np.array([0, 0, 1])},
        1: {"users": np.array([1, 3]), "items": np.array([4, 4]), "windows": np.array([0, -1])},
    }
    pair, mixed = np.array([2, 4]), np.array([2, 6])
    truth = Truth(train, holds=lambda number: held.get(number, {}))
    outcome = judge(Linked([0, 1], [pair, pair], [mixed, mixed]), truth)
    assert outcome.victims.tolist() == [1, 3]
    assert outcome.scores.tolist() == [1.0, 0.5]
    assert outcome.chances.tolist() == [0.5, 0.5]


def test_where_directions_are_drawn_nothing_is_linked() -> None:
    draws = np.random.default_rng(0)
    vectors = draws.normal(size=(50, 16)).tolist()
    sums = dict(enumerate(draws.normal(size=(50, 16)).tolist()))
    held = Recorded(1, OWNER, Held(Ragged.one(np.arange(50, dtype=np.int32))))
    assert link([held, *window(0, vectors, sums)], own(0.1)) == Linked([], [], [])


def settings(**values: Any) -> dict[str, Any]:
    return {"user_vectors": "users", **values}


def test_kept_vectors_leave_links_and_no_names(train: Interactions) -> None:
    """Attacks that name users have nothing to read; items of one unnamed user are found all the same."""
    done = audited(train, **settings(flag="inside"))
    assert set(done.left_out) >= {"request watching", "score difference", "gradient direction"}
    found = {finding.attack.name: finding for finding in done.findings}
    assert "interactions read" in done.left_out or found["interactions read"].score == 0
    assert found[ATTACK.name].is_above_chance
    assert not found["flag reading"].is_above_chance
    assert ATTACK.name not in scores(audited(train))


def test_verdicts_name_the_switch(train: Interactions) -> None:
    done = audited(train)
    lines = verdicts(done.findings, SYSTEMS["drift"].config())
    assert any(line.startswith("the orchestrator: reads") and "--user-vectors users" in line for line in lines)
    assert any(line.startswith("the observer") and line.endswith("against it: --flag inside") for line in lines)
