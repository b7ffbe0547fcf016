"""User-level differential privacy of the sums of a run: its settings, how much noise they ask for, and its ledger.

Guarantee: all sums of a run that one user is in are together (epsilon_total, delta)-differentially private towards
whoever sees the sums, the server, and up to `secure_corrupted` of the clients with it. Neighbours: one user's
data, all of it and in all rounds, is there or is replaced by none; that the user takes part is no secret. For a
user replaced by another one, twice the clip is the sensitivity: epsilon is that of half the multiplier.

How: in each sum a client scales its numbers, all together, to l2 norm `clip` at most, and adds its share of noise
(`secure_sum.noise`). The multiplier is the standard deviation of the noise that is left, without the shares of the
lost and the corrupted, over the clip. Releases are adaptive, for each round begins with the last one's sum; many
Gaussian releases are one with a smaller multiplier (`ledger`).

Every sum that a client can be asked for is counted, as if it took part in all rounds: the server draws who takes
part, so against it there is no amplification by sampling. A client counts its sums and refuses more than the
budget is for, also if rounds begin again.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushrec.errors import option
from hushrec.privacy.ledger import DELTA, Ledger, Release, calibrated, epsilon_of_gaussian, told_of
from hushrec.protocol import Spending
from hushrec.settings import check, setting

UNIT = "user"
# What people must know of such an epsilon.
WARNING = (
    "epsilon is of a user in the sums of one run; metrics that are measured on users' own ratings are not in it, "
    "nor are other runs on the same users, such as folds and trials"
)


@dataclass(frozen=True, kw_only=True)
class UserPrivacy:
    """How much all sums of a run may tell of a user."""

    epsilon_total: float = setting(
        0.0, "of a user in all sums of a run, by noise of the clients; 0: no noise", "[0, inf)"
    )
    noise_multiplier: float = setting(
        0.0, "deviation of the noise of one sum over clip, instead of epsilon_total", "[0, inf)"
    )
    delta: float = setting(DELTA, "of epsilon_total; choose it below 1 / clients", "(0, 1)")
    clip: float = setting(
        0.0, "l2 norm that a client's numbers of a sum are scaled down to; 0: what suits the system", "[0, inf)"
    )
    most_sums: int = setting(0, "sums that a client takes part in at most; 0: those of all rounds", "[0, inf)")


def is_private(config: object) -> bool:
    """Whether clients add noise to their numbers."""
    return isinstance(config, UserPrivacy) and bool(config.epsilon_total or config.noise_multiplier)


def check_user_privacy(config: Any) -> None:
    """Refuse what would release more than the ledger counts, or nothing."""
    if not is_private(config):
        return
    named = "epsilon_total" if config.epsilon_total else "noise_multiplier"
    switch = option(named, getattr(config, named))
    check(
        not (config.epsilon_total and config.noise_multiplier),
        f"{option('epsilon_total')} finds the noise that {option('noise_multiplier')} sets; leave one out",
    )
    check(config.secure_sums, f"{switch} is of secure sums; add {option('secure_sums', True)}")
    check(
        getattr(config, "secure_least_raters", 0) <= 1,
        f"{switch}: the counts of {option('secure_least_raters')} are a release without this noise; leave one out",
    )
    check(
        not getattr(config, "from_popularity", False),
        f"{switch}: noise would drown the counts of {option('from_popularity', True)}; leave that out",
    )


def most_sums(config: Any, per_round: int) -> int:
    """How many sums of a run a client may be in."""
    return int(config.most_sums or config.num_rounds * per_round)


def multiplier_of(config: Any, per_round: int) -> float:
    """The deviation of a sum's noise over the clip, with so many sums in a round."""
    if config.noise_multiplier:
        return float(config.noise_multiplier)
    count = most_sums(config, per_round)
    return calibrated("gaussian", count, config.epsilon_total, config.delta, UNIT).multiplier


def promises_of(num_sums: int, config: Any, per_round: int) -> dict[str, float]:
    """What is told of noise with a run in which a user was in so many sums, at most."""
    multiplier = multiplier_of(config, per_round)
    epsilon = epsilon_of_gaussian(multiplier, config.delta)
    ledger = Ledger([Release("gaussian", epsilon, num_sums, UNIT, multiplier)])
    return told_of([ledger], UNIT, config.delta)


def spending_of(num_sums: int, config: Any, per_round: int) -> Spending:
    """What all sums that a user was in come to, taken as one release with less noise."""
    if not num_sums:
        return Spending(0.0, config.delta, UNIT)
    multiplier = multiplier_of(config, per_round) / math.sqrt(num_sums)
    return Spending(epsilon_of_gaussian(multiplier, config.delta), config.delta, UNIT, multiplier)


def num_sums_of(private: Any) -> int:
    """The most sums that one of these parties was in."""
    used = private.sum_answers.any(axis=(1, 2))
    return int(np.max(private.sum_attempts + used, initial=0))
