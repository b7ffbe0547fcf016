"""From logits to probabilities."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def sigmoids(logits: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """1 / (1 + exp(-x)) of each number; with `out=logits` in their place."""
    out = np.negative(logits, out=out)
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    out += 1
    return np.reciprocal(out, out=out)
