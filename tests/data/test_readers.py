from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import Columns, Interactions, Reading, read
from hushrec.errors import HushrecError

# The same three ratings in every form: users 2, 10; items 7, 30.
RECBOLE_HEADER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
RECBOLE = RECBOLE_HEADER + "10\t7\t3\t100\n2\t30\t4.5\t200.0\n2\t7\t1\t300\n"
U_DATA = "10\t7\t3\t100\n2\t30\t4.5\t200\n2\t7\t1\t300\n"
RATINGS_DAT = "10::7::3::100\n2::30::4.5::200\n2::7::1::300\n"
RATINGS_CSV = "userId,movieId,rating,timestamp\n10,7,3.0,100\n2,30,4.5,200\n2,7,1.0,300\n"
SEMICOLONS = '"User-ID";"ISBN";"Book-Rating";"ts"\n"10";"7";"3";"100"\n"2";"30";"4.5";"200"\n"2";"7";"1";"300"\n'
DATES = (
    "uid,item,score,date,note\r\n10,7,3,1970-01-01T00:01:40,a\r\n"
    '2,30,4.5,1970-01-01 00:03:20,"b,c"\r\n\r\n2,7,1,1970-01-01 00:05:00,\r\n'
)
FORMS = {
    "small.inter": RECBOLE,
    "u.data": U_DATA,
    "u1.base": U_DATA,
    "ratings.dat": RATINGS_DAT,
    "ratings.csv": RATINGS_CSV,
    "marked.csv": "\ufeff" + RATINGS_CSV,
    "marked.tsv": "\ufeff" + U_DATA,
    "books.csv": SEMICOLONS,
    "dates.csv": DATES,
    "tabs.tsv": RATINGS_CSV.replace(",", "\t"),
    "bars.txt": RATINGS_CSV.replace(",", "|"),
    "no-end.csv": RATINGS_CSV.rstrip("\n"),
}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(folder: Path, name: str = "small.parquet", **columns: object) -> Path:
    pa_parquet.write_table(pa.table(columns), folder / name)
    return folder / name


def assert_is_the_small_set(data: Interactions) -> None:
    assert data.user_ids.tolist() == [2, 10]
    assert data.item_ids.tolist() == [7, 30]
    assert data.users.tolist() == [1, 0, 0]
    assert data.items.tolist() == [0, 1, 0]
    assert data.ratings.tolist() == [3, 4.5, 1]
    assert data.timestamps.tolist() == [100, 200, 300]
    assert data.rating_range == (1, 4.5)


def fails(path: Path, message: str, **options: object) -> None:
    """Reading fails with this message, one line that starts with the path."""
    with pytest.raises(HushrecError) as caught:
        read(path, Reading(**options))
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FORMS)
def test_every_text_form_says_the_same(tmp_path: Path, name: str) -> None:
    data = read(write(tmp_path, name, FORMS[name]))
    assert_is_the_small_set(data)
    assert data.name == name
    assert data.sha256 == read(write(tmp_path, "other.csv", RATINGS_CSV)).sha256


@pytest.mark.parametrize(
    "columns",
    [
        {"user": [10, 2, 2], "item": [7, 30, 7], "rating": [3, 4.5, 1], "timestamp": [100, 200, 300]},
        {
            "uid": ["10", "2", "2"],
            "iid": ["7", "30", "7"],
            "stars": ["3", "4.5", "1"],
            "ts": ["100", "200", "300"],
        },
        {"user": [10.0, 2, 2], "item": [7, 30, 7], "rating": [3, 4.5, 1], "time": [100.5, 200, 300]},
        {
            "user": pa.array(["10", "2", "2"]).dictionary_encode(),
            "item": pa.array([7, 30, 7], pa.uint16()),
            "rating": pa.array([3, 4.5, 1], pa.float16()),
            "timestamp": pa.array([100_000, 200_000, 300_999], pa.timestamp("ms", "UTC")),
        },
    ],
)
def test_every_kind_of_parquet_column_says_the_same(tmp_path: Path, columns: dict) -> None:
    assert_is_the_small_set(read(write_parquet(tmp_path, **columns)))


def test_string_ids_are_kept_and_sorted(tmp_path: Path) -> None:
    data = read(write(tmp_path, "a.csv", "user,item,rating\nzoë,b 1,3\nann,007,4\n"))
    assert data.user_ids.tolist() == ["ann", "zoë"]
    assert data.item_ids.tolist() == ["007", "b 1"]
    assert data.timestamps is None
    assert data.user_number("zoë") == 1


def test_ids_with_leading_zeros_stay_apart(tmp_path: Path) -> None:
    data = read(write(tmp_path, "a.csv", "user,item,rating\n1,7,3\n1,07,4\n"))
    assert data.item_ids.tolist() == ["07", "7"]


def test_spaces_around_ids_and_columns_without_a_name(tmp_path: Path) -> None:
    data = read(write(tmp_path, "a.csv", "user, item, rating,,\n1, 7, 3,,\n1 ,8,4,,\n"))
    assert data.user_ids.tolist() == [1]
    assert data.item_ids.tolist() == [7, 8]


def test_ids_beyond_64_bits_are_text(tmp_path: Path) -> None:
    data = read(write_parquet(tmp_path, user=pa.array([2**64 - 1, 5], pa.uint64()), item=[1, 1]))
    assert data.user_ids.tolist() == ["18446744073709551615", "5"]


def test_damaged_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, user=list(range(5000)), item=list(range(5000)))
    content = bytearray(path.read_bytes())
    content[4:3000] = bytes(2996)
    path.write_bytes(content)
    fails(path, ": not a Parquet file, or a damaged one; write it again")


def test_ids_far_apart(tmp_path: Path) -> None:
    far = 2**62
    data = read(write_parquet(tmp_path, user=[far, -5, far], item=[1, 1, 2]))
    assert data.user_ids.tolist() == [-5, far]
    assert data.users.tolist() == [1, 0, 1]


def test_no_rating_column_is_implicit_and_so_is_any_file_on_demand(tmp_path: Path) -> None:
    implicit = read(write(tmp_path, "a.csv", "user,item\n10,7\n2,30\n2,7\n"))
    assert implicit.ratings is None
    assert implicit.rating_range is None
    assert read(write(tmp_path, "b.csv", RATINGS_CSV), Reading(implicit=True)).sha256 == implicit.sha256


def test_columns_named_by_the_user(tmp_path: Path) -> None:
    text = "buyer,sku,stars,user,place\n10,7,3,x,4\n2,30,4.5,x,2\n2,7,1,x,3\n"
    columns = Columns(user="buyer", item="sku", timestamp="", order="place")
    data = read(write(tmp_path, "a.csv", text), Reading(columns=columns))
    assert data.user_ids.tolist() == [2, 10]
    assert data.order.tolist() == [4, 2, 3]
    assert data.timestamps is None


def test_blank_timestamps_are_unknown(tmp_path: Path) -> None:
    data = read(write(tmp_path, "a.csv", "user,item,rating,timestamp\n1,1,1,\n1,2,2,5\n"))
    assert data.timestamps.tolist() == [-1, 5]
    nulls = read(write_parquet(tmp_path, user=[1, 1], item=[1, 2], timestamp=[None, 5]))
    assert nulls.timestamps.tolist() == [-1, 5]


def test_duplicates(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user,item,rating\n1,x,1\n1,y,5\n\n1,x,4\n")
    fails(
        path,
        ", line 5: user 1 and item x were there before (1 such rows); "
        "accept them with duplicates='last' or duplicates='mean'",
    )
    assert read(path, Reading(duplicates="last")).ratings.tolist() == [5, 4]
    assert read(path, Reading(duplicates="mean")).ratings.tolist() == [5, 2.5]
    with pytest.raises(HushrecError, match="duplicates='first' is unknown; use error, last or mean"):
        read(path, Reading(duplicates="first"))


HEAD = "user,item,rating,timestamp\n1,1,1,1\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + "1,2,3\n", ", line 3: expected 4 columns (user, item, rating, timestamp), found 3"),
        (HEAD + "1,2,3,4,5\n", ", line 3: expected 4 columns (user, item, rating, timestamp), found 5"),
        (HEAD + "\n  \n", ", line 4: expected 4 columns"),
        (HEAD + "\n1,2,good,4\n", ", line 4: rating is 'good'; expected a finite number; write numbers, or leave "
         "the column out with columns={'rating': ''}"),
        (HEAD + "1,2,,4\n", ", line 3: rating is missing (1 such rows); leave them out with missing='drop'"),
        (HEAD + "1,2,1_0,4\n", ", line 3: rating is '1_0'; expected a finite number"),
        (HEAD + "1,2,NaN,4\n", ", line 3: rating is missing (1 such rows); leave"),
        (HEAD + "1,2,-inf,4\n", ", line 3: rating is -inf; expected a finite number"),
        (HEAD + "1,2,1e99,4\n", ", line 3: rating is 1e+99; expected a finite number"),
        (HEAD + ",2,3,4\n", ", line 3: user id is blank or not text; expected an id"),
        (HEAD + "1, ,3,4\n", ", line 3: item id is blank or not text; expected an id"),
        (HEAD + "1,2,3,soon\n", ", line 3: timestamp is 'soon'; expected Unix seconds or a date like"),
        (HEAD + "1,2,3,inf\n", ", line 3: timestamp is inf; expected Unix seconds"),
        (HEAD + "1,2,3,99999999999999999999\n", ", line 3: timestamp is 1e+20; expected Unix seconds"),
        (HEAD + '1,"2,3,4\n5,6,7,8\n', ", line 3: expected 4 columns (user, item, rating,"),
        (HEAD + '"a\nb",2,3,4\n1,3,x,4\n', ", line 5: rating is 'x'; expected a finite number"),
        (HEAD.replace("\n", "\r") + "1,2,x,4\r", ", line 3: rating is 'x'; expected a finite number"),
        (HEAD + f"{'a' * 3_000_000},2,3,4\n", ", after line 2: field larger than field limit"),
        (HEAD.encode() + b"1,\xff,3,4\n", ", line 3: not UTF-8 text; expected .inter, u.data"),
        ("user,item,rating,timestamp\n", ": there are no rows; expected"),
        ("user,item,rating,timestamp", ": there are no rows; expected"),
        ("", ": the file is empty; expected"),
        ("\n\n", ": the file is empty; expected"),
        ("  \n\t\n", ": the file is empty; expected"),
        (HEAD + "1,2,3,2024-06-31\n", ", line 2: timestamp is '1', others are dates"),
        ("buyer,item\n1,2\n", ": no user column among: buyer, item; name it with columns={'user': NAME}"),
        ("user,stuff\n1,2\n", ": no item column among: user, stuff; name it with columns={'item': NAME}"),
        ("once upon a time\n", ": no user column and no item column among: once upon a time; name them"),
        ("a;b;c\n1;2;x\n", ": no user column and no item column among: a, b, c; name them with "
         "columns={'user': NAME, 'item': NAME}; or have the first line name the columns"),
        ("user,user\n1,2\n", ", line 1: two columns have the same name; rename one of: user, user"),
        ("1,2,3,4,5\n", ", line 1: 5 columns and no header; expected a header line, or user, item"),
        (b"\x7fELF\0\0\1\2", ": not a table of text; expected .inter, u.data"),
        (b"\x89PNG\r\n\xff\xfe", ": not a table of UTF-8 text; expected"),
        (b"PAR1 but not really", ": not a Parquet file, or a damaged one; write it again"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(tmp_path: Path, content: str | bytes, message: str) -> None:
    fails(write(tmp_path, "a.csv", content), message)


def test_bad_bytes_deep_in_a_long_file(tmp_path: Path) -> None:
    rows = "".join(f"{row},1,1,1\n" for row in range(2, 20_000))
    path = write(tmp_path, "a.csv", HEAD.encode() + rows.encode() + b"\xff\xfe,1,1,1\n")
    fails(path, ", line 20001: not UTF-8 text; expected")


def test_line_numbers_of_other_forms(tmp_path: Path) -> None:
    fails(write(tmp_path, "ratings.dat", RATINGS_DAT + "3::7::x::1\n"), ", line 4: rating is 'x'")
    fails(write(tmp_path, "short.dat", RATINGS_DAT + "3::7\n"), ", line 4: expected 4 columns")
    fails(write(tmp_path, "u.data", U_DATA + "\t7\t1\t1\n"), ", line 4: user id is blank")
    fails(write(tmp_path, "a.inter", RECBOLE + "5\t7\n"), ", line 5: expected 4 columns (user_id, item_id,")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [1, None], "item": [1, 2]}, ", row 2: user id is missing; expected a value"),
        ({"user": [1, 1], "item": [1, 1.5]}, ", row 2: item id is 1.5; expected a whole number or text"),
        ({"user": [1, 1], "item": [1, 2], "rating": [1, None]}, ", row 2: rating is missing"),
        ({"user": [1, 1], "item": [1, 2], "rating": [1, float("nan")]}, ", row 2: rating is missing"),
        ({"user": ["a", " "], "item": [1, 2]}, ", row 2: user id is blank"),
        ({"user": ["a", "b\0"], "item": [1, 2]}, ", row 2: user id is blank or not text"),
        (
            {"user": [[1]], "item": [1]},
            ": the columns are user list<element: int64>, item int64; expected numbers",
        ),
        (
            {"user": [b"\xff"], "item": [1]},
            ": the columns are user binary, item int64; expected numbers and text",
        ),
        ({"user": [1], "item": [1], "timestamp": [1e300]}, ", row 1: timestamp is 1e+300; expected Unix"),
        ({"user": [1, 1], "item": [1, 1]}, ", row 2: user 1 and item 1 were there before"),
        ({"user": pa.array([], pa.int32()), "item": pa.array([], pa.int32())}, ": there are no rows"),
    ],
)
def test_what_is_wrong_in_parquet(tmp_path: Path, columns: dict, message: str) -> None:
    fails(write_parquet(tmp_path, **columns), message)


def test_a_header_may_hold_a_number(tmp_path: Path) -> None:
    """As `reset_index().to_csv()` writes it where a column had no name."""
    data = read(write(tmp_path, "a.csv", "user,item,0\n1,2,3\n"), Reading(columns={"rating": "0"}))
    assert (data.user_ids.tolist(), data.ratings.tolist()) == ([1], [3])


def test_the_line_of_a_rating_outside_the_range_is_right_where_rows_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user,item,rating\n1,1,5\n1,1,4\n1,2,9\n")
    fails(path, ", line 4: rating is 9; expected 1 to 5", rating_range=(1, 5), duplicates="last")


def test_a_fault_is_one_line_whatever_the_ids_hold(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'user,item\n"a\nb",1\n"a\nb",1\n')
    fails(path, ", line 4: user a b and item 1 were there before")


def test_rating_outside_the_range(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", RATINGS_CSV)
    assert read(path, Reading(rating_range=(0.5, 5))).rating_range == (0.5, 5)
    fails(path, ", line 3: rating is 4.5; expected 1 to 4", rating_range=(1, 4))
    with pytest.raises(HushrecError, match=r"rating range 5,1 is empty; give \(LOW, HIGH\)"):
        read(path, Reading(rating_range=(5, 1)))


def test_column_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", RATINGS_CSV)
    fails(
        path,
        ": no column 'buyer' among: userId, movieId, rating, timestamp; name it with columns={'user': NAME}",
        columns=Columns(user="buyer"),
    )
    fails(
        path,
        ": no column 'buyer' and no column 'stars' among: userId, movieId, rating, timestamp; name them with "
        "columns={'user': NAME, 'rating': NAME}",
        columns=Columns(user="buyer", rating="stars"),
    )
    fails(path, ": one column has two uses", columns=Columns(user="movieId"))
    fails(write(tmp_path, "u.data", U_DATA), ": has no header line", columns=Columns(user="user"))


@pytest.mark.parametrize(
    ("content", "roles"),
    [
        ("u39,i10\nu7,i2\nu39,i4\n", "user item"),
        ("39,10\n7,2\n", "user item"),
        ("u39,i10,1600000000\nu7,i2,1600000100\n", "user item timestamp"),
        ("39;10;2024-01-31\n7;2;2024-02-01T10:00Z\n", "user item timestamp"),
        ("ann,lamp,2024-01-31 10:00\nann,bed,2024-02-01 11:00\n", "user item timestamp"),
        ("39,10,5\n7,2,3\n", "user item rating"),
        ("39,10,5,1600000000\n7,2,3,1600000100\n", "user item rating timestamp"),
    ],
)
def test_without_a_header(tmp_path: Path, content: str, roles: str) -> None:
    """A first line of texts was taken for a header, and times for ratings."""
    data = read(write(tmp_path, "a.csv", content))
    found = {"rating": data.ratings, "timestamp": data.timestamps}
    assert roles.split() == ["user", "item", *(role for role, values in found.items() if values is not None)]
    assert len(data) == len(content.splitlines())


def test_a_line_with_a_named_column_is_a_header(tmp_path: Path) -> None:
    """Also if it has a number in it, or comes again."""
    content = "wer,was,2024\na,x,1\nwer,y,2\n"
    data = read(
        write(tmp_path, "a.csv", content), Reading(columns={"user": "wer", "item": "was", "rating": "2024"})
    )
    assert data.user_ids.tolist() == ["a", "wer"]


def test_a_column_can_be_left_out_without_a_header(tmp_path: Path) -> None:
    data = read(write(tmp_path, "a.csv", "1,2,3,4\n"), Reading(columns={"timestamp": ""}))
    assert data.timestamps is None


@pytest.mark.parametrize(
    ("content", "roles"),
    [
        ("i1\ni2\n", "item"),
        ("lamp\n", "item"),
        ("1\n2\n", "item"),
        ("i1,5\ni2,3\n", "item rating"),
        ("1,5\n2,3\n", "item rating"),
        ("i1;5;1600000000\ni2;3;1600000100\n", "item rating timestamp"),
        ("i1;1600000000\ni2;1600000100\n", "item timestamp"),
        ("ann,i1,5\nann,i2,3\n", "item rating"),
        ("7,1\n7,2\n", "item"),
    ],
)
def test_one_user_without_a_header(tmp_path: Path, content: str, roles: str) -> None:
    data = read(write(tmp_path, "a.csv", content), Reading(one_user=True))
    found = {"rating": data.ratings, "timestamp": data.timestamps}
    assert data.num_users == 1
    assert roles.split() == ["item", *(role for role, values in found.items() if values is not None)]
    assert len(data) == len(content.splitlines())


def test_order_that_is_no_number(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user,item,rating,rank\n1,1,1,1\n1,2,2,b\n")
    fails(path, ", line 3: order is 'b'; expected a whole number", columns=Columns(order="rank"))
    path = write(tmp_path, "b.csv", "user,item,rating,rank\n1,1,1,9999999999\n")
    fails(path, ", line 2: order is 9999999999; expected a whole number from 0", columns=Columns(order="rank"))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    fails(tmp_path / "none.csv", ": no such file; check the path")
    fails(tmp_path, " is a folder; give the file of ratings in it")


def test_round_trip_through_csv_and_parquet(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    pairs = draws.permutation(60 * 40)[:900]
    users, items = pairs // 40 + 5, pairs % 40 * 1000
    ratings, seconds = draws.integers(1, 11, 900) / 2, draws.integers(0, 10**9, 900)
    rows = zip(users, items, ratings, seconds, strict=True)
    text = "user,item,rating,timestamp\n" + "".join(f"{u},{i},{r},{s}\n" for u, i, r, s in rows)
    from_csv = read(write(tmp_path, "a.csv", text))
    from_parquet = read(write_parquet(tmp_path, user=users, item=items, rating=ratings, timestamp=seconds))
    for data in (from_csv, from_parquet):
        assert data.user_ids[data.users].tolist() == users.tolist()
        assert data.item_ids[data.items].tolist() == items.tolist()
        assert data.ratings.tolist() == ratings.tolist()
        assert data.timestamps.tolist() == seconds.tolist()
    assert from_csv.sha256 == from_parquet.sha256
