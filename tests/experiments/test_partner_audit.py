"""The audit of partners, on a small run."""

from typing import Any

import numpy as np
import pytest

from hushrec.data import Deal, Interactions, copies, synthetic
from hushrec.draws import Draws
from hushrec.experiments.partner_attacks import sent
from hushrec.experiments.partner_audit import ATTACKS, PartnerAudit
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.registry import SYSTEMS


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=120, num_items=60, num_ratings=3000, seed=1)
    return next(copies(data, Deal(common_users=0.6, common_items=0.6), 0)).train


def audited(train: Interactions, **settings: Any) -> PartnerAudit:
    system = SYSTEMS["fedcore"]
    values = {"num_rounds": 6, "batch_size": 32, "num_factors": 4, "inference": "none"} | settings
    job = Job(system, system.configure(values), 0, train)
    audit = PartnerAudit(job)

    def look(progress: Any) -> None:
        audit.look(progress)

    run_job(job, RuntimeOptions(threads=1), on_round=look)
    return audit


def scores(audit: PartnerAudit) -> dict[str, tuple[float, float]]:
    return {finding.attack.name: (finding.score, finding.chance) for finding in audit.findings()}


def test_bare_gradients_give_directions_and_ratings(train: Interactions) -> None:
    found = scores(audited(train))
    assert found["gradient inversion"][0] == pytest.approx(1.0, abs=1e-3)
    assert found["ratings from gradients"][0] > found["ratings from gradients"][1]
    assert "model extraction" not in found


def test_noise_spoils_directions(train: Interactions) -> None:
    bare, noisy = (scores(audited(train, privatizer=name)) for name in ("none", "dp"))
    assert noisy["gradient inversion"][0] < bare["gradient inversion"][0] - 0.02


def test_every_round_is_looked_at(train: Interactions) -> None:
    first, *_ = audited(train).findings()
    assert len(first.rounds) == 6
    assert first.interval is not None
    assert first.interval[0] <= first.score <= first.interval[1]
    assert f"{first.score:.3f}" in first.said()


def test_attacks_on_answers_without_answers_say_why(train: Interactions) -> None:
    audit = audited(train)
    assert set(audit.left_out) == {"accuracy reference", "training", "model extraction"}
    assert all("no visitor" in reason for reason in audit.left_out.values())


def test_answers_give_vectors_and_items(train: Interactions) -> None:
    pytest.importorskip("tenseal")
    found = scores(audited(train, inference="ckks", num_asked=12))
    assert found["accuracy reference"][0] > 0.9
    assert found["training"][0] > 0.5
    assert found["model extraction"][0] > 0.5


def test_noise_on_vectors_hides_them_and_not_the_items(train: Interactions) -> None:
    pytest.importorskip("tenseal")
    found = scores(audited(train, inference="ckks", num_asked=12, inference_noise=0.2))
    assert found["accuracy reference"][0] == 0
    assert found["model extraction"][0] > 0.9


def test_places_only_stop_the_recovery_of_vectors(train: Interactions) -> None:
    pytest.importorskip("tenseal")
    audit = audited(train, inference="ckks", num_asked=12, top_k=5)
    assert {"accuracy reference", "training"}.isdisjoint(scores(audit))
    assert "cannot start" in audit.left_out["accuracy reference"]


def test_names_are_distinct() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("privatizer", ["none", "average"])
def test_the_attacked_rows_are_those_of_real_batches(train: Interactions, privatizer: str) -> None:
    system = SYSTEMS["fedcore"]
    values = {"num_rounds": 2, "batch_size": 64, "num_factors": 4, "inference": "none", "privatizer": privatizer}
    config = system.configure(values)
    job = Job(system, config, 0, train)
    private = run_job(job, RuntimeOptions(threads=1)).private
    found = sent(train, private, config, 2, Draws(0))
    vectors = found.user_vectors[found.owners]
    errors = np.sum(vectors * found.vectors, axis=1) - found.ratings
    np.testing.assert_allclose(found.errors, errors, atol=1e-5)
    rows = 2 * errors[:, None] * found.vectors / 64
    ratings_of = np.bincount(found.row_of, minlength=len(found.rows))
    if privatizer == "none":
        assert ratings_of.max() == 1
        np.testing.assert_allclose(found.rows[found.row_of], rows, atol=1e-6)
    else:
        assert ratings_of.max() > 1
        np.testing.assert_array_equal(found.user_of_row[found.row_of], found.owners)
