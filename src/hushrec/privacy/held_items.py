"""Items that few people have stay near what all items have in common: a defence that needs sums and counts alone.

After each step of the server an item's vector may be so far from the centre of all, and no farther:

    limit_i = reach * h_i / (h_i + doubt),  h_i = max(n_i - F, 0)

n_i = how many clients sent a row of the item, F = `liars`, so that h_i is the least number of honest ones among
them. The centre is the median of vectors, number by number, and the reach the distance within which most vectors
are, each item counted h_i times: neither can be moved far by a few liars, whatever rows they send.

Guarantee, of integrity and not of privacy: with at most F liars, an item that nobody else has is the centre
itself, for which everybody has a middling score, and one that h others have is within the limit, whatever was
sent for it and however long that was. No row has to be looked at, so denoisers, and with them runs without loss,
stay as they are: the same sums and counts give the same V. Where counts are what clients say (behind masks) or are
of virtual items too, n_i says less.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.privacy.robust_sum import lengths_of

Factors = NDArray[np.float32]
_DOUBT = 10.0  # raters: with so many an item may go half as far as one that everybody has
_WITHIN = 0.95  # of all ratings are of items that are no farther from the centre than the reach


class Holding(Protocol):
    """Settings that say whether items are held."""

    @property
    def robust(self) -> str:
        """How the rows of an item become one."""
        ...

    @property
    def liars(self) -> int:
        """How many of them are withstood."""
        ...

    @property
    def participation(self) -> float:
        """Share of clients that take part in a round."""
        ...


def held_items(item_factors: Factors, counts: NDArray[np.int64], config: Holding) -> Factors:
    """V after a step, its rows no farther from their centre than their raters warrant; as it is, if not asked for.

    An item of which no row came stays where it is.
    """
    honest = np.maximum(counts - config.liars, 0)
    if config.robust != "held" or not honest.any():
        return item_factors
    centre = np.array([_quantile(column, honest, 0.5) for column in item_factors.T], np.float32)
    apart = item_factors - centre
    lengths = lengths_of(apart)
    # Where only some clients take part, as many fewer are enough.
    limits = _quantile(lengths, honest, _WITHIN) * honest / (honest + _DOUBT * config.participation)
    is_far = (counts > 0) & (lengths > limits)
    held = item_factors.copy()
    held[is_far] = centre + apart[is_far] * (limits[is_far] / lengths[is_far]).astype(np.float32)[:, None]
    return held


def _quantile(numbers: NDArray[np.floating], weights: NDArray[np.int64], share: float) -> float:
    """The number below or at which this share of the weights is."""
    order = np.argsort(numbers, kind="stable")
    sums = np.cumsum(weights[order])
    return float(numbers[order[np.searchsorted(sums, share * sums[-1])]])
