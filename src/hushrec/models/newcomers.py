"""A vector for a newcomer: somebody whom a model was not trained with. All else of the model stays as it is.

The vector x has the least loss: the sum over items of w_i l(f_i(x), y_i), plus (x - m) P (x - m) / 2, where f_i is
what the model says of item i, m the usual vector and P how sure that is. It is found by damped Gauss-Newton steps
(Levenberg 1944, Marquardt 1963), a bounded number of them. A step is made only if it lowers the loss. So
(x - m) P (x - m) is never more than twice the loss of m: the vector cannot diverge, whatever a newcomer rates.

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
Outputs = Callable[[Reals], tuple[Reals, Reals]]  # of x: what the model says of each item, and its slopes by x

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

    def state(vector: Reals) -> tuple[float, Reals, Reals]:
        """The loss, its gradient, and the curvature."""
        said, slopes = outputs(vector)
        if loss == "square":
            value, errors, bends = 0.5 * (said - targets) ** 2, said - targets, np.ones_like(said)
        else:
            likely = sigmoids(said)
            value, errors = np.logaddexp(0, said) - targets * said, likely - targets
            bends = likely * (1 - likely)
        pull = usual.precision @ (vector - usual.mean)
        gradient = slopes.T @ (weights * errors) + pull
        curvature = (slopes.T * (weights * bends)) @ slopes + usual.precision
        return float(weights @ value + 0.5 * (vector - usual.mean) @ pull), gradient, curvature

    return least(state, usual.mean)


def least(state: Callable[[Reals], tuple[float, Reals, Reals]], start: Reals) -> Reals:
    """From the start downhill, in at most 30 steps; `state` is a loss with its gradient and curvature.

    A step that does not lower the loss, or is not finite, is made shorter instead.
    """
    vector, damping = start, 1e-3
    value, gradient, curvature = state(vector)
    for _ in range(_MOST_STEPS):
        scale = np.diag(np.maximum(np.diag(curvature), 1e-12))
        try:
            lower = np.linalg.cholesky(curvature + damping * scale)
            step = np.linalg.solve(lower.T, np.linalg.solve(lower, gradient))
        except np.linalg.LinAlgError:  # not finite, or flat
            damping *= 10
            continue
        tried = state(vector - step)
        if not tried[0] < value:
            damping *= 10
            continue
        gain, vector, damping = value - tried[0], vector - step, damping / 10
        value, gradient, curvature = tried
        if gain <= _LEAST_GAIN * abs(value):
            break
    return vector


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """What a network says of all items, for any user's vector x = [u_g, u_h]; either half may be empty.

    f_i = products_i . u_g + the last of dense layers over u_h and the item.
    """

    products: Reals  # (items, length of u_g)
    inner: Reals  # (items, outputs of the first layer): the item's part of it, with its biases
    user_weight: Reals  # (length of u_h, outputs of the first layer)
    layers: Sequence[
        tuple[Reals, Reals]
    ]  # the other layers: inputs x outputs, and biases; the last has one output
    quadratic: tuple[float, float, float] | None = None  # a, b, c of the activation a x^2 + b x + c; None: relu

    def __call__(self, vector: Reals) -> tuple[Reals, Reals]:
        """Outputs of all items, and their slopes by the vector."""
        split = self.products.shape[1]
        said, slopes = self.products @ vector[:split], self.products
        if not len(self.layers):
            return said, slopes
        hidden, activated, kinks = self.inner + vector[split:] @ self.user_weight, np.empty(0), []
        for weight, bias in self.layers:
            activated, kink = self._activated(hidden)
            kinks.append(kink)
            hidden = activated @ weight + bias
        back = np.ones((len(said), 1))
        for (weight, _), kink in zip(reversed(self.layers), reversed(kinks), strict=True):
            back = (back @ weight.T) * kink
        return said + hidden[:, 0], np.concatenate([slopes, back @ self.user_weight.T], axis=1)

    def _activated(self, numbers: Reals) -> tuple[Reals, Reals]:
        if self.quadratic is None:
            return np.maximum(numbers, 0), (numbers > 0).astype(np.float64)
        square, slope, offset = self.quadratic
        return (square * numbers + slope) * numbers + offset, 2 * square * numbers + slope
