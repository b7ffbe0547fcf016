"""Data in memory becomes what the same data in a file becomes, whatever library it is of."""

import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from hushrec.data import load
from hushrec.data.frames import ids_of_array
from hushrec.data.in_memory import has_rows, ids_in
from hushrec.errors import HushrecError

ROWS: dict[str, list[Any]] = {
    "userId": ["a", "b", "a", "c"],
    "movie_id": [3, 1, 2, 2],
    "Rating": [4.0, 5.0, 1.0, 3.0],
    "ts": [10, 20, 30, 40],
}
PANDAS, POLARS, ARROW = pd.DataFrame(ROWS), pl.DataFrame(ROWS), pa.table(ROWS)
COLUMNS = [ROWS[name] for name in ("userId", "movie_id", "Rating", "ts")]
SAME = {
    "pandas": PANDAS,
    "pandas with an index": PANDAS.set_axis([9, 9, 5, 1], axis=0),
    "pandas categories": PANDAS.astype({"userId": "category", "movie_id": "category"}),
    "pandas objects": PANDAS.astype(object),
    "pandas, nullable": PANDAS.convert_dtypes(),
    "pandas on Arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, ids in the index": PANDAS.set_index(["userId", "movie_id"]),
    "pandas, kept as sparse": PANDAS.astype({"Rating": pd.SparseDtype("float", 0.0)}),
    "polars": POLARS,
    "polars, lazy": POLARS.lazy(),
    "polars categories": POLARS.with_columns(pl.col("userId").cast(pl.Categorical)),
    "an Arrow table": pa.table(ROWS),
    "an Arrow batch": pa.table(ROWS).to_batches()[0],
    "a stream of Arrow": pa.table(ROWS).to_reader(),
    "Arrow in chunks, some empty": pa.concat_tables([ARROW[:0], ARROW[:1], ARROW[1:1], ARROW[1:]]),
    "Arrow dictionaries, one per chunk": pa.table(
        {
            name: pa.chunked_array([pa.array(part).dictionary_encode() for part in (column[:2], column[2:])])
            for name, column in ROWS.items()
        }
    ),
    "Arrow, runs": pa.table({name: pa.compute.run_end_encode(pa.array(column)) for name, column in ROWS.items()}),
    "a structured array": np.rec.fromarrays(list(ROWS.values()), names=list(ROWS)),
    "a dict": ROWS,
    "arrays": tuple(np.array(column) for column in COLUMNS),
    "lists": tuple(COLUMNS),
    "bytes in another order": (ROWS["userId"], *(np.array(column).astype(">f8") for column in COLUMNS[1:])),
    "series": (PANDAS.userId, POLARS["movie_id"], pa.array(ROWS["Rating"]), np.array(ROWS["ts"])),
}


@pytest.mark.parametrize("frame", SAME.values(), ids=SAME)
def test_a_frame_is_read_as_its_file_would_be(frame: Any, tmp_path: Path) -> None:
    PANDAS.to_csv(tmp_path / "rows.csv", index=False)
    expected, found = load(tmp_path / "rows.csv"), load(frame)
    assert found.sha256 == expected.sha256
    for name in ("users", "items", "ratings", "timestamps", "user_ids", "item_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert (found.rating_range, found.name) == ((1.0, 5.0), "frame")
    assert load(found) is found


def test_columns_are_named_ratings_left_out_and_times_of_any_kind() -> None:
    named = PANDAS.rename(columns={"userId": "buyer", "movie_id": "sku"})
    assert load(named, columns={"user": "buyer", "item": "sku"}).sha256 == load(PANDAS).sha256
    assert load(PANDAS, implicit=True).ratings is None
    assert load(tuple(COLUMNS[:2])).ratings is None
    dated = POLARS.with_columns(ts=pl.lit(datetime.date(1970, 1, 2)))
    assert load(dated).timestamps.tolist() == [86400] * 4
    assert load(tuple(COLUMNS), name="shop").name == "shop"
    numbered = PANDAS.set_axis([0, 1, 2, 3], axis=1)
    assert (
        load(numbered, columns={"user": 0, "item": 1, "rating": 2, "timestamp": 3}).sha256 == load(PANDAS).sha256
    )


def test_ids_may_be_uuids() -> None:
    values = [UUID(int=number) for number in (5, 6, 5, 7)]
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes for one in values], pa.binary(16)))
    frame = pa.table(ROWS).set_column(0, "userId", ids)
    found = load(frame)
    assert found.user_ids.tolist() == sorted({str(one) for one in values})
    assert ids_in(frame, "user").tolist() == [str(one) for one in values]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pd.date_range("1970-01-02", periods=4, tz="Europe/Berlin"), [82_800, 169_200, 255_600, 342_000]),
        (["1970-01-02", "1970-01-02T00:00:00Z", "1970-01-02 01:00:00+01:00", None], [86_400] * 3 + [-1]),
        ([pd.NaT, *pd.date_range("1970-01-02", periods=3)], [-1, 86_400, 172_800, 259_200]),
        ([datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)] * 4, [86_400] * 4),
        (np.array(["1970-01-02"] * 4, "datetime64[D]"), [86_400] * 4),
    ],
)
def test_times_of_frames(times: Any, expected: list[int]) -> None:
    assert load(PANDAS.assign(ts=times)).timestamps.tolist() == expected


def test_rows_and_columns_of_a_sparse_matrix_are_users_and_items() -> None:
    """Also those that are empty; a stored zero is a rating, what is not stored is none."""
    matrix = sp.csr_matrix((np.array([5.0, 0.0]), (np.array([0, 2]), np.array([1, 3]))), shape=(4, 5))
    for form in (matrix, matrix.tocsc(), matrix.tocoo(), sp.csr_array(matrix)):
        found = load(form)
        assert (found.user_ids.tolist(), found.item_ids.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3, 4])
        assert (found.users.tolist(), found.items.tolist(), found.ratings.tolist()) == ([0, 2], [1, 3], [5, 0])


TWICE = pd.concat([PANDAS, PANDAS.assign(Rating=2.0)])
REFUSED = {
    "a missing rating": (
        PANDAS.assign(Rating=[1, None, 2, 3]),
        r"frame, row 1 \(the first is 0\): rating is missing",
    ),
    "not a number": (
        POLARS.with_columns(pl.Series("Rating", [1.0, float("nan"), 2, 3])),
        r"frame, row 1 \(the first is 0\): rating is missing",
    ),
    "a missing user": (
        POLARS.with_columns(pl.Series("userId", ["a", None, "b", "c"])),
        "row 1 .*user id is missing",
    ),
    "a missing item": (PANDAS.assign(movie_id=pd.array([1, 2, 3, None], "Int64")), "row 3 .*item id is missing"),
    "half an item": (PANDAS.assign(movie_id=[1.5, 2, 3, 4]), r"row 0 .*item id is 1\.5; expected a whole number"),
    "words for ratings": (PANDAS.assign(Rating=["1", "2", "good", "4"]), "row 2 .*rating is 'good'; expected"),
    "ids of two kinds": (PANDAS.assign(movie_id=[1, "x", 2.5, None]), "column 'movie_id' cannot be read"),
    "lists for ids": (
        PANDAS.assign(userId=[[1], [2], [3], [4]]),
        r"the columns are user list<.*; expected numbers",
    ),
    "no rows": (PANDAS.iloc[:0], "frame has no rows; expected one for each rating"),
    "a pair twice": (
        TWICE,
        "row 4 .*user a and item 3 were there before .* duplicates='last' or duplicates='mean'",
    ),
    "a pair twice in a matrix": (sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2)), "row 1 .*user 0 and"),
    "no column of users": (
        PANDAS.drop(columns="userId"),
        r"no user column among: .*; name it with columns=\{'user'",
    ),
    "a column twice": (
        pd.concat([PANDAS, PANDAS[["userId"]]], axis=1),
        "the frame cannot be read .*'userId' 2 times",
    ),
    "unequal arrays": (([1, 2], [3]), r"the columns have different lengths \(user 2, item 1\)"),
    "one array": (([1, 2],), r"a tuple of 1 is not \(users, items, ratings, times\)"),
    "three arrays in one": (([[1, 2]], [[3, 4]]), r"the columns are user list<.*; expected numbers"),
    "an array of two dimensions": ((np.ones((2, 2)), [3]), "column 'users' cannot be read .*; give a number or a"),
    "words for arrays": (("abc", "abd"), "column 'users' is a str; give a number or a text for each row"),
    "sets": (({1, 2}, {3, 4}), "column 'users' is a set; give a number or a text for each row"),
    "periods": (
        PANDAS.assign(ts=pd.period_range("2024-01", periods=4, freq="M")),
        "column 'ts' cannot be read .*period.* is of another library",
    ),
    "numbers among dates": (
        PANDAS.assign(ts=["1970-01-01", "12", "1970-01-02", None]),
        "row 1 .*timestamp is '12', others are dates; write all in one way",
    ),
    "a day that is in no month": (
        POLARS.with_columns(pl.Series("ts", ["1970-06-30", "1970-06-30T01Z", "1970-06-31", "1970-06-01"])),
        "row 2 .*timestamp is '1970-06-31'; expected",
    ),
    "a lazy frame without its file": (pl.scan_csv("/nowhere.csv"), "the frame cannot be read .*nowhere"),
    "a lazy frame of what is not there": (POLARS.lazy().select("x"), 'the frame cannot be read .*column "x"'),
    "a sparse array of one dimension": (sp.coo_array(np.ones(3)), r"of shape \(3,\); give a matrix of users and"),
    "a sparse matrix of complex numbers": (sp.csr_matrix(1j * np.eye(2)), "column 'ratings' cannot be read"),
    "a frame without columns": (pd.DataFrame(), "frame: there are no columns; expected one of users"),
    "a class": (pd.DataFrame, "DataFrame is no table; give a frame"),
    "a dense matrix": (np.zeros((3, 3)), "ndarray is not taken; give a frame of pandas, polars or Arrow"),
    "a series": (PANDAS.userId, "Series is no table; give a frame"),
    "nothing": (None, "NoneType is not taken; give a frame"),
}


@pytest.mark.parametrize(("frame", "told"), REFUSED.values(), ids=REFUSED)
def test_a_bad_frame_is_one_clear_error(frame: Any, told: str) -> None:
    with pytest.raises(HushrecError, match=told) as caught:
        load(frame)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_wrong_wishes_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"columns= has 'buyer'; choose of: user, item"):
        load(PANDAS, columns={"buyer": "userId"})
    with pytest.raises(HushrecError, match="frame: no column 'x' among: userId, movie_id"):
        load(PANDAS, columns={"user": "x"})
    with pytest.raises(HushrecError, match="duplicates='first' is unknown; use error, last or mean"):
        load(PANDAS, duplicates="first")  # type: ignore[arg-type]
    with pytest.raises(HushrecError, match=r"row 0 .*rating is 4; expected 1 to 3"):
        load(PANDAS, rating_range=(1, 3))
    for wrong in (5, ("a", "b"), (1, 2, 3)):
        with pytest.raises(HushrecError, match=r"rating_range=.* is no range; give \(LOW, HIGH\)"):
            load(PANDAS, rating_range=wrong)  # type: ignore[arg-type]
    with pytest.raises(HushrecError, match="encoding='klingon' is unknown"):
        load(PANDAS, encoding="klingon")
    with pytest.raises(HushrecError, match="missing=True is unknown; choose refuse, drop, or a rating"):
        load(PANDAS, missing=True)


def test_duplicates_are_taken_if_told() -> None:
    assert load(TWICE, duplicates="last").ratings.tolist() == [2, 2, 2, 2]
    assert load(TWICE, duplicates="mean").ratings.tolist() == [3, 3.5, 1.5, 2.5]


def test_ids_are_asked_for_in_any_form() -> None:
    for ids in (PANDAS.userId, PANDAS.userId.astype("category"), POLARS["userId"], pa.array(ROWS["userId"])):
        found = ids_of_array(ids, "user")
        assert (found.dtype.kind, found.tolist()) == ("U", ROWS["userId"])
    assert ids_of_array(POLARS["movie_id"], "item").tolist() == ROWS["movie_id"]
    for missing in ([None, "a"], [1.0, float("nan")], pd.Series(["a", None])):
        with pytest.raises(HushrecError, match="a user id is missing; leave such rows out"):
            ids_of_array(missing, "user")
    with pytest.raises(HushrecError, match="an item id is missing"):
        ids_of_array([None], "item")
    for odd in ([[1], [2, 3]], pd.DataFrame({"x": [1]}).to_dict("split")["data"] + [[1, 2]]):
        with pytest.raises(HushrecError, match="item ids are not of one shape; give one id, or an array of them"):
            ids_of_array(odd, "item")
    assert sorted(ids_of_array({3, 1}, "item")) == [1, 3]
    assert ids_of_array(iter([3, 1]), "item").tolist() == [3, 1]


def test_ids_in_rows_of_any_form() -> None:
    rows = (PANDAS, POLARS.lazy(), pa.table(ROWS), ROWS, tuple(COLUMNS), load(PANDAS))
    for form in (*rows, POLARS.select("movie_id")):
        assert has_rows(form)
        assert ids_in(form, "item").tolist() == ROWS["movie_id"]
    assert ids_in(sp.csr_matrix([[0, 3], [4, 0]]), "item").tolist() == [1, 0]
    assert not any(has_rows(one) for one in (PANDAS.userId, [1], "x", ("a", "b"), (1, 2), ()))
    with pytest.raises(HushrecError, match="frame: no user column among: movie_id; name it"):
        ids_in(POLARS.select("movie_id"), "user")
    with pytest.raises(HushrecError, match="an item id is missing"):
        ids_in(PANDAS.assign(movie_id=pd.array([1, 2, 3, None], "Int64")), "item")
