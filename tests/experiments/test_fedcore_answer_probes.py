"""What answers about visitors are worth, as they are and to an attacker, and the levels of privacy."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.errors import HushrecError
from hushrec.experiments.fedcore_answer_probes import PROBES, Leak, asked_about, level_of
from hushrec.experiments.published import tables
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job

FEDCORE = SYSTEMS["fedcore"]
PLAIN: dict[str, Any] = {
    "privatizer": "none", "inference": "none", "num_factors": 8, "batch_size": 16, "num_rounds": 20,
    "learning_rate": 0.1,
}  # fmt: skip
MAE, RMSE = "visitors' MAE", "visitors' RMSE"


def measured(probe: str, **values: Any) -> dict[str, float]:
    """The metrics of a run, and what one probe found in it."""
    known = _measured(tuple(sorted(values.items())))
    if isinstance(found := known[probe], HushrecError):
        raise found
    return known[""] | found


@cache
def _measured(values: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """One run with all probes: what each found, or why it could not."""
    data = hushrec.load("synthetic:users=150,items=200,ratings=9000,noise=0.1")
    config, settings = FEDCORE.configure(PLAIN | dict(values)), settings_for(FEDCORE, data=data, num_folds=1)
    found: dict[str, Any] = {}

    def look(job: Job, progress: Progress) -> dict[str, float]:
        if progress.round_number == config.num_rounds:
            for name, probe in PROBES.items():
                try:
                    found[name] = probe(job, progress)
                except HushrecError as error:
                    found[name] = error
        return {}

    done = run(FEDCORE, config, data, settings, RuntimeOptions(threads=1), probe=look)
    return found | {"": done.folds[0].metrics}


def test_answers_as_they_are_give_the_accuracy_of_cold_users() -> None:
    for values in ({}, {"inference_noise": 0.3}, {"answer_noise": 0.5}):
        found = measured("visitors, answers", **values)
        assert (found[MAE], found[RMSE]) == pytest.approx((found["a cold MAE"], found["a cold RMSE"]), abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("attack", ["AR", "AR from all answers", "TR 0.5", "TR 1"])
def test_attacked_vectors_serve_as_the_answers_do(attack: str, noise: float) -> None:
    """Answers of PMF are products of one vector with known ones: with its noise, if there is some."""
    values = {"inference_noise": noise} if noise else {}
    answers, attacked = (measured(f"visitors, {name}", **values) for name in ("answers", attack))
    assert attacked[RMSE] == pytest.approx(answers[RMSE], rel=0.01)
    if noise:
        assert answers[RMSE] > measured("visitors, answers")[RMSE] + 0.05


def test_the_share_says_how_many_answers_are_trained_on() -> None:
    """Of 150 items: 2 do not determine 8 factors, all of them do."""
    answers, few, whole = (measured(f"visitors, {name}")[RMSE] for name in ("answers", "TR 0.01", "TR 1"))
    assert abs(few - answers) > 5e-4
    assert abs(whole - answers) < 1e-4


def test_noise_on_scores_stops_an_attack_from_few_answers_and_not_one_from_all() -> None:
    few, used, all_of_them = (
        measured(f"visitors, {name}", answer_noise=0.5)[RMSE] for name in ("AR", "answers", "AR from all answers")
    )
    assert few > used + 0.1
    assert all_of_them < used - 0.05, "the noise averages out"


@pytest.mark.parametrize("activation", ["relu", "quadratic"])
def test_neucf_is_trained_on_answers(activation: str) -> None:
    values: dict[str, Any] = {"model": "neucf", "activation": activation, "num_factors": 4}
    answers, attacked = (measured(f"visitors, {name}", **values)[RMSE] for name in ("answers", "TR 1"))
    assert attacked == pytest.approx(answers, rel=0.01)


def test_ar_needs_products() -> None:
    with pytest.raises(HushrecError, match="AR needs scores that are products of vectors"):
        measured("visitors, AR", model="neucf", activation="relu", num_factors=4)


def test_only_visitors_whom_the_other_knows_are_asked_about() -> None:
    seen: list[tuple[Job, Progress]] = []

    def look(job: Job, progress: Progress) -> dict[str, float]:
        seen.append((job, progress))
        asked, private = asked_about(job, progress), progress.private
        ids = [private.ids_of(place)[0] for place in (0, 1)]
        rated = [set(ids[place][partner.is_rated]) for place, partner in enumerate(private.partners)]
        assert set(ids[0][asked.visitors]) == rated[1] - rated[0]
        assert asked.answers.shape == (len(asked.visitors), len(private.partners[0].item_factors))
        assert np.isfinite(asked.answers).all()
        return {}

    data = hushrec.load("synthetic:users=60,items=40,ratings=900")
    settings = settings_for(FEDCORE, data=data, num_folds=1)
    run(
        FEDCORE,
        FEDCORE.configure(PLAIN | {"num_rounds": 1}),
        data,
        settings,
        RuntimeOptions(threads=1),
        probe=look,
    )
    ((job, _),) = seen
    assert job.test is not None
    assert not np.isin(job.test.users * 10**6 + job.test.items, job.train.users * 10**6 + job.train.items).any()


# --- Levels ------------------------------------------------------------------------------------------------


def test_levels_are_those_of_the_paper() -> None:
    """Level 1: all three leak. 2: features with ids. 3: one of the two. 4: neither."""
    assert [level_of(*leaks) for leaks in ((True, True, True), (False, True, True))] == [1, 2]
    assert [level_of(raw, features, not features) for raw in (True, False) for features in (True, False)] == [
        3
    ] * 4
    assert [level_of(raw, False, False) for raw in (True, False)] == [4, 4]
    assert Leak.of(None) == (0.0, 0.0, False)


def test_plain_gradients_leak_features_and_noise_hides_them() -> None:
    bare, noisy = (measured("level in training", privatizer=name) for name in ("none", "dp"))
    assert bare["raw data read"] > bare["raw data, chance"]
    assert bare["features read"] > 0.3
    assert bare["level 4 reached"] == 0
    assert noisy["features read"] < 0.01
    assert noisy["level"] >= 3
    assert noisy["level 3 reached"] == 1


@pytest.mark.parametrize(
    ("values", "level", "features"),
    [
        ({}, 2.0, 1.0),
        ({"inference_noise": 0.2}, 3.0, 0.0),
        ({"answer_noise": 0.2}, 3.0, 0.0),
        ({"top_k": 5}, 3.0, 0.0),
    ],
)
def test_levels_in_inference(values: dict[str, Any], level: float, features: float) -> None:
    pytest.importorskip("tenseal")
    found = measured("level in inference", inference="ckks", num_asked=12, **values)
    assert (found["level"], found["ids read"]) == (level, 1.0)
    assert found["features read"] == pytest.approx(features, abs=0.1)


# --- The files ---------------------------------------------------------------------------------------------

NAMES = ("figure5a", "figure5b", "figure5d", "figure6a", "figure6b", "table-levels")


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_measured_by_probes_that_there_are(name: str) -> None:
    table = tables()["fedcore", name]
    labels = [row.label for row in table.rows]
    assert len(labels) == len(set(labels))
    for row in table.rows:
        assert set(row.probes) <= PROBES.keys()
        FEDCORE.configure(row.config)
    for claim in table.claims:
        assert set(claim.rows) <= set(labels)
        assert set(claim.metrics) <= set(table.metrics)
