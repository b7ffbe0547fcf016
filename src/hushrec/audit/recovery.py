"""Vector recovery (FedCORE, Eqs. 15-16): another partner's user vectors from the scores that it let be computed.

The asking partner has its own item vectors, for NeuCF also the shared layers, and the answers: scores of its items
for each visitor. Accuracy reference (AR): for PMF the answers are linear in the user's vector, so as many of them
as there are factors, if independent, give it exactly. Training (TR): fit the vector to the answers, as one
would to ratings.

Answers are a row for each user and a column for each known vector; `is_used` marks those that the attack may use
(the caller's share of them). If noise was added to the users' vectors, what comes out is the noisy vector.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.matching import Quadratic, taken_apart
from hushrec.errors import HushrecError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_CLOSE = 0.01
_BLOCK_NUMBERS = 1 << 22  # of the matrices that are worked on at a time
_NO_SCORES = (
    "answers are only the places of the best items: the attack cannot start without scores; let scores be answered"
)


class Solved(NamedTuple):
    """Vectors that answers determine; rows of zeros where there are too few."""

    vectors: Floats
    conditions: Floats  # of the equations: by how much errors of answers grow at worst; inf where too few
    is_solved: Mask


def recover_by_reference(
    item_vectors: NDArray[np.floating],
    answers: NDArray[np.floating] | None,
    *,
    is_used: Mask | None = None,
    max_answers: int | None = None,
) -> Solved:
    """AR (Eq. 16): the vector of each user from its answers, by least squares.

    The first `max_answers` are used (the paper: as many as there are factors), or all. Answers without scores are
    None: an error.
    """
    if answers is None:
        raise HushrecError(_NO_SCORES)
    usable = np.isfinite(answers) if is_used is None else is_used & np.isfinite(answers)
    if max_answers is not None:
        usable &= np.cumsum(usable, axis=1) <= max_answers
    return solve_products(item_vectors, answers, usable)


def solve_products(known: NDArray[np.floating], answers: NDArray[np.floating], is_used: Mask) -> Solved:
    """For each row of answers the vector x with known @ x = answers, by QR in float64.

    An error, if no row has as many independent answers as there are factors.
    """
    left = np.asarray(known, np.float64)
    size, (num_known, num_factors) = len(answers), left.shape
    if answers.shape != (size, num_known) or is_used.shape != answers.shape:
        raise HushrecError("answers must have a column for each known vector")
    solved = Solved(np.zeros((size, num_factors)), np.full(size, np.inf), np.zeros(size, np.bool_))
    enough = np.flatnonzero(np.count_nonzero(is_used, axis=1) >= num_factors)
    block = max(1, _BLOCK_NUMBERS // (num_known * (num_factors + 1)))
    for first in range(0, len(enough), block):
        rows = enough[first : first + block]
        used = is_used[rows]
        right = np.where(used, answers[rows], 0.0)
        # The last column becomes Q'y, so Q itself is not needed.
        both = np.concatenate([left * used[:, :, None], right[:, :, None]], axis=2)
        triangles = np.asarray(np.linalg.qr(both, mode="r"))[:, :num_factors]
        squares, ends = triangles[:, :, :num_factors], triangles[:, :, num_factors:]
        values = np.linalg.svd(squares, compute_uv=False)
        is_full = values[:, -1] > values[:, 0] * num_known * np.finfo(np.float64).eps
        done = rows[is_full]
        solved.vectors[done] = np.linalg.solve(squares[is_full], ends[is_full])[:, :, 0]
        solved.conditions[done] = values[is_full, 0] / values[is_full, -1]
        solved.is_solved[done] = True
    if not solved.is_solved.any():
        raise HushrecError(
            f"fewer than {num_factors} independent answers: the attack cannot start; ask for more of them"
        )
    return solved


def train_pmf(
    item_vectors: NDArray[np.floating],
    answers: NDArray[np.floating] | None,
    *,
    is_used: Mask | None = None,
    regularization: float = 1e-3,
) -> Floats:
    """TR (Eq. 15) for PMF: least squares with regularization * |U|^2, for all users at once."""
    if answers is None:
        raise HushrecError(_NO_SCORES)
    left = np.asarray(item_vectors, np.float64)
    used = np.ones(answers.shape) if is_used is None else is_used.astype(np.float64)
    num_factors = left.shape[1]
    outer = np.einsum("ij,ik->ijk", left, left).reshape(len(left), -1)
    normal = (used @ outer).reshape(-1, num_factors, num_factors) + regularization * np.eye(num_factors)
    vectors: Floats = np.linalg.solve(normal, ((used * answers) @ left)[:, :, None])[:, :, 0]
    return vectors


def train_neucf(
    item_vectors: NDArray[np.floating],
    layers: NDArray[np.floating],
    answers: NDArray[np.floating] | None,
    generator: np.random.Generator,
    *,
    is_used: Mask | None = None,
    regularization: float = 1e-3,
    num_steps: int = 50,
    quadratic: Quadratic | None = None,
) -> Floats:
    """TR (Eq. 15) for NeuCF: vectors [gmf, mlp] of the users, by damped Gauss-Newton steps from small starts.

    The layers are shared, so they are known. The activation is ReLU, if no quadratic one is given.
    """
    if answers is None:
        raise HushrecError(_NO_SCORES)
    used = np.ones(answers.shape, np.bool_) if is_used is None else is_used
    items = np.asarray(item_vectors, np.float64)
    model = _Answering(items, layers, regularization, quadratic)
    vectors = generator.normal(0, 0.1, (len(answers), items.shape[1]))
    block = max(1, _BLOCK_NUMBERS // items.size)
    for first in range(0, len(answers), block):
        part = slice(first, first + block)
        vectors[part] = model.fit(vectors[part], np.where(used[part], answers[part], 0.0), used[part], num_steps)
    return vectors


class _Answering:
    """How NeuCF answers for a user's vectors, and how to fit them."""

    def __init__(
        self, items: Floats, layers: NDArray[np.floating], regularization: float, quadratic: Quadratic | None
    ) -> None:
        dim = items.shape[1] // 2
        hidden, bias, self.output = taken_apart(layers, dim)
        self.dim, self.regularization, self.quadratic = dim, regularization, quadratic
        self.products = items[:, :dim] * self.output[:dim]
        self.of_user, self.of_items = hidden[:, :dim], items[:, dim:] @ hidden[:, dim:].T + bias

    def _inputs(self, vectors: Floats) -> Floats:
        """Of the hidden units, (users, items, dim)."""
        inputs: Floats = self.of_items + (vectors[:, self.dim :] @ self.of_user.T)[:, None]
        return inputs

    def answers(self, vectors: Floats) -> Floats:
        """Scores of all items."""
        inputs = self._inputs(vectors)
        values = np.maximum(inputs, 0) if self.quadratic is None else np.polyval(np.array(self.quadratic), inputs)
        scores: Floats = vectors[:, : self.dim] @ self.products.T + values @ self.output[self.dim :]
        return scores

    def slopes(self, vectors: Floats) -> Floats:
        """Derivatives of the scores by the vectors, (users, items, 2 dim)."""
        inputs = self._inputs(vectors)
        if self.quadratic is None:
            signals = (inputs > 0) * self.output[self.dim :]
        else:
            signals = (2 * self.quadratic[0] * inputs + self.quadratic[1]) * self.output[self.dim :]
        of_products = np.broadcast_to(self.products, (len(vectors), *self.products.shape))
        return np.concatenate([of_products, signals @ self.of_user], axis=2)

    def fit(self, vectors: Floats, answers: Floats, used: Mask, num_steps: int) -> Floats:
        """Levenberg-Marquardt, each user with its own damping."""

        def losses(at: Floats) -> tuple[Floats, Floats]:
            misses = (answers - self.answers(at)) * used
            return misses, np.sum(misses**2, axis=1) + self.regularization * np.sum(at**2, axis=1)

        damping = np.ones(len(vectors))
        misses, least = losses(vectors)
        eye = np.eye(vectors.shape[1])
        for _ in range(num_steps):
            slopes = self.slopes(vectors) * used[:, :, None]
            turned = slopes.transpose(0, 2, 1)
            normal = turned @ slopes + (self.regularization + damping)[:, None, None] * eye
            downhill = (turned @ misses[:, :, None])[:, :, 0] - self.regularization * vectors
            tried = vectors + np.linalg.solve(normal, downhill[:, :, None])[:, :, 0]
            new_misses, new = losses(tried)
            better = new < least
            vectors = np.where(better[:, None], tried, vectors)
            misses, least = np.where(better[:, None], new_misses, misses), np.where(better, new, least)
            damping = np.clip(np.where(better, damping / 4, damping * 4), 1e-8, 1e8)
        return vectors


def is_close(found: NDArray[np.floating], truth: NDArray[np.floating]) -> Mask:
    """Whether vectors are off by less than a hundredth of their length."""
    close: Mask = np.linalg.norm(found - truth, axis=1) < _CLOSE * np.linalg.norm(truth, axis=1)
    return close
