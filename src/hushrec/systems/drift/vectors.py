"""Vectors of users and items: how they begin, how they move, and what they recommend. Used by `drift`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.evaluation.top_k import top_k
from hushrec.limits import MOST_ITEMS, MOST_USERS
from hushrec.privacy.exact_sum import ExactSum
from hushrec.protocol import Numbers, Ragged
from hushrec.systems.drift.plan import Plan

Factors = NDArray[np.float32]

# Uniform numbers within this have a standard deviation of 0.1.
_START_RANGE = 0.1 * 3**0.5
_KNOWN = 200  # how many of the best items a user may know already


def grown_users(factors: Factors, size: int, plan: Plan, draws: Draws) -> Factors:
    """Users' vectors with rows for newcomers; a vector depends on the number only, not on when it came."""
    grown = _longer(factors, size, MOST_USERS, "user-vectors", draws)
    if plan.bias_pace:
        grown[len(factors) :, -1] = 1
    return grown


def grown_items(factors: Factors, size: int, plan: Plan, draws: Draws) -> Factors:
    """The same of items; biases begin at 0."""
    grown = _longer(factors, size, MOST_ITEMS, "item-vectors", draws)
    if plan.bias_pace:
        grown[len(factors) :, -1] = 0
    return grown


def _longer(factors: Factors, size: int, most: int, purpose: str, draws: Draws) -> Factors:
    if size > most:
        raise HushrecError(f"{size:,} vectors are too many; number users and items from 0, without gaps")
    numbers = np.arange(len(factors), max(size, len(factors)), dtype=np.int32)
    more = uniform_rows(draws.key(purpose), numbers, factors.shape[1], -_START_RANGE, _START_RANGE)
    return np.concatenate([factors, more])


@dataclass(frozen=True)
class _Rows:
    """Rows to sum, as `ExactSum` takes them."""

    items: Ragged
    gradients: Ragged


def summed_rows(numbers: Numbers, gradients: Factors, senders: Numbers) -> tuple[Numbers, ExactSum]:
    """The distinct numbers, ascending, and the exact sum of the gradients of each; senders are named in errors."""
    touched, places = np.unique(numbers, return_inverse=True)
    total = ExactSum.zeros((len(touched), gradients.shape[1]), len(places))
    rows = np.arange(len(places) + 1)
    total.add(senders, _Rows(Ragged(rows, places.astype(np.int32)), Ragged(rows, gradients)))
    return touched, total


def move_users(factors: Factors, touched: Numbers, total: ExactSum, plan: Plan) -> None:
    """Move these users' vectors by the sums of their gradients (Algorithm 4)."""
    factors[touched] -= plan.learning_rate * total.to_float()


def move_items(
    factors: Factors, touched: Numbers, total: ExactSum, num_holders: NDArray[np.int64], plan: Plan
) -> None:
    """The same of items.

    Biases go by the mean over an item's owners, who all learn from the same events: else an item of two owners
    would seem twice as popular.
    """
    moves = plan.learning_rate * total.to_float()
    if plan.bias_pace:
        moves[:, -1] /= np.maximum(num_holders[touched], 1)
    factors[touched] -= moves


def best_held(users: Factors, items: Factors, is_held: NDArray[np.bool_], most: int) -> NDArray[np.int32]:
    """The best items of all that are held for each user: so many, and some more that the user may know."""
    scores = users @ items.T
    scores[:, ~is_held] = -np.inf
    return top_k(scores, min(most + _KNOWN, int(is_held.sum())))[0].astype(np.int32)
