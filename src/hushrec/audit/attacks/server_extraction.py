"""Server extraction: clients who collude train a copy of the server's hidden model on the scores they are told.

PTF-FedRec's claim is that the server's model stays hidden: messages hold a few scored items, and no parameter.
Here a share of the clients, drawn at random, put together their own items and every score that they were told,
and train a model of their own on it. How well it takes the place of the server's is judged by the lists that
both recommend to these clients.

The copy is EASE (Steck: Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019): an own item counts 1,
one told in the last three rounds its last score, any other 0; what was told so keeps its score in the copy. It
is solved in closed form. It was chosen with a look at the server's scores, of one seed on ML-100K and
Steam-200K, which an attacker does not have: of some thirty (EASE, weighted matrix factorisation of the same
labels or of the told scores alone, means of items; scores of 1 to 20 rounds) it is among the closest to the
server's model. The penalty is a compromise: the copy is best with 50 to 100, own data alone with 200 and more,
depending on how many collude.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth, is_sent
from hushrec.errors import HushrecError
from hushrec.evaluation.top_k import NO_ITEM, top_k
from hushrec.protocol import Message, Role, Seat, View

Scores = NDArray[np.float32]

LENGTH = 20  # of the lists that are compared
_PENALTY = 200.0
_PENALTIES_ALONE = (200.0, 500.0, 2000.0)
_ROUNDS = 3  # older scores are those of another model


class Copied(NamedTuple):
    """Scores of all items, a row for each client that colludes."""

    clients: NDArray[np.int32]
    is_own: NDArray[np.bool_]
    told: Scores  # the last score of each item that the server told
    told_round: NDArray[np.int32]  # in which it did so last; 0: never
    alone: tuple[Scores, ...]  # by models of their own items, one for each penalty
    copied: Scores  # by a model of all that they know


def tells(message_type: type[Message]) -> bool:
    """Whether the server sends clients items and scores with it."""
    return is_sent(message_type, Role.SERVER, Role.CLIENT, "items", "scores")


def copy_server(before: Copied | None, view: View, own: Own) -> Copied:
    """The copy, with what was told in one more round."""
    known = _before_the_first_round(own) if before is None else before
    told, told_round = known.told.copy(), known.told_round.copy()
    for one in view:
        if tells(type(one.message)):
            items, scores = one.message.column("items"), one.message.column("scores")
            rows = np.searchsorted(known.clients, np.repeat(one.numbers, items.lengths))
            told[rows, items.values], told_round[rows, items.values] = scores.values, one.round_number
    is_new = (told_round > max(told_round.max() - _ROUNDS, 0)) & ~known.is_own
    learned = ease(np.where(is_new, told, known.is_own).astype(np.float32))
    return known._replace(told=told, told_round=told_round, copied=np.where(is_new, told, learned))


def _before_the_first_round(own: Own) -> Copied:
    clients = np.array(sorted(own.each), np.int32)
    num_items = int(own.each[int(clients[0])]["num_items"])
    is_own = np.zeros((len(clients), num_items), np.bool_)
    for row, client in enumerate(clients.tolist()):
        is_own[row, own.each[client]["items"]] = True
    alone = tuple(ease(is_own.astype(np.float32), penalty) for penalty in _PENALTIES_ALONE)
    nothing = np.zeros(is_own.shape, np.float32)
    return Copied(clients, is_own, nothing, np.zeros(is_own.shape, np.int32), alone, alone[0])


def ease(labels: Scores, penalty: float = _PENALTY) -> Scores:
    """X B for labels X (clients, items), where B predicts each item from the others by ridge regression.

    With P = (X^T X + penalty)^-1, B is -P_ij / P_jj off its diagonal and 0 on it. There are fewer clients than
    items, so P is not made: X P = (X X^T + penalty)^-1 X, and penalty P_jj = 1 - x_j (X P)_j.
    """
    products = labels @ labels.T + np.float32(penalty) * np.eye(len(labels), dtype=np.float32)
    rows: Scores = np.linalg.solve(products, labels)
    diagonal = (1 - np.einsum("ui,ui->i", labels, rows)) / np.float32(penalty)
    predicted: Scores = labels - rows / diagonal
    return predicted


def judge(copied: Copied, truth: Truth) -> Outcome:
    """By client, the share of the server's list that is in the copy's list; neither has the client's own items.

    Chance: the list of a model of the same kind, trained on the same clients' items alone.
    """
    return agreement(copied, copied.is_own, truth)


def agreement(copied: Copied, is_left_out: NDArray[np.bool_], truth: Truth) -> Outcome:
    """By client, how much of the server's list is in the copy's, and in that of own data alone."""
    left_out = (
        np.concatenate([[0], np.cumsum(is_left_out.sum(axis=1))]),
        np.nonzero(is_left_out)[1].astype(np.int32),
    )
    models = (truth.server_scores(copied.clients), copied.copied, *copied.alone)
    lists = [top_k(scores, LENGTH, left_out)[0] for scores in models]
    wanted, found, *alone = (_marks(items, is_left_out.shape) for items in lists)
    lengths = wanted.sum(axis=1)
    has_list = lengths > 0
    if not has_list.any():
        raise HushrecError("no item is left that could be recommended to those who collude")
    hits, *blind = ((wanted & one).sum(axis=1)[has_list] / lengths[has_list] for one in (found, *alone))
    chances = max(blind, key=lambda one: float(one.mean()))
    return Outcome.of_victims(copied.clients[has_list].astype(np.int64), hits, chances)


def _marks(items: NDArray[np.int32], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether each item is in a client's list."""
    marks = np.zeros(shape, np.bool_)
    rows, places = np.nonzero(items != NO_ITEM)
    marks[rows, items[rows, places]] = True
    return marks


ATTACK = Attack(
    name="server extraction 10%",
    seats=(Seat(Role.CLIENT),),
    guesses="the server's list for each client that colludes",
    measure="recall@20",
    sentence="If 10% of the clients collude, a copy of the server's model that they train on its answers "
    "recommends {score:.0%} of what the server's would recommend to them; with their own data alone, "
    "{chance:.0%}.",
    reads=tells,
    look=copy_server,
    judge=judge,
    only_last=True,
    own=("items", "num_items"),
    share=0.1,
    is_about_people=False,
)
