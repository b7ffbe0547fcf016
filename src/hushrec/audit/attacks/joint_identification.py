"""Joint identification: which item a gradient is of, by the item vectors of two partners together (FedCORE).

As in `item_identification.py`, with the sum of how like an item is to each one's vectors: its cosine, less the
mean over the catalogue, in standard deviations. Who does not have an item adds nothing: an item that both have is
likelier to be the third's, too, and a mean of cosines would favour those that one alone has, which vary more.
"""

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from hushrec.audit import joint_gradients as joint
from hushrec.audit import partner_gradients as gradients
from hushrec.audit.attacks.item_identification import TOP_SHARE
from hushrec.audit.inversion import units
from hushrec.audit.joint_gradients import Joint, rows_of
from hushrec.audit.partner_gradients import VICTIM
from hushrec.audit.scoreboard import Attack, Outcome, Truth

Floats = NDArray[np.float64]


def likenesses(vectors: Floats, catalogues: list[tuple[NDArray[np.int64], Floats]], num_items: int) -> Floats:
    """Of each vector and each item: the sum over who has the item."""
    totals = np.zeros((len(vectors), num_items))
    for places, own in catalogues:
        cosines = units(vectors) @ units(own).T
        spread = np.maximum(cosines.std(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        totals[:, places] += (cosines - cosines.mean(axis=1, keepdims=True)) / spread
    return totals


def judge(found: Joint, truth: Truth) -> Outcome:
    """By user, of items that some of them have. Chance: as many as are looked at, of those that all have."""
    rows, theirs = rows_of(found, truth), truth.holds(VICTIM)["item_ids"]
    held = [truth.holds(number) for number in found.found]
    known = np.unique(np.concatenate([holds["item_ids"] for holds in held]))
    catalogues = [
        (np.searchsorted(known, holds["item_ids"]), holds["item_factors_before"].astype(np.float64))
        for holds in held
    ]
    has_twin = np.isin(theirs[rows.items], known)
    likeness = likenesses(rows.vectors[has_twin], catalogues, len(known))
    twins = np.searchsorted(known, theirs[rows.items[has_twin]])
    of_twin = np.take_along_axis(likeness, twins[:, None], axis=1)
    top = max(1, round(TOP_SHARE * len(np.intersect1d(theirs, known))))
    is_found = np.count_nonzero(likeness >= of_twin, axis=1) - 1 < top
    num_shared = len(reduce(np.intersect1d, [holds["item_ids"] for holds in held]))
    return Outcome.of_marks(
        rows.users[has_twin], is_found, np.full(len(twins), min(top / max(num_shared, 1), 1.0))
    )


ATTACK = Attack(
    name="joint identification",
    seats=joint.SEATS,
    guesses="which item it is, by the vectors of both",
    measure="share",
    sentence="Two partners together have the true item among the best few for {score:.1%} of the gradients of a "
    "third (1% of the number of common items); by chance {chance:.1%}.",
    reads=gradients.of_common_users,
    look=joint.recover_jointly,
    judge=judge,
    only_last=True,
    settings=gradients.SETTINGS,
    own=joint.OWN,
    victim=gradients.VICTIM_SEAT,
    repairs=("--privatizer dp+average",),
)
