# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Matrix factorisation by gradient steps on positives and drawn negatives, in fixed point: the maths of FedMF.

Symbols: U_u = user_factors[u], V_i = item_factors[i], gamma = learning_rate, lambda = regularization,
e_ui = r_ui - U_u V_i with r_ui = 1 for positives and 0 for negatives.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError, ModelDivergedError
from hushrec.kernels.rows import dot, load, store, width_of
from hushrec.models.fcf import Weights
from hushrec.privacy.filling import Listing
from hushrec.privacy.homomorphic import Bytes, Integers, SecretKey, num_blocks
from hushrec.protocol import Numbers, kept

Factors = NDArray[np.float32]
Fixed = NDArray[np.int32]

FRACTION_BITS = 20
# How large V may become, as fixed point; what is left of an encrypted sum's range is for the steps of one round.
FACTOR_LIMIT = 2**27
_UNIT = np.float32(2.0**FRACTION_BITS)
# A step this large or larger is not rounded right, and refused in any case.
_LARGEST = np.float32(2.0**30)


class Training(NamedTuple):
    """How clients train in a round."""

    learning_rate: np.float32
    regularization: np.float32
    epochs: int


def initial_factors(
    purpose: str, numbers: NDArray[np.int32], num_factors: int, scale: float, draws: Draws
) -> Factors:
    """Uniform in (-scale, scale), independently per coordinate."""
    return uniform_rows(draws.key(purpose), numbers, num_factors, -scale, scale)


def to_fixed(numbers: Factors) -> Fixed:
    """Floating point numbers, rounded to fixed point."""
    fixed: Fixed = np.rint(numbers * _UNIT).astype(np.int32)
    return fixed


def to_float(numbers: Fixed) -> Factors:
    """Fixed point as floating point numbers."""
    return numbers.astype(np.float32) / _UNIT


@numba.njit(nogil=True, cache=True)
def _quantized(row, place, limit, out):
    """Round a step to fixed point; tell whether it is finite and within the limit."""
    is_right = True
    for factor in range(out.shape[1]):
        scaled = np.rint(row[0, factor] * _UNIT)
        is_right &= np.abs(scaled) <= limit
        out[place, factor] = np.int32(scaled) if np.abs(scaled) < _LARGEST else 0
    return is_right


@numba.njit(nogil=True, cache=True)
def _train(width, rows, user_factors, item_factors, offsets, listing, training, limit, out):
    """Train the clients of a cohort; return the place of one with a step beyond the limit, or -1."""
    starts, items, rated_place = listing
    rate = np.float32(2.0) * training.learning_rate
    shrink = rate * training.regularization
    scratch = np.empty((1, len(width)), np.float32)
    beyond = -1
    for client in range(rows.size):
        vector = load(user_factors, rows[client], width)
        for epoch in range(training.epochs):
            for place in range(starts[client], starts[client + 1]):
                item = load(item_factors, np.int64(items[place]), width)
                error = np.float32(rated_place[place] >= 0) - (offsets[items[place]] + dot(vector, item))
                vector = vector + ((rate * error) * item - shrink * vector)
                if epoch == training.epochs - 1:
                    store(scratch, 0, (rate * error) * vector - shrink * item)
                    if not _quantized(scratch, place, limit, out):
                        beyond = client
        store(user_factors, rows[client], vector)
    return beyond


def train_clients(
    rows: NDArray[np.int64],
    user_factors: Factors,
    item_factors: Factors,
    listing: Listing,
    training: Training,
    step_limit: int,
    offsets: Factors | None = None,  # what is predicted of each item before any vector is looked at; None: 0
) -> tuple[Fixed, int]:
    """Update U_u of the clients in `rows` in place; return the steps of V_i, -gamma times its gradient.

    The number is the place of a client with a step that is not finite or beyond the limit, or -1.
    """
    steps = np.empty((len(listing.items), item_factors.shape[1]), np.int32)
    width, limit = width_of(item_factors.shape[1]), np.float32(min(step_limit, 2**29))
    offsets = np.zeros(len(item_factors), np.float32) if offsets is None else offsets
    return steps, int(_train(width, rows, user_factors, item_factors, offsets, listing, training, limit, steps))


# --- Popularity, as all who have the key may know it -------------------------------------------------------


def own_steps(listing: Listing, num_columns: int) -> Fixed:
    """Steps that only count: one unit in the last column of what is a client's own."""
    steps = np.zeros((len(listing.items), num_columns), np.int32)
    steps[:, -1] = listing.rated_place >= 0
    return steps


def offsets_of(counts: Factors, num_negatives: int) -> Factors:
    """Which share of an item's samples are positives, if as many negatives of each item are drawn.

    `counts`: the last column of V, in units of fixed point.
    """
    # DEVIATION: FedMF's paper has no such start.
    num_owners = counts.astype(np.float64) * float(_UNIT)
    offsets: Factors = (num_owners / (num_owners + num_negatives * num_owners.mean() + 1e-9)).astype(np.float32)
    return offsets


@dataclass
class KeyHolders:
    """Private state of clients: their positives and vectors, and the key that they share."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]  # ascending within a client
    num_items: int  # of the whole catalogue
    user_factors: Factors = kept(result=True)
    previous_user_factors: Factors = kept()  # before the last update, for a request that comes again
    trained_round: Numbers = kept()  # of that update
    item_factors: Factors = kept(result=True, alike=True)  # as decrypted at the end of a run; zero before
    key: SecretKey | None = None  # None: no encryption
    _opened: tuple[Bytes, Factors] | None = field(default=None, repr=False)

    def open(self, blocks: Bytes, num_additions: Integers) -> Factors:
        """V; decrypted once for all cohorts that get the same ciphertexts. On devices each client does it."""
        known = self._opened
        if known is None or known[0] is not blocks:
            known = self._opened = blocks, self._decrypted(blocks, num_additions)
        return known[1]

    def _decrypted(self, blocks: Bytes, num_additions: Integers) -> Factors:
        slots = self.item_factors.shape[1] if self.key is None else self.key.adder.slots
        expected = num_blocks(self.item_factors.size, slots)
        if len(blocks) != expected or len(num_additions) != expected or blocks.shape[1] < 4 * slots:
            raise HushrecError(f"V came in {len(blocks)} blocks, not the {expected} of this catalogue; send those")
        numbers = np.ascontiguousarray(blocks[:, : 4 * slots]).view("<i4").astype(np.int64)
        if self.key is not None:
            for place in np.flatnonzero(num_additions).tolist():
                numbers[place] = self.key.decrypt(blocks[place])
        numbers = numbers.ravel()[: self.item_factors.size]
        if max(-int(numbers.min()), int(numbers.max())) > FACTOR_LIMIT:
            raise ModelDivergedError(
                "V is out of range, or nodes have different keys (order the run with --seeds shared)"
            )
        return to_float(numbers.astype(np.int32).reshape(self.item_factors.shape))

    def begin(self, rows: NDArray[np.int64], round_number: int) -> None:
        """Keep the vectors of before this round, or go back to them if a request has come again."""
        is_again = self.trained_round[rows] == round_number
        again, anew = rows[is_again], rows[~is_again]
        self.user_factors[again] = self.previous_user_factors[again]
        self.previous_user_factors[anew] = self.user_factors[anew]
        self.trained_round[anew] = round_number


def newcomer_weights(num_negatives: int, regularization: float) -> Callable[[int, int], Weights]:
    """With which weights a newcomer's vector has the least loss over its positives and what it would draw."""

    def weights(num_positives: int, num_items: int) -> Weights:
        num_others = max(num_items - num_positives, 1)
        num_drawn = min(max(num_negatives, 1) * num_positives, num_others)
        # Relative to another item, which is drawn with this share, a positive counts once.
        share = num_drawn / num_others
        return Weights(1.0 / share - 1.0, max(regularization * (num_positives + num_drawn) / share, 1e-6))

    return weights
