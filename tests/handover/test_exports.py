"""What a model is handed over as gives the same scores elsewhere, and says nothing that was not asked for."""

import json
import stat
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import hushrec
from hushrec.errors import HushrecError
from hushrec.estimators import estimator_named
from hushrec.evaluation.formula import formula_of, stepped
from hushrec.registry import SYSTEMS
from systems.runs import held, short

DATA = "synthetic:users=40,items=30,ratings=600"
ONE_THREAD = hushrec.RuntimeOptions(threads=1)
# Settings beside the usual ones that change what a score is.
OTHERS: dict[str, list[dict[str, Any]]] = {
    "fedrec": [{"preset": "general"}],
    "fedncf": [{"model": "gmf"}, {"model": "mlp"}],
    "lightgcn": [{"head": "product"}],
    "neucf": [{"activation": "quadratic"}],
}
WITHOUT = {"metamf", "average", "fedcore"}  # each client's own network; a mean; a model of each partner


def cases() -> list[tuple[str, int]]:
    return [(name, number) for name in SYSTEMS for number in range(1 + len(OTHERS.get(name, ())))]


@cache
def fitted(name: str, number: int = 0) -> hushrec.Recommender:
    settings = short(name, num_rounds=3)
    if number:
        known = estimator_named(name)().get_params()
        settings |= {key: value for key, value in OTHERS[name][number - 1].items() if key in known}
    data = held(name, hushrec.load(DATA))
    return estimator_named(name)(options=ONE_THREAD, **settings).fit(data, stop_early=False, progress=False)


def everybody(model: hushrec.Recommender) -> Any:
    return np.arange(model.ranker().train.num_users, dtype=np.int32)


@pytest.mark.parametrize(("name", "number"), cases())
def test_a_formula_gives_the_scorers_scores_and_predictions(name: str, number: int) -> None:
    model = fitted(name, number)
    scorer, users = model.ranker().scorer, everybody(model)
    formula = formula_of(scorer)
    assert (formula is None) == (name in WITHOUT)
    if formula is None:
        return
    sums = formula.sums(
        formula.user_vectors[users], None if formula.user_offsets is None else formula.user_offsets
    )
    np.testing.assert_allclose(stepped(sums, formula.ranked), scorer.score(users), rtol=1e-5, atol=1e-6)
    items = np.arange(len(formula.item_vectors), dtype=np.int32)
    for user in users[:3]:
        found = scorer.predict(np.full_like(items, user), items)
        np.testing.assert_allclose(stepped(sums[user], formula.predicted), found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "number"), [case for case in cases() if case[0] not in WITHOUT])
def test_onnx_gives_the_same_scores_and_predictions(name: str, number: int, tmp_path: Path) -> None:
    """To 1e-6, by onnxruntime, from users' vectors that are in another file."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = fitted(name, number)
    files = model.export(tmp_path / "out", "onnx", with_users=True)
    assert [file.name for file in files] == ["items.arrow", "users.arrow", "scorer.onnx"]
    session = runtime.InferenceSession(str(tmp_path / "out" / "scorer.onnx"), providers=["CPUExecutionProvider"])
    people = pa.ipc.open_file(tmp_path / "out" / "users.arrow").read_all()
    inputs = {"user_vectors": np.stack(people["vector"].to_numpy()).astype(np.float32)}
    if "offset" in people.column_names:
        inputs["user_offsets"] = people["offset"].to_numpy().astype(np.float32)
    scores, predictions = session.run(["scores", "predictions"], inputs)
    scorer, users = model.ranker().scorer, everybody(model)
    np.testing.assert_allclose(scores, scorer.score(users), rtol=1e-6, atol=1e-6)
    items = np.arange(scores.shape[1], dtype=np.int32)
    pairs = np.repeat(users, len(items)), np.tile(items, len(users))
    np.testing.assert_allclose(predictions.reshape(-1), scorer.predict(*pairs), rtol=1e-6, atol=1e-6)
    told = session.get_modelmeta().custom_metadata_map
    assert told["system"] == name
    assert len(told["model_sha256"]) == 64


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_items_are_a_table_and_users_are_not_there(form: Any, tmp_path: Path) -> None:
    model = fitted("fedrec", 1)  # with biases
    assert model.export(tmp_path, form) == [tmp_path / f"items.{form}"]
    assert [path.name for path in tmp_path.iterdir()] == [f"items.{form}"]
    file = tmp_path / f"items.{form}"
    table = pa.ipc.open_file(file).read_all() if form == "arrow" else pa_parquet.read_table(file)
    train = model.ranker().train
    assert table["item"].to_pylist() == train.item_ids.tolist()
    formula = formula_of(model.ranker().scorer)
    assert formula is not None
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), formula.item_vectors)
    np.testing.assert_array_equal(table["offset"].to_numpy(), formula.item_offsets)
    told = json.loads(table.schema.metadata[b"hushrec"])
    assert told["scores"] == "in the order of a user's vector . an item's + the user's offset + the item's offset"
    assert set(told) == {"hushrec", "system", "rounds", "model_sha256", "scores"}


def test_users_are_for_their_owner_only(tmp_path: Path) -> None:
    model = fitted("fedrec")
    model.export(tmp_path, "arrow", with_users=True)
    assert stat.S_IMODE((tmp_path / "users.arrow").stat().st_mode) == 0o600
    people = pa.ipc.open_file(tmp_path / "users.arrow").read_all()
    assert people["user"].to_pylist() == model.ranker().train.user_ids.tolist()


def test_nothing_is_replaced(tmp_path: Path) -> None:
    model = fitted("fedrec")
    (tmp_path / "items.parquet").write_text("mine")
    with pytest.raises(HushrecError, match=r"items.parquet is there already; choose another to="):
        model.export(tmp_path, ["arrow", "parquet"])
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]


@pytest.mark.parametrize(
    ("name", "form", "told"),
    [
        (
            "metamf",
            "onnx",
            "metamf has no scorer that is vectors and layers, so there is no ONNX of it; it has no",
        ),
        ("metamf", "arrow", "metamf has no vectors of items; hand its run's folder over as it is"),
        ("fedcore", "onnx", "its items' vectors can be had with format='arrow'"),
        ("fedrec", "pickle", "format='pickle' is unknown; choose from arrow, parquet, onnx"),
        ("fedrec", (), "name what to write, as in format='arrow'"),
    ],
)
def test_what_cannot_be_is_one_line(name: str, form: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(HushrecError) as refused:
        fitted(name).export(tmp_path / "out", form)
    assert told in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_fedcores_vectors_can_be_had(tmp_path: Path) -> None:
    assert fitted("fedcore").export(tmp_path, "arrow")
