"""Noise on gradients: as much as one release may tell, or as much as a whole run may.

Guarantee: with `epsilon_total` the releases of a partner that one unit is in, over the whole run, are together
(epsilon_total, delta)-differentially private: noise is as small as the ledger's accountant allows for so many of
them. A unit is one rating, or all ratings that one user has at the partner; neighbours have another rating, or as
many other ratings, in its place. Each partner counts by itself, from its own ratings and the number of steps of a
round, which the server tells.
Not covered, as everywhere in the ledger: what a unit does to item vectors, and through them to gradients that it
is not in; that there is a rating; rows that are released again because a round began again with other partners.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from hushrec.privacy.ledger import Mechanism, Release, calibrated
from hushrec.systems.fedcore.partners import Partner, Privatizer

Unit = Literal["rating", "user"]


class Budget(NamedTuple):
    """How much gradients may tell."""

    mechanism: Mechanism
    unit: Unit
    epsilon: float  # of one release
    epsilon_total: float  # of a run; 0: as many times `epsilon` as there are releases
    delta: float
    num_rounds: int
    batch_size: int

    def release(self, partner: Partner, num_steps: int, is_averaged: bool) -> Release:
        """What a partner releases about one unit in a run, with so many steps in a round."""
        count = self.num_rounds * rows_of_unit(partner, num_steps, self.batch_size, self.unit, is_averaged)
        what = f"{self.unit} in its own gradients"
        if self.epsilon_total:
            return calibrated(self.mechanism, max(count, 1), self.epsilon_total, self.delta, what)
        if self.mechanism == "laplace":
            return Release("laplace", self.epsilon, count, what)
        return replace(calibrated("gaussian", 1, self.epsilon, self.delta, what), count=count)

    def privatizer(self, partner: Partner, num_steps: int, plain: Privatizer) -> Privatizer:
        """The noise for a partner's rows; as settings say it if that does not depend on how many there are."""
        if not plain.clip or (self.mechanism == "laplace" and not self.epsilon_total):
            return plain
        release = self.release(partner, num_steps, plain.is_averaged)
        return plain._replace(scale=release.noise * 2 * plain.clip, is_gaussian=self.mechanism == "gaussian")


def rows_of_unit(partner: Partner, num_steps: int, batch_size: int, unit: Unit, is_averaged: bool) -> int:
    """In how many released rows of a round one unit is, at most.

    A rating is in one of its user in each pass through the partner's ratings, and in one of its item if items are
    aligned. So is each of a user's ratings; averaged, a step has one row of a user.
    """
    size = len(partner.ratings)
    if not size:
        return 0
    passes = -(-num_steps * min(batch_size, size) // size)
    has_items = bool(partner.common_items.max(initial=-1) >= 0)
    if unit == "rating":
        return passes * (1 + has_items)
    is_seen = np.full(len(partner.common_users), True) if has_items else partner.common_users >= 0
    counts = np.bincount(partner.users, minlength=len(is_seen))
    most = passes * int(counts[is_seen].max(initial=0))
    return (min(num_steps, most) if is_averaged else most) + has_items * most
