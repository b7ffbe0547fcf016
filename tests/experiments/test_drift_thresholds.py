"""DRIFT's thresholds side by side, on small runs."""

from dataclasses import replace

import numpy as np
import pytest

from hushrec.data import Interactions, owned, synthetic
from hushrec.experiments.drift_thresholds import ThresholdRow, audit_threshold, conclusion
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=120, num_items=160, num_ratings=6000, seed=1)
    times = np.random.default_rng(0).permutation(len(data)).astype(np.int64)
    return owned(replace(data.as_signed(), timestamps=times), "4", 0)


def job_of(train: Interactions, epochs: int = 1) -> Job:
    drift = SYSTEMS["drift"]
    return Job(drift, drift.configure({"epochs": epochs, "parts": 2, "window": 64}), 0, train)


def test_the_table_of_thresholds(train: Interactions) -> None:
    rounds: list[int] = []
    row = audit_threshold(
        job_of(train, epochs=3),
        5,
        "users",
        RuntimeOptions(1),
        lambda progress, _scores: rounds.append(progress.round_number),
    )
    assert rounds == [1, 2]
    assert (row.theta, row.threshold, row.users_per_group, row.one_user_share) == (5, "users", 5, 0)
    assert (
        row.scores["gradient direction"] > 0.99 > row.scores["request watching"] > row.chances["request watching"]
    )


def test_read_literally_more_groups_are_about_one_user_at_most(train: Interactions) -> None:
    """Blocks without a pair count, and their users do not move: the share of groups of one learned user grows."""
    pairs, literal = (
        audit_threshold(job_of(train), 2, "users", RuntimeOptions(1), lambda _progress, _scores: None, blocks)
        for blocks in ("pairs", "literal")
    )
    assert (pairs.blocks, literal.blocks) == ("pairs", "literal")
    assert pairs.one_user_share == literal.one_user_share == pairs.one_moved_share == 0
    assert literal.one_moved_share > 0.1
    assert literal.num_groups > pairs.num_groups
    assert literal.scores["gradient direction"] > 0.99


def test_no_completed_group_tells_nothing(train: Interactions) -> None:
    row = audit_threshold(job_of(train), 100_000, "blocks", RuntimeOptions(1), lambda _progress, _scores: None)
    assert row.num_groups == 0
    assert row.scores == {"interactions read": 0}
    assert "nothing was asked for" in conclusion([row])


@pytest.mark.parametrize(
    ("direction", "said"), [(1.0, "hides almost no interaction"), (0.5, "do not name every user here")]
)
def test_the_conclusion_is_made_of_the_numbers(direction: float, said: str) -> None:
    scores = {"request watching": 0.25, "gradient direction": direction}
    assert said in conclusion([ThresholdRow(2, "blocks", 5, 1.5, 0.4, 0.4, scores, {})])
