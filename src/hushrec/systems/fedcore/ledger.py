"""What noise promises over a whole run: releases are written down, and an accountant adds them up.

Guarantee: `Ledger.total` is an epsilon for which all releases together are (epsilon, delta)-differentially
private, if each release is what it says. Neighbours: one of what the releases name in `what`, replaced by another.
Releases may be adaptive, each chosen after seeing the ones before. The figure comes from the privacy loss
distribution of Google's dp-accounting, rounded up to a grid.

Of a row with noise in each component, a release is counted as one number with the same epsilon. That is the worst
case: a change spread over components is a walk of changes of one component each, and no easier to see than a walk
as long within one component (group privacy of trade-off curves, Dong, Roth and Su 2022; Laplace noise is
log-concave, so that shifts of one component reach that bound).

Error: above the exact value by less than 0.01 % up to 10,000 equal releases and 0.1 % up to 100,000 (measured on
finer grids); a release with epsilon above 500 counts in full, at most 0.2 % too much. Never above the plain sum.
Fifty releases of epsilon 15 are 738.09 at delta 1e-5; dp-accounting's own `get_epsilon` says 738.84, as it takes
exp(-epsilon), which floating point no longer holds from about 700 on.
"""

from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from hushrec.errors import HushrecError, MissingExtraError, how_to_install

DELTA = 1e-5
# The grid of losses: this fine at least for the smallest epsilon, and this many points for the sum of all.
_STEPS_PER_EPSILON = 1000
_MOST_STEPS = 5e6
# Beyond this dp-accounting runs out of the range of floating point, and has next to nothing to save.
_LARGEST_EPSILON = 500.0
_HALVINGS = 30


@dataclass(frozen=True)
class Release:
    """So many releases of the same kind, and what each of them protects: "rating of a user", "user"."""

    mechanism: Literal["laplace"]
    epsilon: float  # of one release
    count: int
    what: str

    def __post_init__(self) -> None:
        if self.mechanism != "laplace":
            raise HushrecError(f"the ledger does not know the mechanism {self.mechanism!r}; use 'laplace'")
        if not (0 < self.epsilon < float("inf") and self.count >= 0):
            raise HushrecError("a release needs an epsilon above 0 and finite and a count of 0 or more")


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
        """The epsilon of all releases together with delta 0."""
        return sum((release.epsilon * release.count for release in self.releases), 0.0)

    def total(self, delta: float = DELTA) -> float:
        """The epsilon of all releases together at this delta."""
        if not 0 < delta < 1:
            raise HushrecError(f"delta must lie between 0 and 1, {delta:g} does not; use 1e-5")
        counts: Counter[float] = Counter()
        for release in self.releases:
            if release.count:
                counts[release.epsilon] += release.count
        beyond = sum(
            (epsilon * counts.pop(epsilon) for epsilon in list(counts) if epsilon > _LARGEST_EPSILON), 0.0
        )
        return beyond + (_accounted(counts, delta) if counts else 0.0)


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


def _accounted(counts: Counter[float], delta: float) -> float:
    plain = sum(epsilon * count for epsilon, count in counts.items())
    accounting = _dp_accounting()
    interval = max(min(counts) / _STEPS_PER_EPSILON, plain / _MOST_STEPS)
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=interval)
    for epsilon, count in counts.items():
        accountant.compose(accounting.LaplaceDpEvent(1 / epsilon), count)
    # Not `get_epsilon`, which is inexact from about 700 on.
    low, high = 0.0, plain
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if accountant.get_delta(middle) <= delta else (middle, high)
    return high


def _dp_accounting() -> Any:
    try:
        return import_module("dp_accounting")
    except ImportError:
        raise MissingExtraError(
            f"the privacy ledger needs dp-accounting; install it with: {how_to_install('dp')}"
        ) from None
