from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import Reading, load, read
from hushrec.errors import HushrecError

RATINGS = "user,item,rating\n1,7,3\n2,30,4\n"
RECBOLE_HEADER = "item_id:token\tmovie_title:token_seq\trelease_year:token\n"
PLAIN_FLAGS = "|0" * 19


@pytest.mark.parametrize(
    ("ratings_name", "name", "content", "expected"),
    [
        ("shop.csv", "shop-items.csv", 'sku,Item,Name\nx,30,"Lamp, red"\n', ["", "Lamp, red"]),
        ("a.inter", "a.item", RECBOLE_HEADER + "7\tHeat\t1995\n30\tX\t?\n",
         ["Heat (1995)", "X"]),
        ("ratings.csv", "movies.csv", "movieId,title,genres\n7,Heat (1995),Crime\n", ["Heat (1995)", ""]),
        ("ratings.dat", "movies.dat", "7::Léon::Crime\n30::Ed Wood::Drama\n", ["Léon", "Ed Wood"]),
        ("u.data", "u.item", f"7|Léon (1994)|01-Jan-1994||http://x{PLAIN_FLAGS}\n", ["Léon (1994)", ""]),
    ],
)  # fmt: skip
def test_titles_come_from_the_file_beside(
    tmp_path: Path, ratings_name: str, name: str, content: str, expected: list[str]
) -> None:
    (tmp_path / ratings_name).write_text(RATINGS)
    encoding = "latin-1" if name in ("u.item", "movies.dat") else "utf-8"
    (tmp_path / name).write_bytes(content.encode(encoding))
    assert read(tmp_path / ratings_name).titles.tolist() == expected


COMEDY_AND_WAR = "|0" * 5 + "|1" + "|0" * 11 + "|1" + "|0"


@pytest.mark.parametrize(
    ("ratings_name", "name", "content", "expected"),
    [
        ("shop.csv", "shop-items.csv", 'item,name,Genre\n30,x,"Drama, Slice of Life"\n7,y,\n',
         ["", "Drama|Slice of Life"]),
        ("shop.csv", "shop-items.csv", "item,genres\n7,War|Sci-Fi\n30,(no genres listed)\n", ["War|Sci-Fi", ""]),
        ("a.inter", "a.item", "item_id:token\tmovie_title:token_seq\tclass:token_seq\n7\tHeat\tAction Film-Noir\n",
         ["Action|Film-Noir", ""]),
        ("ratings.dat", "movies.dat", "7::Léon::Crime|Children's\n30::Ed Wood::Drama\n",
         ["Crime|Children's", "Drama"]),
        ("u.data", "u.item",
         f"7|Léon|01-Jan-1994||http://x{COMEDY_AND_WAR}\n30|?||||1{'|0' * 18}\n", ["Comedy|War", ""]),
    ],
)  # fmt: skip
def test_genres_come_from_the_file_beside(
    tmp_path: Path, ratings_name: str, name: str, content: str, expected: list[str]
) -> None:
    (tmp_path / ratings_name).write_text(RATINGS)
    encoding = "latin-1" if name in ("u.item", "movies.dat") else "utf-8"
    (tmp_path / name).write_bytes(content.encode(encoding))
    assert read(tmp_path / ratings_name).genres.tolist() == expected


def test_no_genres(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    assert read(tmp_path / "shop.csv").genres is None
    (tmp_path / "shop-items.csv").write_text("item,title\n7,red\n")
    assert read(tmp_path / "shop.csv").genres is None


def test_titles_from_parquet(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    pa_parquet.write_table(pa.table({"item": [30, 7], "title": ["Lamp", None]}), tmp_path / "shop-items.parquet")
    assert read(tmp_path / "shop.csv").titles.tolist() == ["", "Lamp"]


def test_no_titles(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    assert read(tmp_path / "shop.csv").titles is None
    (tmp_path / "shop-items.csv").write_text("item,colour\n7,red\n")
    assert read(tmp_path / "shop.csv").titles is None


def test_damaged_titles_name_their_file(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    (tmp_path / "shop-items.csv").write_text("item,title\n7,red,big\n")
    with pytest.raises(
        HushrecError, match=r"shop-items\.csv, line 2: expected 2 columns \(item, title\), found 3"
    ):
        read(tmp_path / "shop.csv")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("about.csv", "sku,name,category,year\n7,Heat,\"Crime, Drama\",1995\n8,Alien,Horror,1979\n"),
        ("about.tsv", "item\ttitle\tgenres\tyear\n7\tHeat\tCrime|Drama\t1995\n8\tAlien\tHorror\t1979\n"),
        ("about.jsonl", '{"id": 7, "title": "Heat", "genres": ["Crime", "Drama"], "year": 1995}\n'
                        '{"id": 8, "title": "Alien", "genres": ["Horror"], "year": 1979}\n'),
    ],
)  # fmt: skip
def test_a_named_file_about_items(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    (tmp_path / "shop-items.csv").write_text("item,title\n7,beside\n")
    (tmp_path / name).write_text(content)
    told: list[str] = []
    data = read(tmp_path / "shop.csv", Reading(items=tmp_path / name), told.append)
    assert data.titles.tolist() == ["Heat", ""]
    assert data.genres.tolist() == ["Crime|Drama", ""]
    assert {column: texts.tolist() for column, texts in data.item_columns.items()} == {"year": ["1995", ""]}
    assert told == [f"{name}: 1 of its 2 items are not in the ratings; it says nothing of 1 of the 2 that are"]


def test_a_named_file_about_other_items(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    for content, message in (
        ("item,title\n1,a\n", "none of its 1 items is rated"),
        ("x,y\n1,2\n", "no item column"),
    ):
        (tmp_path / "about.csv").write_text(content)
        with pytest.raises(HushrecError, match=message):
            read(tmp_path / "shop.csv", Reading(items=tmp_path / "about.csv"), print)


def test_known_data_with_a_named_file(tmp_path: Path) -> None:
    (tmp_path / "about.csv").write_text("item,title\n3,Heat\n")
    data = load("synthetic:users=20,items=9,ratings=80", items=tmp_path / "about.csv")
    assert data.titles[data.item_number(3)] == "Heat"
    assert data.sha256 == load("synthetic:users=20,items=9,ratings=80").sha256


def test_long_texts_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text(RATINGS)
    (tmp_path / "shop-items.csv").write_text(f"item,colour,story\n7,red,{'x' * 500}\n")
    assert list(read(tmp_path / "shop.csv").item_columns) == ["colour"]


def test_a_frame_may_say_what_is_known_of_items(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(RATINGS)
    frame = pa.table({"item": [30, 8], "title": ["Lamp,\nred", "x"], "price": [2.5, None]})
    told: list[str] = []
    data = load(tmp_path / "a.csv", items=frame, notify=told.append)
    assert data.titles.tolist() == ["", "Lamp, red"]
    assert data.item_columns["price"].tolist() == ["", "2.5"]
    assert told == ["items: 1 of its 2 items are not in the ratings; it says nothing of 1 of the 2 that are"]
    with pytest.raises(HushrecError, match="items: no item column; name one item"):
        load(tmp_path / "a.csv", items={"x": [1]})


def test_columns_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    """As catalogues in JSON have them; the item and its title must be text."""
    (tmp_path / "a.csv").write_text(RATINGS)
    (tmp_path / "b.jsonl").write_text('{"item": 7, "details": {"a": 2}, "pictures": [{"url": "x"}], "year": 9}\n')
    assert dict(load(tmp_path / "a.csv", items=tmp_path / "b.jsonl").item_columns).keys() == {"year"}
    (tmp_path / "c.jsonl").write_text('{"item": 7, "title": {"en": "x"}, "other": {"y": 1}}\n')
    with pytest.raises(HushrecError, match="the columns are item int64, title struct<en: string>; exp"):
        load(tmp_path / "a.csv", items=tmp_path / "c.jsonl")
