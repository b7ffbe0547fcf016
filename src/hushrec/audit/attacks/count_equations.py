"""Count equations: over many rounds, counts are linear equations in who has what, one for each sum and item.

c = A x: A says who took part in which sum, x who has the item. Where sums are at least as many as clients, and not
the same, x is determined. Before that, the likeliest x is taken: with m the item's share of raters over all sums,
x = m + A' (A A' + s I)^-1 (c - A m), which is the posterior mean of a normal x with mean m and equal variances.
What counts vary by themselves, s, where lists are drawn anew in each round, is that which makes the counts
likeliest. Where lists are seen, the unknowns of an item are those who list it.

Participants that are in the same sums cannot be told from each other.
"""

import numpy as np

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.sums import Floats, Remembered, SeenSum, everything, has_sums, judged, remember
from hushrec.audit.uploads import Pairs, clients_of, distinct, items_of
from hushrec.protocol import Role, Seat

_NOISES = (1e-6, 1e-2, 0.1, 1.0, 10.0)  # s, in units of the variance of one x
_LEAST_SHARE = 1e-4  # of raters, so that nothing is divided by zero


def solve(took_part: Floats, counts: Floats) -> Floats:
    """Who has what (clients, items), out of who took part (sums, clients) and the counts (sums, items)."""
    shares = counts.sum(axis=0) / max(took_part.sum(), 1.0)
    left = counts - took_part.sum(axis=1, keepdims=True) * shares
    values, directions = np.linalg.eigh(took_part @ took_part.T)
    values = np.maximum(values, 0.0)
    turned = directions.T @ left
    variances = np.maximum(shares * (1 - shares), _LEAST_SHARE)
    energies = (turned**2 / variances).mean(axis=1)

    def surprise(noise: float) -> float:
        return float((energies / (values + noise) + np.log(values + noise)).sum())

    noise = min(_NOISES, key=surprise)
    solved: Floats = shares + took_part.T @ (directions @ (turned / (values + noise)[:, None]))
    return solved


def guess(known: Remembered) -> tuple[Pairs, Floats]:
    """Pairs of all who took part and items, ascending, and how likely each is."""
    if any(one.listed is not None for one in known.sums):
        return _guess_listed([one for one in known.sums if one.listed is not None])
    clients = np.unique(np.concatenate([one.participants for one in known.sums]))
    took_part = np.stack([np.isin(clients, one.participants) for one in known.sums]).astype(np.float64)
    counts = np.stack([one.counts for one in known.sums]).astype(np.float64)
    return everything(clients, counts.shape[1]), solve(took_part, counts).ravel()


def _guess_listed(sums: list[SeenSum]) -> tuple[Pairs, Floats]:
    """The same of the pairs that were listed: those of an item have equations of their own."""
    pairs = distinct(np.concatenate([one.listed for one in sums if one.listed is not None]))
    order = np.argsort(items_of(pairs), kind="stable")
    bounds = np.searchsorted(items_of(pairs)[order], np.arange(len(sums[0].counts) + 1))
    listed = np.stack([np.isin(pairs, one.listed, assume_unique=True) for one in sums])  # type: ignore[arg-type]
    scores = np.zeros(len(pairs))
    for item in np.flatnonzero(np.diff(bounds)).tolist():
        places = order[bounds[item] : bounds[item + 1]]
        counts = np.array([[one.counts[item]] for one in sums], np.float64)
        scores[places] = solve(listed[:, places].astype(np.float64), counts).ravel()
    return pairs, scores


def judge(known: Remembered, truth: Truth) -> Outcome:
    """AUC by who took part in any round."""
    pairs, scores = guess(known)
    assert (np.diff(clients_of(pairs)) >= 0).all()
    return judged(pairs, scores, truth.train)


ATTACK = Attack(
    name="count equations",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as what explains the counts of all rounds by who took part",
    measure="AUC",
    sentence="Of one of a user's own items and another, the counts of all rounds tell the own one in {score:.1%} "
    "of cases; how popular items are among all others tells it in {chance:.1%}.",
    reads=has_sums,
    look=remember,
    judge=judge,
    only_last=True,
    repairs=("--secure-together 10", "--participation 1.0"),
)
