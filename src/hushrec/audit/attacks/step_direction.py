"""Step direction: who uploads the steps of items that it trained on tells its own by the way they go.

A client's own items are moved towards its vector, those that it has drawn as negatives away from it. So the steps
of one upload lie along one line, its first principal direction, and its two ends are the two kinds. There are more
negatives than positives, so the end with fewer items is that of the client's own. What else is there by chance, or
to mislead, is drawn anew in each round: who uploads several times has what was there each time. An upload that
only counts says itself what is the client's own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import Pairs, clients_of, counted, f1_of, lists, paired
from hushrec.protocol import Message, Role, Seat, View


class Guesses(NamedTuple):
    """Who uploaded in the rounds so far, and what is guessed to be theirs."""

    clients: NDArray[np.int64]  # ascending
    pairs: Pairs


def has_steps(message_type: type[Message]) -> bool:
    """Whether clients list items with a step of each."""
    return lists(message_type, "gradients")


def guess_positives(before: Guesses | None, view: View) -> Guesses:
    """The items at the smaller end of every upload of a client, whatever the round."""
    now = _read(view)
    if before is None:
        return now
    is_known = np.isin(clients_of(now.pairs), before.clients)
    is_here = np.isin(clients_of(before.pairs), now.clients)
    again = np.intersect1d(now.pairs[is_known], before.pairs)
    pairs = np.concatenate([before.pairs[~is_here], again, now.pairs[~is_known]])
    return Guesses(np.union1d(before.clients, now.clients), np.sort(pairs))


def _read(view: View) -> Guesses:
    """The same of one round; of a client that was asked again, all that it told."""
    clients, pairs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for one in view:
        if not has_steps(type(one.message)):
            continue
        items, steps = one.message.column("items"), one.message.column("gradients")
        for place, client in enumerate(one.numbers.tolist()):
            own = slice(items.starts[place], items.starts[place + 1])
            is_own = counted(steps.values[own])
            if is_own is None:
                is_own = at_smaller_end(steps.values[own].astype(np.float64))
            pairs.append(paired(np.full(int(is_own.sum()), client), items.values[own][is_own]))
        clients.append(one.numbers.astype(np.int64))
    return Guesses(np.unique(np.concatenate(clients)), np.unique(np.concatenate(pairs)))


def at_smaller_end(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each step goes the way of the fewer, along the line that explains most of them."""
    _, directions = np.linalg.eigh(steps.T @ steps)
    along = steps @ directions[:, -1]
    is_fewer: NDArray[np.bool_] = along > 0 if (along > 0).sum() <= (along < 0).sum() else along < 0
    return is_fewer


def judge(guesses: Guesses, truth: Truth) -> Outcome:
    """F1 of each client that uploaded."""
    return f1_of(guesses.clients, guesses.pairs, truth.train)


ATTACK = Attack(
    name="step direction",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those that go the other way than most",
    measure="F1",
    sentence="Taking the items whose steps go the other way than most, in every upload so far, for the user's own "
    "gives an F1 of {score:.2f}; as many blind guesses from the catalogue give {chance:.2f}.",
    reads=has_steps,
    look=lambda before, view, _own: guess_positives(before, view),
    judge=judge,
    only_last=True,
    settings=("num_negatives",),
)
