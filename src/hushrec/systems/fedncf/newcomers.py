"""A newcomer's vector in FedNCF: what every client is sent is enough for it, no vector of another client is used.

Symbols: as in `hushrec.systems.fedncf.network`.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hushrec.models.newcomers import FrozenNetwork, newcomer_vector, usual_around_zero, wishes_of
from hushrec.protocol import Numbers

Floats = NDArray[np.float32]

_NUM_NEGATIVES = 4  # so many of all other items count against one that a newcomer has
_KNOWN = 1e12  # how sure it is that a number is what it is


def newcomer_factors(
    items: Numbers,
    item_factors: Floats,
    layers: Floats,
    num_products: int,
    dense: tuple[int, ...],
    has_biases: bool,
) -> Floats:
    """The vector of least loss over the newcomer's items and all others, as a row; `dense` is empty for GMF."""
    is_free = np.ones(item_factors.shape[1], np.bool_)
    if has_biases:
        is_free[num_products - 1] = False  # a 1 for everybody
    usual = usual_around_zero(len(is_free), float(np.mean(np.square(item_factors[:, is_free]))))
    usual.mean[~is_free], usual.precision[~is_free, ~is_free] = 1.0, _KNOWN
    wishes = wishes_of(items, len(item_factors), _NUM_NEGATIVES)
    network = frozen_network(item_factors, layers, num_products, dense)
    return newcomer_vector(network, wishes, usual, "logistic").astype(np.float32)[None]


def frozen_network(
    item_factors: Floats, layers: Floats, num_products: int, dense: tuple[int, ...]
) -> FrozenNetwork:
    """The network as a function of a user's vector."""
    vectors, rest = item_factors.astype(np.float64), layers.astype(np.float64)
    output, rest, bias = rest[:num_products], rest[num_products:-1], rest[-1:]
    products = vectors[:, :num_products] * output
    if not dense:
        return FrozenNetwork(products, np.zeros((len(vectors), 1)), np.zeros((0, 1)), [(np.zeros((1, 1)), bias)])
    stack = []
    for num_inputs, num_outputs in pairwise((*dense, 1)):
        weight, rest = np.split(rest, [num_inputs * num_outputs])
        biases, rest = np.split(rest, [num_outputs]) if len(rest) else (bias, rest)
        stack.append((weight.reshape(num_inputs, num_outputs), biases))
    (first, first_bias), *others = stack
    half = dense[0] // 2
    return FrozenNetwork(products, vectors[:, num_products:] @ first[half:] + first_bias, first[:half], others)
