"""Linked items: which items of a window one user had, whoever that is (DRIFT with `--user-vectors users`).

The orchestrator holds items' vectors psi_i and gets a sum g_i for each item of a window, and no word about users.
With one user's block g_i = c v_u + ridge psi_i: less the ridge, all items of that user point one way or the other.
The guess: items whose sums do are of one user. An item that several users had points elsewhere, and is left out.
Blind: as many items that are drawn from all of the window.

Symbols: v = user_factors, psi = item_factors.
"""

from typing import NamedTuple

import numpy as np

from hushrec.audit.interactions import interacted
from hushrec.audit.item_sums import PARALLEL, Floats, directions, has_sums, windows_of
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.protocol import Numbers, Role, Seat, View


class Linked(NamedTuple):
    """Sets of items, each taken for one user's, and as many drawn ones of the same size."""

    windows: list[int]  # of each set
    sets: list[Numbers]
    drawn: list[Numbers]


def link(view: View, own: Own) -> Linked:
    """The sets of a round's windows."""
    linked = Linked([], [], [])
    for learned in windows_of(view, float(own.settings["regularization"])):
        distinct = np.unique(learned.items)
        for found in _parallel(learned.items, learned.rows):
            linked.windows.append(learned.window)
            linked.sets.append(found)
            linked.drawn.append(own.generator.choice(distinct, len(found), replace=False))
    return linked


def _parallel(items: Numbers, rows: Floats) -> list[Numbers]:
    """Sets of at least two items whose rows point one way or the other; each row is in one set at most."""
    ways = directions(rows)
    is_near = np.abs(ways @ ways.T) >= PARALLEL
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
