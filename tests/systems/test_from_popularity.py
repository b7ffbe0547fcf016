"""Systems that start as popularity: what they count in round 1, and that hiding it costs nothing."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from hushrec.data import synthetic
from hushrec.models.popularity import log_odds, sample_log_odds
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, prepared, run_job
from hushrec.systems import fcf, fedrec_bpr
from hushrec.systems.fedncf import system as fedncf_system

from .positive_runs import assert_same, positives, run, some_positives


def counts_of(data: Any) -> np.ndarray:
    return np.bincount(data.rows.items, minlength=data.num_items).astype(np.float64)


def test_log_odds_by_hand() -> None:
    """Of four people 0, 1 and 3 have an item: odds 1/9, 3/7 and 7/3, with half a person more on either side."""
    found = log_odds(np.array([0.0, 1.0, 3.0]), 4)
    np.testing.assert_allclose(found, np.log([0.5 / 4.5, 1.5 / 3.5, 3.5 / 1.5]), rtol=1e-6)


def test_an_item_with_as_many_as_the_mean_gets_the_odds_of_samples() -> None:
    """1, 2 and 3 of four people: the second is the mean, its offset ln 1/4; the others lie as log odds do."""
    found = sample_log_odds(np.array([1.0, 2.0, 3.0]), 4, 0.25)
    np.testing.assert_allclose(found - np.log(0.25), [-np.log(7 / 3), 0, np.log(7 / 3)], atol=1e-6)


@pytest.mark.parametrize(("rho", "denoisers"), [(0, 0), (3, 1), (3, 5)])
def test_fedrec_bpr_counts_without_its_noise(rho: int, denoisers: int) -> None:
    data = some_positives()
    finished = run(fedrec_bpr.SYSTEM, data, num_rounds=1, from_popularity=True, rho=rho, denoisers=denoisers)
    np.testing.assert_array_equal(finished.state.item_factors[:, -1], log_odds(counts_of(data), data.num_users))


def test_fedrec_bpr_is_lossless_from_popularity_too() -> None:
    bare, hidden = (
        run(fedrec_bpr.SYSTEM, some_positives(), rho=rho, denoisers=denoisers, from_popularity=True)
        for rho, denoisers in ((0, 0), (3, 2))
    )
    assert_same(hidden, bare)
    plain = run(fedrec_bpr.SYSTEM, some_positives(), rho=0, denoisers=0)
    assert (plain.state.item_factors != bare.state.item_factors).any()


def test_fcf_starts_with_weighted_shares() -> None:
    """Three clients, confidence 1: who has an item weighs 2. Two of three: 4 / (4 + 1); one: 2 / (2 + 2)."""
    data = positives([[0, 1], [0], []], 3)
    finished = run(fcf.SYSTEM, data, num_rounds=1, from_popularity=True, confidence=1.0)
    np.testing.assert_allclose(finished.state.item_factors[:2, 0], [0.8, 0.5], rtol=1e-5)
    assert finished.state.item_factors[2, 0] == 0


@pytest.mark.parametrize("hidden", [{}, {"rho": 2, "denoisers": 3}])
def test_fedncf_counts_in_the_place_of_its_biases(hidden: dict[str, int]) -> None:
    data = some_positives()
    options = {"num_rounds": 1, "participation": 1.0, "biases": True, "from_popularity": True, **hidden}
    finished = run(fedncf_system.SYSTEM, data, **options)
    config = fedncf_system.SYSTEM.configure({"num_factors": 5, **options})
    biases = finished.state.item_factors[:, config.shape.num_products - 1]
    expected = sample_log_odds(counts_of(data), data.num_users, 1 / config.num_negatives)
    np.testing.assert_allclose(biases, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["neumf", "ngcf", "lightgcn"])
def test_networks_have_popularity_added_to_their_logits(name: str) -> None:
    """With a rate that moves nothing, the two differ by the offsets alone."""
    data = some_positives()
    values = {"num_factors": 4, "layers": (4,), "num_rounds": 1, "learning_rate": 1e-20}
    if name != "neumf":
        del values["layers"]
    scores = [
        run(SYSTEMS[name], data, **values, from_popularity=is_on).scorer.score(np.arange(3)).astype(np.float64)
        for is_on in (False, True)
    ]
    plain, started = (np.log(one / (1 - one)) for one in scores)
    config = SYSTEMS[name].configure(values)
    expected = sample_log_odds(counts_of(data), data.num_users, 1 / config.num_negatives)
    np.testing.assert_allclose(started - plain, np.tile(expected, (3, 1)), atol=1e-4)


STARTING = sorted(
    name for name, one in SYSTEMS.items() if "from_popularity" in {f.name for f in fields(one.config)}
)


def test_all_presets_for_lists_start_from_popularity() -> None:
    """But for DRIFT and SAROS, which learn biases instead."""
    for_lists = {name for name, one in SYSTEMS.items() if one.feedback.name == "implicit"}
    assert set(STARTING) == for_lists
    assert all(SYSTEMS[name].about.presets["general"]["from_popularity"] for name in STARTING)


@pytest.mark.parametrize("name", [name for name in STARTING if name != "ptf-fedrec"])
def test_after_round_1_items_are_ranked_by_how_many_have_them(name: str) -> None:
    """120 people, 40 items. Not so PTF-FedRec: its server counts scores, which tell little after one round."""
    system = SYSTEMS[name]
    train = prepared(system, synthetic(120, 40, 960))
    known = {entry.name for entry in fields(system.config)}
    one_round = {name: 1 for name in ("num_rounds", "participation") if name in known}
    values = {**system.about.presets["general"], **one_round}
    job = Job(system, system.configure(values), 0, train)
    everybody = np.arange(train.num_users, dtype=np.int32)
    scores = job.scorer(run_job(job, RuntimeOptions(threads=1))).score(everybody).mean(axis=0)
    counts = np.bincount(train.items, minlength=train.num_items)
    ranks, by_count = (np.argsort(np.argsort(one)) for one in (scores, counts))
    assert np.corrcoef(ranks, by_count)[0, 1] > 0.95
