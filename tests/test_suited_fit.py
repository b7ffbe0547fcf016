"""Estimators choose by the data what nobody named, when they are fitted."""

import copy
import logging
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hushrec
import hushrec.estimators
from hushrec.data import Interactions
from hushrec.estimators import estimator
from hushrec.protocol import result_arrays
from hushrec.recommender import Recommender
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import digest

ONE_THREAD = hushrec.RuntimeOptions(threads=1)


@pytest.fixture(scope="module")
def data() -> Interactions:
    return replace(hushrec.load("synthetic:users=80,items=50,ratings=1500"), name="ratings.csv")


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> type[Recommender]:
    """FedRec with settings for data of no paper."""
    system = SYSTEMS["fedrec"]
    presets = {"paper": {}, "general": {"num_rounds": 40, "regularization": 0.002}}
    about = replace(system.about, presets=presets, published_on=("ml-100k",))
    monkeypatch.setitem(SYSTEMS._loaded, "fedrec", replace(system, about=about))
    found = estimator(SYSTEMS["fedrec"])
    monkeypatch.setattr(hushrec.estimators, "estimator_named", {"fedrec": found}.__getitem__)
    monkeypatch.setattr(hushrec, found.__name__, found, raising=False)  # where pickles look for it
    return found


def fitted(kind: type[Recommender], data: Interactions, **settings: Any) -> Recommender:
    return kind(options=ONE_THREAD, num_factors=5, **settings).fit(data)


def model_of(model: Recommender) -> str:
    _, progress = model._require_fitted()
    return digest(result_arrays(progress.state))


def test_a_fit_settles_the_config_by_the_data(
    kind: type[Recommender], data: Interactions, caplog: pytest.LogCaptureFixture
) -> None:
    model = kind(options=ONE_THREAD, num_factors=5)
    assert (model.config.num_rounds, model.config.regularization, model.chosen) == (100, 0.001, ())
    with caplog.at_level(logging.WARNING, logger="hushrec"):
        model.fit(data)
    assert model.config.regularization == 0.002
    assert [choice.setting for choice in model.chosen] == ["preset", "num_rounds"]
    assert [record.getMessage() for record in caplog.records] == [choice.why for choice in model.chosen]
    rounds = model.config.num_rounds
    assert 1 < rounds < 40
    assert f"num_rounds={rounds}" in repr(model)
    assert model_of(model) == model_of(fitted(kind, data, preset="general", num_rounds=rounds))


def test_the_choice_is_that_of_the_best_point_on_a_part_of_the_data(
    kind: type[Recommender], data: Interactions
) -> None:
    part, curve = hushrec.random_share(data), list[float]()
    for rounds in range(1, 31):
        model = fitted(kind, part.train, preset="general", num_rounds=rounds)
        curve.append(model.evaluate(part.test)["RMSE"])
    assert fitted(kind, data).config.num_rounds == curve.index(min(curve)) + 1


def test_a_fit_to_other_data_chooses_anew(kind: type[Recommender], data: Interactions) -> None:
    model = fitted(kind, data)
    model.fit(replace(data, name="ml-100k"))
    assert (model.config, model.chosen) == (kind(num_factors=5).config, ())


@pytest.mark.parametrize(
    ("settings", "stop_early", "rounds", "chosen"),
    [
        ({"preset": "paper", "num_rounds": 3}, None, 3, []),
        ({"preset": None, "num_rounds": 3}, None, 3, ["preset"]),
        ({"preset": "general"}, False, 40, []),
        ({"num_rounds": 12}, True, 12, ["preset", "num_rounds"]),
    ],
)
def test_what_the_constructor_or_fit_says_wins(
    settings: dict[str, Any],
    stop_early: bool | None,
    rounds: int,
    chosen: list[str],
    kind: type[Recommender],
    data: Interactions,
) -> None:
    model = kind(options=ONE_THREAD, num_factors=5, **settings).fit(data, stop_early=stop_early)
    assert model.config.num_rounds == rounds
    assert [choice.setting for choice in model.chosen] == chosen


def test_rounds_of_the_last_training_are_told(kind: type[Recommender], data: Interactions) -> None:
    told, model = list[int](), kind(options=ONE_THREAD, num_factors=5)
    model.fit(data, on_round=lambda progress: told.append(progress.round_number))
    assert told == list(range(1, model.config.num_rounds + 1))


def test_a_fit_that_diverges_finds_a_rate(data: Interactions) -> None:
    """Nobody names it; 40 is far too large."""
    system = SYSTEMS["fedrec"]
    wild = replace(system, about=replace(system.about, presets={"paper": {}, "general": {"learning_rate": 40.0}}))
    model = estimator(wild)(options=ONE_THREAD, num_factors=5).fit(data, stop_early=False)
    assert model.config.learning_rate < 10
    assert [choice.setting for choice in model.chosen] == ["preset", "learning_rate"]
    with pytest.raises(hushrec.HushrecError, match="use a learning_rate= below 40"):
        fitted(estimator(wild), data, learning_rate=40.0)


def test_partners_keep_what_they_have_and_train_all_rounds(caplog: pytest.LogCaptureFixture) -> None:
    dealt = next(
        hushrec.data.copies(hushrec.load("synthetic:users=80,items=50,ratings=1500"), hushrec.data.Deal(), 0)
    )
    model = hushrec.FedCORE(num_rounds=2, inference="none", options=ONE_THREAD)
    model.fit(dealt.train, stop_early=True)
    assert (model.config.num_rounds, model.chosen) == (2, ())
    assert "all rounds are trained" in caplog.text


def test_choices_are_copied_pickled_and_saved(kind: type[Recommender], data: Interactions, tmp_path: Path) -> None:
    model = fitted(kind, data)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (again.config, again.chosen, again.settings) == (model.config, model.chosen, {"num_factors": 5})
        assert model_of(again) == model_of(model)
        assert model_of(again.fit(data)) == model_of(model)
    model.save(tmp_path / "kept")
    assert read_run(tmp_path / "kept").chosen == model.chosen
    loaded = hushrec.load_run(tmp_path / "kept")
    assert loaded.config == model.config
    assert model_of(loaded.fit(data)) == model_of(model)
