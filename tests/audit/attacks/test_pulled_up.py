from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.audit.attacks.pulled_up import ATTACK, scored
from hushrec.audit.scoreboard import Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Ragged, Recorded, Role, each, ragged, shared


@dataclass(frozen=True)
class Vectors(Message):
    """Reveals: item vectors."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: np.ndarray = shared(np.float32, 2)
    counted_round: np.ndarray = each(np.int32)


@dataclass(frozen=True)
class Rows(Message):
    """Reveals: items, with a gradient of each."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


VECTORS = np.array([[4, 0], [2, 1], [1, 0], [0, 0], [3, -1]], np.float32)


def seen(rows: dict[int, list[tuple[int, list[float]]]]) -> list[Recorded]:
    """What the server sent these clients, and what they answered."""
    numbers = np.array(list(rows), np.int32)
    starts = np.cumsum([0, *(len(one) for one in rows.values())])
    items = np.array([item for one in rows.values() for item, _ in one], np.int32)
    gradients = np.array([row for one in rows.values() for _, row in one], np.float32).reshape(len(items), -1)
    request = Vectors(VECTORS, np.zeros(len(numbers), np.int32))
    return [
        Recorded(1, numbers, request),
        Recorded(1, numbers, Rows(Ragged(starts, items), Ragged(starts, gradients))),
    ]


def test_scores_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 has U = (1/2, 1): it pulls 0, 1 and 2 up, which score 2, 2 and 1/2, and pushes 3 and 4 down.

    Its own are 0 and 2: against 1, one ties and one loses. Client 3 has U = (-1, 1) and pulls up 2 and 4, with -1
    and -4; its own is 2, which wins. Client 5 lists nothing.
    """
    view = seen({
        0: [(0, [-0.1, -0.2]), (1, [-0.2, -0.4]), (2, [-0.05, -0.1]), (3, [0.1, 0.2]), (4, [0.25, 0.5])],
        3: [(1, [-0.5, 0.5]), (2, [0.25, -0.25]), (4, [0.1, -0.1])],
        5: [],
    })  # fmt: skip
    found = scored(view)
    np.testing.assert_array_equal(found.pairs, [0, 1, 2, (3 << 31) + 2, (3 << 31) + 4])
    np.testing.assert_allclose(found.scores, [2, 2, 0.5, -1, -4], rtol=1e-6)
    outcome = ATTACK.judge(found._replace(scores=found.scores.round(4)), owning([[0, 2], [], [], [2], [], []], 5))
    assert outcome.victims.tolist() == [0, 3]
    assert outcome.scores.tolist() == [0.25, 1.0]
    assert outcome.chances.tolist() == [0.5, 0.5]


def test_nothing_seen_and_what_does_not_fit() -> None:
    assert len(scored([]).pairs) == 0
    with pytest.raises(HushrecError, match="an upload does not fit the item vectors that were sent"):
        scored(seen({0: [(7, [1.0, 1.0])]}))
    with pytest.raises(HushrecError, match="an upload does not fit the item vectors that were sent"):
        scored(seen({0: [(1, [1.0, 1.0, 1.0])]}))
