"""What people pass to a fitted model, of whatever library it is, as the model takes it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions, Reading
from hushrec.data.frames import ColumnNames, column_of, ids_of_array, interactions_of, is_frame
from hushrec.data.interactions import Ids
from hushrec.errors import HushrecError, option

Asked = ArrayLike | Any  # ids in an array, a series or a frame of any library


def pairs_of(users: Asked, items: Asked | None, columns: ColumnNames | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids of users and items, of the same shape.

    One user goes with all items, and one item with all users. Arrays of several dimensions are spread over each
    other as NumPy does it; lists of different lengths are refused.
    """
    if items is None:
        if not is_frame(users):
            raise HushrecError("predict needs users and items, or a frame with a column for each")
        return column_of(users, "user", columns), column_of(users, "item", columns)
    of_users, of_items = ids_of_array(users, "user"), ids_of_array(items, "item")
    if of_users.ndim == of_items.ndim == 1 and len(of_users) != len(of_items):
        raise HushrecError(
            f"{len(of_users)} users and {len(of_items)} items; give as many of both, or one user or one item alone"
        )
    try:
        found = np.broadcast_arrays(np.atleast_1d(of_users), np.atleast_1d(of_items))
    except ValueError:
        told = f"users of shape {of_users.shape} and items of shape {of_items.shape}"
        raise HushrecError(f"{told} do not go together; give as many of both") from None
    return found[0], found[1]


def users_of(users: Asked, columns: ColumnNames | None) -> NDArray[Any]:
    """Ids of users; of a frame, each user once, in the order of the rows."""
    if not is_frame(users):
        return np.atleast_1d(ids_of_array(users, "user"))
    found = column_of(users, "user", columns)
    return found[np.sort(np.unique(found, return_index=True)[1])]


def rated_by_newcomer(
    items: Asked, ratings: ArrayLike | None, columns: ColumnNames | None
) -> tuple[NDArray[Any], ArrayLike | None]:
    """Ids of the items that somebody brings, and the ratings, if there are some."""
    if not is_frame(items):
        return np.atleast_1d(ids_of_array(items, "item")), ratings
    if ratings is not None:
        raise HushrecError(f"a frame has its ratings in a column; leave {option('ratings')} out")
    own = interactions_of(items, Reading(columns=columns, one_user=True), "the newcomer's frame")
    if own.num_users > 1:
        raise HushrecError(f"the newcomer's frame has rows of {own.num_users} users; give those of one")
    return own.item_ids[own.items], own.ratings


def rows_to_measure(test: Interactions, train: Interactions, skip_unknown: bool) -> Interactions:
    """Test rows by the numbers and on the scale of the data that was trained on."""
    if test.sha256 == train.sha256:
        return test.renumbered_as(train)
    is_known = _is_among(test.user_ids, train.user_ids)[test.users]
    is_known &= _is_among(test.item_ids, train.item_ids)[test.items]
    num_unknown = int((~is_known).sum())
    if num_unknown and not skip_unknown:
        raise HushrecError(
            f"{num_unknown:,} of {len(test):,} test rows have a user or an item that {train.name} does not have; "
            f"leave them out with {option('skip_unknown', True)}, or split what was loaded in one piece, as "
            "hushrec.random_share does"
        )
    if num_unknown == len(test):
        raise HushrecError(f"no test row has a user and an item of {train.name}; are the ids of the same source?")
    scale = train.rating_range if train.signed_from is None else train.signed_from[:2]
    test = test.select(is_known) if num_unknown else test
    return replace(test.renumbered_as(train), rating_range=test.rating_range and (scale or test.rating_range))


def _is_among(ids: Ids, known: Ids) -> NDArray[np.bool_]:
    if ids.dtype.kind != known.dtype.kind:
        ids, known = ids.astype(np.str_), known.astype(np.str_)
    return np.isin(ids, known)
