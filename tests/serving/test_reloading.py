import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hushrec.errors import HushrecError
from hushrec.serving import reloading
from hushrec.serving.metrics import Meter
from hushrec.serving.reloading import Reloader, mark_of, reload_on_signal


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "WATCH_SECONDS", 0.05)


def until(is_true: Callable[[], bool]) -> bool:
    """Whether it becomes true within some seconds."""
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        if is_true():
            return True
        time.sleep(0.01)
    return False


def run_in(folder: Path, text: str) -> Path:
    (folder / "fold-1").mkdir(parents=True, exist_ok=True)
    for name in ("fold-1/state.npz", "fold-1/train.npz", "run.json"):
        (folder / f"{name}.new").write_text(text)
        os.replace(folder / f"{name}.new", folder / name)
    return folder


def test_marks_tell_states_of_a_folder_apart(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run", "one")
    marks = {mark_of(folder, None)}
    assert mark_of(folder, 1) in marks
    (folder / "fold-1" / "state.npz").write_text("two!")
    marks.add(mark_of(folder, None))
    run_in(folder, "one")
    marks.add(mark_of(folder, None))
    (folder / "run.json").unlink()
    marks.add(mark_of(folder, None))
    assert len(marks) == 4
    assert mark_of(tmp_path / "nowhere", None) == ((), (), ())


def test_files_that_change_are_taken_up_once(tmp_path: Path) -> None:
    folder, loaded, lines = run_in(tmp_path / "run", "one"), list[str](), list[bytes]()

    def take_up() -> str:
        loaded.append((folder / "run.json").read_text())
        return loaded[-1]

    def mark() -> reloading.Mark:
        return mark_of(folder, None)

    with Reloader(take_up, Meter(), lines.append, mark(), mark):
        time.sleep(0.3)
        assert loaded == []
        run_in(folder, "two")
        assert until(lambda: loaded == ["two"])
        time.sleep(0.3)
        assert loaded == ["two"]
    assert json.loads(lines[0])["message"] == "now serves two"


def test_a_link_that_moves_is_followed(tmp_path: Path) -> None:
    link, loaded = tmp_path / "current", list[str]()
    for name in ("one", "two"):
        run_in(tmp_path / name, "same")
    link.symlink_to("one")

    def mark() -> reloading.Mark:
        return mark_of(link, None)

    def take_up() -> str:
        loaded.append(link.resolve().name)
        return loaded[-1]

    with Reloader(take_up, Meter(), lambda line: None, mark(), mark):
        (tmp_path / "next").symlink_to("two")
        os.replace(tmp_path / "next", link)
        assert until(lambda: loaded == ["two"])


@pytest.mark.parametrize(
    ("error", "told"),
    [(HushrecError("it has no finished fold"), "it has no finished fold"), (KeyError("x"), "KeyError at test_")],
)
def test_what_cannot_be_loaded_is_told_once_and_another_can(tmp_path: Path, error: Exception, told: str) -> None:
    folder, lines, meter = run_in(tmp_path / "run", "one"), list[bytes](), Meter()

    def take_up() -> str:
        if (folder / "run.json").read_text() == "bad":
            raise error
        return "good"

    def mark() -> reloading.Mark:
        return mark_of(folder, None)

    with Reloader(take_up, meter, lines.append, mark(), mark):
        run_in(folder, "bad")
        assert until(lambda: len(lines) == 1)
        time.sleep(0.3)
        assert len(lines) == 1
        run_in(folder, "fine")
        assert until(lambda: len(lines) == 2)
    bad, good = (json.loads(line) for line in lines)
    assert bad["message"].startswith(f"the newer run is not taken up, the one before stays: {told}")
    assert (bad["level"], good["level"], good["message"]) == ("ERROR", "INFO", "now serves good")
    assert 'hushrec_reloads_total{result="refused"} 1' in meter.text()
    assert 'hushrec_reloads_total{result="taken"} 1' in meter.text()


def test_half_a_copy_is_not_loaded(tmp_path: Path) -> None:
    """As long as files keep changing, as in a copy under way, nothing is loaded."""
    folder, loaded = run_in(tmp_path / "run", "0"), list[str]()
    changes = iter(range(10**9))

    def mark() -> reloading.Mark:
        return mark_of(folder, None) if is_done.is_set() else ((next(changes),),)

    def take_up() -> str:
        loaded.append("x")
        return "x"

    is_done = threading.Event()
    with Reloader(take_up, Meter(), lambda line: None, ((0,),), mark):
        time.sleep(0.4)
        assert loaded == []
        is_done.set()
        assert until(lambda: len(loaded) == 1)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_signal_loads_again_unless_the_terminal_is_gone(is_gone: bool) -> None:
    loaded, ended = list[str](), list[int]()
    before = (
        signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number)),
        signal.getsignal(signal.SIGHUP),
    )

    def take_up() -> str:
        loaded.append("x")
        return "x"

    try:
        with Reloader(take_up, Meter(), lambda line: None) as reloader:
            reload_on_signal(reloader, lambda: is_gone)
            signal.raise_signal(signal.SIGHUP)
            assert until(lambda: bool(ended if is_gone else loaded))
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGHUP, before[1])
    assert (loaded, ended) == (([], [signal.SIGTERM]) if is_gone else (["x"], []))
