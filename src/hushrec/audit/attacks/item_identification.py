"""Item identification (FedCORE, RQ1): which own item is the other partner's, by the cosine of their vectors."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks import gradient_inversion
from hushrec.audit.inversion import units
from hushrec.audit.partner_gradients import ATTACKER, VICTIM, Recovered, behind
from hushrec.audit.scoreboard import Outcome, Truth
from hushrec.errors import HushrecError

_BLOCK = 256  # rows of the product at a time
TOP_SHARE = 0.01  # of the number of common items: how many own items are looked at for each


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


def judge(found: Recovered, truth: Truth) -> Outcome:
    """By user, of items that both have. Chance: as many items as are looked at, of all that the attacker has."""
    made_of = behind(found, truth)
    theirs, own = truth.holds(VICTIM), truth.holds(ATTACKER)
    twin = np.full(len(theirs["item_ids"]), -1)
    _, at_victim, at_attacker = np.intersect1d(theirs["item_ids"], own["item_ids"], return_indices=True)
    twin[at_victim] = at_attacker
    has_twin = twin[made_of.items] >= 0
    top = max(1, round(TOP_SHARE * len(at_victim)))
    vectors, twins = found.vectors[made_of.rows[has_twin]], twin[made_of.items[has_twin]]
    is_found = twin_ranks(vectors, own["item_factors_before"], twins) < top
    chances = np.full(len(twins), top / len(own["item_ids"]))
    return Outcome.of_marks(made_of.users[has_twin], is_found, chances)


ATTACK = replace(
    gradient_inversion.ATTACK,
    name="item identification",
    guesses="which own item it is, as the best few",
    measure="share",
    sentence="For {score:.1%} of the gradients the true item is among the best few (1% of the number of common "
    "items); by chance {chance:.1%}.",
    judge=judge,
)
