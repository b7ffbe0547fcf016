"""What people pass to a fitted model, of whatever library it is, as the model takes it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushrec.data import Interactions, Reading
from hushrec.data.frames import ids_of_array, is_frame
from hushrec.data.in_memory import draft_in_memory, has_rows, ids_in
from hushrec.data.interactions import Ids
from hushrec.data.reading import ColumnNames
from hushrec.errors import HushrecError, option

Asked = ArrayLike | Any  # ids in an array, a series or a frame of any library, or in what was loaded


def pairs_of(users: Asked, items: Asked | None, columns: ColumnNames | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids of users and items, of the same shape.

    One user goes with all items, and one item with all users. Arrays of several dimensions are spread over each
    other as NumPy does it; lists of different lengths are refused.
    """
    if items is None:
        if not has_rows(users):
            raise HushrecError("predict needs users and items, or a frame with a column for each")
        return ids_in(users, "user", columns), ids_in(users, "item", columns)
    if is_frame(users):
        raise HushrecError(f"a frame has its items in a column; leave {option('items')} out")
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


def asked_ids(asked: Asked, role: str, columns: ColumnNames | None = None) -> NDArray[Any]:
    """Ids of users or items, one or many; of what has rows, each once, in the order of the rows."""
    if not has_rows(asked):
        return ids_of_array(asked, role).ravel()
    found = ids_in(asked, role, columns)
    return found[np.sort(np.unique(found, return_index=True)[1])]


def rated_by_newcomer(
    items: Asked, ratings: ArrayLike | None, columns: ColumnNames | None
) -> tuple[NDArray[Any], ArrayLike | None]:
    """Ids of the items that somebody brings, and the ratings, if there are some."""
    if not has_rows(items):
        return ids_of_array(items, "item").ravel(), ratings
    if ratings is not None:
        raise HushrecError(f"a frame has its ratings in a column; leave {option('ratings')} out")
    name, reading = "the newcomer's frame", Reading(columns=columns, one_user=True)
    own = items if isinstance(items, Interactions) else draft_in_memory(items, reading, name)[1]
    num_users = len(np.unique(own.users))
    if num_users > 1:
        raise HushrecError(f"{name} has rows of {num_users} users; give those of one")
    return own.item_ids[own.items], own.ratings


def lengths_of(at: int | Sequence[int]) -> tuple[int, ...]:
    """Lengths of lists, of which each is a whole number from 1 up."""
    found = (at,) if isinstance(at, int) else at
    if not isinstance(found, Sequence | np.ndarray) or not all(_is_length(one) for one in found) or not len(found):
        raise HushrecError(f"{option('at')} takes lengths of lists, as in {option('at', (5, 10))}; not {at!r}")
    return tuple(int(one) for one in found)


def _is_length(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


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
