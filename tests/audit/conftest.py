from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from hushrec.audit.scoreboard import Own, Truth
from hushrec.data import Interactions
from hushrec.data.checking import checked
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged


@dataclass(frozen=True)
class Scored(Message):
    """Reveals: items with scores."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    scores: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class Told(Message):
    """Reveals: the same, the other way."""

    sender, receiver = Role.SERVER, Role.CLIENT
    items: Ragged = ragged(np.int32, low=0)
    scores: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class Bare(Message):
    """Reveals: items."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)


NOTHING = Own({}, {}, np.random.default_rng(0))  # what an attacker has that needs nothing
Upload = dict[int, list[tuple[int, float]]]


def sent(uploads: Upload, kind: type[Message] = Scored, round_number: int = 1) -> Recorded:
    """One batch: per client its rows of item and score."""
    rows = [row for one in uploads.values() for row in one]
    starts = np.cumsum([0, *(len(one) for one in uploads.values())])
    columns = [Ragged(starts, np.array([item for item, _ in rows], np.int32))]
    if kind is not Bare:
        columns.append(Ragged(starts, np.array([score for _, score in rows], np.float32)))
    return Recorded(round_number, np.array(list(uploads), np.int32), kind(*columns))


@pytest.fixture
def owning() -> Callable[..., Truth]:
    """Who trained on what."""

    def build(owned: list[list[int]], num_items: int) -> Truth:
        users = np.repeat(np.arange(len(owned)), [len(one) for one in owned]).astype(np.int32)
        items = np.array([item for one in owned for item in one], np.int32)
        ids = np.arange(len(owned)), np.arange(num_items)
        return Truth(checked(Interactions(users, items, None, None, None, *ids, None, None, "made", "", False)))

    return build
