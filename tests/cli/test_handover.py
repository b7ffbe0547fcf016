"""`hushrec export`, `hushrec card` and `run --track`, as they are typed."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hushrec.cli.endings import exits_cleanly
from hushrec.cli.verbs import app
from hushrec.handover import tracking

DATA = "synthetic:users=40,items=30,ratings=500"
SHORT = ["--preset", "paper", "--rounds", "2", "--num-factors", "3", "--threads", "1", "--no-baselines"]
RUN = ["run", "fedrec", "--data", DATA, *SHORT]


def ends(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code and both outputs, as `hushrec` in a shell would give them."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as exited:
        exits_cleanly(lambda: app(list(words), prog_name="hushrec", standalone_mode=False))
    out, err = capfd.readouterr()
    return int(exited.value.code or 0), out, err


@pytest.fixture
def kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    assert ends(capfd, *RUN, "--out", str(tmp_path / "one"))[0] == 0
    return tmp_path / "one"


def test_a_run_is_exported(kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "to"
    words = ["export", str(kept), "--to", str(to), "--format", "arrow", "--format", "parquet", "--with-users"]
    code, out, err = ends(capfd, *words)
    assert code == 0
    assert out.split() == [
        str(to / f"{name}.{ending}") for ending in ("arrow", "parquet") for name in ("items", "users")
    ]
    assert "users' vectors are private" in err
    code, out, err = ends(capfd, *words)
    assert (code, out) == (2, "")
    assert err == f"hushrec: {to / 'items.arrow'} is there already; choose another --to, or move it away\n"
    code, out, _ = ends(capfd, "export", str(kept), "--to", str(tmp_path / "other"), "--json")
    assert json.loads(out) == {"files": [str(tmp_path / "other" / "items.arrow")]}


def test_a_card_is_printed_or_written(kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = ends(capfd, "card", str(kept))
    assert code == 0
    assert printed.startswith("# Model card: fedrec on synthetic\n")
    assert (
        f"hushrec run fedrec --preset paper --num-factors 3 --rounds 2 --data {DATA} --no-baselines\n" in printed
    )
    code, out, _ = ends(capfd, "card", str(kept), "--out", str(tmp_path / "card.md"))
    assert out == f"{tmp_path / 'card.md'}\n"
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == printed.removesuffix("\n")


def test_an_audit_tells_no_tracker_that_a_folder_names_unless_asked(
    kept: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sent the folder may have named an address of their own."""
    called: list[str | None] = []

    class Store:
        def __init__(self, place: str | None) -> None:
            self.place = place
            called.append(place)

        def begin(self, *_: object) -> str:
            return "7"

        def end(self, *_: object) -> None:
            pass

    monkeypatch.setattr(tracking, "import_module", lambda _name: SimpleNamespace(MLflow=Store))
    place = "http://elsewhere.example"
    (kept / tracking.FILE).write_text(json.dumps({"mlflow": {"id": "7", "place": place}}), encoding="utf-8")
    code, _, err = ends(capfd, "audit", str(kept), "--threads", "1")
    assert (code, called) == (0, [])
    assert f"not told to the trackers that the folder names (mlflow in {place}); --track tells them" in err
    code, _, err = ends(capfd, "audit", str(kept), "--threads", "1", "--track")
    assert (code, called) == (0, [place])
    assert f"mlflow was told what attacks read, in {place}" in err
    (kept / tracking.FILE).write_text("{", encoding="utf-8")
    code, _, err = ends(capfd, "audit", str(kept), "--threads", "1")
    assert (code, "tracked.json" in err) == (0, False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["card", "nosuch"], "nosuch is not a run"),
        (["export", "nosuch", "--to", "x"], "nosuch is not a run"),
        (
            ["export", "nosuch", "--to", "x", "--format", "pickle"],
            "--format pickle is unknown; choose from arrow, parquet, onnx",
        ),
        (
            [*RUN, "--track", "nosuch"],
            "--track nosuch is unknown; choose from mlflow, tensorboard, wandb, trackio",
        ),
        ([*RUN, "--track", "wandb", "--track", "wandb"], "--track names a tracker twice; leave one out"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = ends(capfd, *words)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
