"""Which events are streamed: of users with enough blocks, and drawn ones about items that a user has not met."""

from dataclasses import replace

import numpy as np

from hushrec.data import OwnerRows
from hushrec.draws import Draws
from hushrec.systems.drift.blocks import blocks_per_user


def within_limits(rows: OwnerRows, min_blocks: int, max_blocks: int) -> OwnerRows:
    """The rows without the events of users who complete too few or too many blocks (SAROS); 0: no limit."""
    if not rows.has_users or not (min_blocks or max_blocks):
        return rows
    counts = blocks_per_user(rows.users, rows.is_positive, rows.num_users)
    is_left = (counts >= min_blocks) & (counts <= (max_blocks or counts.max(initial=0)))
    left = np.flatnonzero(is_left[rows.users])
    return replace(rows, users=rows.users[left], items=rows.items[left], is_positive=rows.is_positive[left])


def with_unseen(rows: OwnerRows, per_positive: int, num_items: int, draws: Draws) -> OwnerRows:
    """The rows with so many bad events before each good one, about drawn items that the user has no event with.

    For who has met nearly everything, so that no such item comes up in a hundred draws, there are fewer.
    """
    if not rows.has_users or not per_positive:
        return rows
    places = np.repeat(np.flatnonzero(rows.is_positive), per_positive)
    met = np.unique(rows.users.astype(np.int64) * num_items + rows.items)
    of_users, generator = rows.users[places].astype(np.int64) * num_items, draws.generator("unseen-items")
    drawn = np.full(len(places), -1, np.int64)
    for _ in range(100):
        missing = np.flatnonzero(drawn < 0)
        items = generator.integers(num_items, size=len(missing))
        is_new = ~np.isin(of_users[missing] + items, met)
        drawn[missing[is_new]] = items[is_new]
    places, drawn = places[drawn >= 0], drawn[drawn >= 0].astype(np.int32)
    return replace(
        rows,
        users=np.insert(rows.users, places, rows.users[places]),
        items=np.insert(rows.items, places, drawn),
        is_positive=np.insert(rows.is_positive, places, False),
    )
