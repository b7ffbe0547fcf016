"""Shadow membership: which items are a client's own, by comparing its upload with that of a shadow of it.

After IMIA (Yuan, Yang, Nguyen, Cui, He, Yin: Interaction-level Membership Inference Attack Against Federated
Recommender Systems, WWW 2023), in idea: the server guesses which items of an upload are not the client's own,
makes a shadow that has these as a client would, compares the shadow's upload with the real one, guesses anew that
those which differ least are not its own, and so on. What the last shadow explains worst is the client's.

What is different here, as the attack looks at columns of messages and not into models: the shadow is linear. For
gradients it takes the client's vector from the upload, up to a scale: all rows are about multiples of it, so it is
their first principal direction. A row's length along it is an error, which for items that are not the client's own
is a straight line in what the vector says of the V that was sent: slope and offset are what the shadow learns.
Where scores are uploaded, the line is in what other clients said of the item in the same round, and higher is the
client's. The paper trains a copy of the network from random guesses; its shadow cannot know the client's private
vector either, and the share of positives, which it assumes, is not needed here: most rows must be others'.
"""

from typing import NamedTuple

import numpy as np

from hushrec.audit.item_rows import Floats, ItemRows, item_rows, tells_more_than_lists
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.audit.uploads import Pairs, auc_of, paired
from hushrec.protocol import Role, Seat, View

_TRUSTED = 0.5  # share of rows that the shadow learns from: those that differ least
_NUM_STARTS = 6
_NUM_GUESSES = 8  # from each start


class Doubted(NamedTuple):
    """How badly the shadow of its client explains each (client, item)."""

    pairs: Pairs  # ascending
    distances: Floats


def doubt(view: View, own: Own) -> Doubted:
    """The distances of all uploads of a round; of an item that a client told of twice the largest."""
    told = [batch for batch in item_rows(view, own.settings) if batch.form != "listed"]
    # In the order of clients, so that draws do not depend on which thread was first.
    batches = sorted(told, key=lambda batch: tuple(batch.clients[:1]))
    usual = _usual_scores(batches)
    pairs, distances = [np.empty(0, np.int64)], [np.empty(0)]
    for batch in batches:
        for place, client in enumerate(batch.clients.tolist()):
            rows = slice(batch.starts[place], batch.starts[place + 1])
            seen, expected = _on_a_line(batch, rows, usual)
            away = seen - shadow(seen, expected, own.generator)
            distances.append(away if batch.form == "scores" else np.abs(away))
            pairs.append(paired(np.full(len(seen), client), batch.items[rows]))
    every, worst = np.concatenate(pairs), np.concatenate(distances)
    order = np.lexsort((-worst, every))
    found, first = np.unique(every[order], return_index=True)
    return Doubted(found, worst[order][first])


def _usual_scores(batches: list[ItemRows]) -> tuple[Floats, Floats]:
    """For each item the sum of the scores that clients gave it, and how many did."""
    scored = [batch for batch in batches if batch.form == "scores"]
    items = np.concatenate([np.empty(0, np.int64), *(batch.items for batch in scored)])
    scores = np.concatenate([np.empty(0), *(batch.rows[:, 0] for batch in scored)])
    counts = np.bincount(items).astype(np.float64)
    return np.bincount(items, scores, len(counts)).astype(np.float64), counts


def _on_a_line(batch: ItemRows, rows: slice, usual: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Of each row of a client what it says, and what that should be a straight line in."""
    items, told = batch.items[rows], batch.rows[rows]
    if batch.form == "gradients" and batch.vectors is not None:
        _, directions = np.linalg.eigh(told.T @ told)
        return told @ directions[:, -1], batch.vectors[items] @ directions[:, -1]
    if batch.form == "scores":
        sums, counts = usual[0][items] - told[:, 0], usual[1][items] - 1
        mean = told[:, 0].mean() if len(told) else 0.0
        return told[:, 0], (sums + mean) / (counts + 1)  # who is alone with an item is as usual
    return told[:, 0], np.zeros(len(told))


def shadow(seen: Floats, expected: Floats, generator: np.random.Generator) -> Floats:
    """What a shadow says of all rows: the line that explains some half of them best, from several guesses."""
    num_trusted = max(int(np.ceil(_TRUSTED * len(seen))), min(2, len(seen)))
    best, least = np.zeros(len(seen)), np.inf
    for start in range(_NUM_STARTS if len(seen) else 0):
        trusted = np.arange(len(seen))
        if start:
            trusted = generator.choice(len(seen), min(2, len(seen)), replace=False)
        said, error = best, np.inf
        for _ in range(_NUM_GUESSES):
            said = _line(seen[trusted], expected[trusted], expected)
            squares = (seen - said) ** 2
            trusted = np.argpartition(squares, num_trusted - 1)[:num_trusted]
            if squares[trusted].sum() >= error:
                break
            error = float(squares[trusted].sum())
        if error < least:
            least, best = error, said
    return best


def _line(values: Floats, at: Floats, everywhere: Floats) -> Floats:
    """The straight line of least squares through some points, at all places."""
    middle, height = at.mean(), values.mean()
    spread = float(((at - middle) ** 2).sum())
    slope = float(((at - middle) * (values - height)).sum()) / spread if spread > 0 else 0.0
    line: Floats = height + slope * (everywhere - middle)
    return line


def judge(doubted: Doubted, truth: Truth) -> Outcome:
    """Per client: how often one of its items is further from the shadow than another that it told of."""
    return auc_of(doubted.pairs, doubted.distances, truth.train)


ATTACK = Attack(
    name="shadow membership",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those that a shadow without them explains worst",
    measure="AUC",
    sentence="Of one of the user's own items and another in the same upload, the own one is further from what a "
    "shadow of the user would have sent in {score:.0%} of cases; blindly it would be {chance:.0%}.",
    reads=tells_more_than_lists,
    look=lambda _before, view, own: doubt(view, own),
    judge=judge,
)
