"""Dense gradients: who uploads a gradient of every item vector tells its positives by the rows that do not fit.

In collaborative filtering of implicit feedback all rows of an upload are multiples of x. That of another item is
2 (x.v) x, that of a positive -2 (1 + alpha) (1 - x.v) x. The server knows the v that it sent. With the unit
vector e along x and b = e.v, rows have the lengths 2 |x|^2 b along e, or are 2 |x| (1 + alpha (1 - x.v)) away from
that: at least 2 |x|, as long as no positive is predicted above 1. So one upload tells all; neither alpha nor the
number of positives need be known. An upload that only counts says itself what is the client's own.

Symbols: x the client's vector, v an item's vector, alpha the confidence of positives.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Answered, Pairs, answered, counted, distinct, f1_of, is_upload, paired
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, Seat, View

Floats = NDArray[np.float64]

_AGREEING = 0.1  # of the catalogue: what gives the same |x| is not the client's
HALFWAY = 0.5  # between the row of another item, 0, and that of a positive, at least 1


class Guesses(NamedTuple):
    """Who uploaded, and what is guessed to be theirs."""

    clients: NDArray[np.int64]  # ascending
    pairs: Pairs


def is_dense(message_type: type[Message]) -> bool:
    """Whether clients send gradients without saying of which items: of all."""
    return is_upload(message_type, "gradients") and not is_upload(message_type, "items")


def guess_positives(view: View) -> Guesses:
    """The items whose rows do not fit; of a client that uploads several times, all that it told."""
    kinds = {type(one.message) for one in view if is_dense(type(one.message))}
    guessed = [_guess_batch(one) for kind in kinds for one in answered(view, "item_factors", kind)]
    if not guessed:
        return Guesses(np.empty(0, np.int64), np.empty(0, np.int64))
    clients, pairs = (distinct(np.concatenate(column)) for column in zip(*guessed, strict=True))
    return Guesses(clients, pairs)


def _guess_batch(one: Answered) -> tuple[NDArray[np.int64], Pairs]:
    """Clients of a batch and the pairs guessed."""
    vectors: NDArray[np.float32] = one.request.item_factors  # type: ignore[attr-defined]
    gradients = one.upload.column("gradients")
    if (gradients.lengths != len(vectors)).any() or gradients.values.shape[1:] != vectors.shape[1:]:
        raise HushrecError("an upload has not one gradient for each item vector that was sent; leave it out")
    rows = gradients.values.reshape(len(one.clients), *vectors.shape).astype(np.float64)
    is_own = counted(gradients.values)
    if is_own is None:
        is_own = distances(rows, vectors.astype(np.float64)) > HALFWAY
    place, item = np.nonzero(is_own.reshape(rows.shape[:2]))
    return one.clients, paired(one.clients[place], item)


def distances(rows: Floats, item_vectors: Floats) -> Floats:
    """How far each row is from that of an item which is not the client's, in units of 2 |x|: (clients, items).

    A client whose rows are all zero is as far from anything as one that has nothing: 0.
    """
    _, directions = np.linalg.eigh(rows.transpose(0, 2, 1) @ rows)
    along = directions[:, :, -1]  # e, of either sign: both sides of what follows change theirs
    lengths = (rows @ along[:, :, None])[:, :, 0]
    products = along @ item_vectors.T
    slopes = _most_agreed(_ratios(lengths, products))[:, None]  # 2 |x|^2
    away = np.abs(lengths - slopes * products)
    far: Floats = np.divide(away, np.sqrt(2 * slopes), out=np.zeros_like(away), where=slopes > 0)
    return far


def _ratios(lengths: Floats, products: Floats) -> Floats:
    """What each row says that 2 |x|^2 is; infinite where it cannot be that."""
    ratios = np.divide(lengths, products, out=np.zeros_like(lengths), where=products != 0)
    return np.where(ratios > 0, ratios, np.inf)


def _most_agreed(ratios: Floats) -> Floats:
    """Of each row, the middle of the narrowest stretch that holds a tenth of its numbers; 0 if there is none."""
    ordered = np.sort(ratios, axis=1)
    num_items = ordered.shape[1]
    step = min(max(int(_AGREEING * num_items), 1), num_items - 1)
    first, last = ordered[:, : num_items - step], ordered[:, step:]
    is_number = np.isfinite(last)
    # Of log widths, as what is larger is less exact.
    widths = np.divide(last, first, out=np.full(last.shape, np.inf), where=is_number)
    best = np.argmin(widths, axis=1)
    middle = np.take_along_axis(ordered, (best + step // 2)[:, None], axis=1)[:, 0]
    return np.where(is_number.any(axis=1), middle, 0.0)


def judge(guesses: Guesses, truth: Truth) -> Outcome:
    """F1 of each client that uploaded."""
    return f1_of(guesses.clients, guesses.pairs, truth.train)


ATTACK = Attack(
    name="dense gradients",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as the rows of one upload that do not fit",
    measure="F1",
    sentence="Taking the items whose gradient is not that of an item without the user for the user's own gives an "
    "F1 of {score:.2f}; as many blind guesses from the catalogue give {chance:.2f}.",
    reads=is_dense,
    look=lambda _before, view, _own: guess_positives(view),
    judge=judge,
)
