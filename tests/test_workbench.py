"""`hushrec.audit`, `hushrec.compare` and `hushrec.report` take estimators, frames and folders of runs."""

import inspect
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import hushrec
from hushrec.audit.driver import audit as attack
from hushrec.errors import HushrecError
from hushrec.runs.record import read_run
from hushrec.workbench import audit, report

ONE_THREAD = hushrec.RuntimeOptions(threads=1)
QUICK: dict[str, Any] = {"num_rounds": 3, "num_factors": 4, "options": ONE_THREAD}


@pytest.fixture(scope="module")
def split() -> Any:
    return next(hushrec.k_folds(hushrec.load("synthetic:users=60,items=40,ratings=900")))


def as_frame(data: hushrec.Interactions) -> pl.DataFrame:
    ids = {"user": data.user_ids[data.users], "item": data.item_ids[data.items]}
    return pl.DataFrame(ids | {"rating": data.ratings})


@pytest.fixture(scope="module")
def model(split: Any) -> hushrec.Recommender:
    return hushrec.FedRec(rho=0, **QUICK).fit(as_frame(split.train))


def test_parts_of_the_library_are_called_by_their_names() -> None:
    assert inspect.signature(hushrec.audit) == inspect.signature(audit)
    assert inspect.signature(hushrec.report) == inspect.signature(report)
    assert hushrec.audit.driver.audit is attack  # type: ignore[attr-defined]


def test_an_audit_is_that_of_the_driver(model: Any, split: Any) -> None:
    """Whoever listens reads off what was rated, if nothing is added to it: the score is 1."""
    job, _ = model._require_fitted()
    expected = attack(job, ONE_THREAD, lambda progress, scores: None)
    of_model = hushrec.audit(model)
    of_data = hushrec.audit(hushrec.FedRec(rho=0, **QUICK), as_frame(split.train))
    for found in (of_model, of_data):
        assert found == expected.findings
        assert found.left_out == expected.left_out
    frame = of_model.to_polars()
    assert frame.columns == ["attack", "by", "guesses", "measure", "score", "low", "high", "chance", "sentence"]
    assert frame.filter(attack="listed items")["score"].to_list() == [1.0]
    assert "listed items" in of_model._repr_html_()


def test_a_run_is_audited_from_its_folder_and_a_system_by_its_name(model: Any, split: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "kept")
    assert hushrec.audit(tmp_path / "kept", options=ONE_THREAD) == hushrec.audit(model)
    data = hushrec.load("synthetic:users=20,items=15,ratings=100")
    assert hushrec.audit("average", data, options=ONE_THREAD).to_arrow().column_names[0] == "attack"


def test_models_are_compared_on_the_same_rows(model: Any, split: Any) -> None:
    train, test = as_frame(split.train), as_frame(split.test)
    models = {
        "fitted": model,
        "again": hushrec.FedRec(rho=0, **QUICK),
        "mean": hushrec.Average(options=ONE_THREAD),
    }
    found = hushrec.compare(models, train, test)
    assert [row["label"] for row in found] == list(models)
    frame = found.to_polars()
    assert frame["RMSE"][0] == frame["RMSE"][1] == pytest.approx(model.evaluate(test)["RMSE"], abs=1e-12)
    assert frame["same_model_as"].to_list() == [["again"], ["fitted"], []]
    assert frame["up_bytes_per_client_round"][0] > frame["up_bytes_per_client_round"][2] > 0
    (alone,) = hushrec.compare(model, test=test, at=(5,))
    assert "NDCG@5" in alone["mean"]
    assert alone["mean"]["RMSE"] == frame["RMSE"][0]


def test_a_page_says_that_the_rows_were_given(model: Any, split: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "kept")
    test = as_frame(split.test)
    page = hushrec.report([model, tmp_path / "kept"], tmp_path / "page.html", test=test)
    text = page.read_text(encoding="utf-8")
    assert f"rows given by the user, {len(test) / (len(test) + len(split.train)):.1%}"[:-3] in text
    assert read_run(tmp_path / "kept").folds[0].metrics == {}


def test_what_cannot_be_done_is_one_line(model: Any, split: Any, tmp_path: Path) -> None:
    test = as_frame(split.test)
    model.save(tmp_path / "kept")
    wrong = {
        "there is nothing to compare; give estimators": lambda: hushrec.compare([]),
        "estimators are measured on rows that were not trained on; give test=": lambda: hushrec.compare(model),
        "int is not taken; give estimators or folders of runs": lambda: hushrec.compare([5]),  # type: ignore[list-item]
        "float is not taken; give estimators": lambda: hushrec.report(0.5),  # type: ignore[arg-type]
        "FedRec is not fitted": lambda: hushrec.compare(hushrec.FedRec(), test=test),
        "runs' folders have their own data": lambda: hushrec.compare([tmp_path / "kept"], test=test),
        "nosuch is not a run": lambda: hushrec.audit("nosuch"),
        "nosuch is no system; a run.s folder has its own data: leave data= out": lambda: hushrec.audit(
            "nosuch", test
        ),
        "int cannot be audited; give an estimator": lambda: hushrec.audit(5),  # type: ignore[arg-type]
    }
    for told, wish in wrong.items():
        with pytest.raises(HushrecError, match=told) as caught:
            wish()
        assert "\n" not in str(caught.value)
