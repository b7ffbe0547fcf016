import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from hushrec.data import load
from hushrec.data.catalogue import find_entry, locate
from hushrec.data.interactions import Interactions
from hushrec.data.recipes import gowalla_10core, gowalla_20, steam_200k, steam_200k_hours
from hushrec.errors import HushrecError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the catalogue looks into, and nowhere else."""
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def source(real_folder: Path, folder: Path) -> Path:
    return real_folder


def games_of(data: Interactions) -> list[list[str]]:
    assert data.titles is not None
    rows = data.by_user()
    return [data.titles[part].tolist() for part in np.split(rows.items, rows.starts[1:-1])]


# --- Steam -------------------------------------------------------------------------------------------------

ROWS = [
    *((9, f"Game {n}", "purchase") for n in range(4)),  # too few
    *((7, title, "purchase") for title in ("Zoo", "Game 1", "War 40,000 Dawn", "War 40,000 Dusk", "Ape, The")),
    (7, "Unbought", "play"),
    (7, "Zoo", "purchase"),  # again
    (7, "Game 3", "purchase"),
    *((3, f"Game {n}", "purchase") for n in (5, 4, 3, 2, 1)),
]


def write_steam(path: Path, rows: list[tuple[int, str, str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([*row, "1.0", 0] for row in rows)
    return path


def test_steam_by_hand(tmp_path: Path) -> None:
    """Two "War 40" are one game: user 7 has 5 of them. User 9 with 4 goes, but its games keep their numbers."""
    data = steam_200k(write_steam(tmp_path / "steam-200k.csv", ROWS))
    assert data.user_ids.tolist() == [0, 1]  # 7 before 3, as they appear
    assert data.titles is not None
    assert data.titles.tolist() == [
        *("Game 0", "Game 1", "Game 2", "Game 3", "Zoo", "War 40", "Ape", "Game 5", "Game 4"),
    ]
    assert games_of(data) == [
        ["Game 1", "Game 3", "Zoo", "War 40", "Ape"],
        ["Game 1", "Game 2", "Game 3", "Game 5", "Game 4"],
    ]


def test_steam_with_four_distinct_games_is_left_out(tmp_path: Path) -> None:
    rows = [row for row in ROWS if row[:2] != (7, "Game 3")]
    assert len(games_of(steam_200k(write_steam(tmp_path / "steam-200k.csv", rows)))) == 1


@pytest.mark.parametrize("text", ["1,Game,purchase\n", "one,Game,purchase,1.0,0\n", ",Game,purchase,1.0,0\n"])
def test_steam_file_of_another_kind_is_refused(folder: Path, text: str) -> None:
    (folder / "steam-200k.csv").write_text(text)
    with pytest.raises(
        HushrecError, match=r"not steam-200k \(.*expected rows of user, title, behaviour, hours, 0\);"
    ):
        load("steam-200k")


def test_other_purchases_are_refused(folder: Path) -> None:
    write_steam(folder / "steam-200k.csv", ROWS)
    with pytest.raises(HushrecError, match=r"digest of the data .*, expected a99db56a"):
        load("steam-200k")


def test_real_steam_from_all_purchases(source: Path, folder: Path) -> None:
    prepared = source / "steam-200k.parquet"
    for name in ("steam-200k-full.parquet", "steam-200k-full-items.parquet"):
        (folder / name).symlink_to(source / name)
    data = load("steam-200k")
    assert (data.num_users, data.num_items, len(data)) == (3_753, 5_134, 114_713)
    titles = pa_parquet.read_table(source / "steam-200k-items.parquet")["title"].to_pylist()
    assert data.titles is not None
    assert data.titles.tolist() == titles
    (folder / prepared.name).symlink_to(prepared)
    assert locate(find_entry("steam-200k")).address == str(folder / prepared.name)
    assert load("steam-200k").sha256 == data.sha256


def test_real_steam_from_the_form_of_kaggle(source: Path, folder: Path) -> None:
    """The file as Kaggle has it, made again from all purchases: each with a row of hours after it, if played."""
    table = pa_parquet.read_table(source / "steam-200k-full.parquet")
    items = pa_parquet.read_table(source / "steam-200k-full-items.parquet")
    title_of = dict(zip(items["item"].to_pylist(), items["title"].to_pylist(), strict=True))
    rows = []
    columns = (table[name].to_pylist() for name in ("user", "item", "hours"))
    for user, item, hours in zip(*columns, strict=True):
        rows += [
            (user, title_of[item], what) for what in (["purchase"] if hours is None else ["purchase", "play"])
        ]
    write_steam(folder / "steam-200k.csv", rows)
    data = load("steam-200k")
    assert (data.num_users, data.num_items, len(data)) == (3_753, 5_134, 114_713)


def test_steam_hours_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "steam-200k-full.parquet"
    hours = pa.array([9.0, 1.0, 0.9, None, 0.0], pa.float32())
    pa_parquet.write_table(pa.table({"user": [7, 7, 7, 3, 3], "item": [1, 2, 4, 2, 1], "hours": hours}), path)
    items = pa.table({"item": [1, 2, 4], "title": ["Zoo", "Ape", "Cat"]})
    pa_parquet.write_table(items, tmp_path / "steam-200k-full-items.parquet")
    data = steam_200k_hours(path)
    assert data.titles is not None
    assert data.titles.tolist() == ["Zoo", "Ape", "Cat"]
    assert data.rating_range == (0.0, 1.0)
    rows = data.by_user()
    assert rows.ratings is not None
    assert (rows.items.tolist(), rows.ratings.tolist()) == ([0, 1, 0, 1, 2], [0, 0, 1, 1, 0])


def test_real_steam_hours_come_in_no_order_of_hours(source: Path, folder: Path) -> None:
    """In the source a user's most played games come first, so that no positive ever follows a negative."""
    for name in ("steam-200k-full.parquet", "steam-200k-full-items.parquet"):
        (folder / name).symlink_to(source / name)
    data = load("steam-200k-hours")
    assert (data.num_users, data.num_items, len(data)) == (12_393, 5_155, 128_804)
    assert data.ratings is not None
    assert int(data.ratings.sum()) == 53_694
    rows = np.argsort(data.users, kind="stable")
    is_same, rises = np.diff(data.users[rows]) == 0, np.diff(data.ratings[rows]) > 0
    assert int((is_same & rises).sum()) > 10_000


# --- Gowalla -----------------------------------------------------------------------------------------------


def write_lightgcn(folder: Path, train: dict[int, list[int]], test: dict[int, list[int]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, part in (("train.txt", train), ("test.txt", test)):
        lines = [" ".join(map(str, [user, *items])) for user, items in part.items()]
        (folder / name).write_text("\n".join(lines) + " \n")
    return folder / "train.txt"


def test_gowalla_by_hand(tmp_path: Path) -> None:
    """Three passes, in order.

    21 users have been at places 0..18 and 100 + u, of which user 0 at 19 in its place, and user 1 at 19 and 500
    others: 20 check-ins each but for user 1. User 50 has 19, so pass 1 drops it. Places 0..18 have 21 visitors;
    19 and all others have fewer than 20: pass 2 drops them, and 19 are left to each. So pass 3 drops everyone,
    until places 20 and 21 are visited by all: then 21 are left, and user 1, with 521 but 21 now, stays as well.
    """
    train = {user: [*range(19), 19 if user == 0 else 100 + user] for user in range(21)}
    train[1] += range(1000, 1500)
    train[50] = list(range(19))
    assert len(gowalla_20(write_lightgcn(tmp_path / "none", train, {}))) == 0
    kept = gowalla_20(write_lightgcn(tmp_path / "all", train, {user: [20, 21] for user in range(21)}))
    assert kept.user_ids.tolist() == list(range(21))
    assert kept.item_ids.tolist() == [*range(19), 20, 21]
    assert len(kept) == 21 * 21


def test_gowalla_drops_users_with_more_than_500(tmp_path: Path) -> None:
    """Users 0..19 have 500 places in common; user 20 has one more of its own, in no list of 20: it stays.
    A 501st place that 20 of them know drops those 20 and leaves user 20 alone.
    """
    train = {user: list(range(500)) for user in range(21)}
    train[20] = [*range(500), 999]
    assert gowalla_20(write_lightgcn(tmp_path / "a", train, {})).num_users == 21
    test = {user: [500] for user in range(20)}
    assert gowalla_20(write_lightgcn(tmp_path / "b", train, test)).user_ids.tolist() == [20]


@pytest.mark.parametrize(("text", "reason"), [("0 1 x\n", "expected lines"), ("0 -1\n", "below 0")])
def test_lightgcn_file_of_another_kind_is_refused(folder: Path, text: str, reason: str) -> None:
    write_lightgcn(folder / "gowalla", {0: [1]}, {0: [2]})
    (folder / "gowalla" / "test.txt").write_text(text)
    with pytest.raises(HushrecError, match=rf"not gowalla-20 \(test.txt: .*{reason}"):
        load("gowalla")


def test_both_files_of_lightgcn_are_needed(folder: Path) -> None:
    write_lightgcn(folder / "gowalla", {0: [1]}, {0: [2]})
    (folder / "gowalla" / "test.txt").unlink()
    assert locate(find_entry("gowalla-20")).kind == "not available"


def test_real_gowalla_from_10core(source: Path, folder: Path) -> None:
    (folder / "gowalla-10core.parquet").symlink_to(source / "gowalla-10core.parquet")
    data = load("gowalla")
    assert (data.num_users, data.num_items, len(data)) == (8_392, 10_068, 391_238)
    assert locate(find_entry("gowalla-20")).address == str(folder / "gowalla-10core.parquet")


def test_real_gowalla_from_the_form_of_lightgcn(source: Path, folder: Path) -> None:
    table = pa_parquet.read_table(source / "gowalla-10core.parquet")
    users, items, split = (table[name].to_numpy() for name in ("user", "item", "split"))
    parts = []
    for is_part in (split < 2, split == 2):
        order = np.flatnonzero(is_part)[np.argsort(users[is_part], kind="stable")]
        who, first = np.unique(users[order], return_index=True)
        parts.append(
            dict(zip(who.tolist(), map(np.ndarray.tolist, np.split(items[order], first[1:])), strict=True))
        )
    path = write_lightgcn(folder / "gowalla", *parts)
    data = load("gowalla-20")
    assert (data.num_users, data.num_items, len(data)) == (8_392, 10_068, 391_238)
    assert (load("gowalla-10core").num_users, len(gowalla_10core(path))) == (29_858, 1_027_370)
