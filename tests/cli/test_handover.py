"""`hushrec export`, `hushrec card` and `run --track`, as they are typed."""

import json
from pathlib import Path

import pytest

from hushrec.cli.endings import exits_cleanly
from hushrec.cli.verbs import app

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
