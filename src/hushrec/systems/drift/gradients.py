# mypy: allow-untyped-defs, allow-untyped-calls
"""Learning to rank from blocks: the maths of SAROS and DRIFT.

The loss of a block of user u: the mean over its pairs (positive p, negative n) of -log sigma(w), with
w = v_u . (psi_p - psi_n), and a ridge on the vectors of the block. A block without a pair has no loss. With
biases, psi ends with the item's own, on which there is no ridge, and v with a 1 that stays.

DEVIATION: the gradients of a block's pairs are averaged by default, as Sec. 3.4 has it, where Algorithms 3 and 4
apply each of them. `block_loss sum` is the algorithm as printed.

Symbols: v = user_factors, psi = item_factors, alpha = learning_rate.
"""

from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.systems.drift.blocks import Blocks, Groups

Rows = NDArray[np.float32]
BlockLoss = Literal["mean", "sum"]


@numba.njit(nogil=True, cache=True)
def _block(vectors, user, rows, is_positive, gradients, user_row, entry_rows, ridge, is_mean, bias_pace):
    """Add the gradient of one block's loss; an item that is in it twice counts twice, with its ridge."""
    num_columns, num_positive = vectors.shape[1], 0
    num_factors = num_columns - (bias_pace > 0)
    for entry in range(rows.size):
        num_positive += is_positive[entry]
    num_pairs = num_positive * (rows.size - num_positive)
    if num_pairs == 0:
        return
    share = 1.0 / num_pairs if is_mean else 1.0
    for positive in range(rows.size):
        if not is_positive[positive]:
            continue
        for negative in range(rows.size):
            if is_positive[negative]:
                continue
            first, second = rows[positive], rows[negative]
            margin = 0.0
            for factor in range(num_columns):
                margin += vectors[user, factor] * (vectors[first, factor] - vectors[second, factor])
            # DEVIATION: the report prints +(1 - sigma(w)) (Sec. 4.2); the derivative of -log sigma(w) has a minus.
            if margin > 0:
                slope = -share * np.exp(-margin) / (1.0 + np.exp(-margin))
            else:
                slope = -share / (1.0 + np.exp(margin))
            for factor in range(num_factors):
                of_user = vectors[user, factor]
                gradients[user_row, factor] += slope * (vectors[first, factor] - vectors[second, factor])
                gradients[entry_rows[positive], factor] += slope * of_user
                gradients[entry_rows[negative], factor] -= slope * of_user
            if bias_pace > 0:
                gradients[entry_rows[positive], num_factors] += bias_pace * slope
                gradients[entry_rows[negative], num_factors] -= bias_pace * slope
    for factor in range(num_factors):
        gradients[user_row, factor] += ridge * vectors[user, factor]
        for entry in range(rows.size):
            gradients[entry_rows[entry], factor] += ridge * vectors[rows[entry], factor]


@numba.njit(nogil=True, cache=True)
def _group_gradients(
    vectors, vector_of_row, group_of_row, block_starts, row_of_entry, is_positive, user_rows, theta, rate, ridge,
    is_mean, bias_pace,
):  # fmt: skip
    """Gradients of groups, one after the other; each sees what those before it moved (Algorithms 3 and 4)."""
    num_rows, num_factors = vectors.shape
    local = np.empty((vector_of_row.max() + 1, num_factors), np.float64)
    for row in range(num_rows):
        local[vector_of_row[row]] = vectors[row]
    gradients = np.zeros((num_rows, num_factors), np.float64)
    result = np.empty((num_rows, num_factors), np.float32)
    row = 0
    for first in range(0, user_rows.size, theta):
        group = first // theta
        for block in range(first, first + theta):
            entries = row_of_entry[block_starts[block] : block_starts[block + 1]]
            signs = is_positive[block_starts[block] : block_starts[block + 1]]
            _block(
                local, vector_of_row[user_rows[block]], vector_of_row[entries], signs, gradients,
                user_rows[block], entries, ridge, is_mean, bias_pace,
            )  # fmt: skip
        while row < num_rows and group_of_row[row] == group:
            for factor in range(num_factors):
                result[row, factor] = gradients[row, factor]
                local[vector_of_row[row], factor] -= rate * result[row, factor]
            row += 1
    return result


def group_gradients(
    groups: Groups,
    vectors: Rows,
    learning_rate: float,
    regularization: float,
    block_loss: BlockLoss = "mean",
    bias_pace: float = 0.0,  # above 0 the last column is the items' bias
) -> Rows:
    """A gradient for every row of the groups, that of a bias times its pace."""
    if not groups.num_blocks:
        return np.empty((0, vectors.shape[1]), np.float32)
    gradients: Rows = _group_gradients(
        vectors, groups.vector_of_row, groups.group_of_row, groups.block_starts, groups.row_of_entry,
        groups.is_positive, groups.user_rows, groups.theta, learning_rate, regularization, block_loss == "mean",
        bias_pace,
    )  # fmt: skip
    return gradients


@numba.njit(nogil=True, cache=True)
def _loss(user_factors, item_factors, users, items, is_positive, starts):
    total = 0.0
    for block in range(starts.size - 1):
        first, last = starts[block], starts[block + 1]
        user, loss, num_pairs = users[first], 0.0, 0
        for positive in range(first, last):
            for negative in range(first, last):
                if is_positive[positive] and not is_positive[negative]:
                    margin = 0.0
                    for factor in range(user_factors.shape[1]):
                        margin += user_factors[user, factor] * (
                            item_factors[items[positive], factor] - item_factors[items[negative], factor]
                        )
                    loss += max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
                    num_pairs += 1
        total += loss / num_pairs
    return total / max(starts.size - 1, 1)


def block_loss(
    user_factors: Rows,
    item_factors: Rows,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    is_positive: NDArray[np.bool_],
) -> float:
    """The mean loss, without the ridge, of the completed blocks of a stream; NaN if there are none."""
    blocks = Blocks()
    blocks.make_room(len(users), len(user_factors))
    blocks.add(np.zeros(len(users), np.int64), users, items, is_positive, 1, 1)
    groups = blocks.learn(1, "blocks", 1)
    if not groups.num_blocks:
        return float("nan")
    of_block = np.repeat(groups.numbers[groups.user_rows], np.diff(groups.block_starts))
    return float(
        _loss(
            user_factors, item_factors, of_block, groups.numbers[groups.row_of_entry], groups.is_positive,
            groups.block_starts,
        )
    )  # fmt: skip
