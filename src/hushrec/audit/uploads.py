"""What clients showed the server: which items each listed, or what each answered to what it was sent.

A (client, item) pair is one number, so that pairs can be sorted, joined and counted all at once.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Outcome, is_sent
from hushrec.data import Interactions
from hushrec.protocol import Message, Role, View

Pairs = NDArray[np.int64]

_STRIDE = np.int64(1) << 31
_BLIND = 0.5  # an AUC without knowing anything


class Listed(NamedTuple):
    """Rows of all uploads, in the order in which they came."""

    pairs: Pairs
    scores: NDArray[np.float32]  # empty, if they were not asked for


def lists(message_type: type[Message], *columns: str) -> bool:
    """Whether clients send it to the server, with items and these columns, a row for each item."""
    return is_upload(message_type, "items", *columns)


def is_upload(message_type: type[Message], *columns: str) -> bool:
    """Whether clients send it to the server, with these columns of rows."""
    return is_sent(message_type, Role.CLIENT, Role.SERVER, *columns)


def listed(view: View, with_scores: bool = False) -> Listed:
    """All rows that clients listed."""
    columns = ("scores",) if with_scores else ()
    uploads = [one for one in view if lists(type(one.message), *columns)]
    if not uploads:
        return Listed(np.empty(0, np.int64), np.empty(0, np.float32))
    who = np.concatenate([np.repeat(one.numbers.astype(np.int64), one.message.lengths) for one in uploads])
    items = np.concatenate([one.message.column("items").values for one in uploads])
    scores = [one.message.column("scores").values for one in uploads] if with_scores else []
    return Listed(paired(who, items), np.concatenate(scores or [np.empty(0, np.float32)]))


class Answered(NamedTuple):
    """What some clients were sent last, and what they answered."""

    clients: NDArray[np.int64]
    request: Message
    upload: Message


def answered(view: View, request_column: str, upload_type: type[Message]) -> Iterator[Answered]:
    """Uploads of a type, each with the message of the server that had this column and came before it.

    An upload whose request was not seen is left out.
    """
    places: dict[int, tuple[int, int]] = {}  # of each client: the batch of its last request, and where in it
    for number, (_, numbers, message, _) in enumerate(view):
        kind = type(message)
        if kind.sender == Role.SERVER and request_column in {column.name for column in kind.kinds()}:
            places.update((client, (number, place)) for place, client in enumerate(numbers.tolist()))
        elif kind is upload_type:
            found = np.array([places.get(client, (-1, 0)) for client in numbers.tolist()]).reshape(-1, 2)
            for batch in np.unique(found[found[:, 0] >= 0, 0]).tolist():
                own = np.flatnonzero(found[:, 0] == batch)
                request = view[batch].message.take(found[own, 1])
                upload = message if len(own) == len(numbers) else message.take(own)
                yield Answered(numbers[own].astype(np.int64), request, upload)


def counted(rows: NDArray[np.floating]) -> NDArray[np.bool_] | None:
    """Which rows are counted, if that is all that an upload does: a 1 in one column, or zeros; None: it does more.

    Systems that start from popularity ask for such uploads first; what is counted is what a client says it has.
    """
    columns = np.flatnonzero(rows.any(axis=0))
    if len(columns) != 1:
        return None
    values = np.abs(rows[:, columns[0]])
    return values == 1 if np.isin(values, (0, 1)).all() else None


def paired(clients: NDArray[np.integer], items: NDArray[np.integer]) -> Pairs:
    """Encode (client, item) as one number."""
    pairs: Pairs = clients.astype(np.int64) * _STRIDE + items
    return pairs


def clients_of(pairs: Pairs) -> NDArray[np.int64]:
    """The client of each pair."""
    return pairs // _STRIDE


def items_of(pairs: Pairs) -> NDArray[np.int64]:
    """The item of each pair."""
    return pairs % _STRIDE


def distinct(pairs: Pairs) -> Pairs:
    """Each pair once, ascending."""
    ordered = np.sort(pairs)
    return ordered[_is_first(ordered)]


def by_client(pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The clients of ascending pairs, and for each pair the place of its client among them."""
    clients = clients_of(pairs)
    is_first = _is_first(clients)
    return clients[is_first], np.cumsum(is_first) - 1


def _is_first(ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a number differs from the one before it."""
    is_first = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return is_first


def places_of(wanted: Pairs, pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where among ascending pairs each wanted one belongs, and whether it is there."""
    places = np.searchsorted(pairs, wanted)
    is_there = np.zeros(len(wanted), np.bool_)
    is_inside = places < len(pairs)
    is_there[is_inside] = pairs[places[is_inside]] == wanted[is_inside]
    return places, is_there


@lru_cache(maxsize=1)  # all attacks of all rounds of a run ask for the same
def _own_pairs(train: Interactions) -> Pairs:
    return distinct(paired(train.users, train.items))


def is_own(pairs: Pairs, train: Interactions) -> NDArray[np.bool_]:
    """The truth about each of distinct, ascending pairs: whether the client trained on the item as its own."""
    places, is_there = places_of(_own_pairs(train), pairs)
    found = np.zeros(len(pairs), np.bool_)
    found[places[is_there]] = True
    return found


def f1_of(clients: NDArray[np.int64], pairs: Pairs, train: Interactions) -> Outcome:
    """F1 of the distinct pairs guessed about these clients, ascending; who rightly has no guess is left out.

    Chance: the expected F1 of as many guesses at random from the whole catalogue.
    """
    owners = np.searchsorted(clients, clients_of(pairs))
    num_guesses = np.bincount(owners, minlength=len(clients))
    num_hits = np.bincount(owners, is_own(pairs, train), len(clients))
    num_positives = np.bincount(train.users, minlength=train.num_users)[clients]
    blind_hits = num_guesses * num_positives / max(train.num_items, 1)
    both = num_guesses + num_positives
    told = both > 0
    return Outcome.of_victims(clients[told], 2 * num_hits[told] / both[told], 2 * blind_hits[told] / both[told])


def auc_of(pairs: Pairs, scores: NDArray[np.float64], train: Interactions) -> Outcome:
    """Per client: how often an own item has a higher score than another; ties count half. Pairs are ascending.

    Clients with only own items among the pairs, or none, are left out: there is nothing to tell apart.
    """
    clients, owners = by_client(pairs)
    order = np.lexsort((scores, owners))
    owners, scores = owners[order], scores[order]
    is_positive = is_own(pairs, train)[order]
    # Ranks within a client from 1; equal scores share the mean of their ranks.
    starts = np.searchsorted(owners, np.arange(len(clients)))
    is_first = np.ones(len(owners), bool)
    is_first[1:] = (owners[1:] != owners[:-1]) | (scores[1:] != scores[:-1])
    firsts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(firsts, len(owners)))
    ranks = np.repeat(firsts + (sizes + 1) / 2, sizes) - starts[owners]
    num_positives = np.bincount(owners, is_positive, len(clients))
    num_others = np.bincount(owners, ~is_positive, len(clients))
    wins = np.bincount(owners, ranks * is_positive, len(clients)) - num_positives * (num_positives + 1) / 2
    can_tell = (num_positives > 0) & (num_others > 0)
    shares = wins[can_tell] / (num_positives * num_others)[can_tell]
    return Outcome.of_victims(clients[can_tell], shares, np.full(len(shares), _BLIND))
