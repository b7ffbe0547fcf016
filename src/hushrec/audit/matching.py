# mypy: allow-untyped-defs, allow-untyped-calls
"""Gradient matching (FedCORE, Eq. 11): NeuCF's item vectors and ratings from gradients, by DLG with L-BFGS.

The receiver knows the shared layers and the user's vectors. It looks for item vectors and ratings whose gradient
is the received one: the least squared difference, by L-BFGS as PyTorch has it (no line search, 20 iterations in a
step), which the authors use. Where one rating made the gradient, and a hidden unit fired, `solve_single` needs no
search: a unit's row of the weight gradient is its bias gradient times the input, which holds the item's vector.

Symbols: vectors of users and items are [gmf, mlp], twice `dim` numbers; layers are W (dim, 2 dim), c (dim),
o (2 dim), one after another; the prediction is o_g.(ug * vg) + o_h.act(W [um; vm] + c).
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.kernels.products import dot

Floats = NDArray[np.float64]
Quadratic = tuple[float, float, float]  # the activation A x^2 + B x + C

_HISTORY = 100
_ITERATIONS_PER_STEP = 20
_TOLERANCE_GRADIENT = 1e-7
_TOLERANCE_CHANGE = 1e-9
_LEAST_CURVATURE = 1e-10
_SHORTEST = 1e-3  # of the steps that a line search tries; taken if none is better, to get across kinks of ReLU
_LARGEST = float(np.finfo(np.float32).max)  # a search that gets beyond is lost, as it is in the authors' float32


class Layers(NamedTuple):
    """The shared layers, taken apart."""

    hidden: Floats  # (dim, 2 dim): columns of the user, then of the item
    bias: Floats  # (dim,)
    output: Floats  # (2 dim,): of the products, then of the hidden units


class Matched(NamedTuple):
    """What each received gradient is taken to come from, in no particular order of its ratings."""

    vectors: Floats  # (gradients, num_ratings, 2 dim)
    ratings: Floats  # (gradients, num_ratings)
    losses: Floats  # the squared difference that a search left, at batch size 1; inf: all starts were lost
    num_fired: NDArray[np.int64]  # hidden units that fired; with none the mlp half of a vector leaves no trace


def taken_apart(layers: NDArray[np.floating], dim: int) -> Layers:
    """The parts of layers, or of their gradient, that come as one row."""
    if layers.shape != (dim * (2 * dim + 3),):
        raise HushrecError(f"vectors of two halves of {dim} need layers of {dim * (2 * dim + 3)} numbers")
    flat = np.ascontiguousarray(layers, np.float64)
    hidden, rest = flat[: 2 * dim * dim].reshape(dim, 2 * dim), flat[2 * dim * dim :]
    return Layers(hidden, rest[:dim], rest[dim:])


def match_gradients(
    user_gradients: NDArray[np.floating],
    layer_gradients: NDArray[np.floating],
    user_vectors: NDArray[np.floating],
    layers: NDArray[np.floating],
    generator: np.random.Generator,
    *,
    num_ratings: int = 1,
    batch_size: int = 1,
    num_steps: int = 300,
    num_starts: int = 1,
    line_search: bool = False,
    quadratic: Quadratic | None = None,
) -> Matched:
    """Search for the `num_ratings` item vectors and ratings behind each gradient, a row for each.

    A gradient is the mean over its ratings of that of the squared error, divided by `batch_size`. The activation
    is ReLU, if no quadratic one is given. Starts are uniform: vectors in (0, 1), ratings in (1, 5); the best of
    `num_starts` counts. Without `line_search`, as the authors have it, many searches run away: those end where
    they were within the numbers of float32. With it the attack is stronger.
    """
    size, dim = len(user_gradients), user_vectors.shape[1] // 2
    parts, users = taken_apart(layers, dim), np.ascontiguousarray(user_vectors, np.float64)
    targets = batch_size * np.concatenate([user_gradients, layer_gradients], axis=1).astype(np.float64)
    if targets.shape[1] != 2 * dim + len(layers) or len(users) != size:
        raise HushrecError("every gradient needs the vectors of its user and the gradient of all layers")
    curve = np.array(quadratic or (), np.float64)  # none: ReLU
    best, losses = np.zeros((size, num_ratings, 2 * dim + 1)), np.full(size, np.inf)
    for _ in range(num_starts):
        left, found = np.empty(size), np.asarray(generator.random(best.shape))
        found[:, :, -1] = 1 + 4 * found[:, :, -1]
        for number, x in enumerate(found.reshape(size, -1)):  # each is milliseconds of compiled search
            left[number] = _search(x, users[number], parts, targets[number], num_steps, line_search, curve)
        best[left < losses] = found[left < losses]
        losses = np.minimum(left, losses)
    return Matched(best[:, :, :-1], best[:, :, -1], losses, _num_fired(layer_gradients, dim))


def solve_single(
    layer_gradients: NDArray[np.floating],
    user_vectors: NDArray[np.floating],
    layers: NDArray[np.floating],
    *,
    batch_size: int = 1,
    quadratic: Quadratic | None = None,
) -> Matched:
    """The one item vector and rating behind each gradient, without a search, if any hidden unit fired.

    The gradient of W is that of c times [um; vm], so their ratio gives vm (a mean over the units, larger gradients
    weigh more); vm gives the hidden values, the gradient of o over these the error, and over that vg. Where no
    unit fired, all is zero. It needs the layers' gradient of the one rating, as the authors hand it to their
    attack, and not the user's: noise on the latter protects nothing then. A gradient of a whole batch stops it.
    """
    dim = user_vectors.shape[1] // 2
    hidden, bias, output = taken_apart(layers, dim)
    users = np.asarray(user_vectors, np.float64)
    rows = batch_size * np.asarray(layer_gradients, np.float64)
    of_hidden = rows[:, : 2 * dim * dim].reshape(-1, dim, 2 * dim)
    of_bias, of_output = rows[:, 2 * dim * dim :][:, :dim], rows[:, 2 * dim * dim + dim :]
    mlp = _ratio(np.einsum("nk,nkj->nj", of_bias, of_hidden[:, :, dim:]), np.sum(of_bias**2, axis=1)[:, None])
    inputs = users[:, dim:] @ hidden[:, :dim].T + mlp @ hidden[:, dim:].T + bias
    values = np.maximum(inputs, 0) if quadratic is None else np.polyval(np.array(quadratic), inputs)
    steps = _ratio(np.sum(of_output[:, dim:] * values, axis=1), np.sum(values**2, axis=1))  # 2 e
    gmf = _ratio(of_output[:, :dim], steps[:, None] * users[:, :dim])
    predictions = np.sum(output[:dim] * users[:, :dim] * gmf, axis=1) + values @ output[dim:]
    fired = _num_fired(layer_gradients, dim)
    vectors = np.where(fired[:, None] > 0, np.concatenate([gmf, mlp], axis=1), 0.0)
    ratings = np.where(fired > 0, predictions - steps / 2, 0.0)
    return Matched(vectors[:, None], ratings[:, None], np.zeros(len(rows)), fired)


def _ratio(above: Floats, below: Floats) -> Floats:
    """The ratio, or zero where it is not defined."""
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below != 0)


def _num_fired(layer_gradients: NDArray[np.floating], dim: int) -> NDArray[np.int64]:
    """How many hidden units have a gradient of their bias."""
    of_bias = layer_gradients[:, 2 * dim * dim : 2 * dim * dim + dim]
    fired: NDArray[np.int64] = np.count_nonzero(of_bias, axis=1).astype(np.int64)
    return fired


@numba.njit(nogil=True, cache=True)
def _search(x, user, layers, target, num_steps, line_search, curve):
    """L-BFGS from x, in place; the loss at its end."""
    size = len(x)
    moves, turns, ratios = np.empty((_HISTORY, size)), np.empty((_HISTORY, size)), np.empty(_HISTORY)
    gradient, before, direction = np.empty(size), np.empty(size), np.empty(size)
    num_kept, num_made, used, length, diagonal = 0, 0, 0, 0.0, 1.0
    loss = _difference(x, user, layers, target, curve, gradient)
    kept, best, least = x.copy(), x.copy(), loss
    while used < num_steps * _ITERATIONS_PER_STEP and _largest(gradient) > _TOLERANCE_GRADIENT:
        if num_made > 0:
            slot = num_kept % _HISTORY
            for j in range(size):
                moves[slot, j], turns[slot, j] = length * direction[j], gradient[j] - before[j]
            curvature = dot(moves[slot], turns[slot])
            if curvature > _LEAST_CURVATURE:
                ratios[slot] = 1 / curvature
                diagonal = curvature / dot(turns[slot], turns[slot])
                num_kept += 1
        _turn(gradient, moves, turns, ratios, num_kept, diagonal, direction)
        slope = dot(gradient, direction)
        if slope > -_TOLERANCE_CHANGE:
            break
        length = 2.0 if num_made else min(2.0, 2 / dot(np.sign(gradient), gradient))
        before[:], kept[:], loss_before = gradient, x, loss
        while True:
            length /= 2
            for j in range(size):
                x[j] = kept[j] + length * direction[j]
            loss = _difference(x, user, layers, target, curve, gradient)
            if not line_search or length < _SHORTEST or loss <= loss_before + 1e-4 * length * slope:
                break
        if not loss < _LARGEST:
            x[:], loss = kept, loss_before
            break
        if loss < least:
            best[:], least = x, loss
        num_made += 1
        used += 1
        if _largest(direction) * length <= _TOLERANCE_CHANGE or abs(loss - loss_before) < _TOLERANCE_CHANGE:
            used = (used // _ITERATIONS_PER_STEP + 1) * _ITERATIONS_PER_STEP  # as PyTorch ends a step
    if line_search:
        x[:], loss = best, least
    return loss


@numba.njit(nogil=True, cache=True)
def _turn(gradient, moves, turns, ratios, num_kept, diagonal, direction):
    """The two loops of L-BFGS: minus the inverse Hessian's estimate times the gradient."""
    weights = np.empty(_HISTORY)
    oldest = max(0, num_kept - _HISTORY)
    for j in range(len(gradient)):
        direction[j] = -gradient[j]
    for number in range(num_kept - 1, oldest - 1, -1):
        slot = number % _HISTORY
        weights[slot] = dot(moves[slot], direction) * ratios[slot]
        for j in range(len(direction)):
            direction[j] -= weights[slot] * turns[slot, j]
    for j in range(len(direction)):
        direction[j] *= diagonal
    for number in range(oldest, num_kept):
        slot = number % _HISTORY
        weight = weights[slot] - dot(turns[slot], direction) * ratios[slot]
        for j in range(len(direction)):
            direction[j] += weight * moves[slot, j]


@numba.njit(nogil=True, cache=True)
def _largest(row):
    """The largest absolute number."""
    found = 0.0
    for j in range(len(row)):
        found = max(found, abs(row[j]))
    return found


@numba.njit(nogil=True, cache=True)
def _difference(x, user, layers, target, curve, gradient):
    """The squared difference of gradients at x, rows of [vg, vm, r], and its own gradient."""
    hidden, bias, output = layers
    dim = len(bias)
    width = 2 * dim + 1
    num_ratings = len(x) // width
    errors, slopes, values = np.empty(num_ratings), np.empty((num_ratings, dim)), np.empty((num_ratings, dim))
    residual = -target
    _add_gradient(x, user, layers, curve, errors, slopes, values, residual)
    of_hidden, of_bias, of_output = _parts(residual, dim)
    for rating in range(num_ratings):
        gmf, mlp = x[rating * width :][:dim], x[rating * width + dim :][:dim]
        out = gradient[rating * width :][:width]
        out[:] = 0.0
        by_error = 0.0
        for k in range(dim):
            # What the residual says about unit k's signal, then about its value.
            about = of_bias[k]
            for j in range(dim):
                about += of_hidden[k, j] * user[dim + j] + of_hidden[k, dim + j] * mlp[j]
                about += residual[dim + j] * hidden[k, j]
            signal = output[dim + k] * slopes[rating, k]
            by_error += signal * about + of_output[dim + k] * values[rating, k]
            by_error += (residual[k] * output[k] + of_output[k] * user[k]) * gmf[k]
            through = of_output[dim + k] * slopes[rating, k]
            if len(curve):
                through += 2 * curve[0] * output[dim + k] * about
            for j in range(dim):
                out[dim + j] += errors[rating] * (of_hidden[k, dim + j] * signal + hidden[k, dim + j] * through)
        for k in range(dim):
            out[k] = errors[rating] * (residual[k] * output[k] + of_output[k] * user[k])
            out[k] += by_error * output[k] * user[k]
            for j in range(dim):
                out[dim + j] += by_error * output[dim + k] * slopes[rating, k] * hidden[k, dim + j]
        out[2 * dim] = -by_error
        for j in range(width):
            out[j] *= 4 / num_ratings
    return dot(residual, residual)


@numba.njit(nogil=True, cache=True)
def _add_gradient(x, user, layers, curve, errors, slopes, values, residual):
    """Add the gradient of the mean squared error at x to the residual; fill in errors and hidden units."""
    hidden, bias, output = layers
    dim = len(bias)
    of_hidden, of_bias, of_output = _parts(residual, dim)
    for rating in range(len(errors)):
        gmf, mlp = x[rating * (2 * dim + 1) :][:dim], x[rating * (2 * dim + 1) + dim :][:dim]
        error = -x[rating * (2 * dim + 1) + 2 * dim]
        for k in range(dim):
            total = bias[k]
            for j in range(dim):
                total += hidden[k, j] * user[dim + j] + hidden[k, dim + j] * mlp[j]
            if len(curve):
                values[rating, k] = (curve[0] * total + curve[1]) * total + curve[2]
                slopes[rating, k] = 2 * curve[0] * total + curve[1]
            else:
                values[rating, k] = max(total, 0.0)
                slopes[rating, k] = 1.0 if total > 0 else 0.0
            error += output[dim + k] * values[rating, k] + output[k] * user[k] * gmf[k]
        errors[rating] = error
        step = 2 * error / len(errors)
        for k in range(dim):
            residual[k] += step * output[k] * gmf[k]
            of_output[k] += step * user[k] * gmf[k]
            of_output[dim + k] += step * values[rating, k]
            signal = step * output[dim + k] * slopes[rating, k]
            of_bias[k] += signal
            for j in range(dim):
                residual[dim + j] += signal * hidden[k, j]
                of_hidden[k, j] += signal * user[dim + j]
                of_hidden[k, dim + j] += signal * mlp[j]


@numba.njit(nogil=True, cache=True)
def _parts(residual, dim):
    """Views of a residual's layers, after those of the user's vectors."""
    rest = residual[2 * dim :]
    weights = 2 * dim * dim
    return rest[:weights].reshape(dim, 2 * dim), rest[weights : weights + dim], rest[weights + dim :]
