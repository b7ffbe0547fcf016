"""Made uploads of gradients: V as it was sent, and what each client answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import Message, Ragged, Recorded, Role, View, ragged, shared


@dataclass(frozen=True)
class Vectors(Message):
    """Reveals: item vectors."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: NDArray[np.float32] = shared(np.float32, 2)


@dataclass(frozen=True)
class Rows(Message):
    """Reveals: items with gradients."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


def asked(vectors: NDArray[Any], rows: dict[int, tuple[list[int], NDArray[Any]]], round_number: int = 1) -> View:
    """V to all, and of each client its items and their rows."""
    numbers = np.array(list(rows), np.int32)
    starts = np.cumsum([0, *(len(items) for items, _ in rows.values())])
    items = np.concatenate([np.array(items, np.int32) for items, _ in rows.values()])
    gradients = np.concatenate([one for _, one in rows.values()]).astype(np.float32)
    upload = Rows(Ragged(starts, items), Ragged(starts, gradients))
    request = Vectors(np.asarray(vectors, np.float32))
    return [Recorded(round_number, numbers, request), Recorded(round_number, numbers, upload)]


def at_random(num_clients: int, num_items: int, seed: int) -> tuple[View, list[list[int]]]:
    """Rows that have nothing to do with what clients own: a random 6 of 20 listed items each."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(num_items, 3))
    rows, owned = {}, []
    for client in range(num_clients):
        items = np.sort(generator.choice(num_items, 20, replace=False))
        owned.append(sorted(generator.choice(items, 6, replace=False).tolist()))
        rows[client] = items.tolist(), generator.normal(size=(20, 1)) * generator.normal(size=3)
    return asked(vectors, rows), owned
