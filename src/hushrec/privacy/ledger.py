"""What noise promises over a whole run: releases are written down, and an accountant adds them up.

Guarantee: `Ledger.total` is an epsilon for which all releases together are (epsilon, delta)-differentially
private, if each release is what it says. Neighbours: one of what the releases name in `what`, replaced by another.
Releases may be adaptive, each chosen after seeing the ones before. The figure comes from the privacy loss
distribution of Google's dp-accounting, rounded up to a grid.

Of a row with noise in each component, a release is counted as one number with the same epsilon. That is the worst
case: a change spread over components is a walk of changes of one component each, and no easier to see than a walk
as long within one component (group privacy of trade-off curves, Dong, Roth and Su 2022; Laplace noise is
log-concave, so that shifts of one component reach that bound).

Gaussian noise is counted by its multiplier, the standard deviation over the l2 sensitivity. Releases with
multipliers z_1, z_2, ... are together exactly as one with 1/z^2 = 1/z_1^2 + 1/z_2^2 + ..., adaptive ones too.

Error: above the exact value by less than 0.01 % up to 10,000 equal releases and 0.1 % up to 100,000 (measured on
finer grids); a release with epsilon above 500 counts in full, at most 0.2 % too much. Never above the plain sum.
Fifty releases of epsilon 15 are 738.09 at delta 1e-5; dp-accounting's own `get_epsilon` says 738.84, as it takes
exp(-epsilon), which floating point no longer holds from about 700 on.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from hushrec.errors import HushrecError, MissingExtraError, how_to_install

Mechanism = Literal["laplace", "gaussian"]

DELTA = 1e-5
# The grid of losses: this fine at least for the smallest epsilon, and this many points for the sum of all.
_STEPS_PER_EPSILON = 1000
_MOST_STEPS = 5e6
# Beyond this dp-accounting runs out of the range of floating point, and has next to nothing to save.
_LARGEST_EPSILON = 500.0
_HALVINGS = 30
_NOISE_HALVINGS = 14
_GAUSSIAN_PARTS = 20  # as one release, Gaussian noise is rounded up once, to a grid this much finer
_MARGIN = 1e-6  # so that a total that is found by halving is within, too


@dataclass(frozen=True)
class Release:
    """So many releases of the same kind, and what each of them protects: "rating of a user", "user"."""

    mechanism: Mechanism
    epsilon: float  # of one release; of Gaussian noise, at some delta, for people
    count: int
    what: str
    multiplier: float = 0.0  # of Gaussian noise: its standard deviation over the sensitivity

    def __post_init__(self) -> None:
        if self.mechanism not in ("laplace", "gaussian"):
            raise HushrecError(
                f"the ledger does not know the mechanism {self.mechanism!r}; use 'laplace' or 'gaussian'"
            )
        if (self.mechanism == "gaussian") != (0 < self.multiplier < float("inf")):
            raise HushrecError(
                "a release with Gaussian noise, and no other, needs a multiplier above 0 and finite"
            )
        if not (0 < self.epsilon < float("inf") and self.count >= 0):
            raise HushrecError("a release needs an epsilon above 0 and finite and a count of 0 or more")

    @property
    def noise(self) -> float:
        """Scale or standard deviation of the noise over the sensitivity."""
        return self.multiplier or 1 / self.epsilon


@dataclass
class Ledger:
    """All that was released about one unit of what is protected."""

    releases: list[Release] = field(default_factory=list)

    def add(self, release: Release) -> None:
        """Write a release down. What protects another unit belongs in another ledger."""
        if self.releases and self.releases[0].what != release.what:
            raise HushrecError("releases that protect different things do not add up; keep a ledger for each")
        self.releases.append(release)

    @property
    def count(self) -> int:
        """How many releases there were."""
        return sum(release.count for release in self.releases)

    def per_release(self) -> float:
        """The largest epsilon of a single release; 0 if there was none."""
        return max((release.epsilon for release in self.releases if release.count), default=0.0)

    def plain_sum(self) -> float:
        """The epsilon of all releases together with delta 0; Gaussian ones have none, so it is theirs at delta."""
        return sum((release.epsilon * release.count for release in self.releases), 0.0)

    def total(self, delta: float = DELTA) -> float:
        """The epsilon of all releases together at this delta."""
        account = self._account(delta)
        # Not `get_epsilon`, which is inexact from about 700 on.
        low, high = 0.0, account.most
        for _ in range(_HALVINGS if account.most else 0):
            middle = (low + high) / 2
            low, high = (low, middle) if account.delta_at(middle) <= delta else (middle, high)
        return account.beyond + high

    def is_within(self, epsilon: float, delta: float = DELTA) -> bool:
        """Whether the total is at most this epsilon."""
        account = self._account(delta)
        left = (1 - _MARGIN) * epsilon - account.beyond
        return left >= account.most or (left > 0 and account.delta_at(left) <= delta)

    def _account(self, delta: float) -> "_Account":
        if not 0 < delta < 1:
            raise HushrecError(f"delta must lie between 0 and 1, {delta:g} does not; use 1e-5")
        counts: Counter[float] = Counter()
        for release in self.releases:
            if release.count and release.mechanism == "laplace":
                counts[release.epsilon] += release.count
        large = [epsilon for epsilon in counts if epsilon > _LARGEST_EPSILON]
        beyond = sum((epsilon * counts.pop(epsilon) for epsilon in large), 0.0)
        squares = (release.count / release.multiplier**2 for release in self.releases if release.multiplier)
        return _accounted(counts, sum(squares, 0.0), delta, beyond)


def said(ledger: Ledger, delta: float = DELTA) -> str:
    """The whole ledger in one sentence, to print with a run."""
    if not ledger.count:
        return "nothing was released with noise"
    return (
        f"per release epsilon {_shown(ledger.per_release())}, over {ledger.count:,} releases about "
        f"{_shown(ledger.total(delta))} at delta {_shown(delta)} (plain sum {_shown(ledger.plain_sum())}); "
        f"this protects one {ledger.releases[0].what}"
    )


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}".replace("e-0", "e-")


def epsilon_of_gaussian(multiplier: float, delta: float) -> float:
    """The epsilon of one release with Gaussian noise, in closed form (Balle and Wang 2018, Theorem 8)."""
    shift, log_ndtr = 1 / multiplier, _needed("scipy.special").log_ndtr

    def log_delta_above(epsilon: float) -> float:
        tail, other = log_ndtr(shift / 2 - epsilon / shift), epsilon + log_ndtr(-shift / 2 - epsilon / shift)
        return float(tail + math.log(-math.expm1(min(other - tail, -1e-300))) - math.log(delta))

    most = shift * shift / 2 + shift * math.sqrt(2 * math.log(1 / delta))
    if log_delta_above(0.0) <= 0:
        return 0.0
    return float(_needed("scipy.optimize").brentq(log_delta_above, 0.0, most, xtol=1e-12 * most))


def told_of(ledgers: Sequence[Ledger], unit: str, delta: float = DELTA) -> dict[str, float]:
    """What is told with a run, of one release and of all together: the largest numbers of these ledgers."""
    ledgers = [ledger for ledger in ledgers if ledger.count]
    if not ledgers:
        return {}
    return {
        "epsilon of one release": max(ledger.per_release() for ledger in ledgers),
        f"releases that one {unit} is in": max(ledger.count for ledger in ledgers),
        f"epsilon of these together, delta {delta:g}": round(max(ledger.total(delta) for ledger in ledgers), 2),
    }


@cache
def calibrated(mechanism: Mechanism, count: int, epsilon_total: float, delta: float, what: str) -> Release:
    """So many releases with as little noise as keeps their total within epsilon, by bisection over the ledger."""

    def with_noise(noise: float) -> Release:
        epsilon = 1 / noise if mechanism == "laplace" else epsilon_of_gaussian(noise, delta)
        return Release(mechanism, epsilon, count, what, noise if mechanism == "gaussian" else 0.0)

    def is_within(noise: float) -> bool:
        return Ledger([with_noise(noise)]).is_within(epsilon_total, delta)

    enough = math.sqrt(count * 2 * math.log(1 / delta)) / epsilon_total
    while not is_within(enough):
        enough *= 2
    little = enough / 2
    while is_within(little):
        enough, little = little, little / 2
    for _ in range(_NOISE_HALVINGS):
        middle = (enough + little) / 2
        enough, little = (middle, little) if is_within(middle) else (enough, middle)
    return with_noise(enough)


class _Account(NamedTuple):
    """The sum of all privacy losses."""

    delta_at: Callable[[float], float]  # by epsilon, without what is beyond
    most: float  # epsilon at which delta is small enough
    beyond: float  # what counts in full


def _accounted(counts: Counter[float], gaussian: float, delta: float, beyond: float) -> _Account:
    """Of Laplace releases by their epsilon, and of Gaussian ones with this sum of 1/z^2."""
    # Gaussian noise loses more with a chance of less than delta.
    shift = math.sqrt(gaussian)
    of_gaussian = gaussian / 2 + shift * math.sqrt(2 * math.log(1 / delta))
    most = sum((epsilon * count for epsilon, count in counts.items()), 0.0) + of_gaussian
    if not most:
        return _Account(lambda _epsilon: 0.0, 0.0, beyond)
    accounting = _needed("dp_accounting")
    finest = min([*counts, *([of_gaussian / _GAUSSIAN_PARTS] if gaussian else [])])
    interval = max(finest / _STEPS_PER_EPSILON, most / _MOST_STEPS)
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=interval)
    for epsilon, count in counts.items():
        accountant.compose(accounting.LaplaceDpEvent(1 / epsilon), count)
    if gaussian:
        accountant.compose(accounting.GaussianDpEvent(1 / shift))
    return _Account(accountant.get_delta, most, beyond)


def _needed(module: str) -> Any:
    """What is loaded for epsilon alone: a run without noise needs neither."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"the privacy ledger needs dp-accounting, and SciPy with it; install them with: {how_to_install('dp')}"
        ) from None
