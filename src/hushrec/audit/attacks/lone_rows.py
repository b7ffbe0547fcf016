"""Lone rows: the row of an item with one rater in a sum is that rater's, and its ratings are read as of an upload.

Rows of one client are e_ui U_u + lambda V_i: without lambda V_i they are multiples of one vector. Lone rows that
are so are one client's, and `audit.one_upload` reads their ratings. Whose they are the sum does not say: ratings
of an unnamed client are learned, of as many items as it alone has rated in the round.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit import one_upload
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.audit.sums import Floats, SeenSum, has_sums, sums_in
from hushrec.audit.uploads import clients_of, is_own, items_of, paired
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Ragged, Recorded, Role, Seat, View, ragged, shared

_SAME_WAY = 1 - 1e-5  # the cosine of rows of one client, which are rounded
_ENOUGH_ROWS = 3  # of one client; some scale makes ratings of fewer, whatever they are


class Lone(NamedTuple):
    """What was read of items with one rater, among so many participants."""

    participants: NDArray[np.int64]
    items: NDArray[np.int64]  # ascending
    ratings: Floats  # NaN: not read


@dataclass(frozen=True)
class _Vectors(Message):
    """Reveals: what participants were sent; as `one_upload` expects it."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: NDArray[np.float32] = shared(np.float32, 2)


@dataclass(frozen=True)
class _Rows(Message):
    """Reveals: lone rows, as if each group of them had been uploaded by somebody."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


def groups_of(rows: Floats) -> NDArray[np.int64]:
    """A number for each row: the same for those that are multiples of one vector."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    alike = np.abs(unit @ unit.T) > _SAME_WAY
    numbers = np.arange(len(rows))
    is_left = np.ones(len(rows), np.bool_)
    for place in range(len(rows)):
        if is_left[place]:
            own = np.flatnonzero(alike[place] & is_left)
            numbers[own], is_left[own] = place, False
            is_left[place] = False
    return numbers


def read(view: View, own: Own) -> list[Lone]:
    """The ratings of items with one rater, of each sum of a round."""
    sums = [one for one in sums_in(view, own.settings) if one.totals.any()]
    if not sums:
        raise HushrecError("the run sent no sums of rows; switch on secure sums or shares")
    return [read_sum(one, own) for one in sums]


def read_sum(seen: SeenSum, own: Own, num_raters: int = 1) -> Lone:
    """The ratings of items with so many raters in a sum, each row taken for that of one."""
    items = np.flatnonzero(seen.counts == num_raters)
    rows, vectors = seen.totals[items], seen.vectors[items]
    numbers = groups_of(rows - float(own.settings["regularization"]) * vectors)
    order = np.lexsort((items, numbers))
    groups, sizes = np.unique(numbers, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    uploads = _Rows(Ragged(starts, items[order].astype(np.int32)), Ragged(starts, rows[order].astype(np.float32)))
    as_uploaded = [
        Recorded(seen.round_number, groups.astype(np.int32), message)
        for message in (_Vectors(seen.vectors.astype(np.float32)), uploads)
    ]
    all_rated = own._replace(settings={**own.settings, "rho": 0})  # sums have rows of nothing else
    known = one_upload.read_uploads(None, as_uploaded, all_rated) if len(items) else None
    ratings = np.full(len(items), np.nan)
    if known is not None:
        is_enough = sizes[np.searchsorted(groups, clients_of(known.pairs))] >= _ENOUGH_ROWS
        ratings[np.searchsorted(items, items_of(known.pairs))] = np.where(is_enough, known.ratings, np.nan)
    return Lone(seen.participants, items, ratings)


def judge(found: list[Lone], truth: Truth) -> Outcome:
    """The share of ratings read exactly, by who gave them. Blind: always the most common rating."""
    outcomes = [_judged(one, truth) for one in found]
    return Outcome(*(np.concatenate(column) for column in zip(*outcomes, strict=True)))


def _judged(lone: Lone, truth: Truth) -> Outcome:
    pairs = paired(np.repeat(lone.participants, len(lone.items)), np.tile(lone.items, len(lone.participants)))
    rated = pairs[is_own(pairs, truth.train)]  # who is the one rater
    places = np.searchsorted(lone.items, items_of(rated))
    unread = np.empty(0, np.int64)
    as_read = one_upload.Read(rated, np.ones(len(rated), np.bool_), lone.ratings[places], unread, np.empty(0))
    return one_upload.judge_ratings(as_read, truth)


ATTACK = Attack(
    name="lone rows",
    seats=(Seat(Role.SERVER),),
    guesses="ratings of an unnamed participant, as the rows of items with one rater in the round",
    measure="share exact",
    sentence="Of ratings of items that nobody else of the round rated, {score:.1%} are read exactly, though not "
    "whose they are; always guessing the most common rating is right for {chance:.0%}.",
    reads=has_sums,
    look=lambda _before, view, own: read(view, own),
    judge=judge,
    settings=one_upload.SETTINGS,
    repairs=("--secure-least-raters 5",),
)
