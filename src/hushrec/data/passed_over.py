"""Items that users passed over, drawn at random for data that knows only what users took."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hushrec.data.interactions import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError, option


def with_passed_over(data: Interactions, per_item: int, seed: int) -> Interactions:
    """Before each item that a user took (1), so many drawn ones that the user passed over (0).

    They are drawn evenly from all items that the user never takes, none twice. Where the data knows no times, the
    events come in random order.
    """
    if data.ratings is not None:
        raise HushrecError(f"{data.name} says itself what users did not like; leave {option('passed_over')} out")
    generator = Draws(seed).generator("passed-over")
    counts = per_item * np.bincount(data.users, minlength=data.num_users)
    if (counts + counts // per_item > data.num_items).any():
        raise HushrecError(f"some users have too few other items to draw {per_item} for each; use fewer")
    has_times = data.order is not None or data.timestamps is not None
    taken = np.arange(len(data)) if has_times else generator.permutation(len(data))
    users, items = data.users[taken], data.items[taken]
    width = per_item + 1
    all_items = np.empty((len(data), width), np.int32)
    all_items[:, -1] = items
    by_user = np.argsort(users, kind="stable")
    all_items[by_user, :-1] = _drawn(users, items, counts, data.num_items, generator).reshape(-1, per_item)
    rows = np.repeat(taken, width)
    place = np.tile(np.arange(width), len(data))
    order = None if data.order is None else (width * data.order[rows] + place).astype(np.int32)
    return replace(
        data.select(rows),
        items=all_items.ravel(),
        ratings=(place == per_item).astype(np.float32),
        rating_range=(0.0, 1.0),
        order=order,
    )


def _drawn(
    users: npt.NDArray[np.int32],
    items: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
    num_items: int,
    generator: np.random.Generator,
) -> npt.NDArray[np.int32]:
    """So many items of each user, user by user, in random order: none that the user takes, none twice."""
    known = np.unique(users.astype(np.int64) * num_items + items)
    found = np.empty(0, np.int64)
    missing = counts
    while missing.any():
        wanted = np.repeat(np.arange(len(counts)), missing)
        keys = np.unique(wanted * num_items + generator.integers(num_items, size=len(wanted)))
        found = np.concatenate([found, np.setdiff1d(keys, np.concatenate([known, found]), assume_unique=True)])
        missing = counts - np.bincount(found // num_items, minlength=len(counts))
    shuffled = found[np.lexsort((generator.random(len(found)), found // num_items))]
    return (shuffled % num_items).astype(np.int32)
