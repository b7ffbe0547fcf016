"""Error signs: who uploads the gradient of its recommender tells its items by the sign of their errors.

A recommender is item vectors E (num_items, num_factors) and two layers: a weights A (num_factors, width) and
biases of hidden units with ReLU, then weights c (width) and a bias of the output, all in one row. The gradient of
an item's vector is its error times A (c of the units that are on). The server made the recommender, so it
knows that vector and finds the error: below zero for the client's items, above for drawn ones, zero for others.
Nothing is told only of an item for which all units are off; they may be on in another round.

The server knows its sizes. Here they are found from the numbers: in the right ones, errors explain the upload. An
upload that only counts, before them, tells nothing here; to the server it says all of the client's items.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, answered, distinct, f1_of, is_upload, paired
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, Seat, View

Floats = NDArray[np.float64]


class Sizes(NamedTuple):
    """Sizes of a recommender."""

    num_items: int
    num_factors: int
    width: int
    has_offsets: bool = False  # of the items' scores, at the end of a row


class Guesses(NamedTuple):
    """Who uploaded in the rounds so far, and what is guessed to be theirs."""

    clients: NDArray[np.int64]  # ascending
    pairs: Pairs
    sizes: Sizes | None  # None: no upload told them yet


class _Recommender(NamedTuple):
    """The parts of some, or of their gradients; the output's bias is left out, it tells no item from another."""

    vectors: Floats  # (clients, num_items, num_factors)
    hidden: Floats  # (clients, num_factors, width)
    biases: Floats  # (clients, width)
    output: Floats  # (clients, width)


def answers_recommender(message_type: type[Message]) -> bool:
    """Whether clients send the gradient of all that they got, in one row."""
    return is_upload(message_type, "gradient")


def guess_positives(before: Guesses | None, view: View) -> Guesses:
    """The items with an error below zero in any round."""
    nothing = np.empty(0, np.int64)
    before = before or Guesses(nothing, nothing, None)
    kinds = {type(one.message) for one in view if answers_recommender(type(one.message))}
    clients, pairs, sizes = [before.clients], [before.pairs], before.sizes
    for kind in kinds:
        for numbers, request, upload in answered(view, "recommender", kind):
            sent, came = request.column("recommender"), upload.column("gradient")
            if (came.lengths != sent.lengths).any() or (sent.lengths != sent.lengths[0]).any():
                raise HushrecError("an upload has not one number for each that was sent; leave it out")
            rows, gradients = (
                column.values.reshape(len(numbers), -1).astype(np.float64) for column in (sent, came)
            )
            sizes = sizes or _sizes(rows, gradients)
            clients.append(numbers)
            if sizes is None:
                continue
            if _only_counts(gradients):
                place, item = np.nonzero(gradients[:, -sizes.num_items :])
            else:
                place, item = np.nonzero(_errors(_split(rows, sizes), _split(gradients, sizes)) < 0)
            pairs.append(paired(numbers[place], item))
    return Guesses(distinct(np.concatenate(clients)), distinct(np.concatenate(pairs)), sizes)


def item_errors(view: View) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Clients of a batch, and the error of each item, (clients, num_items); what only counts is left out."""
    for kind in {type(one.message) for one in view if answers_recommender(type(one.message))}:
        for numbers, request, upload in answered(view, "recommender", kind):
            rows, gradients = (
                column.values.reshape(len(numbers), -1).astype(np.float64)
                for column in (request.column("recommender"), upload.column("gradient"))
            )
            sizes = _sizes(rows, gradients) if rows.shape == gradients.shape else None
            if sizes is not None:
                yield numbers, _errors(_split(rows, sizes), _split(gradients, sizes))


def _split(rows: Floats, sizes: Sizes) -> _Recommender:
    num_items, num_factors, width, _ = sizes
    ends = np.cumsum([num_items * num_factors, num_factors * width, width, width])
    vectors, hidden, biases, output, _ = np.split(rows, ends, axis=1)
    return _Recommender(
        vectors.reshape(-1, num_items, num_factors), hidden.reshape(-1, num_factors, width), biases, output
    )


def _weights_on(own: _Recommender) -> Floats:
    """Weights of the output of the units that are on, for each item: (clients, num_items, width)."""
    inputs = own.vectors @ own.hidden + own.biases[:, None]
    return np.where(inputs > 0, own.output[:, None], 0.0)


def _errors(own: _Recommender, gradient: _Recommender) -> Floats:
    """The error of each item, (clients, num_items); 0 where nothing is told."""
    directions = _weights_on(own) @ own.hidden.transpose(0, 2, 1)
    products, squares = (np.sum(directions * other, axis=2) for other in (gradient.vectors, directions))
    errors: Floats = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    return errors


def _sizes(rows: Floats, gradients: Floats) -> Sizes | None:
    """Those with which the errors explain the upload of the client that says most; None if nobody says a thing."""
    most = np.argmax(np.count_nonzero(gradients[:, :-1], axis=1))
    row, gradient = rows[[most]], gradients[[most]]
    if not gradient[:, :-1].any() or _only_counts(gradient):
        return None
    return min(_possible(rows.shape[1]), key=lambda sizes: _misfit(row, gradient, sizes), default=None)


def _possible(num_numbers: int) -> Iterator[Sizes]:
    """Sizes that make a row so long; there are a quarter as many hidden units as factors."""
    num_factors = np.arange(1, num_numbers + 1)
    width = np.maximum(num_factors // 4, 1)
    rest = num_numbers - (num_factors + 2) * width - 1
    for has_offsets in (False, True):
        per_item = num_factors + has_offsets
        fits = (rest > 0) & (rest % per_item == 0)
        for factors, units, left in zip(num_factors[fits], width[fits], rest[fits], strict=True):
            yield Sizes(int(left // (factors + has_offsets)), int(factors), int(units), has_offsets)


def _only_counts(gradients: Floats) -> bool:
    """Whether an upload says 1 of what is the client's own, and nothing else: errors are smaller."""
    return bool(np.isin(gradients, (0.0, 1.0)).all())


def _misfit(row: Floats, gradient: Floats, sizes: Sizes) -> float:
    """How far the gradient that the errors make is from what came."""
    own, came = _split(row, sizes), _split(gradient, sizes)
    errors, weights = _errors(own, came)[:, :, None], _weights_on(own)
    inputs = np.maximum(own.vectors @ own.hidden + own.biases[:, None], 0)
    slopes = errors * weights
    made = _Recommender(
        slopes @ own.hidden.transpose(0, 2, 1),
        own.vectors.transpose(0, 2, 1) @ slopes,
        slopes.sum(axis=1),
        (errors * inputs).sum(axis=1),
    )
    return float(sum(np.sum((one - other) ** 2) for one, other in zip(made, came, strict=True)))


def judge(guesses: Guesses, truth: Truth) -> Outcome:
    """F1 of each client that uploaded."""
    return f1_of(guesses.clients, guesses.pairs, truth.train)


ATTACK = Attack(
    name="error signs",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those whose gradient says that they were underrated",
    measure="F1",
    sentence="Taking the items whose gradient asks for a higher score for the user's own gives an F1 of "
    "{score:.2f}; as many blind guesses from the catalogue give {chance:.2f}.",
    reads=answers_recommender,
    look=lambda before, view, _own: guess_positives(before, view),
    judge=judge,
    only_last=True,
)
