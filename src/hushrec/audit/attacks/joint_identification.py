"""Joint identification: which item a gradient is of, by the item vectors of two partners together (FedCORE).

As in `item_identification.py`, but each item that the two have is as like as the mean of its cosines to the
vectors that they have of it.
"""

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


def mean_cosines(vectors: Floats, catalogues: list[tuple[NDArray[np.int64], Floats]], num_items: int) -> Floats:
    """Of each vector and each item: the mean over who has the item; -1, if nobody has."""
    totals, counts = np.zeros((len(vectors), num_items)), np.zeros(num_items)
    for places, own in catalogues:
        totals[:, places] += units(vectors) @ units(own).T
        counts[places] += 1
    means: Floats = np.where(counts > 0, totals / np.maximum(counts, 1), -1.0)
    return means


def judge(found: Joint, truth: Truth) -> Outcome:
    """By user, of items that some of them have. Chance: as many as are looked at, of all that they have."""
    rows, theirs = rows_of(found, truth), truth.holds(VICTIM)["item_ids"]
    held = [truth.holds(number) for number in found.found]
    known = np.unique(np.concatenate([holds["item_ids"] for holds in held]))
    catalogues = [
        (np.searchsorted(known, holds["item_ids"]), holds["item_factors_before"].astype(np.float64))
        for holds in held
    ]
    has_twin = np.isin(theirs[rows.items], known)
    likeness = mean_cosines(rows.vectors[has_twin], catalogues, len(known))
    twins = np.searchsorted(known, theirs[rows.items[has_twin]])
    of_twin = np.take_along_axis(likeness, twins[:, None], axis=1)
    top = max(1, round(TOP_SHARE * len(np.intersect1d(theirs, known))))
    is_found = np.count_nonzero(likeness >= of_twin, axis=1) - 1 < top
    return Outcome.of_marks(rows.users[has_twin], is_found, np.full(len(twins), top / len(known)))


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
