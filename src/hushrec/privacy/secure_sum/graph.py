"""The graph of neighbours: a ring in random order, on which each participant has the nearest on both sides."""

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import Numbers


def ring_neighbours(num_parties: int, degree: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Places of each participant's neighbours, a row for each, ascending.

    Guarantee: who is whose neighbour does not depend on who they are; a neighbour's neighbour is oneself.
    """
    if degree >= num_parties - 1:
        everyone = np.broadcast_to(np.arange(num_parties), (num_parties, num_parties))
        others: NDArray[np.int64] = everyone[~np.eye(num_parties, dtype=np.bool_)]
        return others.reshape(num_parties, num_parties - 1)
    steps = np.concatenate([np.arange(1, degree // 2 + 1), -np.arange(1, degree // 2 + 1)])
    order = generator.permutation(num_parties)
    neighbours = np.empty((num_parties, degree), np.int64)
    neighbours[order] = order[(np.arange(num_parties)[:, None] + steps) % num_parties]
    return np.sort(neighbours, axis=1)


def places_of(numbers: Numbers, among: Numbers) -> NDArray[np.int64]:
    """Where numbers are in a list that ascends and has them all."""
    return np.searchsorted(among, numbers)
