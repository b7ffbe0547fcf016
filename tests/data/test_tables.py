import numpy as np
import pyarrow as pa
import pytest

from hushrec.data import from_arrays, from_arrow
from hushrec.errors import HushrecError


def test_a_table_comes_in_as_a_file_does() -> None:
    table = pa.table({"uid": ["b", "a", "a"], "asin": [30, 7, 30], "stars": [3, 4.5, 1], "note": ["x", "y", "z"]})
    data = from_arrow(table, name="frame")
    assert data.user_ids.tolist() == ["a", "b"]
    assert data.item_ids.tolist() == [7, 30]
    assert data.users.tolist() == [1, 0, 0]
    assert data.ratings.tolist() == [3, 4.5, 1]
    assert data.name == "frame"
    assert from_arrow(table, columns={"user": "note"}).user_ids.tolist() == ["x", "y", "z"]
    assert from_arrow(table, implicit=True).ratings is None


def test_arrays_come_in_as_tables_do() -> None:
    data = from_arrays(np.array(["b", "a"]), [30, 7], np.array([3, 4.5]), [1_700_000_000_000, 1_600_000_000_000])
    table = pa.table({"user": ["b", "a"], "item": [30, 7], "rating": [3, 4.5]})
    assert data.sha256 == from_arrow(table).sha256
    assert data.timestamps.tolist() == [1_700_000_000, 1_600_000_000]
    assert from_arrays([1], [2]).ratings is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([1, 2], [1]), "arrays: 2 users, 1 items; give arrays of one length"),
        (([1, 1], [1, 1], [2, 3]), "arrays, row 2: user 1 and item 1 were there before"),
        (([1, 1], [1, 2], [2, np.nan]), "arrays, row 2: rating is missing"),
        ((np.array([1, "a"], object), [1, 2]), "users are not all numbers or all texts"),
        (([[1, 2]], [1]), "users are not all numbers or all texts"),
        (([], []), "arrays: there are no rows left; give at least one"),
    ],
)
def test_faults_of_arrays(given: tuple, message: str) -> None:
    with pytest.raises(HushrecError) as caught:
        from_arrays(*given)
    assert str(caught.value).startswith(message)


def test_what_is_missing_in_a_table() -> None:
    told: list[str] = []
    table = pa.table({"user": [1, None, 2], "item": [1, 2, 2], "rating": [3, 3, None]})
    assert len(from_arrow(table, missing="drop", notify=told.append)) == 1
    assert told == ["2 of 3 rows of table have no user, item or rating and are left out"]
    with pytest.raises(HushrecError, match="table, row 3: rating is missing"):
        from_arrow(table)
