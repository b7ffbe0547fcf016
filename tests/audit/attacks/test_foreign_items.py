"""An owner's users, recognised in sums of other owners' items: by hand and on small runs."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.attacks.test_linked_items import OWNER, Held, own, window
from audit.test_owners import audited, job_of
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.attacks.foreign_items import ATTACK, Foreign, read_foreign
from hushrec.audit.attacks.foreign_items_read import judge as judge_read
from hushrec.audit.driver import audit
from hushrec.audit.interactions import Guesses
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import paired
from hushrec.data import Interactions, owned, synthetic
from hushrec.protocol import Message, Numbers, Ragged, Recorded, Role, View, each, ragged
from hushrec.runtime.in_process import RuntimeOptions


@dataclass(frozen=True)
class Named(Message):
    """Reveals: users."""

    sender, receiver = Role.OWNER, Role.USER
    owner: Numbers = each(np.int32, low=0)
    window: NDArray[np.int64] = each(np.int64, low=0)
    users: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class Handed(Message):
    """Reveals: vectors."""

    sender, receiver = Role.USER, Role.OWNER
    window: NDArray[np.int64] = each(np.int64, low=0)
    vectors: Ragged = ragged(np.float32, 2)


def handed(number: int, users: list[int], vectors: list[list[float]]) -> View:
    """What owner 1 named and was handed in a window; the users' side is party 2."""
    one, at, side = np.array([1], np.int32), np.array([number]), np.array([2], np.int32)
    return [
        Recorded(1, one, Named(one, at, Ragged.one(np.array(users, np.int32))), side),
        Recorded(1, side, Handed(at, Ragged.one(np.array(vectors, np.float32))), one),
    ]


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=120, num_items=160, num_ratings=6000, seed=1)
    times = np.random.default_rng(0).permutation(len(data)).astype(np.int64)
    return owned(replace(data.as_signed(), timestamps=times), "4", 0)


def test_hand_worked_windows() -> None:
    """Owner 0 holds 2, 4, 6; owner 1 holds 9 and colludes. No ridge. It was handed v_5 = (1, 2), v_7 = (3, -1).

    Window 0: g_2 = -2 v_5, so user 5 liked it; g_4 = v_7, so user 7 did not; g_6 = v_5 + v_7 is nobody's.
    Window 1, in which the owner was handed nothing: g_6 = v_5.
    """
    other = Recorded(1, np.array([1], np.int32), Held(Ragged.one(np.array([9], np.int32))))
    view = [
        Recorded(1, OWNER, Held(Ragged.one(np.array([2, 4, 6], np.int32)))),
        other,
        *handed(0, [5, 7], [[1.0, 2.0], [3.0, -1.0]]),
        *window(0, [[0.0, 0.0]] * 3, {2: [-2.0, -4.0], 4: [3.0, -1.0], 6: [4.0, 1.0]}),
        *window(1, [[0.0, 0.0]] * 3, {6: [1.0, 2.0]}),
    ]
    found = read_foreign(None, view, own(0.0))
    assert list(zip(found.now.users.tolist(), found.now.items.tolist(), strict=True)) == [(5, 2), (7, 4), (5, 6)]
    assert found.now.is_positive is not None
    assert found.now.is_positive.tolist() == [True, False, False]
    assert found.held.tolist() == [9]


def test_recall_is_of_items_that_the_owner_does_not_hold(train: Interactions) -> None:
    """All pairs are read but those of items 0 to 79, which the colluders hold: everybody is read whole."""
    none = np.empty(0, np.int64)
    found = Foreign(Guesses(none, none, none, None), none, {}, none)
    is_foreign = train.items >= 80
    pairs = np.unique(paired(train.users[is_foreign], train.items[is_foreign]))
    outcome = judge_read(found._replace(pairs=pairs, held=np.arange(80)), Truth(train))
    assert set(outcome.scores.tolist()) == {1.0}
    assert outcome.chances.mean() < 0.5
    assert not judge_read(found, Truth(train)).scores.any()


def test_an_owner_opens_what_the_orchestrator_cannot_read(train: Interactions) -> None:
    job = job_of(train, user_vectors="users", window=32)
    both = [ATTACKS["foreign items"], ATTACKS["foreign items read"]]
    found = {
        one.attack.name: one
        for one in audit(job, RuntimeOptions(1), lambda _progress, _scores: None, both).findings
    }
    assert found["foreign items"].score > 0.9
    assert found["foreign items"].is_above_chance
    assert found["foreign items read"].score > found["foreign items read"].chance > 0


def test_without_an_owners_vectors_nothing_is_read(train: Interactions) -> None:
    """The same attack in the orchestrator's seat alone: it has nobody to recognise."""
    alone = replace(ATTACK, seats=ATTACK.seats[:1])
    job = job_of(train, user_vectors="users", window=32)
    assert not audit(job, RuntimeOptions(1), lambda _progress, _scores: None, [alone]).findings
    assert "needs no owner" in audited(train).left_out[ATTACK.name]
    assert "needs no owner" in audited(train).left_out["foreign items read"]
