"""Splits of interactions into training and test rows, all determined by their arguments.

A random split depends on the data and the seed only, not on the order of the rows in the file.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from hushrec import choices
from hushrec.data.interactions import Interactions
from hushrec.data.row_order import count_starts
from hushrec.errors import HushrecError, option

# One constant per purpose keeps draws of one seed apart.
_K_FOLDS, _RANDOM_SHARE, _LEAVE_ONE_OUT = 1, 2, 3
_MOST_PARTNERS = 26


SplitKind = choices.SplitKind
Deals = choices.Deals
Measure = choices.Measure


@dataclass(frozen=True)
class Split:
    """Training and test rows of one data set; the vocabularies of both are the whole."""

    train: Interactions
    test: Interactions
    fold: int
    groups: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)  # test rows measured by themselves
    facts: Mapping[str, float] = field(default_factory=dict)  # what else is to be told of it


@dataclass(frozen=True)
class Deal:
    """How a dataset is dealt to partners."""

    num_partners: int = 2
    common_users: float = 0.5  # the share of the users that all partners have; the others have one each
    common_items: float = 0.5
    deals: Deals = "each"  # every copy has a deal of users and items of its own; one: all have that of the first

    def __post_init__(self) -> None:
        if not 2 <= self.num_partners <= _MOST_PARTNERS:
            raise HushrecError(f"{option('partners', self.num_partners)}: choose 2 to {_MOST_PARTNERS}")
        for name, share in (("users", self.common_users), ("items", self.common_items)):
            if not 0 <= share <= 1:
                raise HushrecError(f"{option(f'common_{name}', share)} is no share; choose 0 to 1")
        if self.deals not in get_args(Deals):
            raise HushrecError(f"{option('deals', self.deals)} is unknown; choose {' or '.join(get_args(Deals))}")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the partners: a, b, and so on."""
        return tuple(chr(ord("a") + number) for number in range(self.num_partners))


def k_folds(data: Interactions, num_folds: int = 5, seed: int = 0) -> Iterator[Split]:
    """The splits of a cross-validation, made one at a time: each row is in the test of one fold.

    The rows are dealt at random into folds whose sizes differ by at most one.
    """
    if num_folds < 2:
        raise HushrecError(f"{num_folds} folds leave nothing to train on; use at least 2")
    if num_folds > len(data):
        raise HushrecError(
            f"{num_folds} folds for {len(data)} ratings leave a fold empty; use fewer folds, more ratings or "
            "another split"
        )
    deck = np.arange(num_folds, dtype=np.min_scalar_type(num_folds))
    dealt = np.tile(deck, -(-len(data) // num_folds))[: len(data)]
    _generator(seed, _K_FOLDS).shuffle(dealt)
    fold_of_row = _to_rows(data, dealt)
    return (_split(data, fold_of_row == fold, fold + 1) for fold in range(num_folds))


def random_share(data: Interactions, test_share: float = 0.2, seed: int = 0) -> Split:
    """A random share of each user's ratings as test, rounded, at least one kept for training."""
    draws = _generator(seed, _RANDOM_SHARE).random(len(data))
    return _share_from_end(data, _to_rows(data, draws), test_share)


def latest_share(data: Interactions, test_share: float = 0.2) -> Split:
    """The latest share of each user's ratings as test, rounded, at least one kept for training.

    Latest by `order`, else by timestamp; of equal timestamps the later row of the file is the later.
    """
    return _share_from_end(data, _times(data), test_share)


def global_time(data: Interactions, test_share: float = 0.2, split_at: str | None = None) -> Split:
    """All rows from a moment on as test, whoever's they are: what a model trained at that moment is asked.

    The moment is a date of ISO 8601 (or Unix seconds), or such that a share of the rows is the test; rows at one
    time stay together. A test row whose user or item has no row before is left out, and counted.
    """
    times = _timestamps(data)
    if split_at is None:
        _check_share(test_share)
        moment = int(np.quantile(times, 1 - test_share, method="higher"))
    else:
        moment = seconds_of(split_at)
    is_late = times >= moment
    if is_late.all() or not is_late.any():
        where = "before" if is_late.all() else "after"
        raise HushrecError(
            f"{data.name} has no row {where} the moment to split at, {moment} in Unix seconds; choose another "
            f"{option('split_at')} or {option('test_share')}"
        )
    has_user = np.bincount(data.users[~is_late], minlength=data.num_users) > 0
    has_item = np.bincount(data.items[~is_late], minlength=data.num_items) > 0
    is_new_user, is_new_item = is_late & ~has_user[data.users], is_late & ~has_item[data.items]
    is_test = is_late & ~is_new_user & ~is_new_item
    if not is_test.any():
        raise HushrecError(
            f"no row of {data.name} after the split is of a known user and item; split at a later moment"
        )
    facts = {
        "test rows begin at, Unix seconds": float(moment),
        "later rows of users unknown before, left out": float(np.count_nonzero(is_new_user)),
        "later rows of items unknown before, left out": float(np.count_nonzero(is_new_item & ~is_new_user)),
    }
    return Split(data.select(~is_late), data.select(is_test), 1, facts=facts)


def seconds_of(moment: str) -> int:
    """Unix seconds of a date of ISO 8601, in UTC unless it says otherwise, or of a number of them.

    >>> seconds_of("1970-01-02"), seconds_of("1970-01-01T01:00:00+01:00"), seconds_of("12")
    (86400, 0, 12)
    """
    try:
        if re.fullmatch(r"-?\d{1,15}", moment.strip()):
            return int(moment)
        parsed = datetime.fromisoformat(moment.strip())
    except ValueError:
        raise HushrecError(f"{option('split_at', moment)} is no date; write for example 2024-01-31") from None
    return math.floor((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp())


def leave_one_out(data: Interactions, by: Literal["time", "random"] = "time", seed: int = 0) -> Split:
    """One rating of each user as test: the latest, or a random one.

    A user with a single rating stays in training whole.
    """
    if by not in ("time", "random"):
        raise HushrecError(f"leave one out by {by!r} is unknown; use time or random")
    if by == "time":
        keys = _times(data)
    else:
        keys = _to_rows(data, _generator(seed, _LEAVE_ONE_OUT).random(len(data)))
    from_end, counts = _places_from_end(data, keys)
    return _split(data, (from_end == 0) & (counts[data.users] > 1), 1)


def check_seed(seed: int) -> None:
    """Refuse a seed that is no whole number, or below zero."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise HushrecError(f"the seed is {seed!r}; use a number from 0 up")


def _generator(seed: int, purpose: int) -> np.random.Generator:
    check_seed(seed)
    return np.random.default_rng([seed, purpose])


def _split(data: Interactions, is_test: npt.NDArray[np.bool_], fold: int) -> Split:
    return Split(data.select(~is_test), data.select(is_test), fold)


def _to_rows(data: Interactions, values: npt.NDArray) -> npt.NDArray:
    """Values dealt to the rows in canonical order, put where the rows are."""
    rows = data.canonical_order()
    if rows is None:
        return values
    placed = np.empty_like(values)
    placed[rows] = values
    return placed


def _times(data: Interactions) -> npt.NDArray[np.integer]:
    return _timestamps(data) if data.order is None else data.order


def _timestamps(data: Interactions) -> npt.NDArray[np.int64]:
    if data.timestamps is None:
        raise HushrecError(f"{data.name} has no timestamps to split by; use a random split")
    num_unknown = int((data.timestamps == -1).sum())
    if num_unknown:
        raise HushrecError(f"{num_unknown} rows of {data.name} have no timestamp to split by; use a random split")
    return data.timestamps


def _check_share(test_share: float) -> None:
    if not 0 < test_share < 1:
        raise HushrecError(f"a test share of {test_share:g} is no share; use a number between 0 and 1")


def _places_from_end(data: Interactions, keys: npt.NDArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each row, how many of its user's rows have a later key; and the rows of each user."""
    starts = count_starts(data.users, data.num_users)
    rows = np.lexsort((keys, data.users))  # stable: equal keys stay in the order of the rows
    from_end = np.empty(len(data), np.int64)
    from_end[rows] = starts[data.users[rows] + 1] - 1 - np.arange(len(data))
    return from_end, np.diff(starts)


def _share_from_end(data: Interactions, keys: npt.NDArray, test_share: float) -> Split:
    _check_share(test_share)
    from_end, counts = _places_from_end(data, keys)
    num_test = np.floor(test_share * counts + 0.5).astype(np.int64)
    num_test = np.minimum(num_test, np.maximum(counts - 1, 0))
    return _split(data, from_end < num_test[data.users], 1)
