"""Uploaded preferences: a client's own items, by the parameters alone that it uploads; no shadow is trained.

After PubPara (Interaction Privacy Vulnerability in Federated Recommendation and Lossless Countermeasure, ACM TOIS
2025), in idea. Only its abstract was at hand: what a user prefers is stored mostly in the parameters that it
uploads, not in those that it keeps, and a server that looks at the former alone infers the user's items at little
cost. How the paper scores items is not known here.

So: rows of an upload are about multiples of the client's private vector, and their first principal direction
stands in for it. An item's score is how far it moved along that direction from where most items of the upload are,
the middle row: a client's own are fewer than others. Neither the V that was sent nor the way up need be known.
Scores that are uploaded are taken as they are.
"""

from typing import NamedTuple

import numpy as np

from hushrec.audit.item_rows import Floats, item_rows, tells_more_than_lists
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.audit.uploads import Pairs, auc_of, paired
from hushrec.protocol import Role, Seat, View


class Preferred(NamedTuple):
    """How much each client seems to prefer each item that it told of."""

    pairs: Pairs  # ascending
    scores: Floats


def preferred(view: View, own: Own) -> Preferred:
    """The scores of a round; of an item that a client told of twice the highest."""
    pairs, scores = [np.empty(0, np.int64)], [np.empty(0)]
    for batch in item_rows(view, own.settings):
        for place, client in enumerate(batch.clients.tolist() if batch.form != "listed" else []):
            rows = slice(batch.starts[place], batch.starts[place + 1])
            scores.append(batch.rows[rows, 0] if batch.form == "scores" else from_the_middle(batch.rows[rows]))
            pairs.append(paired(np.full(len(scores[-1]), client), batch.items[rows]))
    every, high = np.concatenate(pairs), np.concatenate(scores)
    order = np.lexsort((-high, every))
    found, first = np.unique(every[order], return_index=True)
    return Preferred(found, high[order][first])


def from_the_middle(rows: Floats) -> Floats:
    """How far each row is from the middle one along their first principal direction."""
    _, directions = np.linalg.eigh(rows.T @ rows)
    along: Floats = rows @ directions[:, -1]
    return np.abs(along - np.median(along)) if len(along) else along


def judge(found: Preferred, truth: Truth) -> Outcome:
    """Per client: how often one of its items has a higher score than another that it told of."""
    return auc_of(found.pairs, found.scores, truth.train)


ATTACK = Attack(
    name="uploaded preferences",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those that its uploaded parameters prefer",
    measure="AUC",
    sentence="Of one of the user's own items and another in the same upload, the uploaded parameters alone prefer "
    "the own one in {score:.0%} of cases; blindly it would be {chance:.0%}.",
    reads=tells_more_than_lists,
    look=lambda _before, view, own: preferred(view, own),
    judge=judge,
)
