"""What a server learns of sums: those of a round, out of what it was sent, and what it remembers of them.

With secure sums the server has masked numbers and shares of the masks' secrets. It takes the masks out as the
protocol has it: what comes out is what it saw, and no attack has more. With shares over denoisers, uploads less
the denoisers' sums are the same, and there are lists besides.

A blind guess knows how popular each item is among all others, which is what sums are made to tell. What is above
it was learned of a person.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Outcome, Own
from hushrec.audit.uploads import Pairs, auc_of, clients_of, distinct, is_own, items_of, paired
from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.secure_sum.graph import places_of
from hushrec.privacy.secure_sum.messages import (
    LeaveOut,
    MaskedNumbers,
    PublicKeys,
    SendCounts,
    SendKeys,
    SendShares,
    SharesSent,
    Unmask,
    Unmasking,
    told_to_all,
)
from hushrec.privacy.secure_sum.plan import plan_for
from hushrec.privacy.secure_sum.server import Graph, take_out_masks
from hushrec.privacy.secure_sum.settings import SecureSums
from hushrec.privacy.shared_denoising import FactorsToShare, MaskedGradients, SummedShares
from hushrec.protocol import NO_ONE, Collect, Message, Recorded, View

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class SeenSum(NamedTuple):
    """The sum of some clients' rows, an item each, as the server has it."""

    round_number: int
    participants: NDArray[np.int64]  # ascending: whose rows are in it
    counts: Counts  # (items,): how many of them have a row
    totals: Floats  # (items, columns)
    vectors: Floats  # (items, columns): of the items, as participants were sent them
    listed: Pairs | None = None  # what each participant listed, where lists are seen, ascending


def has_sums(message_type: type[Message]) -> bool:
    """Whether a sum comes out of messages of this type."""
    return message_type in (MaskedNumbers, SummedShares)


def sums_in(view: View, settings: Mapping[str, Any]) -> list[SeenSum]:
    """The sums of a round that count rows, in the order in which they were made."""
    found: list[SeenSum] = []
    left_out: list[Any] = []  # of the sum to come; it is named after a sum of counts
    for part in _attempts(view, SendKeys, MaskedNumbers):
        seen = _unmasked(part, settings, left_out)
        if seen is not None:
            if left_out and found and np.array_equal(found[-1].participants, seen.participants):
                seen.counts[left_out[0]] = found.pop().counts[left_out[0]]  # all that is known of these
            found.append(seen)
        left_out = _left_out_after(part)
    return found + [_without_shares(part) for part in _attempts(view, FactorsToShare, SummedShares)]


def dense_sums_in(view: View, own: Own) -> list[SeenSum]:
    """The secure sums of a round that have a row of each item, whether they count or not; without counts."""
    found: list[SeenSum] = []
    left_out: list[Any] = []
    for part in _attempts(view, SendKeys, MaskedNumbers):
        unmasked, requests = _words_of(part, own.settings, left_out), _with_vectors(part)
        left_out = _left_out_after(part)
        if unmasked is None or not len(unmasked.words) or len(unmasked.words) % own.num_items:
            continue
        totals = unmasked.words.reshape(own.num_items, -1).astype(np.float64) * 2.0**-FRACTION_BITS
        vectors = requests[0].message.item_factors.astype(np.float64) if requests else totals[:0]  # type: ignore[attr-defined]
        none = np.empty(0, np.int64)
        found.append(SeenSum(part[0].round_number, unmasked.participants, none, totals, vectors))
    return found


def _attempts(view: View, begins: type[Message], ends: type[Message]) -> list[View]:
    """What was sent for each sum: from a first request, asked of several batches, to the next such."""
    parts: list[View] = []
    has_answer = True
    for one in view:
        if isinstance(one.message, begins):
            if has_answer:
                parts.append([])
            has_answer = False
        elif isinstance(one.message, ends):
            has_answer = True
        if parts:
            parts[-1].append(one)
    return [part for part in parts if any(isinstance(one.message, ends) for one in part)]


def _of_kind(part: View, kind: type[Message]) -> list[Recorded]:
    """Batches of one type, in the order of their parties."""
    return sorted((one for one in part if isinstance(one.message, kind)), key=lambda one: int(one.numbers[0]))


def _joined(batches: Iterable[Recorded]) -> tuple[NDArray[np.int32], Any]:
    """Several batches in one: whose they are, and the message."""
    found = list(batches)
    return np.concatenate([one.numbers for one in found]), type(found[0].message).join(
        [one.message for one in found]
    )


# --- Secure sums -------------------------------------------------------------------------------------------------


class _Unmasked(NamedTuple):
    """What masked numbers add up to, and whose they are."""

    words: Counts
    participants: NDArray[np.int64]


def _unmasked(part: View, settings: Mapping[str, Any], left_out: list[Any]) -> SeenSum | None:
    """The sum that the masked numbers of an attempt have; None: it was not unmasked, or does not count."""
    found = _words_of(part, settings, left_out)
    return None if found is None else _counting(found.words, part, found.participants)


def _left_out_after(part: View) -> list[Any]:
    """Items to be left out of the sum to come, as each batch of participants is told after a sum of counts."""
    return [one.message.items for one in part if isinstance(one.message, LeaveOut)]


def _told(part: View, num_parties: int, left_out: list[Any]) -> bytes:
    """A digest of what all participants were told: the request is the last thing before the masked numbers."""
    first = next(place for place, one in enumerate(part) if isinstance(one.message, MaskedNumbers))
    request = part[first - 1]
    none = not left_out or isinstance(request.message, SendCounts)
    return told_to_all(request.message, request.round_number, num_parties, NO_ONE if none else left_out[0])


def _words_of(part: View, settings: Mapping[str, Any], left_out: list[Any]) -> _Unmasked | None:
    """The numbers of an attempt without their masks; None: it was not unmasked."""
    unmask = _of_kind(part, Unmask)
    if not unmask or not _of_kind(part, Unmasking):
        return None
    survivors = unmask[0].message.survivors  # type: ignore[attr-defined]
    senders, masked = _joined(_of_kind(part, MaskedNumbers))
    words: Counts = masked.words.values.reshape(len(senders), -1).sum(axis=0)
    shares = Collect([(one.numbers, one.message) for one in _of_kind(part, Unmasking)])
    sharing = _joined(_of_kind(part, SharesSent))[0]
    graph = _graph(part, settings)
    take_out_masks(words, graph, sharing, survivors, shares, _told(part, len(graph.numbers), left_out))
    return _Unmasked(words, survivors.astype(np.int64))


def _with_vectors(part: View) -> list[Recorded]:
    """Requests with item vectors."""
    return [one for one in part if hasattr(one.message, "item_factors")]


def _graph(part: View, settings: Mapping[str, Any]) -> Graph:
    """Who was whose neighbour, as the server told them."""
    present, keys = _joined(_of_kind(part, PublicKeys))
    asked, told = _joined(_of_kind(part, SendShares))
    numbers = np.union1d(asked, told.neighbours.values)  # without who sent a key and was left out
    names = {entry.name for entry in fields(SecureSums)}
    plan = plan_for(len(numbers), SecureSums(**{name: value for name, value in settings.items() if name in names}))
    neighbours = np.zeros((len(numbers), plan.degree), np.int64)  # of who did not share they are not needed
    rows = places_of(told.neighbours.values, numbers).reshape(len(asked), plan.degree)
    neighbours[places_of(asked, numbers)] = rows
    return Graph(numbers, keys.key.values[places_of(numbers, present)], neighbours, plan)


def _counting(words: Counts, part: View, participants: NDArray[np.int64]) -> SeenSum | None:
    """Words of an `ExactSum`, or of a `DenseSum` that only counts; None: of something else."""
    counting = [one for one in part if isinstance(one.message, SendCounts)]
    if counting:
        none = np.empty((0, 0))
        return SeenSum(counting[0].round_number, participants, words, none, none)
    requests = _with_vectors(part)
    if not requests:
        return None
    vectors = requests[0].message.item_factors.astype(np.float64)  # type: ignore[attr-defined]
    num_items, size = len(vectors), vectors.size
    round_number = requests[0].round_number
    if len(words) == size + num_items:
        totals = words[:size].reshape(vectors.shape) * 2.0**-FRACTION_BITS
        return SeenSum(round_number, participants, words[size:], totals, vectors)
    counts = words.reshape(vectors.shape)[:, 0] >> FRACTION_BITS if len(words) == size else words[:0]
    if len(counts) and (counts << FRACTION_BITS == words.reshape(vectors.shape)[:, 0]).all() and counts.any():
        return SeenSum(round_number, participants, counts, np.zeros_like(vectors), vectors)
    return None


# --- Shares over denoisers ---------------------------------------------------------------------------------------


def _without_shares(part: View) -> SeenSum:
    """Uploads less what denoisers added up."""
    vectors = _of_kind(part, FactorsToShare)[0].message.item_factors.astype(np.float64)  # type: ignore[attr-defined]
    (senders, uploads), (_, shares) = (_joined(_of_kind(part, kind)) for kind in (MaskedGradients, SummedShares))
    left = np.zeros((len(vectors), uploads.words.values.shape[1]), np.int64)
    np.add.at(left, uploads.items.values, uploads.words.values)
    np.subtract.at(left, shares.items.values, shares.words.values)
    pairs = paired(np.repeat(senders.astype(np.int64), uploads.items.lengths), uploads.items.values)
    totals = left[:, :-1] * 2.0**-FRACTION_BITS
    participants = np.sort(senders.astype(np.int64))
    return SeenSum(part[0].round_number, participants, left[:, -1], totals, vectors, distinct(pairs))


# --- What is remembered ------------------------------------------------------------------------------------------


class Remembered(NamedTuple):
    """Participants and counts of all sums so far."""

    sums: tuple[SeenSum, ...] = ()  # without totals
    last_round: int = 0

    def of_last_round(self) -> list[SeenSum]:
        """Those that the last round added."""
        return [one for one in self.sums if one.round_number == self.last_round]


def remember(before: Remembered | None, view: View, own: Own) -> Remembered:
    """The sums with those of one more round."""
    none = np.empty((0, 0))
    found = [one._replace(totals=none, vectors=none) for one in sums_in(view, own.settings)]
    known = before or Remembered()
    if not found and not known.sums:
        raise HushrecError("the run sent no sums that count raters; switch on secure sums or shares")
    return Remembered((*known.sums, *found), found[-1].round_number if found else 0)


# --- How right a guess is ----------------------------------------------------------------------------------------


def others_with(pairs: Pairs, train: Interactions) -> NDArray[np.int64]:
    """How many others than the client of a pair have its item; pairs are distinct and ascending."""
    popularity = np.bincount(train.items, minlength=train.num_items)
    others: NDArray[np.int64] = popularity[items_of(pairs)] - is_own(pairs, train)
    return others


def judged(pairs: Pairs, scores: Floats, train: Interactions) -> Outcome:
    """AUC of scores of distinct, ascending pairs, by client. Blind: that of how many others have the item."""
    found = auc_of(pairs, np.round(scores, 9), train)
    return found._replace(blind=auc_of(pairs, others_with(pairs, train).astype(np.float64), train).right)


def judged_alike(victims: NDArray[np.int64], scores: Floats, train: Interactions) -> Outcome:
    """As `judged` of all pairs of these clients, where an item has one score for all: by ranks, no pair is made.

    Those with no item, or with all, are left out. Rows of the data are distinct.
    """
    num_own = np.bincount(train.users, minlength=train.num_users)
    num_pairs = num_own * (train.num_items - num_own)
    ranks = np.bincount(train.users, ranked(np.round(scores, 9))[train.items], train.num_users)
    wins = ranks - num_own * (num_own + 1) / 2
    popularity = np.bincount(train.items, minlength=train.num_items)
    others = popularity[train.items] - 1  # for an own item; for the rest, all who have it
    beaten = _num_below(np.sort(popularity), others)
    size = train.num_users + 2  # more than any popularity: a client's numbers are together
    own = np.sort(train.users.astype(np.int64) * size + popularity[train.items] + 1)
    starts = np.cumsum(num_own) - num_own
    beaten -= _num_below(own, train.users.astype(np.int64) * size + others + 1) - starts[train.users]
    blind = np.bincount(train.users, beaten, train.num_users)
    told = victims[num_pairs[victims] > 0]
    return Outcome.of_victims(told, wins[told] / num_pairs[told], blind[told] / num_pairs[told])


def ranked(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    return _num_below(np.sort(values), values) + 0.5


def _num_below(ascending: NDArray[Any], values: NDArray[Any]) -> Floats:
    """How many are below each value; equal ones count half."""
    return (np.searchsorted(ascending, values, "left") + np.searchsorted(ascending, values, "right")) / 2


def everything(participants: NDArray[np.int64], num_items: int) -> Pairs:
    """All pairs of these clients, ascending."""
    return paired(np.repeat(participants, num_items), np.tile(np.arange(num_items), len(participants)))


def f1_beside_popular(pairs: Pairs, victims: NDArray[np.int64], train: Interactions) -> Outcome:
    """F1 of guessed pairs by client. Blind: that of as many of the items that most others have."""
    right, blind = [], []
    for victim in victims.tolist():
        guessed = items_of(pairs[clients_of(pairs) == victim])
        everyone = everything(np.array([victim]), train.num_items)
        own, others = is_own(everyone, train), others_with(everyone, train)
        popular = np.argsort(-others, kind="stable")[: len(guessed)]
        size = max(len(guessed) + int(own.sum()), 1)
        right.append(2 * own[guessed].sum() / size)
        blind.append(2 * own[popular].sum() / size)
    return Outcome.of_victims(victims, np.array(right, np.float64), np.array(blind, np.float64))
