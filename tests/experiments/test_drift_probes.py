"""Who sees what, from the transcripts of small runs of DRIFT."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.data import Interactions, Owners, owned, synthetic
from hushrec.experiments.drift_probes import PROBES
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job

DRIFT = SYSTEMS["drift"]


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=60, num_items=80, num_ratings=2000, seed=1)
    times = np.random.default_rng(0).permutation(len(data)).astype(np.int64)
    return owned(replace(data.as_signed(), timestamps=times), "3", 0)


def seen(train: Interactions, who: str, **settings: Any) -> dict[str, float]:
    config = DRIFT.configure({"epochs": 1, "parts": 1, "window": 64, "blocks": "literal", **settings})
    job, found = Job(DRIFT, config, 0, train), dict[str, float]()

    def look(progress: Progress) -> None:
        found.update(PROBES[who](job, progress))

    run_job(job, RuntimeOptions(threads=1, keep_payloads=True), on_round=look)
    return found


def marks(found: dict[str, float]) -> set[str]:
    return {name for name, value in found.items() if value == 1 and name != "% of interactions"}


EVERYTHING = {"interaction", "block", "weights", "user id", "item id", "sign", "gradients"}


def test_an_owner_sees_all_of_its_own_items(train: Interactions) -> None:
    found = seen(train, "seen by the owner of the item")
    assert marks(found) == EVERYTHING
    assert found["% of interactions"] == 100


def test_an_owner_sees_nothing_of_the_items_of_others(train: Interactions) -> None:
    found = seen(train, "seen by another owner")
    assert not any(found.values())


def test_the_users_side_sees_interactions_and_nothing_else(train: Interactions) -> None:
    found = seen(train, "seen by the users' side")
    assert marks(found) == {"interaction", "user id", "item id", "sign"}
    assert found["% of interactions"] == 100


@pytest.mark.parametrize("threshold", ["blocks", "users"])
def test_the_orchestrator_reads_what_a_request_about_one_user_says(train: Interactions, threshold: str) -> None:
    """With Theta counted in blocks some groups name one user alone; counted in users none does."""
    found = seen(train, "seen by the orchestrator", threshold=threshold)
    stated = {"interaction", "block"} if threshold == "blocks" else set()
    assert marks(found) == stated | {"weights", "user id", "item id", "gradients"}
    assert (0 < found["% of interactions"] < 100) == (threshold == "blocks")


def test_with_theta_1_the_orchestrator_is_told_all_that_was_learned_from(train: Interactions) -> None:
    """Not all of everything: open blocks are asked for later."""
    assert 50 < seen(train, "seen by the orchestrator", theta=1)["% of interactions"] < 100


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"sign"}),
        ({"flag": "inside"}, set()),
        ({"batch": 4, "flag": "inside"}, set()),
        ({"encryption": "none"}, {"interaction", "user id", "item id", "sign"}),
        ({"encryption": "none", "flag": "inside", "batch": 4}, {"interaction", "user id", "item id", "sign"}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_who_watches_the_wire(train: Interactions, settings: dict[str, Any], expected: set[str]) -> None:
    assert marks(seen(train, "seen by an external observer", **settings)) == expected


def test_guesses_and_blind_ones(train: Interactions) -> None:
    found = {
        name: seen(train, name)["precision"]
        for name in ("gradient direction on DRIFT", "gradient direction on DRIFT, blind")
    }
    assert found["gradient direction on DRIFT"] > 0.99 > 0.7 > found["gradient direction on DRIFT, blind"] > 0.1
    assert seen(train, "wire reading on DRIFT") == {"precision": 0.0}


def test_blocks_of_owners_by_hand() -> None:
    """Owners hold items 0, 1 and 1, 2, 3. The whole stream of user 0: bad 0, bad 2, good 1 (bad 3 completes it).

    Owner 0 has bad 0, good 1, which nothing completes; owner 1 has bad 2, good 1, completed by bad 3.
    """
    few = synthetic(1, 4, 4)
    data = replace(
        few, users=np.zeros(4, np.int32), items=np.array([0, 2, 1, 3], np.int32),
        ratings=np.array([0, 0, 1, 0], np.float32), rating_range=(0.0, 1.0), timestamps=np.arange(4),
        holding=Owners(("a", "b"), np.array([0, 1, 3, 4, 5]), np.array([0, 0, 1, 1, 1], np.int32)),
    )  # fmt: skip
    job = Job(DRIFT, DRIFT.configure({"epochs": 1}), 0, data)
    assert PROBES["blocks of owners"](job, job.start()) == {
        "owners": 2,
        "owners per item": 1.25,
        "blocks per block of SAROS": 1,
        "negatives per block": 1,
    }
