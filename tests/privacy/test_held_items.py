"""Items that few people have stay near the centre, whatever liars send for them, and nothing else changes."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.data.splits import k_folds
from hushrec.data.synthetic import synthetic
from hushrec.errors import HushrecError
from hushrec.privacy.held_items import held_items
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, prepared, run_job


@dataclass(frozen=True)
class Held:
    robust: str = "held"
    liars: int = 1
    participation: float = 1.0


def test_by_hand() -> None:
    """Two numbers an item. With one liar, honest raters are 10, 10, 10, 0, 0 and none.

    The middle of 30 ratings of items at 0, 2 and 4 is 2, in both numbers; the reach is that of the farthest of
    these, from (2, 2) to (0, 2), which is 2. An item with 10 may go 10 / (10 + 10) of it: 1. The item of one rater
    is at the centre, and what nobody sent stays.
    """
    vectors = np.array([[0, 2], [2, 2], [4, 2], [50, 50], [2, 3], [7, 7]], np.float32)
    counts = np.array([11, 11, 11, 1, 1, 0])
    expected = [[1, 2], [2, 2], [3, 2], [2, 2], [2, 2], [7, 7]]
    np.testing.assert_array_equal(held_items(vectors, counts, Held()), np.array(expected, np.float32))


@pytest.mark.parametrize("counts", [[0, 0, 0], [1, 1, 1]])
def test_nothing_is_held_where_nobody_can_be_believed(counts: list[int]) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(held_items(vectors, np.array(counts), Held()), vectors)


def test_without_being_asked_for_it_is_the_same_array() -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert held_items(vectors, np.array([9, 9, 9]), Held(robust="none")) is vectors


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.lists(st.floats(-2000, 2000, width=32), min_size=3, max_size=3), st.integers(0, 20))
def test_an_item_of_liars_alone_is_the_centre_wherever_they_pull_it(
    liars: int, pulled: list[float], num_lying: int
) -> None:
    """And neither the centre nor the others move, as long as no more lie than is said."""
    draws = np.random.default_rng(liars)
    vectors = draws.normal(size=(30, 3)).astype(np.float32)
    counts = draws.integers(liars + 1, 100, 30)
    calm = held_items(np.vstack([vectors, np.zeros((1, 3), np.float32)]), np.append(counts, 0), Held(liars=liars))
    num_lying = min(max(num_lying, 1), liars)
    attacked = np.vstack([vectors, np.array([pulled], np.float32)])
    held = held_items(attacked, np.append(counts, num_lying), Held(liars=liars))
    np.testing.assert_array_equal(held[:-1], calm[:-1])
    rows = np.sort(np.repeat(vectors, counts - liars, axis=0), axis=0)  # an oracle: as many rows as ratings
    np.testing.assert_array_equal(held[-1], rows[(len(rows) - 1) // 2])


SPLIT = next(k_folds(synthetic(60, 40, 900, seed=1)))


@pytest.mark.parametrize("name", ["fedrec", "fedrec++"])
def test_without_loss_it_stays_without_loss(name: str) -> None:
    """FedRec++ with virtual items ends in the bits of a run without any; FedRec, which keeps noise, does not."""
    system, made = SYSTEMS[name], []
    for rho in (0, 3):
        values = {"rho": rho, "num_rounds": 8, "num_factors": 6, "robust": "held", "liars": 2, "row_norm": 3.0}
        config = system.configure(values | ({"user_update": "rated"} if name == "fedrec" else {}))
        job = Job(system, config, 0, prepared(system, SPLIT.train, config))
        made.append(run_job(job, RuntimeOptions(threads=1)).state.item_factors)
    assert np.array_equal(*made) == (name == "fedrec++")


def test_shares_end_in_the_same_bits() -> None:
    system, made = SYSTEMS["fedrec++"], []
    for values in ({"denoisers": 3}, {"denoisers": 3, "shares": 2}):
        config = system.configure({"rho": 1, "num_rounds": 4, "num_factors": 4, "robust": "held", **values})
        job = Job(system, config, 0, prepared(system, SPLIT.train, config))
        made.append(run_job(job, RuntimeOptions(threads=1)).state.item_factors)
    np.testing.assert_array_equal(*made)


def test_fcf_has_nobody_to_count() -> None:
    with pytest.raises(HushrecError, match=r"robust=.held. counts who has an item, and here each sends all"):
        SYSTEMS["fcf"].configure({"robust": "held"})
