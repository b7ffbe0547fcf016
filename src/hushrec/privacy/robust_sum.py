# mypy: allow-untyped-defs, allow-untyped-calls
"""Sums of rows that a few liars cannot move far, and rows of bounded length: for servers that see clients' rows.

Guarantee, of integrity and not of privacy: with `liars` = f, what an item moves by is, number by number, within
what its honest rows say, as long as no more than f of its rows are lies (trimmed mean, median). Krum takes the
mean of the k - f rows that are nearest to their neighbours. An item with fewer than 2f + 1 rows (Krum: 2f + 3)
stays as it is: nobody could tell who lies. That is the price: what few people have is not learned.

A bound on the length of rows is kept by clients, who shorten their own, and checked by the server, so that a
longer row is a lie. Behind masks (secure sums, shares) nobody can check it. It does not stop many short pulls in
one direction: see docs/spoiling.md.

The server keeps all rows of a round: 4 bytes per number, 8 more per row, and as much again while it sorts them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import OutOfRangeError, option
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.dense_sum import DenseSum
from hushrec.privacy.exact_sum import ExactSum, Gradients, check_columns, check_rows, sender_of
from hushrec.protocol import Fold, Numbers, Ragged
from hushrec.settings import check, setting

Floats = NDArray[np.float32]
_OF_SUMS = ("none", "held")  # what needs no rows
_ROUNDING = 1e-5  # of a row's length, of which neither side is to blame


@dataclass(frozen=True, kw_only=True)
class RowNorm:
    """The bound on the length of rows."""

    row_norm: float = setting(
        0.0, "length of a row beyond which clients shorten it and the server refuses it; 0: any", "[0, inf)"
    )


_LIARS = "malicious clients that it withstands; items with hardly more rows stay as they are"


@dataclass(frozen=True, kw_only=True)
class HeldSums(RowNorm):
    """The same, and whether items are held, for systems whose rows cannot be compared."""

    robust: Literal["none", "held"] = setting(
        "none", "whether items that few clients have are held near what all items have in common"
    )
    liars: int = setting(1, _LIARS, "[1, inf)")


@dataclass(frozen=True, kw_only=True)
class RobustSums(RowNorm):
    """The same, and how the rows of an item become one."""

    robust: Literal["none", "trimmed", "median", "krum", "held"] = setting(
        "none",
        "what an item moves by: the mean of its rows, or what some liars cannot move far; held: the mean, but "
        "items that few have stay near what all have in common",
    )
    liars: int = setting(1, _LIARS, "[1, inf)")


class HasRobustSums(Protocol):
    """Settings with these, and with secure sums beside them."""

    @property
    def robust(self) -> str:
        """How the rows of an item become one."""
        ...

    @property
    def liars(self) -> int:
        """How many of them it withstands."""
        ...

    @property
    def row_norm(self) -> float:
        """The longest row; 0: any."""
        ...

    @property
    def secure_sums(self) -> bool:
        """Whether the server sees nothing but sums."""
        ...


def check_robust(config: HasRobustSums) -> None:
    """Refuse what cannot be: a server that sees sums only has no rows to compare."""
    check(
        config.robust in _OF_SUMS or not config.secure_sums,
        f"{option('robust', config.robust)} compares rows of clients, which {option('secure_sums', True)} hides; "
        f"leave one out, or use {option('row_norm')}, which clients keep to and nobody can check",
    )


# --- Length ------------------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _lengths(rows, lengths):
    for place in range(rows.shape[0]):
        total = 0.0
        for factor in range(rows.shape[1]):
            total += np.float64(rows[place, factor]) * np.float64(rows[place, factor])
        lengths[place] = np.sqrt(total)


def lengths_of(rows: Floats) -> NDArray[np.float64]:
    """The Euclidean norm of each row."""
    lengths = np.empty(len(rows))
    _lengths(rows, lengths)
    return lengths


def shortened(rows: Floats, norm: float) -> Floats:
    """Rows of at most this length, in the same directions; as they are if it is 0."""
    if not norm:
        return rows
    lengths = lengths_of(rows)
    return rows * np.minimum(norm / np.maximum(lengths, norm), 1.0).astype(np.float32)[:, None]


def longest(norm: float) -> float:
    """The length up to which a row is not refused."""
    return norm * (1 + _ROUNDING)


def check_lengths(numbers: Numbers, rows: Ragged, norm: float) -> None:
    """Refuse a row that is longer, and name its sender."""
    if norm:
        is_long = ~(lengths_of(rows.values) <= longest(norm))
        if is_long.any():
            sender = sender_of(numbers, rows, is_long)
            raise OutOfRangeError(f"client {sender} sent a row longer than {norm:g}; leave it out")


Total = ExactSum | DenseSum


@dataclass
class BoundedSum:
    """A sum that refuses rows beyond a length before it adds any of a batch."""

    total: Fold
    norm: float

    def fork(self) -> "BoundedSum":
        """An empty one of the same shape."""
        return BoundedSum(self.total.fork(), self.norm)

    def add(self, numbers: Numbers, message: Any) -> None:
        """Add every row of a batch."""
        check_lengths(numbers, message.gradients, self.norm)
        self.total.add(numbers, message)

    def merge(self, other: Any) -> None:
        """Add what a fork took in."""
        self.total.merge(other.total)


# --- Many rows into one ------------------------------------------------------------------------------------------


@numba.njit(nogil=True, cache=True)
def _middle(is_median, liars, starts, rows, means):
    """Of each item and number: the mean without the `liars` largest and smallest, or the median."""
    for item in range(starts.size - 1):
        first, last = starts[item], starts[item + 1]
        num_rows = last - first
        if num_rows <= 2 * liars:
            continue
        cut = (num_rows - 1) // 2 if is_median else liars
        columns = rows[first:last].T.copy()
        for factor in range(rows.shape[1]):
            column = np.sort(columns[factor])
            total = 0.0
            for place in range(cut, num_rows - cut):
                total += column[place]
            means[item, factor] = total / (num_rows - 2 * cut)


def _krum(liars: int, starts: NDArray[np.int64], rows: Floats, means: NDArray[np.float64]) -> None:
    """Of each item: the mean of the k - f rows with the least squared distances to their k - f - 2 nearest."""
    for item in np.flatnonzero(np.diff(starts) >= 2 * liars + 3).tolist():
        own = rows[starts[item] : starts[item + 1]].astype(np.float64)
        num_near = len(own) - liars - 2
        squares = (own**2).sum(axis=1)
        apart = squares[:, None] + squares - 2 * own @ own.T
        np.fill_diagonal(apart, np.inf)
        scores = np.partition(apart, num_near - 1, axis=1)[:, :num_near].sum(axis=1)
        chosen = np.sort(np.argsort(scores, kind="stable")[: len(own) - liars])
        means[item] = own[chosen].mean(axis=0)


def robust_means(
    items: Numbers, rows: Floats, num_items: int, how: str, liars: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What the rows of each item come to, and how many they were; nothing of items with too few."""
    starts = np.searchsorted(items, np.arange(num_items + 1))
    means = np.zeros((num_items, rows.shape[1]))
    if how == "krum":
        _krum(liars, starts, rows, means)
    else:
        _middle(how == "median", liars, starts, rows, means)
    least = 2 * liars + (3 if how == "krum" else 1)
    num_rows = np.diff(starts)
    return means, np.where(num_rows >= least, num_rows, 0)


@dataclass
class RobustSum:
    """The fold that keeps the rows of a round, each client's once, and makes one of those of each item."""

    total: Total  # where the result goes
    how: str
    liars: int
    norm: float
    numbers: list[Numbers] = field(default_factory=list)  # the sender of each row
    items: list[Numbers] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)

    def fork(self) -> "RobustSum":
        """An empty one for the same result."""
        return RobustSum(self.total, self.how, self.liars, self.norm)

    def add(self, numbers: Numbers, message: Any) -> None:
        """Keep a batch, or refuse it and name the sender."""
        num_items, num_factors = self.total.totals.shape
        listed: Gradients = message
        if isinstance(self.total, DenseSum):
            self.total.check_whole(numbers, message)
            listed = _Listed.of(message.gradients, num_items)
        check_columns(listed, num_factors)
        check_rows(numbers, listed, self.total.limit, num_items)
        check_lengths(numbers, listed.gradients, self.norm)
        self.numbers.append(np.repeat(numbers, listed.items.lengths))
        self.items.append(listed.items.values)
        self.rows.append(listed.gradients.values)

    def merge(self, other: Any) -> None:
        """Keep what a fork kept."""
        self.numbers += other.numbers
        self.items += other.items
        self.rows += other.rows

    def add_up(self) -> None:
        """Add to the total, for each item, so many times what its rows come to, in whatever order they came."""
        if not self.rows:
            return
        items, numbers = np.concatenate(self.items), np.concatenate(self.numbers)
        order = np.lexsort((numbers, items))
        rows = np.concatenate(self.rows)[order]
        means, counts = robust_means(items[order], rows, len(self.total.totals), self.how, self.liars)
        self.total.totals += np.rint(means * counts[:, None] * 2.0**FRACTION_BITS).astype(np.int64)
        if isinstance(self.total, ExactSum):
            self.total.counts += counts


@dataclass(frozen=True)
class _Listed:
    """Rows of all items, as if each were listed."""

    items: Ragged
    gradients: Ragged

    @classmethod
    def of(cls, gradients: Ragged, num_items: int) -> "_Listed":
        items = np.tile(np.arange(num_items, dtype=np.int32), len(gradients))
        return cls(Ragged(gradients.starts, items), gradients)


def robust_fold(total: Total, config: HasRobustSums) -> Fold:
    """What takes in uploads for a sum, as the settings say; `add_up` ends it."""
    if config.robust not in _OF_SUMS:
        return RobustSum(total, config.robust, config.liars, config.row_norm)
    is_checked = config.row_norm and not config.secure_sums
    return BoundedSum(total, config.row_norm) if is_checked else total


def add_up(fold: Fold) -> None:
    """What is left to do when all uploads are in."""
    if isinstance(fold, RobustSum):
        fold.add_up()
