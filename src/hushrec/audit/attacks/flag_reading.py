"""Flag reading: whether interactions on their way to data owners are positive.

Flags that are outside of what is encrypted say it. Where they are inside, the observer takes every interaction for
positive, as most are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.wire_reading import Read, is_interaction, read_messages
from hushrec.audit.interactions import Interacted, interacted
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.errors import HushrecError
from hushrec.protocol import Role, Seat, View


class Flags(NamedTuple):
    """Guesses, owner after owner, in the order in which messages came."""

    owners: NDArray[np.int64]
    is_positive: NDArray[np.bool_]  # (messages, places of each)


def guess_positives(read: Read, batch: int) -> NDArray[np.bool_]:
    """For each place of each message, whether it is positive."""
    return read.flags if read.flags.shape[1] else np.ones((len(read.owners), batch), np.bool_)


def read_flags(view: View, own: Own) -> Flags:
    """The flags of a round."""
    read = read_messages(view)
    return Flags(read.owners, guess_positives(read, own.settings.get("batch", 1)))


def judge(flags: Flags, truth: Truth) -> Outcome:
    """By owner. Blind: the commoner sign for all."""
    if truth.settings.get("unseen"):
        raise HushrecError("drawn events (--unseen) are sent among real ones, and not told apart; use --unseen 0")
    if not len(flags.owners):
        raise HushrecError("no message to an owner was seen")
    known = interacted(truth)
    sent = _sent(known, truth)
    is_there = sent >= 0
    is_positive = sent[is_there] == 1
    owners = np.repeat(flags.owners, flags.is_positive.shape[1])[is_there]
    is_right = flags.is_positive.ravel()[is_there] == is_positive
    return Outcome.of_marks(owners, is_right, is_positive == known.is_mostly_positive)


def _sent(known: Interacted, truth: Truth) -> NDArray[np.int8]:
    """Of a round's messages, owner after owner, whether each place is positive; -1: filled up."""
    events, batch = known.events, truth.settings.get("batch", 1)
    window, parts = truth.settings["window"], truth.settings["parts"]
    num_windows = -(-len(events.users) // window)
    part = (truth.round_number - 1) % parts
    first, last = (num_windows * cut // parts * window for cut in (part, part + 1))
    event, owner = known.deliveries(events.items[first:last])
    order = np.lexsort((event, owner))
    letters = owner[order].astype(np.int64) * num_windows + event[order] // window
    _, starts, counts = np.unique(letters, return_index=True, return_counts=True)
    num_places = -(-counts // batch) * batch
    firsts = np.cumsum(num_places) - num_places
    is_positive = np.full(int(num_places.sum()), -1, np.int8)
    to = np.arange(len(order)) + np.repeat(firsts - starts, counts)
    is_positive[to] = events.is_positive[first:last][event[order]]
    return is_positive


ATTACK = Attack(
    name="flag reading",
    seats=(Seat(Role.OBSERVER),),
    guesses="whether a message is positive",
    measure="share",
    sentence="Who watches the wire knows for {score:.1%} of the messages of an owner whether they are positive; "
    "the commoner answer for all is right for {chance:.1%}. Without TLS, as in the report, it also sees all that "
    "the orchestrator sees; in a deployment interactions are sealed once more, and flags do not show.",
    reads=is_interaction,
    look=lambda _before, view, own: read_flags(view, own),
    judge=judge,
    settings=("window", "parts"),
    repairs=("--flag inside",),
)
