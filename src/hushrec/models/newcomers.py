"""A vector for a newcomer: somebody whom a model was not trained with. All else of the model stays as it is.

The vector x has the least loss: the sum over items of w_i l(f_i(x), y_i), plus (x - m) P (x - m) / 2, where f_i is
what the model says of item i, m the usual vector and P how sure that is. It is found by damped Gauss-Newton steps
(Levenberg 1944, Marquardt 1963), a bounded number of them. A step is made only if it lowers the loss. So
(x - m) P (x - m) is never more than twice the loss of m: the vector cannot diverge, whatever a newcomer rates.

With dense layers about half of the steps that are tried lower nothing: slopes are computed where one was made.

Symbols: x = vector, m = usual.mean, P = usual.precision, f = what `Outputs` returns, with its slopes by x.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels.sigmoids import sigmoids
from hushrec.protocol import Numbers

Reals = NDArray[np.float64]
Slopes = Callable[[], Reals]  # a row per item, computed when asked for
Outputs = Callable[[Reals], tuple[Reals, Slopes]]  # of x: what the model says of each item, and its slopes by x
Bends = Callable[[], tuple[Reals, Reals]]  # of a loss at x: its gradient and its curvature

_MOST_STEPS = 30
_LEAST_GAIN = 1e-5  # of the loss, as a share: below it a vector is found
_SPREAD_SHARE = 0.1  # of the mean variance, added to each: few vectors do not tell in which directions they differ


class Usual(NamedTuple):
    """Where vectors of users are, as a rule."""

    mean: Reals
    precision: Reals  # the inverse of the covariance


def usual_of(vectors: NDArray[np.floating]) -> Usual:
    """Where these vectors are: their mean and covariance."""
    vectors = vectors.astype(np.float64)
    mean, size = vectors.mean(axis=0), vectors.shape[1]
    away = vectors - mean
    covariance = away.T @ away / max(len(vectors) - 1, 1)
    spread = _SPREAD_SHARE * np.trace(covariance) / size + 1e-12
    return Usual(mean, np.linalg.inv(covariance + spread * np.eye(size)))


def usual_around_zero(size: int, variance: float) -> Usual:
    """Around zero, each number with this variance."""
    return Usual(np.zeros(size), np.eye(size) / max(variance, 1e-12))


class Wishes(NamedTuple):
    """What the model should say of each item, and how much that counts."""

    targets: Reals
    weights: Reals


def wishes_of(items: Numbers, num_items: int, num_negatives: int) -> Wishes:
    """1 of the newcomer's items, 0 of all others, which count as much as those that would be drawn of them."""
    targets = np.zeros(num_items)
    targets[items] = 1.0
    num_own = int(targets.sum())
    others = max(num_items - num_own, 1)
    share = min(num_negatives * num_own / others, 1.0)
    return Wishes(targets, np.where(targets > 0, 1.0, share))


def newcomer_vector(outputs: Outputs, wishes: Wishes, usual: Usual, loss: Literal["square", "logistic"]) -> Reals:
    """The newcomer's vector; with no wish, the usual one."""
    targets, weights = wishes

    def state(vector: Reals) -> tuple[float, Bends]:
        said, slopes_of = outputs(vector)
        pull = usual.precision @ (vector - usual.mean)
        value = 0.5 * (said - targets) ** 2 if loss == "square" else np.logaddexp(0, said) - targets * said

        def bends() -> tuple[Reals, Reals]:
            slopes = slopes_of()
            if loss == "square":
                errors, bent = said - targets, weights
            else:
                chances = sigmoids(said)
                errors, bent = chances - targets, weights * (chances * (1 - chances))
            return slopes.T @ (weights * errors) + pull, (slopes.T * bent) @ slopes + usual.precision

        return float(weights @ value + 0.5 * (vector - usual.mean) @ pull), bends

    return least(state, usual.mean)


def least(state: Callable[[Reals], tuple[float, Bends]], start: Reals) -> Reals:
    """From the start downhill, in at most 30 steps; `state` is a loss, and how it bends there.

    A step that does not lower the loss, or is not finite, is made shorter instead.
    """
    vector, damping = start, 1e-3
    value, bends = state(vector)
    gradient, curvature = bends()
    for _ in range(_MOST_STEPS):
        scale = np.diag(np.maximum(np.diag(curvature), 1e-12))
        try:
            lower = np.linalg.cholesky(curvature + damping * scale)
            step = np.linalg.solve(lower.T, np.linalg.solve(lower, gradient))
        except np.linalg.LinAlgError:  # not finite, or flat
            damping *= 10
            continue
        tried, bends = state(vector - step)
        if not tried < value:
            damping *= 10
            continue
        gain, vector, value, damping = value - tried, vector - step, tried, damping / 10
        if gain <= _LEAST_GAIN * abs(value):
            break
        gradient, curvature = bends()
    return vector


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """What a network says of all items, for any user's vector x = [u_g, u_h]; either half may be empty.

    f_i = offset_i + products_i . u_g + the last of dense layers over u_h and the item.
    """

    products: Reals  # (items, length of u_g)
    inner: Reals  # (items, outputs of the first layer): the item's part of it, with its biases
    user_weight: Reals  # (length of u_h, outputs of the first layer)
    layers: Sequence[
        tuple[Reals, Reals]
    ]  # the other layers: inputs x outputs, and biases; the last has one output
    quadratic: tuple[float, float, float] | None = None  # a, b, c of the activation a x^2 + b x + c; None: relu
    offsets: NDArray[np.floating] | float = 0.0  # of what it says of each item

    def __call__(self, vector: Reals) -> tuple[Reals, Slopes]:
        """Outputs of all items, and their slopes by the vector."""
        split = self.products.shape[1]
        said = self.products @ vector[:split] + self.offsets
        if not len(self.layers):
            return said, lambda: self.products
        raw, hidden = [], self.inner + vector[split:] @ self.user_weight
        for weight, bias in self.layers:
            raw.append(hidden)
            hidden = self._activated(hidden) @ weight + bias
        return said + hidden[:, 0], lambda: self._slopes(raw)

    def _slopes(self, raw: Sequence[Reals]) -> Reals:
        """Back through the layers, from what went into their activations."""
        back = np.ones((len(self.products), 1))
        for (weight, _), numbers in zip(reversed(self.layers), reversed(raw), strict=True):
            back = (back @ weight.T) * self._steepness(numbers)
        of_hidden = back @ self.user_weight.T
        return np.concatenate([self.products, of_hidden], axis=1) if self.products.shape[1] else of_hidden

    def _activated(self, numbers: Reals) -> Reals:
        if self.quadratic is None:
            return np.maximum(numbers, 0)
        square, slope, offset = self.quadratic
        return (square * numbers + slope) * numbers + offset

    def _steepness(self, numbers: Reals) -> Reals | NDArray[np.bool_]:
        if self.quadratic is None:
            return numbers > 0
        square, slope, _ = self.quadratic
        return 2 * square * numbers + slope
