"""A scorer as numbers alone: vectors, layers, and what is done with their sum. Other programs can compute it.

sum = u_p . (g * v_p) + layers([u_d; v_d]) + the user's offset + the item's, where u_p and v_p are the first
`num_products` columns of the vectors, and u_d and v_d the others.

Scores rank; predictions are what a rating or a probability is said to be. Both are made of the sum by steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hushrec.evaluation.scoring import Predictor

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Scaled:
    """From the units that are trained in to ratings."""

    unit: float
    centre: float


@dataclass(frozen=True)
class Clipped:
    """What is beyond an end is that end."""

    low: float
    high: float


@dataclass(frozen=True)
class Eased:
    """What is beyond an end comes nearer to a margin behind it, and never there: no two of them are alike."""

    low: float
    high: float
    margin: float


@dataclass(frozen=True)
class Sigmoid:
    """A logit as a probability."""


Step = Scaled | Clipped | Eased | Sigmoid


@dataclass(frozen=True, eq=False)
class Formula:
    """What a scorer computes. Users' vectors and offsets are private: whoever has them knows what they like."""

    user_vectors: Floats  # (users, factors)
    item_vectors: Floats  # (items, factors)
    num_products: int
    user_offsets: Floats | None = None
    item_offsets: Floats | None = None
    product_weights: Floats | None = None  # g; None: ones
    layers: tuple[tuple[Floats, Floats], ...] = ()  # matrix (inputs, outputs) and biases; the last has one output
    bend: tuple[float, float, float] | None = None  # between layers: a x^2 + b x + c; None: relu
    ranked: tuple[Step, ...] = ()  # from the sum to a score
    predicted: tuple[Step, ...] = ()  # from the sum to a prediction

    def sums(self, user_vectors: Floats, user_offsets: Floats | None = None) -> Doubles:
        """Of all items for each of these users, in double precision: what a program makes of it is held to it."""
        users, items = user_vectors.astype(np.float64), self.item_vectors.astype(np.float64)
        weights = 1.0 if self.product_weights is None else self.product_weights.astype(np.float64)
        cut = self.num_products
        found: Doubles = users[:, :cut] @ (items[:, :cut] * weights).T
        if self.layers:
            found = found + self._dense(users[:, cut:], items[:, cut:])
        if user_offsets is not None:
            found = found + user_offsets[:, None]
        return found if self.item_offsets is None else found + self.item_offsets

    def _dense(self, users: Doubles, items: Doubles) -> Doubles:
        (weight, bias), *others = self.layers
        hidden = (users @ weight[: users.shape[1]])[:, None] + items @ weight[users.shape[1] :] + bias
        for weight, bias in others:
            hidden = self._bent(hidden) @ weight + bias
        return hidden[..., 0]

    def _bent(self, values: Doubles) -> Doubles:
        if self.bend is None:
            return np.maximum(values, 0)
        square, slope, offset = self.bend
        return (square * values + slope) * values + offset


def stepped(values: Doubles, steps: Iterable[Step]) -> Doubles:
    """What steps make of sums.

    >>> stepped(np.array([-9.0, 0.0, 1.0]), [Scaled(1.0, 3.0), Clipped(1.0, 5.0)]).tolist()
    [1.0, 3.0, 4.0]
    """
    for step in steps:
        match step:
            case Scaled(unit, centre):
                values = unit * values + centre
            case Clipped(low, high):
                values = np.clip(values, low, high)
            case Eased(low, high, margin):
                below, above = np.maximum(low - values, 0) / margin, np.maximum(values - high, 0) / margin
                values = np.clip(values, low, high) + margin * (np.expm1(-below) - np.expm1(-above))
            case Sigmoid():
                with np.errstate(over="ignore"):
                    values = 1 / (1 + np.exp(-values))
    return values


@runtime_checkable
class HasFormula(Protocol):
    """What a scorer may offer besides: all that another program needs to compute the same."""

    def formula(self) -> Formula | None:
        """The formula; None: with these settings there is none."""
        ...


def formula_of(scorer: Predictor) -> Formula | None:
    """The formula of a scorer, where it has one."""
    return scorer.formula() if isinstance(scorer, HasFormula) else None
