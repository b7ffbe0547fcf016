"""The audit of partners, on a small run."""

from typing import Any

import pytest

from hushrec.audit.driver import Audited, audit
from hushrec.data import Deal, Interactions, copies, synthetic
from hushrec.data.holdings.partners import alone
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=120, num_items=60, num_ratings=3000, seed=1)
    return next(copies(data, Deal(common_users=0.6, common_items=0.6), 0)).train


def audited(train: Interactions, **settings: Any) -> Audited:
    system = SYSTEMS["fedcore"]
    values = {"num_rounds": 6, "batch_size": 32, "num_factors": 4, "inference": "none"} | settings
    job = Job(system, system.configure(values), 0, train)
    return audit(job, RuntimeOptions(threads=1), lambda _progress, _scores: None)


def scores(done: Audited) -> dict[str, tuple[float, float]]:
    return {finding.attack.name: (finding.score, finding.chance) for finding in done.findings}


def test_bare_gradients_give_directions_and_ratings(train: Interactions) -> None:
    found = scores(audited(train))
    assert found["gradient inversion"][0] == pytest.approx(1.0, abs=1e-3)
    assert found["ratings from gradients"][0] > found["ratings from gradients"][1]
    assert found["item vectors"][0] > 0.1 > found["item vectors"][1]
    assert "model extraction" not in found


def test_noise_spoils_directions(train: Interactions) -> None:
    bare, noisy = (scores(audited(train, privatizer=name)) for name in ("none", "dp"))
    assert noisy["gradient inversion"][0] < bare["gradient inversion"][0] - 0.02
    assert noisy["item vectors"][0] < 0.01


def test_every_round_is_looked_at(train: Interactions) -> None:
    first, *_ = audited(train).findings
    assert len(first.rounds) == 6
    assert first.interval is not None
    assert first.interval[0] <= first.score <= first.interval[1]
    assert f"{first.score:.3f}" in first.said()


def test_attacks_on_answers_without_answers_say_why(train: Interactions) -> None:
    done = audited(train)
    alone = {name: reason for name, reason in done.left_out.items() if not name.startswith("joint")}
    assert set(alone) == {
        "accuracy reference",
        "training",
        "training on 1%",
        "training on 50%",
        "model extraction",
    }
    assert all("no visitor" in reason for reason in alone.values())


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


def test_noise_on_scores_hides_vectors_from_few_answers(train: Interactions) -> None:
    pytest.importorskip("tenseal")
    found = scores(audited(train, inference="ckks", num_asked=12, answer_noise=0.2))
    assert found["accuracy reference"][0] == 0
    assert found["model extraction"][0] > 0.5, "who decrypts has scores without noise"


def test_places_only_stop_the_recovery_of_vectors(train: Interactions) -> None:
    pytest.importorskip("tenseal")
    done = audited(train, inference="ckks", num_asked=12, top_k=5)
    assert {"accuracy reference", "training"}.isdisjoint(scores(done))
    assert "cannot start" in done.left_out["accuracy reference"]
    assert scores(done)["model extraction"][0] > 0.5, "who decrypts has all scores"


def test_neucf_is_attacked_by_a_search_and_its_answers_by_training(train: Interactions) -> None:
    pytest.importorskip("tenseal")
    quadratic = {"model": "neucf", "activation": "quadratic", "batch_size": 64, "inference": "ckks"}
    done = audited(train, **quadratic, num_asked=12)
    found = scores(done)
    assert found["gradient inversion"][0] > 0
    assert found["training"][0] > 0.5
    alone = {name: reason for name, reason in done.left_out.items() if not name.startswith("joint")}
    assert set(alone) == {"accuracy reference", "model extraction"}
    assert all("--model pmf" in reason for reason in alone.values())


def test_a_batch_of_one_rating_of_neucf_hides_nothing(train: Interactions) -> None:
    """Its layers' gradient gives vector and rating, where a hidden unit fired; see `matching.solve_single`."""
    found = scores(audited(train, model="neucf", batch_size=1, num_rounds=2, learning_rate=0.01))
    assert found["ratings from gradients"][0] > 0.7
    assert found["ratings from gradients"][0] > found["ratings from gradients"][1]


def test_a_partner_without_others_is_attacked_by_nobody() -> None:
    done = audited(alone(synthetic(num_users=30, num_items=20, num_ratings=300, seed=1)), num_rounds=1)
    assert not done.findings
    assert "there is no partner number 2 here" in done.left_out["gradient inversion"]


@pytest.mark.parametrize("num_partners", [2, 3])
def test_more_partners_do_not_hide_one_from_another(num_partners: int) -> None:
    data = synthetic(num_users=120, num_items=60, num_ratings=3000, seed=1)
    train = next(copies(data, Deal(num_partners, common_users=0.6, common_items=0.6), 0)).train
    assert scores(audited(train))["gradient inversion"][0] > 0.95
