"""Linked items: which items of a window one user had, whoever that is (DRIFT with `--user-vectors users`).

The orchestrator holds items' vectors psi_i and gets a sum g_i for each item of a window, and no word about users.
With one user's block g_i = c v_u + ridge psi_i: less the ridge, all items of that user point one way or the other.
The guess: items whose sums do are of one user. An item that several users had points elsewhere, and is left out.
Blind: as many items that are drawn from all of the window.

Symbols: v = user_factors, psi = item_factors.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.interactions import interacted
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth, is_sent
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.protocol import Message, Numbers, Role, Seat, View

_PARALLEL = 0.999  # an owner that learns from several groups of a window moves v a little in between

Floats = NDArray[np.float64]


class Linked(NamedTuple):
    """Sets of items, each taken for one user's, and as many drawn ones of the same size."""

    windows: list[int]  # of each set
    sets: list[Numbers]
    drawn: list[Numbers]


def has_sums(message_type: type[Message]) -> bool:
    """Whether owners send sums of items' gradients with it."""
    return is_sent(message_type, Role.OWNER, Role.ORCHESTRATOR, "items", "sums")


def link(view: View, own: Own) -> Linked:
    """The sets of a round's windows."""
    linked = Linked([], [], [])
    for window, items, rows in _windows(view, float(own.settings["regularization"])):
        distinct = np.unique(items)
        for found in _parallel(items, rows):
            linked.windows.append(window)
            linked.sets.append(found)
            linked.drawn.append(own.generator.choice(distinct, len(found), replace=False))
    return linked


def _windows(view: View, ridge: float) -> Iterator[tuple[int, Numbers, Floats]]:
    """The windows with their items, and what is left of their sums without one ridge."""
    held: dict[int, Numbers] = {}
    vectors: dict[int, NDArray[np.float32]] = {}
    parts: list[tuple[Numbers, Floats]] = []
    window = -1
    for one in view:
        kind = type(one.message)
        if is_sent(kind, Role.OWNER, Role.ORCHESTRATOR, "items") and not has_sums(kind):
            for owner, items in zip(one.numbers.tolist(), _slices(one.message, "items"), strict=True):
                held[owner] = np.sort(items)
        elif is_sent(kind, Role.ORCHESTRATOR, Role.OWNER, "vectors") and hasattr(one.message, "window"):
            if parts and int(one.message.window) != window:
                yield window, *_joined(parts)
                parts = []
            window = int(one.message.window)
            vectors.update(zip(one.numbers.tolist(), _slices(one.message, "vectors"), strict=True))
        elif has_sums(kind):
            both = zip(
                one.numbers.tolist(), _slices(one.message, "items"), _slices(one.message, "sums"), strict=True
            )
            for owner, items, sums in both:
                of_items = vectors[owner][np.searchsorted(held[owner], items)].astype(np.float64)
                parts.append((items, sums * 2.0**-FRACTION_BITS - ridge * of_items))
    if parts:
        yield window, *_joined(parts)


def _slices(message: Message, name: str) -> list[NDArray[np.int64]]:
    column = message.column(name)
    return np.split(column.values, column.starts[1:-1])


def _joined(parts: list[tuple[Numbers, Floats]]) -> tuple[Numbers, Floats]:
    return np.concatenate([items for items, _ in parts]), np.concatenate([rows for _, rows in parts])


def _parallel(items: Numbers, rows: Floats) -> list[Numbers]:
    """Sets of at least two items whose rows point one way or the other; each row is in one set at most."""
    norms = np.linalg.norm(rows, axis=1)
    items, rows = items[norms > 0], rows[norms > 0] / norms[norms > 0, None]
    is_near = np.abs(rows @ rows.T) >= _PARALLEL
    is_left, found = np.ones(len(items), np.bool_), []
    for place in range(len(items)):
        if is_left[place]:
            near = is_near[place] & is_left
            is_left[near] = False
            if len(distinct := np.unique(items[near])) > 1:
                found.append(distinct)
    return found


def judge(linked: Linked, truth: Truth) -> Outcome:
    """Of each set, the share of its items that one user had in blocks of that window: the user who had most."""
    parts = [truth.holds(owner) for owner in range(len(interacted(truth).owners.names))]
    users, items, windows = (
        np.concatenate([np.empty(0, np.int64), *(part[name] for part in parts if part)]).astype(np.int64)
        for name in ("users", "items", "windows")
    )
    order = np.argsort(windows, kind="stable")
    firsts = np.searchsorted(windows[order], np.arange(windows.max(initial=-1) + 2))

    def best(window: int, wanted: Numbers) -> tuple[int, float]:
        rows = order[slice(*firsts[window : window + 2])]
        rows = rows[np.isin(items[rows], wanted)]
        pairs = np.unique(np.stack([users[rows], items[rows]]), axis=1)
        counts = np.bincount(pairs[0], minlength=1)
        return int(counts.argmax()), float(counts.max() / len(wanted))

    found = [best(*one) for one in zip(linked.windows, linked.sets, strict=True)]
    blind = [best(*one)[1] for one in zip(linked.windows, linked.drawn, strict=True)]
    who, shares = np.array([user for user, _ in found], np.int64), np.array([share for _, share in found])
    return Outcome.of_marks(who, shares, np.array(blind))


ATTACK = Attack(
    name="linked items",
    seats=(Seat(Role.ORCHESTRATOR),),
    guesses="items of one unnamed user, as sums of a window that are parallel",
    measure="share",
    sentence="Of items that the orchestrator takes for one unnamed user's, one user had {score:.1%}; of as many "
    "items drawn from the same window, {chance:.1%}. Whose they are, it is not told.",
    reads=has_sums,
    look=lambda _before, view, own: link(view, own),
    judge=judge,
    settings=("regularization",),
)
