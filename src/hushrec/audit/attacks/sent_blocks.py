"""Sent blocks: which ciphertexts a client sends tells where its items are, though not what is in them.

Item vectors lie one after another in blocks, each one ciphertext. Who sends only the blocks that hold one of its
listed items tells that all others hold none; over the rounds, blocks with an item of its own are sent more often
than those with drawn ones only. Who sends all blocks tells nothing, and the score is that of blind guessing. The
layout is seen before the first update, while the server's own start of the vectors lies in the blocks unencrypted.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks import upload_frequency
from hushrec.audit.attacks.upload_frequency import Counts, add_round
from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, by_client, distinct, is_upload, items_of, paired
from hushrec.protocol import Message, Recorded, Role, Seat, View

_NUMBER = "<i4"  # as they lie in a block


class Layout(NamedTuple):
    """How numbers lie in blocks."""

    num_blocks: int
    slots: int  # numbers of a block
    num_numbers: int  # of all item vectors


class Sent(NamedTuple):
    """In how many rounds each client sent each block, for those that it did."""

    counts: Counts  # of (client, block)
    layout: Layout | None  # None: not seen


def sends_blocks(message_type: type[Message]) -> bool:
    """Whether clients send it to the server, with the places of blocks."""
    return is_upload(message_type, "places", "blocks")


def count(before: Sent | None, view: View) -> Sent:
    """The counts with one more round."""
    uploads = [one for one in view if sends_blocks(type(one.message))]
    now = [_pairs(one) for one in uploads]
    pairs = distinct(np.concatenate(now)) if now else np.empty(0, np.int64)
    layout = before.layout if before is not None else None
    return Sent(add_round(before.counts if before is not None else None, pairs), layout or _layout(view))


def _pairs(one: Recorded) -> Pairs:
    return paired(np.repeat(one.numbers, one.message.lengths), one.message.column("places").values)


def _layout(view: View) -> Layout | None:
    """From what the server sent while nothing was added to it; None if it did not."""
    for _, _, message, _ in view:
        columns = {kind.name for kind in message.kinds()}
        is_request = type(message).sender == Role.SERVER and {"blocks", "num_additions"} <= columns
        if is_request and not message.num_additions.any():  # type: ignore[attr-defined]
            return layout_of(message.blocks)  # type: ignore[attr-defined]
    return None


def layout_of(blocks: NDArray[np.uint8]) -> Layout | None:
    """Blocks hold numbers from their beginning and zeros behind; None if all are zero."""
    numbers = blocks[:, : blocks.shape[1] // 4 * 4].copy().view(_NUMBER)
    filled = np.max((numbers != 0) * np.arange(1, numbers.shape[1] + 1), axis=1, initial=0)
    slots = int(filled.max(initial=0))
    return Layout(len(blocks), slots, (len(blocks) - 1) * slots + int(filled[-1])) if slots else None


def judge(sent: Sent, truth: Truth) -> Outcome:
    """Per client: how often an own item was in sent blocks in more rounds than another item (AUC, ties half)."""
    if sent.layout is None:
        nothing: NDArray[Any] = np.empty(0, np.int64)
        return Outcome.of_victims(nothing, nothing.astype(np.float64), nothing.astype(np.float64))
    clients, owners = by_client(sent.counts.pairs)
    times = np.zeros((len(clients), sent.layout.num_blocks), np.int64)
    times[owners, items_of(sent.counts.pairs)] = sent.counts.times
    of_items = _of_items(times, sent.layout, truth.train.num_items)
    pairs = paired(clients[:, None], np.arange(truth.train.num_items))
    return upload_frequency.judge(Counts(pairs.ravel(), of_items.ravel()), truth)


def _of_items(times: NDArray[np.int64], layout: Layout, num_items: int) -> NDArray[np.int64]:
    """Who lists an item sends all blocks that it lies in: the rarest of them counts."""
    num_factors = max(round(layout.num_numbers / num_items), 1)
    first = np.arange(num_items) * num_factors // layout.slots
    last = (np.arange(1, num_items + 1) * num_factors - 1) // layout.slots
    first, last = (np.minimum(block, layout.num_blocks - 1) for block in (first, last))
    rarest = times[:, first]
    for step in range(1, int((last - first).max(initial=0)) + 1):
        rarest = np.minimum(rarest, times[:, np.minimum(first + step, last)])
    return rarest


ATTACK = Attack(
    name="sent blocks",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those in the ciphertexts sent in the most rounds",
    measure="AUC",
    sentence="Of one of the user's own items and another, the own one was in ciphertexts that were sent more "
    "often in {score:.0%} of cases (half of the ties); blindly it would be {chance:.0%}.",
    reads=sends_blocks,
    look=lambda before, view, _own: count(before, view),
    judge=judge,
    only_last=True,
)
