"""Who users are, from what each of them sent: ridge regression on those whose attributes are known from elsewhere.

A user is a row of numbers, one for each item: what its uploads said of it, summed over the rounds. Rows have
length 1, so that who sends much is not further away than others. The regression says how likely each class is; the
guess is the class that is most likely compared with how common it is, so that each class counts alike. How strong
the ridge is, is chosen by what leaving out one known user at a time would give.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.item_rows import item_rows
from hushrec.audit.scoreboard import Arrays, Outcome, Own
from hushrec.errors import HushrecError
from hushrec.protocol import View

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]

_LEAST_KNOWN = 10  # users of a class, so that it can be learned
_MOST_KNOWN = 1500  # whom it learns from: more cost much and tell little more
_RIDGES = np.logspace(-2, 2, 9)  # times the mean square of a row


class Guessed(NamedTuple):
    """Users whose attribute was not known, and what it is guessed to be."""

    users: NDArray[np.int64]
    texts: Texts
    classes: Texts  # among which one was guessed


class Inferred(NamedTuple):
    """What was seen of each user so far, and what is guessed of them."""

    seen: NDArray[np.float32]  # (users, items)
    guesses: dict[str, Guessed]  # by attribute


def infer(before: Inferred | None, view: View, own: Own) -> Inferred:
    """The guesses after one more round."""
    if not own.attributes:
        raise HushrecError("nothing is known of who the users of this data are")
    seen = _seen(None if before is None else before.seen, view, own)
    active = np.flatnonzero(seen.any(axis=1))
    rows = seen[active] / np.linalg.norm(seen[active], axis=1, keepdims=True)
    guesses = {}
    for name, texts in own.attributes.items():
        guessed = guess(rows, texts[active])
        if guessed is not None:
            guesses[name] = guessed._replace(users=active[guessed.users])
    return Inferred(seen, guesses)


def _seen(before: NDArray[np.float32] | None, view: View, own: Own) -> NDArray[np.float32]:
    """What all uploads so far said of each item, by user."""
    num_users = len(next(iter(own.attributes.values())))
    seen = np.zeros((num_users, 0), np.float32) if before is None else before.copy()
    for batch in item_rows(view, own.settings):
        more = int(batch.items.max(initial=-1)) + 1 - seen.shape[1]
        seen = np.pad(seen, ((0, 0), (0, max(more, 0))))
        np.add.at(seen, (batch.clients[batch.owners], batch.items), batch.sizes().astype(np.float32))
    return seen


def guess(rows: NDArray[np.floating], texts: Texts) -> Guessed | None:
    """The attribute of each row whose text is ""; None, if too little is known to tell classes apart."""
    names, counts = np.unique(texts[texts != ""], return_counts=True)
    classes, unknown = names[counts >= _LEAST_KNOWN], np.flatnonzero(texts == "")
    known = np.flatnonzero(np.isin(texts, classes))[:_MOST_KNOWN]
    if len(classes) < 2 or not len(unknown):
        return None
    targets = (texts[known, None] == classes).astype(np.float64)
    shares = targets.mean(axis=0)
    away = np.asarray(rows - rows[known].mean(axis=0))
    weights = ridge(away[known] @ away[known].T, targets - shares)
    likely = (away[unknown] @ away[known].T) @ weights / np.maximum(shares, 1e-9)
    return Guessed(unknown, classes[likely.argmax(axis=1)], classes)


def ridge(products: NDArray[np.floating], targets: Floats) -> Floats:
    """Weights of the known rows, (rows, classes), with the ridge that is best when one of them is left out."""
    values, vectors = np.linalg.eigh(products.astype(np.float64))
    values = np.maximum(values, 0.0)
    along, best, least = vectors.T @ targets, np.zeros_like(targets), np.inf
    for strength in _RIDGES * max(float(values.mean()), 1e-12):
        kept = values / (values + strength)
        leverage = np.minimum((vectors**2) @ kept, 1 - 1e-9)
        left_out = (targets - vectors @ (kept[:, None] * along)) / (1 - leverage[:, None])
        error = float(np.sum(left_out**2))
        if error < least:
            least, best = error, vectors @ (along / (values + strength)[:, None])
    return best


def judge(inferred: Inferred, attributes: Arrays, name: str) -> Outcome:
    """Whether each guess is right, weighted so that all classes count alike: the mean is balanced accuracy.

    Always guessing one class, as the most common one, has one over the number of classes. Users of classes that
    the attack did not know enough of are left out.
    """
    nothing = np.empty(0, np.int64)
    found = inferred.guesses.get(name)
    if found is None or name not in attributes:
        return Outcome.of_victims(nothing, nothing, nothing)
    truth = attributes[name][found.users]
    is_counted = np.isin(truth, found.classes)
    truth, users, texts = truth[is_counted], found.users[is_counted], found.texts[is_counted]
    names, places, counts = np.unique(truth, return_inverse=True, return_counts=True)
    weights = len(truth) / (len(names) * counts[places])
    return Outcome.of_victims(users, weights * (texts == truth), np.full(len(users), 1 / max(len(names), 1)))
