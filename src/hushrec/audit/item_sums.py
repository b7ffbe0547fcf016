"""Sums of items' gradients that owners send to an orchestrator that knows no users (DRIFT, --user-vectors users).

Messages are known by their columns: `items` alone are what an owner holds, `vectors` those of all that it holds,
ascending, with the window; `items` and `sums` are what it learned in the window, in fixed point.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import is_sent
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.protocol import Message, Numbers, Recorded, Role, View

PARALLEL = 0.999  # an owner that learns from several groups of a window moves vectors a little in between

Floats = NDArray[np.float64]


class Sums(NamedTuple):
    """What all owners learned in a window, a row each."""

    window: int
    owners: NDArray[np.int64]
    items: Numbers
    rows: Floats  # less one ridge: of an item that one user had, a multiple of that user's vector


def has_sums(message_type: type[Message]) -> bool:
    """Whether owners send sums of items' gradients with it."""
    return is_sent(message_type, Role.OWNER, Role.ORCHESTRATOR, "items", "sums")


def windows_of(view: View, ridge: float) -> Iterator[Sums]:
    """The windows of a round, one after the other."""
    held = held_by_owners(view)
    vectors: dict[int, NDArray[np.float32]] = {}
    parts: list[Sums] = []
    for one in view:
        if is_sent(type(one.message), Role.ORCHESTRATOR, Role.OWNER, "vectors") and hasattr(one.message, "window"):
            window = int(one.message.window)
            if parts and parts[0].window != window:
                yield _joined(parts)
                parts = []
            vectors.update(by_party(one, "vectors"))
        elif has_sums(type(one.message)):
            sums = by_party(one, "sums")
            for owner, items in by_party(one, "items").items():
                of_items = vectors[owner][np.searchsorted(held[owner], items)].astype(np.float64)
                rows = sums[owner] * 2.0**-FRACTION_BITS - ridge * of_items
                parts.append(Sums(window, np.full(len(items), owner), items, rows))
    if parts:
        yield _joined(parts)


def held_by_owners(view: View) -> dict[int, Numbers]:
    """The items that each owner registered, ascending."""
    held: dict[int, Numbers] = {}
    for one in view:
        kind = type(one.message)
        if is_sent(kind, Role.OWNER, Role.ORCHESTRATOR, "items") and not has_sums(kind):
            held |= {owner: np.sort(items) for owner, items in by_party(one, "items").items()}
    return held


def by_party(one: Recorded, name: str) -> dict[int, NDArray[Any]]:
    """The slices of a column by the party that sent or got them."""
    column = one.message.column(name)
    return dict(zip(one.numbers.tolist(), np.split(column.values, column.starts[1:-1]), strict=True))


def _joined(parts: list[Sums]) -> Sums:
    owners, items, rows = (np.concatenate(column) for column in list(zip(*parts, strict=True))[1:])
    return Sums(parts[0].window, owners, items, rows)


def directions(rows: Floats) -> Floats:
    """Rows of length one; zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found
