import gc
import os
import pickle
import stat
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.data import owned
from hushrec.data.holdings.owners import owners_of, rows_of_owners
from hushrec.errors import HushrecError
from hushrec.protocol import kept_arrays
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import (
    Progress,
    digest,
    load_progress,
    load_train,
    read_arrays,
    save_progress,
    save_train,
    write_arrays,
)
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job
from systems.runs import held, short

ARRAYS = {
    "one": np.arange(6, dtype=np.float32).reshape(2, 3),
    "two": np.array(["a", "bcd"]),
    "none": np.empty(0, np.int64),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "file.npz"


# --- Files -------------------------------------------------------------------------------------------------


def test_arrays_round_trip_with_types_and_shapes(path: Path) -> None:
    write_arrays(path, ARRAYS)
    found = read_arrays(path)
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_only_the_owner_can_read_the_file_and_nothing_else_is_left(path: Path) -> None:
    mask = os.umask(0)
    try:
        write_arrays(path, ARRAYS)
        write_arrays(path, ARRAYS)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_the_old_file_stays_whole_until_the_new_one_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops half-way, at the worst possible moments, leaves the old file."""
    write_arrays(path, {"kept": np.array(1)})
    before = path.read_bytes()

    def savez_stops(file: Any, **_: Any) -> None:
        file.write(b"PK half a file")
        file.flush()
        assert path.read_bytes() == before
        raise KeyboardInterrupt

    def replace_stops(source: Path, target: Path) -> None:
        assert source.parent == target.parent, "a rename across file systems is not atomic"
        assert set(np.load(source)) == set(ARRAYS), "the whole file must be written before it takes the place"
        raise KeyboardInterrupt

    for module, name, stop in ((np, "savez", savez_stops), (os, "replace", replace_stops)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, stop)
            with pytest.raises(KeyboardInterrupt):
                write_arrays(path, ARRAYS)
        assert path.read_bytes() == before


def test_objects_are_refused_and_the_old_file_stays(path: Path) -> None:
    write_arrays(path, {"kept": np.array(1)})
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_arrays(path, {"one": np.array([{}, object()])})
    assert set(read_arrays(path)) == {"kept"}


def test_a_write_that_fails_leaves_no_temporary_file(path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays"):
        write_arrays(path, {"one": np.array([object()])})
    assert list(path.parent.iterdir()) == []


def write_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"one": 1}))


def write_object_array(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=True, one=np.array([print, None], object))


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"user,item,rating\n1,2,3\n"), id="text"),
        pytest.param(lambda path: path.write_bytes(b"PK\x03\x04 and no more"), id="no zip"),
        pytest.param(write_pickle, id="pickle"),
        pytest.param(write_object_array, id="array of objects"),
        pytest.param(lambda path: path.mkdir(), id="folder"),
    ],
)
def test_foreign_files_are_refused_in_one_line(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "file.npz"
    write(path)
    with pytest.raises(HushrecError, match=r"file\.npz is damaged; delete its folder and run again$") as caught:
        read_arrays(path)
    assert "\n" not in str(caught.value)


def test_a_single_array_is_refused_in_one_line(tmp_path: Path) -> None:
    with (tmp_path / "file.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(HushrecError, match="damaged"):
        read_arrays(tmp_path / "file.npz")


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match=r"state\.npz is missing; run again without --resume"):
        read_arrays(tmp_path / "state.npz")


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 13), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(HushrecError, match="damaged"):
            read_arrays(path)


def test_a_changed_number_is_noticed(path: Path) -> None:
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    place = whole.index(ARRAYS["one"].tobytes())
    for changed in range(place, place + ARRAYS["one"].nbytes):
        path.write_bytes(whole[:changed] + bytes([whole[changed] ^ 1]) + whole[changed + 1 :])
        with pytest.raises(HushrecError, match="damaged"):
            read_arrays(path)


def test_a_changed_byte_anywhere_is_refused_or_changes_nothing(path: Path) -> None:
    """Some bytes of a zip say nothing; one says how many arrays there are, so that some may be missing."""
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    refusals: list[str] = []
    for changed, flip in product(range(len(whole)), (0x01, 0x60)):
        path.write_bytes(whole[:changed] + bytes([whole[changed] ^ flip]) + whole[changed + 1 :])
        try:
            found = read_arrays(path)
        except HushrecError as error:
            refusals.append(str(error))
            continue
        assert set(found) <= set(ARRAYS)
        assert digest(found) == digest({name: ARRAYS[name] for name in found})
    assert set(refusals) == {f"{path} is damaged; delete its folder and run again"}
    assert len(refusals) > len(whole)


def test_a_damaged_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "file.npz").write_bytes(b"PK\x03\x04 and no more")
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(HushrecError):
            read_arrays(tmp_path / "file.npz")
        gc.collect()
    assert [str(warning.message) for warning in told] == []


# --- Digests -----------------------------------------------------------------------------------------------


def test_digest_by_hand() -> None:
    """SHA-256 of the line `a <i2 (2,)` and the bytes 01 00 02 00, by `printf | sha256sum`."""
    expected = "78a8d1bbbccbec690ffec63330a3b7ec3435cc336b91d8d1ea5b92f8f643797d"
    assert digest({"a": np.array([1, 2], "<i2")}) == expected


def test_digest_changes_with_name_type_shape_and_bytes() -> None:
    array = np.array([0, 0, 0, 0], np.float32)
    variants = [
        {"a": array},
        {"b": array},
        {"a": array.view(np.int32)},
        {"a": array.reshape(2, 2)},
        {"a": -array},  # minus zero: equal as a number, other bytes
        {"a": array[:2]},
        {"a": array, "b": array[:0]},
        {},
    ]
    assert len({digest(variant) for variant in variants}) == len(variants)


def test_digest_does_not_depend_on_order_or_memory_layout() -> None:
    one, two = np.arange(6.0).reshape(2, 3), np.arange(3)
    assert digest({"one": one, "two": two}) == digest({"two": two, "one": np.asfortranarray(one)})
    assert digest({"one": one}) == digest({"one": np.repeat(one, 2, axis=1)[:, ::2]})


# --- Progress ----------------------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "pmf": {},
    "fedrec": {"rho": 1, "participation": 0.5},
    "fedrec++": {"rho": 1, "participation": 0.5, "denoisers": 3},
    "fedrec-bpr": {"rho": 1, "participation": 0.5, "denoisers": 3},
    "sdcf": {"participation": 0.5},
    "sdcf-denoised": {"participation": 0.5, "denoisers": 3},
    "ptf-fedrec": {"participation": 0.5, "memory": "accumulate"},
    "fedcore": {
        "model": "neucf", "activation": "quadratic", "unaligned": 0.5, "inference": "ckks", "num_asked": 2,
        "learning_rate": 0.01,
    },
}  # fmt: skip


def job_of(name: str, data: str = "synthetic:users=80,items=50,ratings=1500") -> Job:
    system = SYSTEMS[name]
    config = system.configure(short(name, **{"num_rounds": 3, **SETTINGS.get(name, {})}))
    return job_for(system, config, 0, held(name, hushrec.load(data)))


@pytest.fixture(params=list(SYSTEMS))
def job(request: pytest.FixtureRequest) -> Job:
    if "ckks" in SETTINGS.get(request.param, {}).values():
        pytest.importorskip("tenseal")
    return job_of(request.param)


def trained(job: Job) -> Progress:
    progress = run_job(job, RuntimeOptions(threads=1))
    progress.curve = np.array([[0.9, 1.1], [0.8, 1.0], [0.7, 0.9]])
    return progress


def test_progress_round_trips(job: Job, path: Path) -> None:
    progress = trained(job)
    save_progress(path, job.system, progress)
    found = load_progress(path, job.system, job.start())
    assert found.round_number == 3
    assert (found.cpu_seconds, found.wall_seconds) == (progress.cpu_seconds, progress.wall_seconds)
    np.testing.assert_array_equal(found.curve, progress.curve)
    assert found.transcript.tallies == progress.transcript.tallies
    assert found.transcript.sent_bytes() == progress.transcript.sent_bytes()
    assert {number for number, _ in found.transcript.tallies} >= {1}
    for name, value in vars(progress.state).items():
        assert getattr(found.state, name).dtype == value.dtype
        np.testing.assert_array_equal(getattr(found.state, name), value)
    kept, expected = kept_arrays(found.private), kept_arrays(progress.private)
    assert kept.keys() == expected.keys()
    for name, array in expected.items():
        assert kept[name].dtype == array.dtype
        np.testing.assert_array_equal(kept[name], array)


def test_what_training_changes_is_what_a_checkpoint_holds(job: Job) -> None:
    """Every private array that differs after training is marked as kept, so nothing is lost.

    A name with `used_` stands for the part of an array that is in use; a key is kept, and never changes. Owners
    pack what they have into arrays.
    """
    before, after = job.start().private, trained(job).private
    changed = {
        name.removeprefix("used_")
        for name in {*vars(before), *kept_arrays(before)}
        if isinstance(getattr(before, name), np.ndarray)
        and not np.array_equal(getattr(before, name), getattr(after, name))
    }
    assert changed == {name.removeprefix("used_") for name in kept_arrays(before)} - {"row_key"}


def test_progress_without_rounds_and_curve_round_trips(path: Path) -> None:
    job = job_of("fedrec")
    save_progress(path, job.system, job.start())
    found = load_progress(path, job.system, job.start())
    assert (found.round_number, found.curve, found.transcript.tallies) == (0, None, {})


@pytest.mark.parametrize("missing", ["server.item_factors", "private.user_factors", "tallies", "seconds"])
def test_a_file_without_some_array_is_not_of_this_run(path: Path, missing: str) -> None:
    job = job_of("fedrec")
    save_progress(path, job.system, job.start())
    write_arrays(path, {name: array for name, array in read_arrays(path).items() if name != missing})
    with pytest.raises(HushrecError, match=r"file\.npz is not of this run; choose another --out"):
        load_progress(path, job.system, job.start())


def test_a_file_without_a_round_number_is_not_of_this_run(path: Path) -> None:
    job = job_of("fedrec")
    save_progress(path, job.system, job.start())
    write_arrays(path, {name: array for name, array in read_arrays(path).items() if name != "round_number"})
    with pytest.raises(HushrecError, match="is not of this run"):
        load_progress(path, job.system, job.start())


def test_a_run_with_other_users_or_another_system_is_not_of_this_run(path: Path) -> None:
    job = job_of("fedrec")
    save_progress(path, job.system, job.start())
    fewer = job_of("fedrec", "synthetic:users=40,items=50,ratings=500")
    for other in (fewer, job_of("fedrec++"), job_of("pmf")):
        with pytest.raises(HushrecError, match="is not of this run"):
            load_progress(path, other.system, other.start())


def test_a_run_with_other_items_is_not_of_this_run(path: Path) -> None:
    job = job_of("fedrec")
    save_progress(path, job.system, job.start())
    fewer = job_of("fedrec", "synthetic:users=80,items=40,ratings=1500")
    with pytest.raises(HushrecError, match="is not of this run"):
        load_progress(path, fewer.system, fewer.start())


# --- What was trained on -----------------------------------------------------------------------------------


def test_train_round_trips_with_ids_and_titles(tmp_path: Path, path: Path) -> None:
    (tmp_path / "shop.csv").write_text("user,item,rating\nzoë,x,5\nann,y,2.5\nann,x,1\n")
    data = replace(hushrec.load(tmp_path / "shop.csv", rating_range=(0, 5)), titles=np.array(["Ex [1]", ""]))
    save_train(path, data, SYSTEMS["fedrec"])
    found = load_train(path, SYSTEMS["fedrec"], data.name, data.sha256, False)
    assert found.user_ids.tolist() == ["ann", "zoë"]
    assert found.titles is not None
    assert found.titles.tolist() == ["Ex [1]", ""]
    assert found.rating_range == (0.0, 5.0)
    assert (found.name, found.sha256, found.is_synthetic) == ("shop.csv", data.sha256, False)
    rows = found.by_user()
    assert rows.ratings is not None
    assert (rows.starts.tolist(), rows.items.tolist(), rows.ratings.tolist()) == (
        [0, 2, 3],
        [0, 1, 0],
        [1, 2.5, 5],
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_train_remembers_from_which_rating_on_rows_were_good(path: Path) -> None:
    data = hushrec.load("synthetic:users=30,items=40,ratings=400")
    for kept in (data.as_signed(), data.as_signed(4.5), data):
        save_train(path, kept, SYSTEMS["fedrec"])
        assert load_train(path, SYSTEMS["fedrec"], "", "", True).signed_from == kept.signed_from


@pytest.mark.parametrize("has_users", [True, False])
def test_train_with_owners_gives_the_same_stream(path: Path, has_users: bool) -> None:
    """Times are missing, equal and out of the order of the rows."""
    rng = np.random.default_rng(5)
    data = hushrec.load("synthetic:users=30,items=40,ratings=400")
    data = replace(
        data, timestamps=rng.integers(-1, 20, len(data)), order=np.arange(len(data), 0, -1, dtype=np.int32)
    )
    data = owned(data, "5", 1).select(rng.permutation(len(data))[:300])
    owners, drift = replace(owners_of(data), has_users=has_users), SYSTEMS["drift"]
    data = replace(data, holding=owners)
    save_train(path, data, drift)
    found = load_train(path, drift, data.name, data.sha256, True)
    one, other = rows_of_owners(data), rows_of_owners(found)
    assert len(one.users) == (300 if has_users else 0)
    for entry in fields(one):
        np.testing.assert_array_equal(getattr(one, entry.name), getattr(other, entry.name))
    np.testing.assert_array_equal(owners_of(found).starts, owners.starts)
    np.testing.assert_array_equal(owners_of(found).owners, owners.owners)
    save_train(path, found, drift)
    np.testing.assert_array_equal(rows_of_owners(load_train(path, drift, "", "", True)).items, one.items)


def test_train_of_users_keeps_nothing_of_owners(path: Path) -> None:
    save_train(path, hushrec.load("synthetic:users=8,items=9,ratings=30"), SYSTEMS["fedrec"])
    assert set(read_arrays(path)) == {"starts", "items", "user_ids", "item_ids", "ratings", "rating_range"}


def test_train_without_ratings_and_titles_round_trips(path: Path) -> None:
    data = hushrec.load("synthetic:users=8,items=9,ratings=30", implicit=True)
    save_train(path, data, SYSTEMS["ptf-fedrec"])
    found = load_train(path, SYSTEMS["ptf-fedrec"], data.name, data.sha256, True)
    assert (found.ratings, found.titles, found.rating_range, found.is_synthetic) == (None, None, None, True)
    np.testing.assert_array_equal(found.items, data.items)
    np.testing.assert_array_equal(found.users, data.users)


def test_a_foreign_archive_is_not_what_was_trained_on(path: Path) -> None:
    write_arrays(path, ARRAYS)
    with pytest.raises(HushrecError, match=r"file\.npz is"):
        load_train(path, SYSTEMS["fedrec"], "name", "", False)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("starts", lambda array: array[:-1]),
        ("starts", lambda array: array[::-1]),
        ("starts", lambda array: array + 1),
        ("starts", lambda array: array.astype(np.float64)),
        ("items", lambda array: array[:, None]),
        ("items", lambda array: array + 40),
        ("items", lambda array: array - 40),
        ("ratings", lambda array: array[:-1]),
    ],
)
def test_rows_that_are_none_are_not_what_was_trained_on(path: Path, name: str, change: Any) -> None:
    data = hushrec.load("synthetic:users=30,items=40,ratings=400")
    save_train(path, data, SYSTEMS["fedrec"])
    arrays = read_arrays(path)
    write_arrays(path, arrays | {name: change(arrays[name])})
    with pytest.raises(HushrecError, match="is not what a run was trained on"):
        load_train(path, SYSTEMS["fedrec"], "name", "", False)


def test_files_hold_plain_arrays_only(path: Path) -> None:
    """Every member of every archive can be read with pickle off, and is an .npy."""
    job = job_of("fedrec++")
    save_progress(path, job.system, trained(job))
    save_train(path.with_name("train.npz"), job.train, job.system)
    for archive in path.parent.iterdir():
        with zipfile.ZipFile(archive) as members:
            assert members.namelist()
            assert all(name.endswith(".npy") for name in members.namelist())
        assert all(array.dtype.kind != "O" for array in read_arrays(archive).values())
