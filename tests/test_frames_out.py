import copy
import pickle
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hushrec.errors import HushrecError
from hushrec.tables import Blocks, Metrics, Rows, html_facts

TABLE = pa.table({"item": ["<b>", "c"], "score": pa.array([1.5, None])})


def test_rows_are_a_list_and_a_frame() -> None:
    rows = Rows(["one", "two"], TABLE)
    assert rows == ["one", "two"]
    assert (len(rows), rows[0], rows[:1]) == (2, "one", ["one"])
    assert rows.to_arrow() is TABLE
    assert pa.RecordBatchReader.from_stream(rows).read_all().equals(TABLE)
    pd.testing.assert_frame_equal(rows.to_pandas(), TABLE.to_pandas())
    assert rows.to_polars().equals(pl.DataFrame({"item": ["<b>", "c"], "score": [1.5, None]}))
    for again in (copy.copy(rows), copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        assert (type(again), again) == (Rows, rows)
        assert again.to_arrow().equals(TABLE)


def test_a_notebook_shows_a_table_with_texts_as_they_are() -> None:
    shown = Rows([], TABLE)._repr_html_()
    assert "<th>item</th><th>score</th>" in shown
    assert "&lt;b&gt;" in shown
    assert "<td>1.5000</td>" in shown
    long = Rows([], pa.table({"number": list(range(1000))}))._repr_html_()
    assert long.count("<tr>") == 21
    assert "980 more rows" in long
    assert html_facts("<x>", {"a": True}).startswith("<b>&lt;x&gt;</b>")


def test_metrics_are_a_dict_and_a_frame() -> None:
    metrics = Metrics({"MAE": 0.5, "RMSE": 1.0})
    assert metrics == {"MAE": 0.5, "RMSE": 1.0}
    assert metrics.to_polars().rows() == [("MAE", 0.5), ("RMSE", 1.0)]
    assert metrics.to_pandas().columns.tolist() == ["metric", "value"]
    assert "<td>0.5000</td>" in metrics._repr_html_()
    assert pickle.loads(pickle.dumps(metrics)) == metrics


def test_blocks_come_once() -> None:
    batch = TABLE.to_batches()[0]
    blocks = Blocks(iter([batch, batch, batch]))
    assert next(blocks) is batch
    assert blocks.to_pandas().shape == (4, 2)
    assert list(blocks) == []


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_library_that_is_not_installed_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        HushrecError, match=rf"^to_{package}\(\) needs {package}; install it with: pip install {package}$"
    ):
        getattr(Rows([], TABLE), f"to_{package}")()
