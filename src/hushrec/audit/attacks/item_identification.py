"""Item identification (FedCORE, RQ1): which own item is the other partner's, by the cosine of their vectors."""

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.gradient_inversion import units
from hushrec.errors import HushrecError

_BLOCK = 256  # rows of the product at a time


def twin_ranks(
    theirs: NDArray[np.floating], own: NDArray[np.floating], twins: NDArray[np.integer]
) -> NDArray[np.int64]:
    """For each of the other's vectors, how many own items other than its true twin are at least as similar.

    `twins` gives the number of the twin among the own items; it is the truth, for scoring only.
    """
    if len(theirs) != len(twins) or theirs.shape[1] != own.shape[1]:
        raise HushrecError("every vector needs one twin, and all vectors the same number of factors")
    if len(twins) and not (np.min(twins) >= 0 and np.max(twins) < len(own)):
        raise HushrecError(f"twins must be numbers of own items, 0 to {len(own) - 1}")
    left, right = units(np.asarray(theirs, np.float64)), units(np.asarray(own, np.float64)).T
    ranks = np.empty(len(theirs), np.int64)
    for first in range(0, len(theirs), _BLOCK):
        cosines = left[first : first + _BLOCK] @ right
        of_twin = np.take_along_axis(cosines, twins[first : first + _BLOCK, None], axis=1)
        ranks[first : first + _BLOCK] = np.count_nonzero(cosines >= of_twin, axis=1) - 1
    return ranks


def num_identified(
    theirs: NDArray[np.floating], own: NDArray[np.floating], twins: NDArray[np.integer], top: int
) -> int:
    """How many have their twin strictly above the `top`-th most similar of the other own items."""
    return int(np.count_nonzero(twin_ranks(theirs, own, twins) < top))
