"""Packet lengths: who watches the network reads nothing, but sees how much each client sends and gets in a round.

TLS adds the same to packets of the same length, so lengths stay in order. An observer that knows neither a system
nor its settings can compare: who sends more has more items. Of each client it takes the mean over all rounds so
far, of those asks that at least half of the clients were asked and in which lengths differ; whoever is not asked
is taken for the mean.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.protocol import Lengths, Message, Role, Seat, View

_BLIND = 0.5
_BLOCK = 256  # victims compared with all others at once


class Watched(NamedTuple):
    """Of each client, by its number: bytes beyond the mean of an ask, summed; and in how many rounds."""

    totals: NDArray[np.float64]
    rounds: NDArray[np.int64]


def watch(before: Watched | None, view: View) -> Watched:
    """Add the bytes of a round."""
    told = _telling(_asks(view))
    known = Watched(np.zeros(0), np.zeros(0, np.int64)) if before is None else before
    size = max([len(known.totals), *(int(who.max()) + 1 for who, _ in told)])
    totals, rounds = np.zeros(size), np.zeros(size, np.int64)
    totals[: len(known.totals)], rounds[: len(known.rounds)] = known
    for who, passed in told:
        np.add.at(totals, who, passed - passed.mean())
    rounds[np.unique(np.concatenate([*(who for who, _ in told), np.empty(0, np.int64)]))] += 1
    return Watched(totals, rounds)


Passed = tuple[NDArray[np.int64], NDArray[np.int64]]  # clients, and bytes to and from them


def _asks(view: View) -> list[Passed]:
    """The asks of a round."""
    seen = [(one.numbers.astype(np.int64), one.message) for one in view if isinstance(one.message, Lengths)]
    asks: dict[int, list[Passed]] = {}
    for who, lengths in seen:
        asks.setdefault(int(lengths.ask), []).append((who, lengths.asked + lengths.answered))
    return [
        (np.concatenate([who for who, _ in ask]), np.concatenate([passed for _, passed in ask]))
        for ask in asks.values()
    ]


def _telling(asks: list[Passed]) -> list[Passed]:
    """Those that tell something of most clients; all that were asked of most, if none does."""
    most = max((len(who) for who, _ in asks), default=0)
    of_most = [ask for ask in asks if 2 * len(ask[0]) >= most > 0]
    return [ask for ask in of_most if len(np.unique(ask[1])) > 1] or of_most


def judge(watched: Watched, truth: Truth) -> Outcome:
    """Of each client, compared with all that have more or fewer items: how often lengths say so; equal: half."""
    clients = np.flatnonzero(watched.rounds)
    means = watched.totals[clients] / watched.rounds[clients]
    num_items = np.bincount(truth.train.users, minlength=truth.train.num_users)[clients]
    right = np.zeros(len(clients))
    others = np.zeros(len(clients), np.int64)
    for first in range(0, len(clients), _BLOCK):
        own = slice(first, first + _BLOCK)
        order = np.sign(num_items[own, None] - num_items)
        agree = np.sign(means[own, None] - means) * order
        others[own] = (order != 0).sum(axis=1)
        right[own] = ((agree + 1) / 2 * (order != 0)).sum(axis=1)
    told = others > 0
    shares = right[told] / others[told]
    return Outcome.of_victims(clients[told], shares, np.full(len(shares), _BLIND))


def is_of_clients(message_type: type[Message]) -> bool:
    """Whether clients send it."""
    return message_type.sender == Role.CLIENT


ATTACK = Attack(
    name="packet lengths",
    seats=(Seat(Role.OBSERVER),),
    guesses="how many items each user has, as who sends more bytes has more",
    measure="right comparisons",
    sentence="Who watches the network and reads nothing says which of two users has more items, right in "
    "{score:.1%} of the comparisons by the lengths of packets; a coin in {chance:.0%}.",
    reads=is_of_clients,
    look=lambda before, view, _own: watch(before, view),
    judge=judge,
    only_last=True,
    repairs=("--padding 256k",),
)
