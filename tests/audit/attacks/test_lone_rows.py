from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import hushrec
from audit.test_driver import audited, job_of
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.attacks.lone_rows import Lone, groups_of, judge, read_sum
from hushrec.audit.scoreboard import Own, Truth
from hushrec.audit.sums import SeenSum


def test_multiples_of_one_vector_are_one_clients() -> None:
    rows = np.array([[1, 2], [-2, -4], [2, 1], [0.5, 1.0]])
    assert groups_of(rows).tolist() == [0, 0, 2, 0]


def made(num_raters: int = 1) -> tuple[SeenSum, np.ndarray, Own]:  # type: ignore[type-arg]
    """A sum of one client's rows e U + lambda V, with whole ratings, where items have one rater or two."""
    generator = np.random.default_rng(0)
    user, vectors = generator.normal(0, 0.5, 4), generator.normal(0, 0.5, (40, 4))
    ratings = generator.integers(1, 6, 40).astype(np.float64)
    errors = vectors @ user - ratings
    rows = errors[:, None] * user + 0.01 * vectors
    if num_raters == 2:
        other = generator.normal(0, 0.5, 4)
        wrong = vectors @ other - generator.integers(1, 6, 40)
        rows += wrong[:, None] * other + 0.01 * vectors
    settings = {"regularization": 0.01, "learning_rate": 0.8, "decay": 0.9, "rho": 0}
    seen = SeenSum(1, np.arange(3), np.full(40, num_raters), rows, vectors)
    return seen, ratings, Own(settings, {}, np.random.default_rng(0))


def test_ratings_of_rows_with_one_rater_are_read() -> None:
    seen, ratings, own = made()
    lone = read_sum(seen, own)
    assert lone.items.tolist() == list(range(40))
    np.testing.assert_allclose(lone.ratings, ratings)


def test_rows_with_two_raters_are_neither_lone_nor_read() -> None:
    seen, ratings, own = made(2)
    assert len(read_sum(seen, own).items) == 0
    taken = read_sum(seen, own, num_raters=2)
    assert len(taken.items) == 40
    assert (np.abs(taken.ratings - ratings) < 1e-3).mean() < 0.35


def test_the_one_rater_is_who_took_part_and_has_the_item(owning: Callable[..., Truth]) -> None:
    """Client 0 and 2 have item 1; 0 did not take part. It gave 4, which is read; the most common is 3."""
    truth = owning([[0, 1], [2], [1, 3]], 4)
    ratings = np.array([3, 3, 5, 4, 3], np.float32)
    truth = truth._replace(train=replace(truth.train, ratings=ratings, rating_range=(1.0, 5.0)))
    outcome = judge([Lone(np.array([1, 2]), np.array([1]), np.array([4.0]))], truth)
    assert outcome.victims.tolist() == [2]
    assert outcome.scores.tolist() == [1.0]
    assert outcome.chances.tolist() == [0.0]


def test_left_out_rows_are_not_read() -> None:
    data = hushrec.load("synthetic:users=100,items=600,ratings=6000")
    values = {"rho": 0, "secure_sums": True, "participation": 0.1}
    (with_few,) = audited(job_of("fedrec", data, **values), ATTACKS["lone rows"]).findings
    assert with_few.score > with_few.chance + 0.1
    without = audited(job_of("fedrec", data, **values, secure_least_raters=2), ATTACKS["lone rows"])
    assert not [one for one in without.findings if one.score > one.chance]
    assert without.left_out or without.findings


@pytest.mark.parametrize("name", ["counts of one round", "differing rounds", "count equations", "lone rows"])
def test_its_switch_is_a_setting(name: str) -> None:
    job = job_of("fedrec", hushrec.load("synthetic:users=40,items=30,ratings=400"))
    for switch in ATTACKS[name].repairs:
        assert hasattr(job.config, switch.split()[0].removeprefix("--").replace("-", "_"))
