"""Files that are packed, in other encodings, in parts, or JSON: each says what the plain file says."""

import bz2
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import Interactions, Reading, load, read
from hushrec.errors import HushrecError

RATINGS = "user,item,rating,timestamp\nzoë,7,3,100\nann,30,4.5,200\nann,7,1,300\n"
ROWS = [
    {"user": "zoë", "item": 7, "rating": 3, "timestamp": 100},
    {"user": "ann", "item": 30, "rating": 4.5, "timestamp": 200},
    {"user": "ann", "item": 7, "rating": 1, "timestamp": 300},
]


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def assert_says_the_same(data: Interactions) -> None:
    assert data.user_ids.tolist() == ["ann", "zoë"]
    assert data.item_ids.tolist() == [7, 30]
    assert data.users.tolist() == [1, 0, 0]
    assert data.items.tolist() == [0, 1, 0]
    assert data.ratings.tolist() == [3, 4.5, 1]
    assert data.timestamps.tolist() == [100, 200, 300]


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refuses(path: Path, message: str, **options: object) -> None:
    with pytest.raises(HushrecError) as caught:
        read(path, Reading(**options))
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def json_lines(rows: list[dict]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize(("name", "content"), [("a.csv", RATINGS.encode()), ("a.jsonl", json_lines(ROWS))])
def test_packed_files(tmp_path: Path, packer: str, name: str, content: bytes) -> None:
    packed = PACKERS[packer](content)
    path = put(tmp_path / f"{name}.{packer}", packed)
    assert_says_the_same(read(path))
    assert_says_the_same(read(put(tmp_path / "named-otherwise", packed)))
    put(path, packed[:-9])
    refuses(path, ": a damaged ")


def test_packed_parquet_and_titles_beside(tmp_path: Path) -> None:
    pa_parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert_says_the_same(
        read(put(tmp_path / "a.parquet.gz", gzip.compress((tmp_path / "a.parquet").read_bytes())))
    )
    put(tmp_path / "a-items.csv", b"item,title\n7,Heat\n")
    assert read(put(tmp_path / "a.csv.gz", gzip.compress(RATINGS.encode()))).titles.tolist() == ["Heat", ""]


def test_zip_with_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("data")
        archive.writestr("data/a.csv", RATINGS)
        archive.writestr("__MACOSX/data/a.csv", "x")
    assert_says_the_same(read(path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("data/movies.csv", "item,title\n")
    refuses(path, " holds 2 files: data/a.csv, data/movies.csv; unpack it and give the one with the ratings")
    refuses(put(path, path.read_bytes()[:60]), ": a damaged zip file")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_a_mark_tells_the_encoding(tmp_path: Path, encoding: str) -> None:
    assert_says_the_same(read(put(tmp_path / "a.csv", RATINGS.encode(encoding))))


def test_named_encodings(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", RATINGS.encode("latin-1"))
    assert_says_the_same(read(path, Reading(encoding="latin-1")))
    assert_says_the_same(read(put(tmp_path / "b.csv", RATINGS.encode("utf-16-le")), Reading(encoding="utf-16-le")))
    refuses(path, ", line 2: not UTF-8 text; expected .inter, u.data")
    with pytest.raises(HushrecError, match="for another encoding name it, as in encoding='latin-1'"):
        read(path)
    refuses(put(tmp_path / "odd.csv", b"user,item\n1,2\n"[:-1]), ": not text in utf-16", encoding="utf-16")
    refuses(put(tmp_path / "c.csv", RATINGS.encode("utf-16-le")), ": not a table of text")
    refuses(
        put(tmp_path / "d.csv", b"user,item\n1,2\n"),
        ": no user column and no item column among: ",
        encoding="utf-16",
    )
    with pytest.raises(HushrecError, match="encoding='klingon' is unknown; choose for example utf-8"):
        read(path, Reading(encoding="klingon"))


def test_decimal_commas(tmp_path: Path) -> None:
    text = "user;item;rating;timestamp\nzoë;7;3,0;100\nann;30;4,5;200,0\nann;7;1;300\n"
    path = put(tmp_path / "a.csv", text.encode())
    assert_says_the_same(read(path, Reading(decimal=",")))
    refuses(path, ", line 2: rating is '3,0'; expected a finite number; for decimal commas add decimal=','")
    assert read(put(tmp_path / "b.csv", b"1;2;3,5\n1;3;4\n"), Reading(decimal=",")).ratings.tolist() == [3.5, 4]
    quoted = put(tmp_path / "c.csv", b'user,item,rating\n1,2,"3,5"\n1,3,4\n')  # as pandas writes it
    assert read(quoted, Reading(decimal=",")).ratings.tolist() == [3.5, 4]
    with pytest.raises(HushrecError, match=r"decimal=.+ is unknown; choose \. or ,"):
        Reading(decimal="'")


def test_missing_ratings(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", b"user,item,rating\n1,1,3\n1,2,\n2,1,NA\n2,2,4\n,5,4\n")
    told: list[str] = []
    refuses(path, ", line 3: rating is missing (2 such rows); leave them out with missing='drop', or give them")
    dropped = read(path, Reading(missing="drop"), told.append)
    assert dropped.ratings.tolist() == [3, 4]
    assert dropped.user_ids.tolist() == [1, 2]
    assert told == ["3 of 5 rows of a.csv have no user, item or rating and are left out"]
    refuses(path, ", line 6: user id is blank", missing="2.5")
    filled = put(tmp_path / "b.csv", b"user,item,rating\n1,1,3\n1,2,null\n")
    assert read(filled, Reading(missing="2.5"), told.append).ratings.tolist() == [3, 2.5]
    assert told[-1] == "1 of 2 ratings of b.csv are missing and taken as 2.5"
    for wrong in ("keep", "nan"):
        with pytest.raises(HushrecError, match=f"missing={wrong!r} is unknown; choose refuse, drop, or a rating"):
            read(path, Reading(missing=wrong))


def test_faults_behind_dropped_rows_have_their_line(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", b"user,item,rating\n1,1,\n1,2,3\n1,2,4\n")
    refuses(path, ", line 4: user 1 and item 2 were there before", missing="drop")
    refuses(put(tmp_path / "b.csv", b"user,item,rating\n1,1,\n"), ": there are no rows left", missing="drop")


SECONDS = [100_000_000, 1_700_000_000]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["1700000000", "100000000"], SECONDS[::-1]),
        (["1700000000123", "100000000000"], SECONDS[::-1]),
        (["1700000000123456", "100000000000000"], SECONDS[::-1]),
        (["1700000000123456789", ""], [SECONDS[1], -1]),
        (["1700000000.75", "100000000.0"], SECONDS[::-1]),
        (["2023-11-14T22:13:20Z", "1973-03-03T09:46:40+00:00"], SECONDS[::-1]),
        (["2023-11-15T00:13:20.987654+02:00", "1973-03-03T09:46:40Z"], SECONDS[::-1]),
        (["2023-11-14 22:13:20.123456789", "1973-03-03 09:46:40"], SECONDS[::-1]),
        (["2023-11-14T22:13:20", "1973-03-03T09:46:40Z"], SECONDS[::-1]),
        (["2023-11-14", "1973-03-03"], [1_699_920_000, 99_964_800]),
        (["20231114", "19730303"], [1_699_920_000, 99_964_800]),
        (["20231114", ""], [1_699_920_000, -1]),
        (["20231114T221320Z", "19730303T094640"], SECONDS[::-1]),
        (["2023-11-14t22:13:20z", "1973-03-03 09:46:40 UTC"], SECONDS[::-1]),
        (["2023-11-14T22:13:20.5Z", "1973-03-03"], [SECONDS[1], 99_964_800]),
        (["2023-11-14 22:13", ""], [SECONDS[1] - 20, -1]),
    ],
)
@pytest.mark.parametrize("column", ["timestamp", "time", "ts", "date", "DateTime", "created_at", "rated_at"])
def test_times_in_all_units_and_forms(tmp_path: Path, times: list[str], expected: list[int], column: str) -> None:
    lines = [f"user,item,{column}", *(f"1,{item},{text}" for item, text in enumerate(times, 1))]
    assert read(put(tmp_path / "a.csv", "\n".join(lines).encode())).timestamps.tolist() == expected


def test_a_guessed_unit_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    read(put(tmp_path / "a.csv", b"user,item,ts\n1,1,1700000000123\n"), notify=told.append)
    assert told == ["times of a.csv are read as milliseconds"]
    path = put(tmp_path / "b.csv", b"user,item,ts\n1,1,2024-01-31\n1,2,1700000000\n")
    refuses(path, ", line 3: timestamp is '1700000000', others are dates; write all in one way")


def test_json_lines(tmp_path: Path) -> None:
    assert_says_the_same(read(put(tmp_path / "a.jsonl", json_lines(ROWS))))
    mixed = [{**ROWS[0], "item": "7"}, {"more": {"x": [1]}}, *ROWS[1:]]
    refuses(put(tmp_path / "b.jsonl", json_lines(mixed)), ", line 2: rating is missing")
    assert_says_the_same(read(tmp_path / "b.jsonl", Reading(missing="drop")))
    late = [{"user": "a", "item": 1}, {"user": "a", "item": 2, "rating": 3}]
    refuses(put(tmp_path / "c.jsonl", json_lines(late)), ", line 1: rating is missing")
    refuses(put(tmp_path / "d.jsonl", json_lines(ROWS) + b"\n\n{oops}\n"), ", line 5: not an object in JSON")
    refuses(put(tmp_path / "e.json", json.dumps(ROWS).encode()), ": a list in JSON; write JSON lines")
    nested = [{"user": {"id": 1}, "item": 2}]
    refuses(put(tmp_path / "f.jsonl", json_lines(nested)), ": the columns are user struct<id: int64>, item int64")


def test_a_folder_of_parts(tmp_path: Path) -> None:
    folder = tmp_path / "ratings"
    folder.mkdir()
    head, *lines = RATINGS.splitlines()
    put(folder / "_SUCCESS", b"")
    put(folder / "part-00000.csv", "\n".join([head, lines[0]]).encode())
    put(folder / "part-00001.csv.gz", gzip.compress("\n".join([head, *lines[1:]]).encode()))
    data = read(folder)
    assert_says_the_same(data)
    assert data.name == "ratings"
    put(folder / "part-00002.csv", f"{head}\nann,x,2,1\nann,7,2,1\n".encode())
    with pytest.raises(HushrecError, match=r"part-00002\.csv, line 3: user ann and item 7 were there before"):
        read(folder)
    put(folder / "part-00002.csv", b"user,item\nann,8\n")
    refuses(folder, ": its parts have different columns")


def test_parquet_with_a_column_twice(tmp_path: Path) -> None:
    table = pa.table([[1], [2], [3]], names=["user", "item", "item"])
    pa_parquet.write_table(table, tmp_path / "a.parquet")
    refuses(tmp_path / "a.parquet", ": two columns are named 'item'; rename one of them")


def test_a_dictionary_with_values_that_no_row_has(tmp_path: Path) -> None:
    users = pa.DictionaryArray.from_arrays(pa.array([2, 0]), ["b", "", "a"])
    pa_parquet.write_table(pa.table({"user": users, "item": [1, 2]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").user_ids.tolist() == ["a", "b"]


def test_columns_as_a_mapping(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", b"buyer,sku,stars\n1,2,3\n")
    assert load(path, columns={"user": "buyer", "item": "sku"}).ratings.tolist() == [3]
    for wrong, message in (
        ({"buyer": "user"}, "columns= has 'buyer'; choose of: user, item"),
        (["user"], "as in {"),
    ):
        with pytest.raises(HushrecError, match=message):
            load(path, columns=wrong)
