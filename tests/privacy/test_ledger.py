import math
import sys
import time

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom, gamma

from hushrec.errors import HushrecError
from hushrec.privacy.ledger import Ledger, Release, said

pytest.importorskip("dp_accounting")


def ledger_of(*releases: tuple[float, int]) -> Ledger:
    ledger = Ledger()
    for epsilon, count in releases:
        ledger.add(Release("laplace", epsilon, count, "rating"))
    return ledger


def exact_total(epsilon: float, count: int, delta: float) -> float:
    """The privacy loss of Laplace noise is epsilon less twice a number that is 0 or exponential, with chance 1/2.

    Of `count` releases, K ~ Binomial(count, 1/2) lose 2 Gamma(K) of the sum in all. The loss ends at -epsilon,
    which does not matter where the total is less than 2 epsilon below the sum.
    """
    losing = np.arange(1, count + 1)
    chances = binom.pmf(losing, count, 0.5)

    def delta_of(below: float) -> float:
        def part(lost: float) -> float:
            return float((chances * gamma.pdf(lost, losing, scale=2)).sum()) * -math.expm1(lost - below)

        return -math.expm1(-below) * 0.5**count + quad(part, 0, below, epsabs=1e-14, limit=200)[0]

    return epsilon * count - brentq(lambda below: delta_of(below) - delta, 1e-9, 2 * epsilon, xtol=1e-9)


def test_nothing_released_is_zero() -> None:
    assert Ledger().total() == 0
    assert ledger_of((15, 0)).total() == 0
    assert ledger_of((15, 0)).per_release() == 0
    assert said(Ledger()) == "nothing was released with noise"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 15.0, 300.0])
def test_one_release_is_its_own_epsilon(epsilon: float) -> None:
    """With delta, epsilon + 2 log(1 - delta): then exp(-(epsilon - total) / 2) = 1 - delta."""
    assert ledger_of((epsilon, 1)).total() == pytest.approx(epsilon + 2 * math.log1p(-1e-5), rel=1e-6)
    assert ledger_of((epsilon, 1)).plain_sum() == epsilon


@pytest.mark.parametrize(("epsilon", "count"), [(15, 50), (15, 20), (40, 50), (200, 50), (30, 100)])
def test_equals_the_closed_form(epsilon: float, count: int) -> None:
    exact = exact_total(epsilon, count, 1e-5)
    total = ledger_of((epsilon, count)).total()
    assert exact <= total <= exact * (1 + 1e-4)


def test_the_known_figure() -> None:
    """739 by dp-accounting itself (its get_epsilon is a little above at this size), 738.09 exactly."""
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.LaplaceDpEvent(1 / 15), 50)
    theirs = accountant.get_epsilon(1e-5)
    assert round(theirs) == 739
    assert ledger_of((15, 50)).total() == pytest.approx(738.09, abs=0.01)
    assert ledger_of((15, 50)).total() <= theirs


def test_equals_the_accountant_where_it_is_exact() -> None:
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.LaplaceDpEvent(2.0), 40)
    accountant.compose(dp_accounting.LaplaceDpEvent(0.5), 10)
    assert ledger_of((0.5, 40), (2.0, 10)).total(1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


def test_parts_of_one_epsilon_are_one_entry() -> None:
    assert ledger_of((15, 20), (15, 30)).total() == ledger_of((15, 50)).total()
    assert ledger_of((15, 20), (15, 30)).count == 50


@pytest.mark.parametrize(("epsilon", "count"), [(15.0, 20_000), (400.0, 5_000), (1.0, 5_000), (900.0, 5_000)])
def test_many_releases_take_seconds_and_stay_below_the_plain_sum(epsilon: float, count: int) -> None:
    ledger = ledger_of((epsilon, count))
    start = time.process_time()
    total = ledger.total()
    assert time.process_time() - start < 5
    # Never below the mean of the loss: epsilon - 1 + exp(-epsilon) per release.
    assert count * (epsilon - 1 + math.exp(-epsilon)) < total <= ledger.plain_sum()


def test_a_smaller_delta_costs_more() -> None:
    ledger = ledger_of((0.5, 100))
    assert ledger.total(1e-3) < ledger.total(1e-5) < ledger.total(1e-9) < ledger.plain_sum()


def test_huge_epsilons_add_in_full() -> None:
    assert ledger_of((1e6, 3)).total() == 3e6
    assert ledger_of((1e6, 3), (15, 50)).total() == pytest.approx(3e6 + ledger_of((15, 50)).total())


def test_said() -> None:
    assert said(ledger_of((15, 50))) == (
        "per release epsilon 15, over 50 releases about 738.1 at delta 1e-5 (plain sum 750); "
        "this protects one rating"
    )
    assert "over 5,000 releases about 70,508 at delta 1e-5 (plain sum 75,000)" in said(ledger_of((15, 5000)))


def test_refused() -> None:
    with pytest.raises(HushrecError, match="does not know the mechanism 'exponential'"):
        Release("exponential", 1.0, 1, "rating")  # type: ignore[arg-type]
    for mechanism, multiplier in (("gaussian", 0.0), ("gaussian", math.inf), ("laplace", 1.0)):
        with pytest.raises(HushrecError, match="needs a multiplier"):
            Release(mechanism, 1.0, 1, "rating", multiplier)  # type: ignore[arg-type]
    for epsilon, count in ((0.0, 1), (-1.0, 1), (math.inf, 1), (math.nan, 1), (1.0, -1)):
        with pytest.raises(HushrecError, match="epsilon above 0"):
            Release("laplace", epsilon, count, "rating")
    with pytest.raises(HushrecError, match="a ledger for each"):
        ledger_of((1, 1)).add(Release("laplace", 1.0, 1, "user"))
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(HushrecError, match="delta must lie"):
            ledger_of((1, 1)).total(delta)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(HushrecError, match=r"pip install '\.\[dp\]'"):
        ledger_of((1, 1)).total()
    assert ledger_of((1, 1)).plain_sum() == 1
