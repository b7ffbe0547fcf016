"""From logits to probabilities."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sigmoids(logits: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """1 / (1 + exp(-x)) of each number; with `out=logits` in their place."""
    found: NDArray[Any] = np.negative(logits, out=out)
    with np.errstate(over="ignore"):
        np.exp(found, out=found)
    found += 1
    np.reciprocal(found, out=found)
    return found
