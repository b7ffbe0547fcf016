# mypy: allow-untyped-defs, allow-untyped-calls
"""SGD of several partners in step: gradients of a batch, what of them is shared, and the common move.

Everybody who shares a vector moves it by the mean of the partners' gradients of it. These are summed in fixed
point, so the sum does not depend on the order, and all copies stay equal to the last bit.

Symbols: U_u = user_factors[u], V_i = item_factors[i], e = U_u V_i - r_ui, B = size of the batch,
alpha = regularization.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import DivergedError, HushrecError, option
from hushrec.kernels.rows import (
    FIXED_LIMIT,
    FRACTION_BITS,
    add_fixed,
    dot,
    load,
    magnitude,
    store,
    width_of,
    zeros,
)
from hushrec.privacy.exact_sum import is_within

Rows = NDArray[np.float32]

_UNIT = 2.0**FRACTION_BITS
# Partners' rows of one batch are added up: they are within 64 bits even if all of them are of one user.
_ROW_LIMIT = np.float32(FIXED_LIMIT / 2)
_SUM_LIMIT = 2.0 ** (62 - FRACTION_BITS)
_UNKNOWN, _TOO_LARGE = 1, 2


def is_addable(rows: Rows, num_partners: int) -> bool:
    """Whether a partner's rows can be added to those of the others, who may send as much, whatever they are of."""
    largest = float(np.abs(rows).max(initial=0.0))
    return largest < float(_ROW_LIMIT) and largest * len(rows) * num_partners < _SUM_LIMIT


@numba.njit(nogil=True, cache=True)
def _pmf_gradients(
    width, user_factors, item_factors, users, items, ratings, places, regularization, user_rows, item_rows
):
    scale = np.float32(2.0 / places.size)
    for row in range(places.size):
        of_user = load(user_factors, users[places[row]], width)
        of_item = load(item_factors, items[places[row]], width)
        error = scale * (dot(of_user, of_item) - ratings[places[row]])
        store(user_rows, row, error * of_item + (scale * regularization) * of_user)
        store(item_rows, row, error * of_user + (scale * regularization) * of_item)


def pmf_gradients(
    user_factors: Rows,
    item_factors: Rows,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    ratings: NDArray[np.float32],
    places: NDArray[np.int64],
    regularization: float,
    user_rows: Rows,
    item_rows: Rows,
) -> None:
    """Write the gradients of a batch: a row of U and one of V per rating, each 2/B times Eq. 9.

    So they are those of the mean over the batch of e^2 + alpha (|U_u|^2 + |V_i|^2), which is 2 f_ui of Eq. 7.
    `places` tells which of the ratings are in the batch.
    """
    _pmf_gradients(
        width_of(user_factors.shape[1]), user_factors, item_factors, users, items, ratings, places,
        np.float32(regularization), user_rows, item_rows,
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def shared_rows(owners, places, rows, common, is_averaged, slots, numbers, out):
    """The rows of common owners, with their common numbers; averaged: one row each, their mean (Eq. 13).

    `slots` is scratch with -1 for every owner, and is left so. Returns how many rows there are.
    """
    count = 0
    for row in range(places.size):
        owner = owners[places[row]]
        if common[owner] < 0:
            continue
        if is_averaged and slots[owner] >= 0:
            out[slots[owner]] += rows[row]
            numbers[slots[owner], 1] += 1
            continue
        slots[owner] = count
        numbers[count, 0], numbers[count, 1] = common[owner], 1
        out[count] = rows[row]
        count += 1
    for row in range(places.size):
        slots[owners[places[row]]] = -1
    for row in range(count):
        if numbers[row, 1] > 1:
            out[row] /= np.float32(numbers[row, 1])
    return count


@dataclass
class Sums:
    """Sums in fixed point of the rows of each vector, and how many partners sent some; empty between moves."""

    totals: NDArray[np.int64]  # (vectors, num_factors)
    num_partners: NDArray[np.int32]
    last_sender: NDArray[np.int32]
    touched: NDArray[np.int64]  # vectors that have a sum; the first entry tells how many
    senders: int = 0
    largest: float = 0.0  # that a number of the sums can be

    @classmethod
    def zeros(cls, num_vectors: int, num_factors: int) -> "Sums":
        """Sums of so many vectors, with nothing added yet."""
        counts = np.zeros((2, num_vectors), np.int32)
        return cls(
            np.zeros((num_vectors, num_factors), np.int64),
            counts[0],
            counts[1],
            np.zeros(num_vectors + 1, np.int64),
        )

    def add(self, numbers: NDArray[np.int32], rows: Rows, place_of: NDArray[np.int32]) -> None:
        """Add one partner's rows; `place_of` tells which vector has a common number, -1 for none."""
        if rows.shape != (len(numbers), self.totals.shape[1]):
            raise HushrecError(
                f"a partner's vectors have {rows.shape[-1]} numbers, ours {self.totals.shape[1]}; "
                f"agree on the same {option('num_factors')}"
            )
        self.senders += 1
        fault = _add(
            width_of(rows.shape[1]),
            numbers,
            rows,
            place_of,
            self.totals,
            self.num_partners,
            self.last_sender,
            self.touched,
            self.senders,
        )
        if fault == _UNKNOWN:
            raise HushrecError("a partner sent gradients of what is not common; align again")
        if fault == _TOO_LARGE:
            raise DivergedError("a gradient is not finite or far too large")
        self.largest += float(np.abs(rows).max(initial=0.0)) * len(rows)
        if self.largest >= _SUM_LIMIT:
            raise DivergedError("gradients are too large to be added up")

    def move(self, vectors: Rows, learning_rate: float) -> None:
        """Move every vector by the mean over the partners that sent something about it (Alg. 1, line 21)."""
        _move(vectors, self.totals, self.num_partners, self.last_sender, self.touched, learning_rate)
        self.senders, self.largest = 0, 0.0

    def clear(self) -> None:
        """Forget what was added and not moved: a step that failed half way."""
        self.totals[:] = 0
        self.num_partners[:] = self.last_sender[:] = 0
        self.touched[0], self.senders, self.largest = 0, 0, 0.0


@numba.njit(nogil=True, cache=True)
def _add(width, numbers, rows, place_of, totals, num_partners, last_sender, touched, sender):
    peak = zeros(width)
    for row in range(numbers.size):
        if np.uint64(numbers[row]) >= np.uint64(place_of.size) or place_of[numbers[row]] < 0:
            return _UNKNOWN
        owner = place_of[numbers[row]]
        if last_sender[owner] != sender:
            last_sender[owner] = sender
            if num_partners[owner] == 0:
                touched[0] += 1
                touched[touched[0]] = owner
            num_partners[owner] += 1
        added = load(rows, row, width)
        peak = magnitude(peak, added)
        add_fixed(totals, np.int64(owner), added)
    return 0 if is_within(peak, _ROW_LIMIT, width) else _TOO_LARGE


@numba.njit(nogil=True, cache=True)
def _move(vectors, totals, num_partners, last_sender, touched, learning_rate):
    for place in range(1, touched[0] + 1):
        owner = touched[place]
        step = learning_rate / (_UNIT * num_partners[owner])
        for factor in range(vectors.shape[1]):
            vectors[owner, factor] = np.float32(vectors[owner, factor] - step * totals[owner, factor])
            totals[owner, factor] = 0
        num_partners[owner] = last_sender[owner] = 0
    touched[0] = 0


@numba.njit(nogil=True, cache=True)
def _move_own(width, vectors, owners, places, rows, common, rate):
    for row in range(places.size):
        owner = owners[places[row]]
        if common[owner] < 0:
            store(vectors, owner, load(vectors, owner, width) - rate * load(rows, row, width))


def move_own(
    vectors: Rows,
    owners: NDArray[np.int32],
    places: NDArray[np.int64],
    rows: Rows,
    common: NDArray[np.int32],
    learning_rate: float,
) -> None:
    """Move the vectors that nobody else has, row after row (Alg. 1, lines 18 and 21)."""
    _move_own(width_of(vectors.shape[1]), vectors, owners, places, rows, common, np.float32(learning_rate))


def move_layers(layers: Rows, gradients: Sequence[Rows], learning_rate: float) -> None:
    """Move the layers by the mean of all partners' gradients (Alg. 1, line 16), in fixed point."""
    if any(gradient.shape != layers.shape for gradient in gradients):
        raise HushrecError(f"a partner's layers have another shape; agree on the same {option('num_factors')}")
    if not all(np.abs(gradient).max(initial=0.0) < _ROW_LIMIT for gradient in gradients):
        raise DivergedError("a gradient of the layers is not finite or far too large")
    total = sum(np.rint(gradient * _UNIT).astype(np.int64) for gradient in gradients)
    layers[:] = layers - learning_rate / (_UNIT * len(gradients)) * total
