import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import CATALOGUE, Columns, Interactions, catalogue, load, read, synthetic
from hushrec.data.catalogue import _fetch_entry, _load_from, cache_folder, find_entry, locate
from hushrec.data.checking import checked
from hushrec.data.entries import Entry, Form
from hushrec.data.fetching import Download, file_digest
from hushrec.errors import HushrecError

RATINGS = "user,item,rating\n1,2,3\n5,4,5\n"


@pytest.fixture(autouse=True)
def _no_folders_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request) -> None:
    if "real_folder" in request.fixturenames:
        request.getfixturevalue("real_folder")  # reads HUSHREC_DATA before it goes
    monkeypatch.delenv("HUSHREC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A data set of two ratings and five items, `tiny`, in the catalogue, with two downloads."""
    source = tmp_path / "tiny.csv"
    source.write_text(RATINGS)
    archive = tmp_path / "tiny.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("in/ratings.csv", RATINGS)
    member = (("in/ratings.csv", "tiny/tiny.csv"),)
    draft = Entry(
        name="tiny",
        title="Tiny",
        licence="MIT",
        kind="explicit",
        rating_range=(1.0, 5.0),
        num_users=2,
        num_items=5,
        num_interactions=2,
        item_ids=range(1, 6),
        data_sha256="unknown",
        forms=(Form("tiny.csv", file_digest(source)), Form("tiny/tiny.csv", None)),
        downloads=(
            Download("publisher", "https://example.org/tiny.zip", "sha256", file_digest(archive), member),
            Download("mirror", "pip:tiny==1", "sha256", file_digest(archive), member),
        ),
        aliases=("wee",),
    )
    with pytest.raises(HushrecError) as caught:
        _load_from(draft, tmp_path)
    entry = replace(draft, data_sha256=str(caught.value).split("digest of the data ")[1][:64])
    monkeypatch.setattr(catalogue, "CATALOGUE", {"tiny": entry})
    monkeypatch.setattr(catalogue, "_ALIASES", {"wee": "tiny"})
    source.unlink()
    return entry


def never(address: str, folder: Path) -> Path:
    raise AssertionError(f"asked the network for {address}")


def put(folder: Path, name: str = "tiny.csv", text: str = RATINGS) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_folder_comes_before_cache(tiny: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate(tiny).kind == "publisher"
    cached = put(cache_folder())
    assert (locate(tiny).kind, locate(tiny).address) == ("cache", str(cached))
    assert len(load("tiny", fetch=never)) == 2
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path / "mine"))
    mine = put(tmp_path / "mine")
    assert (locate(tiny).kind, locate(tiny).address) == ("folder", str(mine))
    assert len(load("wee", fetch=never)) == 2


def test_vocabulary_is_the_whole_catalogue(tiny: Entry) -> None:
    put(cache_folder())
    data = load("tiny", fetch=never)
    assert data.item_ids.tolist() == [1, 2, 3, 4, 5]
    assert data.items.tolist() == [1, 3]
    assert data.user_ids.tolist() == [1, 5]
    assert (data.name, data.rating_range, data.sha256) == ("tiny", (1.0, 5.0), tiny.data_sha256)


def test_second_source_steps_in_and_the_cache_serves_afterwards(tiny: Entry, tmp_path: Path) -> None:
    asked, notes = [], []

    def fetch(address: str, folder: Path) -> Path:
        asked.append(address)
        if address.startswith("https:"):
            raise TimeoutError("timed out")
        return tmp_path / "tiny.zip"

    assert len(load("tiny", fetch=fetch, notify=notes.append)) == 2
    assert asked == ["https://example.org/tiny.zip", "pip:tiny==1"]
    assert notes[1] == "no luck with https://example.org/tiny.zip: timed out"
    assert "licence: MIT" in notes[0]
    assert [str(path.relative_to(cache_folder())) for path in cache_folder().rglob("*.csv")] == ["tiny/tiny.csv"]
    assert len(load("tiny", fetch=never)) == 2


def test_all_sources_fail(tiny: Entry) -> None:
    def fetch(address: str, folder: Path) -> Path:
        raise OSError("no route\nto host")

    with pytest.raises(HushrecError) as caught:
        load("tiny", fetch=fetch)
    assert str(caught.value) == (
        "tiny could not be fetched (https://example.org/tiny.zip: no route to host; "
        "pip:tiny==1: no route to host); "
        "put tiny.csv into a folder and set HUSHREC_DATA to that folder"
    )


def test_archive_with_other_data_is_refused(tiny: Entry, tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as opened:
        opened.writestr("in/ratings.csv", RATINGS.replace("1,2,3", "1,2,4"))
    trusting = replace(tiny, downloads=(replace(tiny.downloads[0], digest=file_digest(other)),))
    with pytest.raises(HushrecError, match=r"digest of the data [0-9a-f]{64}, expected [0-9a-f]{64}"):
        _fetch_entry(trusting, lambda *_: other, print)
    assert not list(cache_folder().rglob("*.csv"))


def test_no_source(tiny: Entry) -> None:
    with pytest.raises(
        HushrecError, match="tiny could not be fetched: there is nowhere to fetch it from; put tiny"
    ):
        _fetch_entry(replace(tiny, downloads=()), never, print)
    assert locate(replace(tiny, downloads=())).kind == "not available"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("tiny.csv", RATINGS + "9,9,1\n", "SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}"),
        ("tiny/tiny.csv", RATINGS + "9,3,1\n", "digest of the data [0-9a-f]{64}, expected"),
        ("tiny/tiny.csv", RATINGS + "9,99,1\n", "digest of the data [0-9a-f]{64}, expected"),
        ("tiny/tiny.csv", RATINGS + "9,3,9\n", "line 4: rating is 9; expected 1 to 5"),
        ("tiny/tiny.csv", "", "the file is empty"),
    ],
)
def test_damaged_file_is_named_with_what_to_do(tiny: Entry, name: str, text: str, reason: str) -> None:
    path = put(cache_folder(), name, text)
    with pytest.raises(HushrecError, match=reason) as caught:
        load("tiny", fetch=never)
    assert str(caught.value).startswith(f"{path} is damaged or not tiny (")
    assert str(caught.value).endswith("; delete it and run `hushrec data fetch tiny`")


def test_damaged_titles(tiny: Entry) -> None:
    put(cache_folder())
    put(cache_folder(), "tiny-items.csv", "item,title\n2,Two\n")
    form = replace(tiny.forms[0], titles="tiny-items.csv", titles_sha256="0" * 64)
    assert load("tiny").titles.tolist() == ["", "Two", "", "", ""]
    with pytest.raises(HushrecError, match=r"tiny-items\.csv is damaged or not tiny"):
        _load_from(replace(tiny, forms=(form,)), cache_folder())


def test_implicit_on_demand(tiny: Entry) -> None:
    put(cache_folder())
    data = load("tiny", implicit=True)
    assert data.ratings is None
    assert data.rating_range is None
    assert data.sha256 != tiny.data_sha256


def test_options_of_files_do_not_fit_a_known_set(tiny: Entry) -> None:
    with pytest.raises(HushrecError, match="tiny is known, and no file; leave columns= out"):
        load("tiny", columns=Columns(user="x"))


def test_variable_that_names_no_folder(tiny: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHREC_DATA", str(tmp_path / "gone"))
    with pytest.raises(HushrecError, match=r"HUSHREC_DATA is .*gone, which is no folder; correct it or unset it"):
        load("tiny")


def test_files_go_to_the_reader(tmp_path: Path) -> None:
    path = put(tmp_path, "my.csv", RATINGS + "1,2,5\n")
    data = load(str(path), duplicates="mean", rating_range=(0, 10), columns=Columns(item="item"))
    assert (len(data), data.name, data.rating_range) == (2, "my.csv", (0, 10))
    with pytest.raises(HushrecError, match="no such file"):
        load(tmp_path / "ml-100k")
    with pytest.raises(HushrecError, match="is a folder"):
        load(str(tmp_path))


def test_unknown_name_gets_close_matches() -> None:
    with pytest.raises(
        HushrecError, match=r"^ml100k is neither a file nor a known data set; did you mean ml-100k"
    ):
        load("ml100k")
    with pytest.raises(
        HushrecError, match=r"^xyzzy is neither a file nor a known data set; see `hushrec data list`$"
    ):
        load("xyzzy")


def test_synthetic_by_name() -> None:
    assert load("synthetic").is_synthetic
    data = load("synthetic:users=30,items=20,ratings=200,seed=4,factors=2,noise=0.1")
    assert (data.num_users, data.num_items, len(data)) == (30, 20, 200)
    assert load("synthetic:seed=1", implicit=True).ratings is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("synthetic:user=3", "no option 'user'; write for example synthetic:users=1000"),
        ("synthetic:users=many", "users is 'many', not a number"),
        ("synthetic:seed=-1", "the seed is -1; use a number from 0 up"),
    ],
)
def test_synthetic_spec_with_a_fault(spec: str, message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        load(spec)


def test_entries_are_sound() -> None:
    assert find_entry("gowalla") is CATALOGUE["gowalla-20"]
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert (entry.kind == "explicit") == (entry.rating_range is not None)
        assert entry.item_ids is None or len(entry.item_ids) == entry.num_items
        digests = [entry.data_sha256, *(form.ratings_sha256 for form in entry.forms)]
        assert all(len(digest) == 64 for digest in digests if digest)
        targets = {target for download in entry.downloads for _, target in download.members}
        assert targets <= {file for form in entry.forms for file in (form.ratings, form.titles)}


@pytest.mark.parametrize("name", CATALOGUE)
def test_real_set_has_the_known_size(real_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if not (real_folder / f"{name}.parquet").is_file():
        pytest.skip(f"{name}.parquet is not in HUSHREC_DATA")
    monkeypatch.setenv("HUSHREC_DATA", str(real_folder))
    data = load(name, fetch=never)
    entry = CATALOGUE[name]
    assert (data.num_users, data.num_items, len(data)) == (
        entry.num_users,
        entry.num_items,
        entry.num_interactions,
    )
    assert (data.ratings is None) == (entry.kind == "implicit")


def test_real_ml_1m(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHREC_DATA", str(real_folder))
    data = load("ml-1m", fetch=never)
    assert int((data.timestamps == -1).sum()) == 295_838
    assert np.bincount(data.ratings.astype(int)).tolist() == [0, 56_174, 107_557, 261_197, 348_971, 226_310]
    assert data.item_ids[[0, -1]].tolist() == [1, 3952]
    assert data.titles[data.item_number(2858)] == "American Beauty (1999)"
    assert int((data.items == data.item_number(2858)).sum()) == 3428
    assert data.order.max() == np.bincount(data.users).max() - 1


def assert_same_data(one: Interactions, other: Interactions) -> None:
    for column in ("users", "items", "ratings", "timestamps", "user_ids", "item_ids"):
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column))
    assert one.sha256 == other.sha256


def test_real_ml_100k_is_the_same_from_every_source(
    real_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts rebuilt from the Parquet file have the digests of u.data and of RecBole's file."""
    entry = CATALOGUE["ml-100k"]
    parquet = _load_from(entry, real_folder)
    columns = (parquet.user_ids[parquet.users], parquet.item_ids[parquet.items])
    columns += (parquet.ratings.astype(int), parquet.timestamps)
    lines = "".join(f"{u}\t{i}\t{r}\t{t}\n" for u, i, r, t in zip(*map(np.ndarray.tolist, columns), strict=True))
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    for name, text in (("ml-100k/u.data", lines), ("ml-100k/ml-100k.inter", header + lines)):
        put(tmp_path / name.replace("/", "-"), name, text)
        assert_same_data(_load_from(entry, tmp_path / name.replace("/", "-")), parquet)
    assert read(tmp_path / "ml-100k-u.data" / "ml-100k" / "u.data").sha256 == parquet.sha256


def test_real_wheel_gives_the_same_ml_100k(real_folder: Path, tmp_path: Path) -> None:
    wheel = os.environ.get("HUSHREC_RECBOLE_WHEEL")
    if not wheel:
        pytest.skip("needs the wheel of recbole 1.2.1: set HUSHREC_RECBOLE_WHEEL to its path")
    entry = CATALOGUE["ml-100k"]
    parquet = _load_from(entry, real_folder)

    def fetch(address: str, folder: Path) -> Path:
        if not address.startswith("pip:"):
            raise OSError("unreachable")
        return Path(wheel)

    from_wheel = load("ml-100k", fetch=fetch)
    assert_same_data(from_wheel, parquet)
    differ = from_wheel.titles[from_wheel.titles != parquet.titles]
    assert differ.tolist() == [
        "unkonwn",
        "Land Before Time III: The Time of the Great Giving (1995)",
    ]  # so it is in RecBole's file


# --- Data sets of other packages ---------------------------------------------------------------------------


def made_by(
    tiny: Entry, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Interactions], **values: Any
) -> Entry:
    entry = replace(tiny, make=make, forms=(), downloads=(), **{"data_sha256": "", **values})
    monkeypatch.setattr(catalogue, "CATALOGUE", {"tiny": entry})
    return entry


def test_data_may_be_made_by_a_package(tiny: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = made_by(tiny, monkeypatch, lambda: synthetic(6, 5, 12))
    assert (locate(entry).kind, locate(entry).address) == ("package", __name__)
    data = load("tiny", fetch=never)
    assert (data.name, len(data), data.sha256) == ("tiny", 12, checked(synthetic(6, 5, 12)).sha256)
    made_by(tiny, monkeypatch, lambda: synthetic(6, 5, 12), data_sha256=data.sha256)
    assert load("tiny", fetch=never, implicit=True).ratings is None


def broken_make() -> Interactions:
    raise KeyError("line 1\nline 2")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (broken_make, "line 2"),
        (lambda: synthetic(6, 5, 12), "digest of the data [0-9a-f]{64}, expected 0123"),
        (lambda: replace(synthetic(6, 5, 12), ratings=np.full(12, 9, np.float32)), ".*"),
    ],
)
def test_what_a_package_makes_wrong_is_refused_in_one_line(
    make: Callable[[], Interactions], reason: str, tiny: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by(tiny, monkeypatch, make, data_sha256="0123")
    with pytest.raises(HushrecError, match=rf"\Atiny of {__name__} cannot be used \(.*{reason}.*\); update .*\Z"):
        load("tiny")
