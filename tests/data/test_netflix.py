import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import catalogue, load, netflix
from hushrec.data.catalogue import find_entry, locate
from hushrec.data.entries import Form
from hushrec.data.interactions import Interactions
from hushrec.errors import HushrecError

Ratings = dict[int, list[tuple[int, int, str]]]  # of a film: user, rating, day

FILMS: Ratings = {
    1: [(7, 3, "2005-09-06"), (20, 5, "2004-02-29")],
    2: [(7, 4, "1999-12-31"), (300, 1, "2000-03-01"), (20, 2, "2003-01-05")],
    3: [(300, 2, "2005-12-31")],
    10: [(7, 5, "2001-01-01"), (20, 4, "2001-01-02"), (4, 1, "2001-01-03")],
    17770: [(4, 2, "2002-06-30"), (9, 2, "2002-07-01")],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the catalogue looks into, and nowhere else."""
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def text_of(film: int, films: Ratings = FILMS) -> str:
    return "\n".join([f"{film}:", *(f"{user},{rating},{day}" for user, rating, day in films[film])]) + "\n"


def combined(folder: Path, films: Ratings = FILMS) -> Path:
    """Four files, some films in each; one of them ends its lines as Windows does, one without a line's end."""
    folder.mkdir(exist_ok=True, parents=True)
    parts: list[list[int]] = [[], [], [], []]
    for place, film in enumerate(sorted(films)):
        parts[place % 4].append(film)
    for number, part in enumerate(parts, 1):
        text = "".join(text_of(film, films) for film in part)
        text = {2: text.replace("\n", "\r\n"), 3: text.rstrip("\n")}.get(number, text)
        (folder / f"combined_data_{number}.txt").write_bytes(text.encode())
    return folder / "combined_data_1.txt"


def training_set(folder: Path, films: Ratings = FILMS) -> Path:
    (folder / "training_set").mkdir(parents=True)
    for film in films:
        (folder / "training_set" / f"mv_{film:07}.txt").write_text(text_of(film, films))
    return folder / "training_set" / "mv_0000001.txt"


def write_parquet(path: Path, data: Interactions) -> None:
    users, items = data.user_ids[data.users], data.item_ids[data.items]
    columns = {"user": users, "item": items, "rating": data.ratings, "timestamp": data.timestamps}
    pa_parquet.write_table(pa.table(columns), path)


def archive(folder: Path) -> Path:
    first = training_set(folder)
    with tarfile.open(folder / "training_set.tar", "w") as tar:
        tar.add(first.parent, "training_set")
    return folder / "training_set.tar"


@pytest.mark.parametrize("write", [combined, training_set, archive])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 40, 1000])
def test_all_layouts_give_all_ratings(
    write: Callable[[Path], Path], chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is read at a time. Days are those that Python's calendar counts."""
    monkeypatch.setattr(netflix, "_CHUNK_BYTES", chunk_bytes)
    columns = netflix.read_columns(write(tmp_path))
    found = sorted(zip(*(column.tolist() for column in columns), strict=True))
    expected = []
    for film, ratings in FILMS.items():
        for user, rating, day in ratings:
            seconds = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
            expected.append((user, film, rating, int(seconds) // 86_400))
    assert found == sorted(expected)


def test_days_of_the_calendar(tmp_path: Path) -> None:
    """Every 5th day from 1995 to 2008, leap days too."""
    days = [np.datetime64("1995-01-01") + 5 * step for step in range(1000)] + [np.datetime64("2000-02-29")]
    films: Ratings = {1: [(1, 1, str(day)) for day in days]}
    assert netflix.read_columns(training_set(tmp_path, films)).days.tolist() == [day.astype(int) for day in days]


def test_films_first_then_users_by_hand(tmp_path: Path) -> None:
    """Two films: 2 and 10 have three ratings. Two users: 7 and 20 have two of those, 300 and 4 one each."""
    data = netflix.densest(combined(tmp_path), 2, 2, None)
    assert (data.item_ids.tolist(), data.user_ids.tolist()) == ([2, 10], [7, 20])
    rows = sorted(zip(data.users.tolist(), data.items.tolist(), data.ratings.tolist(), strict=True))
    assert rows == [(0, 0, 4), (0, 1, 5), (1, 0, 2), (1, 1, 4)]
    assert data.rating_range == (1.0, 5.0)
    assert data.timestamps.max() == int(datetime(2003, 1, 5, tzinfo=UTC).timestamp())


def test_ties_go_to_the_lower_id(tmp_path: Path) -> None:
    """The third film: 1 and 17770 have two ratings each. The third user of 1, 2, 10: 4 and 300 have one each."""
    data = netflix.densest(combined(tmp_path), 3, 3, None)
    assert (data.item_ids.tolist(), data.user_ids.tolist()) == ([1, 2, 10], [4, 7, 20])


def test_the_number_of_ratings_decides_between_the_readings(tmp_path: Path) -> None:
    """One film, one user. Film 1 is the most popular; of its users 5 comes first, by its id: 1 rating. User 8, the
    most active of all, has not rated it: 0 ratings. User first: 1 rating. With two films, user first, it is 2.
    """
    films: Ratings = {
        1: [(user, 3, "2005-01-01") for user in (5, 6, 7)],
        **{film: [(8, 4, "2005-01-01")] for film in (2, 3)},
    }
    path = combined(tmp_path, films)
    first = netflix.densest(path, 1, 1, 1)
    assert (first.item_ids.tolist(), first.user_ids.tolist()) == ([1], [5])
    assert len(netflix.densest(path, 1, 1, 0)) == 0
    third = netflix.densest(path, 2, 1, 2)
    assert (third.item_ids.tolist(), third.user_ids.tolist()) == ([2, 3], [8])
    with pytest.raises(
        HushrecError, match=r"have 1 ratings \(by other readings 0 or 1\), the published set has 9"
    ):
        netflix.densest(path, 1, 1, 9)


@pytest.mark.parametrize(
    "text",
    [
        "7,3,2005-09-06\n",  # of no film
        "1:\n7,6,2005-09-06\n",
        "1:\n7,3,2005-13-06\n",
        "1:\n7,3,2005-9-06\n",
        "1:\n7,3\n",
        "1:\n7,3,2005-09-06,9\n",
        "1: 7\n",
        "one:\n",
        "40000:\n",
        "1:\n123456789,3,2005-09-06\n",
        "1:\n-7,3,2005-09-06\n",
        "1:\n7",
    ],
)
def test_lines_of_another_kind_are_refused(text: str, folder: Path) -> None:
    """In one line, with the file's name and without what the line says."""
    combined(folder)
    (folder / "combined_data_3.txt").write_text(text)
    with pytest.raises(HushrecError) as caught:
        load("nf5k5k")
    assert "combined_data_3.txt: expected lines of FILM: and of USER,RATING,YEAR-MONTH-DAY" in str(caught.value)
    assert "2005" not in str(caught.value)


def test_a_broken_archive_is_refused(folder: Path) -> None:
    (folder / "training_set.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(HushrecError, match=r"not nf5k5k \(training_set.tar is no archive of tar, or not whole\)"):
        load("nf5k5k")


@pytest.mark.parametrize("write", [combined, training_set, archive])
@pytest.mark.parametrize("inside", ["", "netflix"])
def test_other_counts_are_refused(write: Callable[[Path], Path], inside: str, folder: Path) -> None:
    """A few films are not the Netflix Prize."""
    path = write(folder / inside)
    with pytest.raises(HushrecError, match=r"have 11 ratings .*, the published set has 7,944,473\); delete it"):
        load("nf5k5k")
    assert locate(find_entry("nf5k5k")).address == str(path)


def test_a_prepared_file_has_its_counts_checked(folder: Path) -> None:
    write_parquet(folder / "nf5k5k.parquet", netflix.densest(combined(folder), 2, 2, None))
    with pytest.raises(HushrecError, match=r"\(2, 2 and 4, expected 5,000 users, 5,000 items and 7,944,473 rat"):
        load("nf5k5k")


def test_with_the_right_counts_it_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once from raw files, once from the file that was made of them: the same data."""
    entry = replace(
        find_entry("nf5k5k"),
        num_users=2,
        num_items=2,
        num_interactions=4,
        forms=(
            Form("nf5k5k.parquet", None),
            Form("combined_data_1.txt", None, recipe=lambda path: netflix.densest(path, 2, 2, 4)),
        ),
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", {"nf5k5k": entry})
    combined(folder)
    raw = load("nf5k5k")
    assert (raw.name, raw.num_users, raw.num_items, len(raw)) == ("nf5k5k", 2, 2, 4)
    write_parquet(folder / "nf5k5k.parquet", raw)
    assert load("nf5k5k").sha256 == raw.sha256


@pytest.mark.parametrize("missing", ["combined_data_2.txt", "combined_data_4.txt"])
def test_missing_files_are_asked_for(missing: str, folder: Path) -> None:
    combined(folder)
    (folder / missing).unlink()
    with pytest.raises(
        HushrecError,
        match=r"^nf5k5k needs the raw Netflix Prize files: put combined_data_1.txt to combined_data_4.txt, or "
        r"training_set.tar, or the folder training_set into a folder and set HUSHREC_DATA to that folder$",
    ):
        load("nf5k5k")
    assert locate(find_entry("nf5k5k")).kind == "not available"
