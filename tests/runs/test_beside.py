"""What stands beside a run: lists and baselines, measured as the run itself is."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushrec
import hushrec.runs.beside
from hushrec.baselines import BASELINES, Biases, Popularity
from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.evaluation import ranking_per_user
from hushrec.evaluation.candidates import candidates
from hushrec.evaluation.feedback import ranking_quality, rating_quality
from hushrec.evaluation.lists import list_measures
from hushrec.registry import SYSTEMS
from hushrec.runs.beside import THIRDS, Beside, main_length
from hushrec.runs.folds import load_fold, run
from hushrec.runs.record import Run, read_run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions
from systems.runs import short

DATA = "synthetic:users=80,items=60,ratings=1500"
ONE_THREAD = RuntimeOptions(threads=1)


def go(name: str, beside: Beside | None, folder: Path | None = None, **chosen: Any) -> Run:
    system, data = SYSTEMS[name], hushrec.load(DATA)
    settings = settings_for(system, data=data, **{"min_raters": None, **chosen})
    config, resume = system.configure(short(name)), folder is not None and folder.exists()
    return run(system, config, data, settings, ONE_THREAD, folder, resume, beside=beside)


def of_all(metrics: dict[str, float]) -> dict[str, float]:
    """Without those of thirds of the users."""
    return {name: value for name, value in metrics.items() if ", " not in name}


def test_users_with_few_and_many_ratings_by_hand() -> None:
    """Every third has as many users; together they have the metrics of all."""
    done = go("fedrec", Beside(True))
    (fold,) = done.folds
    system, data = SYSTEMS["fedrec"], hushrec.load(DATA)
    (split,) = splits_for(system, data, settings_for(system))
    num_rows = np.bincount(split.train.users, minlength=80)
    assert split.test.ratings is not None
    limit = 4.0
    users = np.unique(split.test.users[split.test.ratings >= limit])
    order = sorted(users.tolist(), key=lambda user: (num_rows[user], user))
    values = ranking_per_user(
        Popularity.fit(split.train).score,
        split.train.by_user(),
        split.test.by_user(),
        (10,),
        limit,
        candidates=candidates(split.train, 10),
    )["NDCG@10"]
    for place, word in enumerate(THIRDS):
        third = [user for number, user in enumerate(order) if number * 3 // len(order) == place]
        expected = np.mean([values[users.tolist().index(user)] for user in third])
        assert fold.baselines["popularity"][f"NDCG@10, {word}"] == pytest.approx(expected)
        assert f"RMSE, {word}" not in fold.baselines["popularity"]
    assert set(fold.thirds) == {f"{name}, {word}" for name in ("RMSE", "NDCG@10") for word in THIRDS}
    sizes = [sum(number * 3 // len(order) == place for number in range(len(order))) for place in range(3)]
    whole = np.average([fold.thirds[f"NDCG@10, {word}"] for word in THIRDS], weights=sizes)
    assert whole == pytest.approx(fold.metrics["NDCG@10"])
    assert go("fedrec", Beside(False)).thirds == {}


def test_baselines_are_measured_as_the_model_is() -> None:
    done = go("fedrec", Beside(True), num_folds=2)
    system, data = SYSTEMS["fedrec"], hushrec.load(DATA)
    splits = list(splits_for(system, data, settings_for(system, num_folds=2)))
    for split, fold in zip(splits, done.folds, strict=True):
        parts = split.train, split.test, (10,), None, 10
        assert list(fold.baselines) == ["popularity", "biases", "item-kNN", "ALS"]
        assert of_all(fold.baselines["popularity"]) == ranking_quality(Popularity.fit(split.train), *parts)
        biases = Biases.fit(split.train)
        expected = rating_quality(biases, split.test) | ranking_quality(biases, *parts)
        assert of_all(fold.baselines["biases"]) == expected
        assert set(fold.baselines["ALS"]) == set(fold.baselines["item-kNN"]) == set(fold.baselines["popularity"])
    mean = math.fsum(fold.baselines["biases"]["RMSE"] for fold in done.folds) / 2
    assert done.baselines["biases"]["RMSE"] == pytest.approx(mean)
    without = go("fedrec", None, num_folds=2)
    assert [fold.metrics for fold in without.folds] == [fold.metrics for fold in done.folds]
    assert (without.baselines, without.lists, "lists" in without.summary()) == ({}, {}, False)
    assert done.summary()["baselines"] == done.baselines
    assert done.summary()["folds"][1]["baselines"] == done.folds[1].baselines


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_every_system_has_something_beside_it(name: str, tmp_path: Path) -> None:
    done = go(name, Beside(True), tmp_path / "run")
    kept = read_run(tmp_path / "run")
    assert kept.folds == done.folds
    expected = {one.name for one in BASELINES if not one.predicts_ratings or "RMSE" in done.mean}
    assert set(done.baselines) == expected
    assert 0 < done.lists["lists"] <= done.lists["users"]
    assert all(f"NDCG@{main_length(done.at)}" in values for values in done.baselines.values())
    job, progress = load_fold(tmp_path / "run")
    is_candidate = candidates(job.train, done.provenance.min_raters or 0)
    rows, length = job.train.by_user(), main_length(done.at)
    scorer = job.scorer(progress)
    assert done.lists == list_measures(scorer.score, rows, job.train.num_items, length, Draws(0), is_candidate)


def chosen_in(
    seconds: float, monkeypatch: pytest.MonkeyPatch, wished: bool | None = None
) -> tuple[list[str], str]:
    """Which baselines are measured beside a fold that took so long, and what is said."""
    told: list[str] = []
    monkeypatch.setattr(hushrec.runs.folds, "stopwatch", lambda: lambda: seconds)
    done = go("fedrec", Beside(wished, told.append))
    return list(done.baselines), "; ".join(told)


def test_what_takes_too_long_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of 1, 2, 3 and 4 seconds: a tenth of 30 seconds is enough for the first two; a second is for none."""
    costs = {one.name: place for place, one in enumerate(BASELINES, 1)}
    slow = [replace(one, fit_seconds=lambda _, name=one.name: costs[name]) for one in BASELINES]
    monkeypatch.setattr(hushrec.runs.beside, "BASELINES", slow)
    pytest.importorskip("implicit.als")
    assert chosen_in(30.1, monkeypatch)[0] == ["popularity", "biases"]
    assert chosen_in(60.1, monkeypatch)[1].startswith("no ALS beside it")
    assert chosen_in(60.1, monkeypatch)[1].endswith("--baselines adds it")
    names, told = chosen_in(9.9, monkeypatch)
    assert names == []
    expected = (
        "no popularity, biases, item-kNN, ALS beside it: more than 10% of the run's time; --baselines adds them"
    )
    assert told == expected
    assert chosen_in(9.9, monkeypatch, True) == ([one.name for one in slow], "")
    assert chosen_in(1e9, monkeypatch, False) == ([], "")
    assert chosen_in(1e9, monkeypatch) == ([one.name for one in slow], "")


def test_a_second_is_always_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [replace(one, fit_seconds=lambda _: 0.4) for one in BASELINES]
    monkeypatch.setattr(hushrec.runs.beside, "BASELINES", slow)
    assert chosen_in(0.001, monkeypatch)[0] == ["popularity", "biases"]


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hushrec.runs.beside, "are_installed", lambda: False)
    for wished in (True, None):
        names, told = chosen_in(1e9, monkeypatch, wished)
        assert names == ["popularity", "biases"]
        assert told.startswith(
            "no item-kNN and ALS beside it; to have them: pip install '.[baselines]' in the clone"
        )


def test_all_folds_have_the_baselines_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the run goes on another day, on a slower machine."""
    first = go("fedrec", Beside(True), tmp_path / "run")
    monkeypatch.setattr(hushrec.runs.folds, "stopwatch", lambda: lambda: 0.0)
    done = go("fedrec", Beside(), tmp_path / "run", num_folds=2)
    assert list(done.folds[1].baselines) == list(first.folds[0].baselines)
    assert list(done.baselines) == ["popularity", "biases", "item-kNN", "ALS"]


def test_a_run_that_was_measured_without_goes_on_without(tmp_path: Path) -> None:
    go("fedrec", None, tmp_path / "run")
    done = go("fedrec", Beside(True), tmp_path / "run", num_folds=2)
    assert done.baselines == {}
    assert done.lists == {}


def test_the_length_of_lists() -> None:
    assert [main_length(at) for at in ((10,), (20,), (1, 5, 10, 20), (3, 5))] == [10, 20, 10, 5]


def test_rows_that_say_bad_are_no_positives() -> None:
    """DRIFT's data say good or bad; what is only bad is not popular."""
    done = go("drift", Beside(True), split="random")
    data: Interactions = hushrec.load(DATA).as_signed()
    (split,) = splits_for(SYSTEMS["drift"], data, settings_for(SYSTEMS["drift"], split="random"))
    is_good = split.train.ratings == 1
    expected = ranking_quality(
        Popularity.fit(split.train.select(is_good)), split.train, split.test, done.at, None, 1
    )
    assert of_all(done.baselines["popularity"]) == expected
    assert 0 < np.count_nonzero(is_good) < len(split.train)
