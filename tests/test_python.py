"""What somebody with a frame does: fit, measure, predict, recommend, copy, keep, show."""

import copy
import doctest
import inspect
import json
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from scipy.stats import loguniform, randint
from sklearn.base import clone
from sklearn.model_selection import RandomizedSearchCV

import hushrec
from hushrec.errors import HushrecError
from hushrec.estimators import ESTIMATORS
from hushrec.recommender import Recommender

QUICK: dict[str, Any] = {"rho": 0, "num_rounds": 5, "num_factors": 4, "options": hushrec.RuntimeOptions(threads=1)}


@pytest.fixture(scope="module")
def ratings() -> pd.DataFrame:
    """Ids are texts, and rows in no order."""
    data = hushrec.load("synthetic:users=60,items=40,ratings=900")
    users = [f"u{user:02}" for user in data.user_ids[data.users]]
    columns = {"customer": users, "product": data.item_ids[data.items], "stars": data.ratings}
    return pd.DataFrame(columns).sample(frac=1, random_state=1).reset_index(drop=True)


@pytest.fixture(scope="module")
def train(ratings: pd.DataFrame) -> pd.DataFrame:
    return ratings.iloc[:750]


@pytest.fixture(scope="module")
def test(ratings: pd.DataFrame) -> pd.DataFrame:
    return ratings.iloc[750:]


@pytest.fixture(scope="module")
def model(train: pd.DataFrame) -> Recommender:
    return hushrec.FedRec(**QUICK).fit(train)


def forms(frame: pd.DataFrame) -> dict[str, Any]:
    """The same rows in other libraries."""
    columns = frame.to_dict("list")
    return {
        "polars": pl.DataFrame(columns),
        "Arrow": pa.table(columns),
        "arrays": tuple(columns.values()),
        "loaded": hushrec.load(frame),
    }


# --- Frames in -----------------------------------------------------------------------------------------------


def test_all_libraries_give_the_same_model_and_the_same_metrics(model: Any, train: Any, test: Any) -> None:
    expected, wanted = model.evaluate(test), model.predict(test)
    assert {"MAE", "RMSE", "NDCG@10"} <= set(expected)
    for form, same_test in zip(forms(train).values(), forms(test).values(), strict=True):
        again = hushrec.FedRec(**QUICK).fit(form)
        assert again.evaluate(same_test) == expected
        np.testing.assert_array_equal(again.predict(test["customer"], test["product"]), wanted)


def test_a_sparse_matrix_is_fitted_as_its_entries_are() -> None:
    """Users and items are numbers of rows and columns, those without a rating, too."""
    data = hushrec.load("synthetic:users=60,items=40,ratings=900")
    matrix = sp.csr_matrix((data.ratings, (data.users, data.items)), shape=(62, 41))
    found = hushrec.FedRec(**QUICK).fit(matrix).recommend([0, 61], k=41, min_raters=0)
    assert len(found[1]) == 41
    plain = hushrec.FedRec(**QUICK).fit((data.users, data.items, data.ratings))
    assert plain.predict(3, 5).shape == (1,)


def test_columns_and_duplicates_are_told_to_fit_and_evaluate(train: Any, test: Any, model: Any) -> None:
    named = {"customer": "who", "product": "what", "stars": "how"}
    columns = {"user": "who", "item": "what", "rating": "how"}
    again = hushrec.FedRec(**QUICK).fit(train.rename(columns=named), columns=columns)
    assert again.evaluate(test.rename(columns=named), columns=columns) == model.evaluate(test)
    np.testing.assert_array_equal(again.predict(test.rename(columns=named), columns=columns), model.predict(test))
    twice = pd.concat([train, train.iloc[:3]])
    with pytest.raises(HushrecError, match="duplicates='last' or duplicates='mean'"):
        hushrec.FedRec(**QUICK).fit(twice)
    hushrec.FedRec(**QUICK).fit(twice, duplicates="last")
    with pytest.raises(HushrecError, match=r"name them with columns=\{'user': NAME, 'item': NAME\}"):
        hushrec.FedRec(**QUICK).fit(train.rename(columns=named))


def test_unknown_rows_of_a_test_are_refused_or_left_out(model: Any, test: Any) -> None:
    strange = pd.concat([test, test.iloc[:2].assign(customer="nobody"), test.iloc[:1].assign(product=999)])
    with pytest.raises(HushrecError, match=r"^3 of 153 test rows have a user or an item .* skip_unknown=True"):
        model.evaluate(strange)
    assert model.evaluate(strange, skip_unknown=True) == model.evaluate(test)
    with pytest.raises(HushrecError, match="no test row has a user and an item of frame"):
        model.evaluate(test.assign(customer="x" + test.customer), skip_unknown=True)


def test_a_test_is_measured_on_the_scale_of_the_training(model: Any, test: Any) -> None:
    """What is relevant is the upper quarter of 1 to 5, though the test has no rating below 4."""
    high = test[test.stars >= 4]
    assert model.evaluate(high)["HR@10"] == model.evaluate(hushrec.load(high, rating_range=(1, 5)))["HR@10"]


def test_predictions_are_of_pairs(model: Any, test: Any) -> None:
    pairs = test.iloc[:5]
    expected = model.predict(pairs)
    for users, items in (
        (pairs.customer, pairs["product"]),
        (pl.Series(pairs.customer.tolist()), list(pairs["product"])),
    ):
        np.testing.assert_array_equal(model.predict(users, items), expected)
    assert model.predict("u01", [1, 2, 3]).shape == (3,)
    assert model.predict(["u01", "u02"], 7).shape == (2,)
    for users, items in ((["u01", "u02"], [1]), (["u01"], [1, 2]), (["u01"] * 3, [1, 2])):
        with pytest.raises(
            HushrecError, match=r"^\d users and \d items; give as many of both, or one user or one item"
        ):
            model.predict(users, items)
    with pytest.raises(HushrecError, match=r"shape \(2, 2\) and items of shape \(3, 3\) do not go together"):
        model.predict(np.full((2, 2), "u01"), np.ones((3, 3), int))
    with pytest.raises(HushrecError, match="predict needs users and items, or a frame"):
        model.predict("u01")
    with pytest.raises(HushrecError, match="a frame has its items in a column; leave items= out"):
        model.predict(pairs, [1, 2, 3, 4, 5])
    for rows in (
        hushrec.load(pairs),
        tuple(pairs[name] for name in ("customer", "product")),
        pairs.astype(object),
    ):
        np.testing.assert_array_equal(model.predict(rows), expected)


def test_newcomers_bring_frames(model: Any) -> None:
    expected = model.recommend_newcomer([1, 2], [5, 1], k=3)
    rated = pd.DataFrame({"product": [1, 2], "stars": [5, 1]})
    for frame in (rated, pl.DataFrame(rated.to_dict("list")), rated.assign(customer="me")):
        assert model.recommend_newcomer(frame, k=3) == expected
    matrix = sp.csr_matrix(([5.0, 1.0], ([0, 0], [1, 2])), shape=(1, 41))
    for rows in (matrix, (None, [1, 2], [5, 1]), hushrec.load(rated.assign(customer="me"))):
        assert model.recommend_newcomer(rows, k=3) == expected
    with pytest.raises(HushrecError, match="rows of 2 users; give those of one"):
        model.recommend_newcomer(rated.assign(customer=["me", "you"]))
    with pytest.raises(HushrecError, match=r"^an item is listed twice; give each item once$"):
        model.recommend_newcomer(pd.concat([rated, rated]))
    with pytest.raises(HushrecError, match=r"^a rating is not a number; give one number per item$"):
        model.recommend_newcomer([1, 2], ["good", "bad"])
    with pytest.raises(HushrecError, match="a frame has its ratings in a column; leave ratings= out"):
        model.recommend_newcomer(rated, [5, 1])


# --- Frames out ----------------------------------------------------------------------------------------------


def test_recommendations_are_lists_and_a_frame(model: Any, test: Any) -> None:
    users = list(dict.fromkeys(test.customer))
    found = model.recommend(test, k=3, min_raters=0)
    for form in (test[["customer"]], pl.DataFrame({"user": users}).lazy(), hushrec.load(test)):
        assert model.recommend(form, k=3, min_raters=0) == found
    assert found == model.recommend(users, k=3, min_raters=0)
    frame = found.to_pandas()
    assert frame.columns.tolist() == ["user", "rank", "item", "score", "title"]
    assert frame["user"].tolist() == [user for user in users for _ in range(3)]
    assert frame["item"].tolist() == [entry.item for own in found for entry in own]
    assert found.to_polars()["rank"].to_list() == [1, 2, 3] * len(users)
    everyone = model.recommend_all(k=3, min_raters=0).to_arrow()
    assert everyone.schema == found.to_arrow().schema
    alone = model.recommend("u07", k=3, min_raters=0).to_arrow()
    assert alone.equals(everyone.filter(pa.compute.equal(everyone["user"], "u07")).combine_chunks())


def test_lists_of_one_person_have_no_user_and_reasons_if_asked(model: Any) -> None:
    assert model.similar(3, k=2, min_raters=0).to_pandas().columns.tolist() == ["rank", "item", "score", "title"]
    found = model.recommend_newcomer([1, 2], [5, 1], k=2, why=True, min_raters=0)
    assert found.to_polars()["because"].to_list() == [entry.because and entry.because.item for entry in found]
    assert model.recommend_newcomer([1, 2], [5, 1], k=2, only=[1, 2]).to_arrow().num_rows == 0


def test_notebooks_show_what_there_is(model: Any, train: Any, test: Any) -> None:
    assert "not fitted" in hushrec.FedRec()._repr_html_()
    shown = model._repr_html_()
    assert "FedRec" in shown
    assert "fitted to frame: 750 rows, 60 users, 40 items, 5 rounds" in shown
    assert "<td>750</td>" in hushrec.load(train)._repr_html_()
    assert "u01" not in hushrec.load(train)._repr_html_(), "ids of users are private"
    assert "RMSE" in model.evaluate(test)._repr_html_()


# --- As in scikit-learn ----------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_constructor(train: Any) -> None:
    model = hushrec.FedRec(rho=2, seed=4)
    params = model.get_params()
    assert list(params) == list(inspect.signature(hushrec.FedRec).parameters)
    assert (params["rho"], params["seed"], params["num_rounds"], params["preset"]) == (2, 4, None, None)
    assert model.set_params(rho=1, seed=5, preset="paper") is model
    assert (model.config.rho, model.seed, model.settings) == (1, 5, {"rho": 1, "preset": "paper"})
    model.set_params(preset=None, seed=None)
    assert (model.settings, model.seed) == ({"rho": 1}, 0)
    for wrong in ({"rhoo": 1}, {"rho": -1}, {"rho": "x"}):
        with pytest.raises(HushrecError):
            model.set_params(**wrong)
        assert model.settings == {"rho": 1}


@pytest.mark.parametrize("kind", ESTIMATORS.values())
def test_scikit_learn_clones_every_estimator(kind: type[Recommender]) -> None:
    """What was not given stays open: the data of the clone's fit decides it."""
    model = kind(seed=3)
    again = clone(model)
    assert type(again) is kind
    assert (again.settings, again.seed, again.config) == ({}, 3, model.config)
    assert again.get_params() == model.get_params()


def test_a_clone_is_not_fitted_and_fits_the_same(model: Any, train: Any, test: Any) -> None:
    again = clone(model)
    with pytest.raises(HushrecError, match="is not fitted"):
        again.recommend("u01")
    assert again.fit(train).evaluate(test) == model.evaluate(test)


def test_new_parameters_wait_for_the_next_fit(train: Any, test: Any) -> None:
    model = hushrec.FedRec(**QUICK).fit(train)
    before = model.evaluate(test)
    model.set_params(num_rounds=1)
    assert model.evaluate(test) == before
    assert model.fit(train).evaluate(test) != before


def test_what_is_fitted_to_a_frame_is_copied_and_pickled(model: Any, test: Any) -> None:
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(test), model.predict(test))
        assert again.get_params() == model.get_params()


def test_a_copy_of_a_fit_does_not_depend_on_what_the_next_one_is_to_have(train: Any, test: Any) -> None:
    model = hushrec.FedRec(**QUICK).fit(train)
    before = model.predict(test)
    model.set_params(num_factors=7, num_rounds=2, seed=9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(test), before)
    assert (again.config.num_factors, again.seed) == (7, 9)


def test_settings_may_be_numbers_of_numpy() -> None:
    model = hushrec.FedRec(rho=np.int64(2), learning_rate=np.float32(0.5), biases=np.bool_(True), seed=np.int64(4))
    assert (model.config.rho, model.config.learning_rate, model.config.biases, model.seed) == (2, 0.5, True, 4)
    assert [type(value) for value in model.settings.values()] == [int, float, bool]
    assert clone(model).settings == model.settings


def test_scikit_learn_searches_settings(ratings: pd.DataFrame) -> None:
    def scored(model: Recommender, rows: pd.DataFrame, _target: Any = None) -> float:
        return -model.evaluate(rows, skip_unknown=True)["RMSE"]

    spaces = {"rho": randint(0, 3), "learning_rate": loguniform(0.1, 1)}
    found = RandomizedSearchCV(
        hushrec.FedRec(**QUICK), spaces, n_iter=2, scoring=scored, cv=2, random_state=0, error_score="raise"
    ).fit(ratings)
    assert found.best_params_.keys() == spaces.keys()
    assert len(found.best_estimator_.recommend("u01", k=2)[0]) == 2


WRONG: dict[str, tuple[Any, str]] = {
    "a seed below 0": (lambda model, test: hushrec.FedRec(seed=-1), "the seed is -1; use a number from 0 up"),
    "no seed": (lambda model, test: hushrec.FedRec(seed=None), "the seed is None; use a number"),
    "a dict of options": (lambda model, test: hushrec.FedRec(options={}), "options= takes hushrec.RuntimeOptions"),
    "an absurd number": (lambda model, test: hushrec.FedRec(rho=10**12), "rho=1000000000000 is too large"),
    "half an item": (lambda model, test: model.recommend("u01", k=1.5), "a list of 1.5 items cannot be"),
    "a word for a length": (lambda model, test: model.recommend_newcomer([1], [5], k="x"), "a list of 'x' items"),
    "raters below none": (lambda model, test: model.recommend("u01", min_raters=-1), "use min_raters=0 to list"),
    "no length": (lambda model, test: model.evaluate(test, at=()), r"at= takes lengths of lists, .*; not \(\)"),
    "half a length": (lambda model, test: model.evaluate(test, at=(1.5,)), r"at= takes lengths .*; not \(1.5,\)"),
    "two items at once": (lambda model, test: model.similar([1, 2]), r"no item '\[1, 2\]' in frame"),
}


@pytest.mark.parametrize(("wish", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_wish_is_one_clear_error(wish: Any, told: str, model: Any, test: Any) -> None:
    with pytest.raises(HushrecError, match=told) as caught:
        wish(model, test)
    assert "--" not in str(caught.value)


def test_rows_that_were_trained_on_are_no_test(model: Any, train: Any, test: Any) -> None:
    with pytest.raises(HushrecError, match="2 of 152 test rows are in train, too; split without overlap"):
        model.evaluate(pd.concat([test, train.iloc[:2]]))


def test_missing_ratings_are_left_out_if_told(model: Any, train: Any, test: Any) -> None:
    holes = pd.concat([test, test.iloc[:1].assign(stars=None)])
    with pytest.raises(HushrecError, match="missing='drop'"):
        model.evaluate(holes)
    assert model.evaluate(holes, missing="drop") == model.evaluate(test)
    again = hushrec.FedRec(**QUICK).fit(pd.concat([train, train.iloc[:1].assign(stars=None)]), missing="drop")
    assert again.evaluate(test) == model.evaluate(test)
    assert hushrec.compare(again, test=holes, missing="drop")[0]["mean"]["RMSE"] == model.evaluate(test)["RMSE"]


# --- Keeping -------------------------------------------------------------------------------------------------


def test_a_folder_is_replaced_only_if_asked(model: Any, tmp_path: Path, test: Any) -> None:
    model.save(tmp_path / "kept")
    with pytest.raises(HushrecError, match=r"kept holds something already; .* replace it with overwrite=True$"):
        model.save(tmp_path / "kept")
    model.save(tmp_path / "kept", overwrite=True)
    assert hushrec.load_run(tmp_path / "kept").evaluate(test) == model.evaluate(test)
    (tmp_path / "other").mkdir()
    model.save(tmp_path / "other")  # an empty folder is free
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.png").write_bytes(b"")
    with pytest.raises(HushrecError, match="photos holds something that is not a run; save to another folder"):
        model.save(tmp_path / "photos", overwrite=True)
    with pytest.raises(HushrecError, match=r"me\.png is a file; save to a folder"):
        model.save(tmp_path / "photos" / "me.png")
    with pytest.raises(HushrecError, match=r"cannot be written \(.*\); save to another folder$"):
        model.save("/proc/nowhere/model")
    with pytest.raises(HushrecError, match="side='sever' is unknown; choose server or client"):
        hushrec.load_run(tmp_path / "kept", side="sever")  # type: ignore[arg-type]


def test_a_run_of_a_system_that_is_not_installed_is_one_line(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "kept")
    record = tmp_path / "kept" / "run.json"
    kept = json.loads(record.read_text()) | {"system": "theirs"}
    del kept["checksum"]
    record.write_text(json.dumps(kept))
    with pytest.raises(
        HushrecError, match=r"kept is a run of theirs, which is not installed here; install the package"
    ):
        hushrec.load_run(tmp_path / "kept")


# --- The page --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "least"), [("python.md", 25), ("data.md", 10)])
def test_the_examples_of_a_page_run(
    page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / page).read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    parsed = doctest.DocTestParser().get_doctest(examples, {}, page, page, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    logging.getLogger("hushrec").setLevel(logging.ERROR)
    try:
        result = runner.run(parsed)
    finally:
        logging.getLogger("hushrec").setLevel(logging.NOTSET)
    assert result.failed == 0
    assert result.attempted >= least
