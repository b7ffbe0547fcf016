"""What a run is on disk: an edited or damaged `run.json` is refused, an older one without a checksum is read."""

import json
from pathlib import Path
from typing import Any

import pytest

import hushrec
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import planned_run
from hushrec.runs.record import Run, read_run, write_run
from hushrec.runs.run_settings import settings_for
from systems.runs import short


def some_run() -> Run:
    system, data = SYSTEMS["pmf"], hushrec.load("synthetic:users=20,items=10,ratings=90")
    return planned_run(system, system.configure(short("pmf")), data, settings_for(system, data=data))


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    write_run(tmp_path, some_run())
    kept = read_run(tmp_path)
    write_run(tmp_path, kept)
    assert read_run(tmp_path) == kept


def test_blanks_and_the_order_of_fields_do_not_matter(tmp_path: Path) -> None:
    write_run(tmp_path, some_run())
    kept = read_run(tmp_path)
    fields = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(dict(reversed(fields.items())), indent=3))
    assert read_run(tmp_path) == kept


@pytest.mark.parametrize(
    "changes", [{"seed": 7}, {"checksum": "0" * 64}, {"checksum": 5}, {"folds": [], "at": [3]}]
)
def test_an_edited_run_is_refused_in_a_line_that_says_what_to_do(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_run(tmp_path, some_run())
    rewrite(tmp_path, **changes)
    with pytest.raises(
        HushrecError, match=r"run\.json was changed .*; put back a copy of it, or delete its folder"
    ):
        read_run(tmp_path)


def test_a_flipped_digit_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, some_run())
    text = (tmp_path / "run.json").read_text()
    place = text.index("data_sha256") + 20
    (tmp_path / "run.json").write_text(text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :])
    with pytest.raises(HushrecError, match="was changed"):
        read_run(tmp_path)


def test_an_older_run_without_a_checksum_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, some_run())
    kept = read_run(tmp_path)
    fields = json.loads((tmp_path / "run.json").read_text())
    del fields["checksum"]
    (tmp_path / "run.json").write_text(json.dumps(fields))
    assert read_run(tmp_path) == kept
