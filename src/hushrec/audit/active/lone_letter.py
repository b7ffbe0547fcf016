"""Lone letter: a client is made to send its noise to another client alone, who is then asked as a denoiser.

Clients take whom the server names for their denoiser, and a client answers as a denoiser if it got noise. The sums
of one letter less the gradients of who got it have counts: 1 for a virtual item of the writer, -1 for a rated item
of the reader, 0 for both. So both are told: the writer's rated items are those it listed of which there is no
noise, the reader's are those with counts below one. Some pairs of clients are drawn in each round.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.asking import asks_clients, has_columns
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import Told, judge, told_of
from hushrec.audit.uploads import Pairs, clients_of, lists, paired, places_of
from hushrec.protocol import Ask, Collect, Message, Recorded, Role, Round, Seat, View

_MOST_PAIRS = 50  # of clients that are asked in a round


def names_denoiser(message_type: type[Message]) -> bool:
    """Whether it tells clients V and who their denoiser is."""
    return asks_clients(message_type, "item_factors", "counted_round", "denoiser")


def asks_denoiser(message_type: type[Message]) -> bool:
    """Whether a denoiser is asked by it, with V."""
    is_sent = message_type.sender == Role.SERVER and message_type.receiver == Role.DENOISER
    return is_sent and has_columns(message_type, "item_factors", "counted_round")


def tell(stage: Stage, own: Own) -> Round[None]:
    """Each of some clients has another one for its denoiser, who is asked after it."""
    honest = next((one for one in stage.view if names_denoiser(type(one.message))), None)
    collect = next((one.message for one in stage.view if asks_denoiser(type(one.message))), None)
    if honest is None or collect is None:
        return
    size = min(len(honest.numbers) // 2, _MOST_PAIRS)
    drawn = own.generator.permutation(len(honest.numbers))
    writers = np.sort(drawn[:size])
    readers = drawn[size : 2 * size]
    request = replace(honest.message.take(writers), denoiser=honest.numbers[readers])  # type: ignore[call-arg]
    yield Ask(honest.numbers[writers], request, Collect())
    readers = np.sort(readers)
    counted = honest.message.take(readers).counted_round  # type: ignore[attr-defined]
    yield Ask(honest.numbers[readers], replace(collect, counted_round=counted), Collect())  # type: ignore[call-arg]


class _Sums(NamedTuple):
    """Pairs of those asked as denoisers and items, and the counts that they told."""

    pairs: Pairs
    counts: NDArray[np.int64]


def look(_before: Told | None, view: View, _own: Own) -> Told:
    """Rated items of those who wrote, and of those who read."""
    asks = [one for one in view if names_denoiser(type(one.message))]
    writers = _joined([one.numbers for one in asks])
    readers = _joined([one.message.denoiser for one in asks])  # type: ignore[attr-defined]
    asked = np.unique(np.concatenate([writers, readers]))
    sums = _sums([one for one in view if type(one.message).sender == Role.DENOISER and _has_counts(one.message)])
    uploads = [one for one in view if lists(type(one.message), "gradients")]
    who = _joined([np.repeat(one.numbers, one.message.lengths) for one in uploads])
    items = _joined([one.message.column("items").values for one in uploads])
    order = np.argsort(writers)
    read_by = readers[order][np.searchsorted(writers[order], who)]
    ascending = np.argsort(sums.pairs)
    places, is_there = places_of(paired(read_by, items), sums.pairs[ascending])
    is_virtual = np.zeros(len(who), np.bool_)
    is_virtual[is_there] = sums.counts[ascending][places[is_there]] >= 0
    is_read = np.isin(read_by, clients_of(sums.pairs))
    pairs = np.concatenate([paired(who, items), sums.pairs])
    return told_of(asked, pairs, np.concatenate([~is_virtual | ~is_read, sums.counts < 1]))


def _has_counts(message: Message) -> bool:
    return has_columns(type(message), "items", "counts")


def _sums(replies: list[Recorded]) -> _Sums:
    who = _joined([np.repeat(one.numbers, one.message.lengths) for one in replies])
    items, counts = (_joined([one.message.column(name).values for one in replies]) for name in ("items", "counts"))
    return _Sums(paired(who, items), counts)


def _joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int64]:
    return np.concatenate([*parts, np.empty(0, np.int32)]).astype(np.int64)


ATTACK = Attack(
    name="lone letter",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item of two clients, one of whom is made the other's denoiser",
    measure="F1",
    sentence="A client whose noise goes to another one alone, and that one, tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    reads=names_denoiser,
    look=look,
    judge=judge,
    settings=("denoisers", "rho"),
    lie=Lie(tell),
)
