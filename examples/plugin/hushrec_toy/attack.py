"""Toy count: a client has rated as many items as it lists."""

from itertools import chain

import numpy as np

from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.audit.uploads import lists
from hushrec.protocol import Role, Seat, View

Counts = dict[int, int]  # by client


def look(_before: Counts | None, view: View, _own: Own) -> Counts:
    """Count the rows of uploads."""
    uploads = [sent for sent in view if lists(type(sent.message))]
    pairs = [zip(sent.numbers.tolist(), sent.message.lengths.tolist(), strict=True) for sent in uploads]
    return dict(chain.from_iterable(pairs))


def judge(counts: Counts, truth: Truth) -> Outcome:
    """Whether each count is right; a blind guess is any number of items."""
    clients = np.array(sorted(counts), np.int64)
    true_counts = np.bincount(truth.train.users, minlength=truth.train.num_users)[clients]
    right = true_counts == [counts[client] for client in clients.tolist()]
    return Outcome.of_victims(clients, right, np.full(len(clients), 1 / truth.train.num_items))


ATTACK = Attack(
    name="toy-count",
    seats=(Seat(Role.SERVER),),
    guesses="how many items a user rated",
    measure="accuracy",
    sentence="An upload tells how many items its user rated in {score:.0%} of cases; blind guesses: {chance:.0%}.",
    reads=lists,
    look=look,
    judge=judge,
)
