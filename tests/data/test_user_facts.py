"""Who the users are, where a data set has a file of them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import catalogue, synthetic, user_facts
from hushrec.errors import HushrecError


def test_facts_are_by_the_numbers_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has users in any order, some of them not in the data, and lacks one. Ages fall into groups."""
    data = synthetic(4, 6, 12, seed=0)
    ids = data.user_ids.tolist()
    columns = {
        "user": [99_999, ids[2], ids[0], ids[3]],
        "age": [30, 17, 18, 56],
        "gender": ["M", "F", "M", "F"],
        "occupation": [1, 2, 3, 4],
    }
    pa_parquet.write_table(pa.table(columns), tmp_path / "users.parquet")
    monkeypatch.setattr(user_facts, "users_file", lambda name: tmp_path / "users.parquet")
    facts = user_facts.user_facts(data)
    assert {name: column.tolist() for name, column in facts.items()} == {
        "gender": ["M", "", "F", "F"],
        "age group": ["18-24", "", "under 18", "56+"],
        "occupation": ["3", "", "2", "4"],
    }


def test_data_without_a_file_of_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_facts.user_facts(synthetic(4, 6, 12, seed=0)) == {}
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalogue.users_file("ml-100k") is None
    (tmp_path / "ml-100k-users.parquet").write_bytes(b"something else")
    with pytest.raises(HushrecError, match=r"ml-100k-users\.parquet is damaged or not ml-100k"):
        catalogue.users_file("ml-100k")
