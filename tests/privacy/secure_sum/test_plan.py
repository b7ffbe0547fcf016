"""Degrees and thresholds: the tails are hypergeometric, and the plan keeps its three promises."""

from itertools import combinations
from math import comb, floor

import numpy as np
import pytest
from scipy.stats import hypergeom

from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.plan import Plan, chance_of_a_gap, plan_for, tails
from hushrec.privacy.secure_sum.settings import SecureSums


def test_tails_by_hand() -> None:
    """Two of five are marked and three are drawn: P(X >= 1) = 1 - C(3, 3) / C(5, 3) = 9/10, P(X = 2) = 3/10."""
    assert tails(5, 2, 3) == pytest.approx([1.0, 0.9, 0.3, 0.0, 0.0])


def test_tails_are_scipys() -> None:
    ours = tails(942, 47, 82)
    theirs = hypergeom(942, 47, 82).sf(np.arange(-1, 83))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-30)


def test_chance_of_a_gap_counts_all_sets() -> None:
    """Of all sets of three removed out of seven, those with places 0 and 1 among them."""
    sets = list(combinations(range(7), 3))
    assert chance_of_a_gap(7, 3, 2) == pytest.approx(sum({0, 1} <= set(one) for one in sets) / comb(7, 3))
    assert chance_of_a_gap(7, 3, 4) == 0.0


@pytest.mark.parametrize("num_parties", [100, 943, 6040])
def test_a_sparse_plan_keeps_its_promises_and_no_smaller_one_does(num_parties: int) -> None:
    settings = SecureSums()
    plan = plan_for(num_parties, settings)
    corrupted, lost = floor(0.05 * num_parties), floor(0.1 * num_parties)

    def keeps(degree: int, threshold: int) -> bool:
        allowed = settings.secure_failure / num_parties
        gets_both = hypergeom(num_parties - 1, corrupted, degree).sf(2 * threshold - degree - 1)
        too_few = hypergeom(num_parties - 1, lost, degree).sf(degree - threshold)
        gap = chance_of_a_gap(num_parties, corrupted + lost, degree // 2)
        return bool(max(gets_both, too_few, gap) <= allowed)

    assert plan.degree < num_parties - 1
    assert keeps(plan.degree, plan.threshold)
    assert not any(keeps(plan.degree - 2, threshold) for threshold in range(1, plan.degree - 1))
    assert plan.least == num_parties - lost


def test_degrees_that_the_documentation_names() -> None:
    plans = [plan_for(number, SecureSums()) for number in (100, 943, 6040, 100_000)]
    assert plans == [Plan(26, 16, 90), Plan(82, 52, 849), Plan(102, 65, 5436), Plan(116, 74, 90_000)]


def test_every_small_number_of_participants_has_a_plan_that_bears_what_it_says() -> None:
    for number in range(3, 200):
        plan = plan_for(number, SecureSums())
        assert 1 <= plan.threshold <= plan.degree <= number - 1
        assert plan.threshold > (plan.degree + (0.05 * number if plan.degree == number - 1 else 0)) // 2


def test_too_few_or_impossible_shares_are_refused_in_one_line() -> None:
    with pytest.raises(HushrecError, match=r"\Aa sum over 2 is not secure below .*3.*let more take part\Z"):
        plan_for(2, SecureSums())
    with pytest.raises(HushrecError, match=r"\Ano graph of 50 participants bears 20 corrupted and 20 lost.*\Z"):
        plan_for(50, SecureSums(secure_corrupted=0.4, secure_dropouts=0.4))
