"""The folder of a live run: whole at any moment, also while it is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data.holdings.owners import owners_of
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import load_fold
from hushrec.runs.record import read_run
from hushrec.systems.drift import live_folder as module
from hushrec.systems.drift.live import Live
from hushrec.systems.drift.live_folder import is_live, keep, open_folder
from hushrec.systems.drift.live_lines import Change, Event


def new() -> Live:
    config = SYSTEMS["drift"].configure({"window": 1, "parts": 1, "recommended": 1, "num_factors": 4, "theta": 1})
    return Live(SYSTEMS["drift"], config, 0, {"b": ["z", "é"], "a": ["z", "y"]}, {"z": "Zed", "y": "", "é": "E"})


def learn(live: Live, first: int, last: int) -> None:
    rng = np.random.default_rng(2)
    users, items, likes = rng.integers(0, 12, 100), rng.integers(0, 3, 100), rng.random(100) < 0.5
    stream = [Event(f"u{users[n]}", "zyé"[items[n]], bool(likes[n])) for n in range(first, last)]
    live.learn(stream, lambda user, items: None)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_kept_model_has_the_live_vectors_under_the_same_ids(tmp_path: Path) -> None:
    live = new()
    learn(live, 0, 100)
    keep(tmp_path, live, 0)
    job, progress = load_fold(tmp_path)
    train = job.train
    assert train.item_ids.tolist() == ["y", "z", "é"]
    assert train.titles is not None
    assert train.titles.tolist() == ["", "Zed", "E"]
    owners = owners_of(train)
    held = np.split(owners.owners, owners.starts[1:-1])
    assert [[owners.names[owner] for owner in own] for own in held] == [["a"], ["b", "a"], ["b"]]
    for text, number in live.users.numbers.items():
        kept = progress.state.user_factors[train.user_number(text)]
        assert np.array_equal(kept, live.state.user_factors[number])
    for text, number in live.items.numbers.items():
        kept = progress.state.item_factors[train.item_number(text)]
        assert np.array_equal(kept, live.state.item_factors[number])
    last = {
        (user, item): flag for user, item, flag in zip(*(c.tolist() for c in live.history.columns()), strict=True)
    }
    assert train.ratings is not None
    assert len(train) == len(last)
    assert train.ratings.sum() == sum(last.values())
    result = read_run(tmp_path).folds[0]
    assert result.facts["interactions accepted"] > 100
    assert result.sent_bytes["user->owner"] > 0


def test_a_stop_while_it_is_written_leaves_a_model_and_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = new()
    learn(live, 0, 40)
    keep(tmp_path, live, 0)
    before = read_run(tmp_path).folds[0].model_sha256
    for written in ("save_train", "save_progress", "write_run", "write_arrays"):
        learn(live, 40, 60)
        with monkeypatch.context() as patch:
            patch.setattr(module, written, _killed)
            with pytest.raises(KeyboardInterrupt):
                keep(tmp_path, live, 0)
        load_fold(tmp_path)
        assert read_run(tmp_path).folds[0].model_sha256 == before
        again = new()
        with open_folder(tmp_path, again, 0, resume=True):
            pass
        assert again.history.size == live.history.size - 20 * (written == "write_arrays")
    keep(tmp_path, live, 0)
    assert read_run(tmp_path).folds[0].model_sha256 != before
    assert read_run(tmp_path).folds[0].fold == 2


def test_before_the_first_event_there_is_a_state_and_no_model(tmp_path: Path) -> None:
    keep(tmp_path, new(), 0)
    with open_folder(tmp_path, new(), 0, resume=True), pytest.raises(HushrecError, match="is not a run"):
        load_fold(tmp_path)


def test_what_came_while_nobody_held_anything_is_kept_without_a_vector(tmp_path: Path) -> None:
    live = new()
    learn(live, 0, 30)
    for owner in ("a", "b"):
        live.change(Change(owner, leaves=True))
    live.learn([Event("newcomer", "z", True)], lambda user, items: None)
    live.change(Change("a", adds=("z", "y")))
    keep(tmp_path, live, 0)
    assert "newcomer" not in load_fold(tmp_path)[0].train.user_ids.tolist()
    live.learn([Event("u1", "z", True)], lambda user, items: None)
    keep(tmp_path, live, 0)
    job, progress = load_fold(tmp_path)
    assert "newcomer" in job.train.user_ids.tolist()
    assert len(progress.state.user_factors) == job.train.num_users


def test_a_folder_is_of_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "some" / "run"
    with open_folder(folder, new(), 0, resume=False):
        assert folder.stat().st_mode & 0o077 == 0
        for resume in (False, True):
            with (
                pytest.raises(HushrecError, match=f"^another process works on {folder}; stop it"),
                open_folder(folder, new(), 0, resume=resume),
            ):
                pass
        assert not is_live(folder)
        keep(folder, new(), 0)
        assert is_live(folder)
    with open_folder(folder, new(), 0, resume=True):
        pass
    with pytest.raises(HushrecError, match="add --resume"), open_folder(folder, new(), 0, resume=False):
        pass


def test_a_folder_that_cannot_be_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, text in ((tmp_path / "file", "is a file"), (tmp_path, "not a live run")):
        with pytest.raises(HushrecError, match=text), open_folder(folder, new(), 0, resume=False):
            pass
    with (
        pytest.raises(HushrecError, match="cannot be written"),
        open_folder(tmp_path / "file" / "x", new(), 0, True),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_other_owners_or_items_than_at_the_start_are_refused(tmp_path: Path) -> None:
    keep(tmp_path, new(), 0)

    def go_on(*start: Any) -> None:
        live = Live(SYSTEMS["drift"], new().config, 0, *start)
        for _ in range(2):
            with open_folder(tmp_path, live, 0, resume=True):
                keep(tmp_path, live, 0)

    owners, titles = {"a": ["y", "z"], "b": ["é", "z"]}, {"y": "", "z": "Zed", "é": "E"}
    go_on()
    go_on(owners, titles)
    for start in ((owners,), (owners | {"c": ["z"]}, titles), (None, titles), (owners, titles | {"y": "Why"})):
        with pytest.raises(HushrecError, match="began with other owners or items; give the same --owners"):
            go_on(*start)
