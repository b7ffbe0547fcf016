"""Folders that were written before parties had one name: `run.json` with num_partners, num_owners and owners."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.data import Deal
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import load_fold, run
from hushrec.runs.record import Run, read_run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions
from systems.runs import short

DATA = "synthetic:users=60,items=40,ratings=900"
ONE_THREAD = RuntimeOptions(threads=1)
NEW = ("party", "num_parties", "names", "holding", "sampled", "min_raters")  # of the provenance


def go(folder: Path | None, name: str, settings: dict[str, Any] | None = None, **chosen: Any) -> Run:
    system, data = SYSTEMS[name], hushrec.load(DATA)
    config = system.configure(short(name, **(settings or {})))
    wanted = settings_for(system, data=data, **chosen)
    return run(system, config, data, wanted, ONE_THREAD, folder, folder is not None and folder.exists())


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "run.json"
    kept = json.loads(path.read_text())
    kept.pop("checksum", None)
    change(kept)
    path.write_text(json.dumps(kept))


def as_before(num_partners: int = 0, owners: dict[str, Any] | None = None) -> Callable[[dict[str, Any]], None]:
    """What `run.json` was like."""

    def change(kept: dict[str, Any]) -> None:
        made = kept["provenance"]
        for name in NEW:
            made.pop(name, None)
        num_owners = 0 if owners is None else len(owners["names"])
        made |= {"num_partners": num_partners, "num_owners": num_owners, "owners": owners}
        for fold in kept["folds"]:
            fold.pop("digested", None)

    return change


OWNERS = {
    "names": ["owner1", "owner2", "owner3"],
    "num_items": [20, 21, 22],
    "num_items_without": 0,
    "owners_per_item": 1.575,
    "owners_per_interaction": 1.5711111111111111,
}
"""As it was written for three owners of these data."""


@pytest.fixture
def users(tmp_path: Path) -> tuple[Path, Run]:
    done = go(tmp_path / "users", "fedrec")
    rewrite(tmp_path / "users", as_before())
    return tmp_path / "users", done


@pytest.fixture
def partners(tmp_path: Path) -> tuple[Path, Run]:
    done = go(tmp_path / "partners", "fedcore", deal=Deal(3))
    rewrite(tmp_path / "partners", as_before(num_partners=3))
    return tmp_path / "partners", done


@pytest.fixture
def owners(tmp_path: Path) -> tuple[Path, Run]:
    done = go(tmp_path / "owners", "drift", owners="3")
    rewrite(tmp_path / "owners", as_before(owners=OWNERS))
    return tmp_path / "owners", done


@pytest.mark.parametrize(
    ("kind", "party", "num_parties", "names"),
    [
        ("users", "client", 60, ()),
        ("partners", "partner", 3, ()),
        ("owners", "owner", 3, ("owner1", "owner2", "owner3")),
    ],
)
def test_parties_are_told_as_in_a_new_folder(
    kind: str, party: str, num_parties: int, names: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    folder, done = request.getfixturevalue(kind)
    kept = read_run(folder)
    assert (kept.party_name, kept.num_parties, kept.provenance.names) == (party, num_parties, names)
    assert (kept.party_name, kept.num_parties) == (done.party_name, done.num_parties)
    assert kept.provenance.holding == done.provenance.holding
    assert bool(kept.provenance.holding) == (kind == "owners")
    assert [fold.metrics for fold in kept.folds] == [fold.metrics for fold in done.folds]


@pytest.mark.parametrize("kind", ["users", "partners", "owners"])
def test_a_fold_of_it_predicts(kind: str, request: pytest.FixtureRequest) -> None:
    folder, done = request.getfixturevalue(kind)
    job, progress = load_fold(folder)
    scores = job.scorer(progress).score(np.arange(3, dtype=np.int32))
    assert np.isfinite(scores).any(axis=1).all()
    assert (job.train.num_items, progress.round_number) == (scores.shape[1], done.folds[0].num_rounds)
    user = job.train.user_ids[0]
    assert len(hushrec.load_run(folder).recommend([user], k=2, min_raters=0)[0]) == 2


@pytest.mark.parametrize(
    ("kind", "name", "chosen"),
    [("users", "fedrec", {}), ("partners", "fedcore", {"deal": Deal(3)}), ("owners", "drift", {"owners": "3"})],
)
@pytest.mark.parametrize("is_done", [True, False])
def test_a_run_goes_on_in_it(
    kind: str, name: str, chosen: dict[str, Any], is_done: bool, request: pytest.FixtureRequest
) -> None:
    """With its only fold done, and with one of which the rounds are done, but not told in run.json."""
    folder, done = request.getfixturevalue(kind)
    if not is_done:
        rewrite(folder, lambda kept: kept.update(folds=[]))
    again = go(folder, name, **chosen)
    timeless = {"cpu_seconds": 0.0, "wall_seconds": 0.0, "digested": ()}
    assert replace(again.folds[0], **timeless) == replace(done.folds[0], **timeless)


@pytest.mark.parametrize(
    ("kind", "name", "chosen", "told"),
    [
        ("owners", "drift", {"owners": "4"}, "holds a run with owners 3, not 4; choose another --out"),
        ("owners", "drift", {"owners": "3", "seed": 1}, "holds a run with seed 0, not 1"),
        ("partners", "fedcore", {"deal": Deal(2)}, "holds a run with deal .*; choose another --out"),
    ],
)
def test_a_run_with_other_parties_does_not(
    kind: str, name: str, chosen: dict[str, Any], told: str, request: pytest.FixtureRequest
) -> None:
    folder, _ = request.getfixturevalue(kind)
    with pytest.raises(HushrecError, match=told):
        go(folder, name, **chosen)


def test_other_owners_by_the_same_number_are_noticed(owners: tuple[Path, Run], tmp_path: Path) -> None:
    folder, _ = owners
    items = [str(item) for item in hushrec.load(DATA).item_ids.tolist()]
    held = [f"{item}\t{owner}\n" for place, item in enumerate(items) for owner in ["abc"[place % 3]]]
    (tmp_path / "held.tsv").write_text("".join(held))
    with pytest.raises(
        HushrecError, match=r"holds a run with holding 3 owners: owner1, owner2, owner3; 1\.57 own"
    ):
        go(folder, "drift", owners=str(tmp_path / "held.tsv"))


# --- Settings that did not exist ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resample", "local_steps"])
def test_a_setting_that_did_not_exist_takes_its_default(name: str, users: tuple[Path, Run]) -> None:
    folder, done = users
    default = done.config[name]
    rewrite(folder, lambda kept: kept["config"].pop(name))
    assert name not in read_run(folder).config
    assert getattr(load_fold(folder)[0].config, name) == default
    assert go(folder, "fedrec").folds[0].model_sha256 == done.folds[0].model_sha256
    other = {"resample": "once", "local_steps": 7}[name]
    with pytest.raises(
        HushrecError, match=f"holds a run with {name} {default}, not {other}; choose another --out"
    ):
        go(folder, "fedrec", {name: other})


def test_a_folder_that_did_not_count_updates_goes_on(users: tuple[Path, Run]) -> None:
    """With all clients in all rounds, the last round of each is the number of its updates."""
    folder, done = users
    path = folder / "fold-1" / "state.npz"
    arrays = dict(np.load(path))
    np.testing.assert_array_equal(arrays["private.num_updates"], arrays.pop("private.updated_round"))
    arrays["private.updated_round"] = arrays.pop("private.num_updates")
    np.savez(path, **arrays)
    _, progress = load_fold(folder)
    assert progress.private.num_updates.tolist() == [done.folds[0].num_rounds] * 60
    assert go(folder, "fedrec").folds[0].model_sha256 == done.folds[0].model_sha256


def test_a_setting_that_exists_no_more_is_told(users: tuple[Path, Run]) -> None:
    folder, _ = users
    rewrite(folder, lambda kept: kept["config"].update(colour="red"))
    with pytest.raises(HushrecError, match="colour"):
        load_fold(folder)


@pytest.mark.parametrize("owners", [["owner1"], {"names": ["a"]}, "three"])
def test_a_damaged_list_of_owners_is_told_in_one_line(owners: Any, users: tuple[Path, Run]) -> None:
    folder, _ = users
    rewrite(folder, lambda kept: kept["provenance"].update(owners=owners))
    with pytest.raises(HushrecError, match=r"run\.json is damaged .*; delete its folder and run again"):
        read_run(folder)
