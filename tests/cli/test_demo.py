from pathlib import Path
from typing import Any

import pytest

import hushrec
from hushrec.cli.work import demo
from hushrec.errors import HushrecError
from hushrec.runs.record import read_run

DATA = "synthetic:users=80,items=50,ratings=1500"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    jobs = {
        name: (title, system, {**settings, "num_rounds": 8, "num_factors": 5})
        for name, (title, system, settings) in demo.JOBS.items()
    }
    monkeypatch.setattr(demo, "JOBS", jobs)
    monkeypatch.setattr(demo, "_data", lambda: hushrec.load(DATA))


def test_the_demo_tells_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.show_demo(tmp_path / "demo")
    out = capsys.readouterr().out
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "80 clients, 50 items, 1,500 ratings: synthetic (SYNTHETIC, made by a generator)"
    assert "FedRec++ rho 3 and FedRec rho 0: identical to the last bit: yes" in lines
    for title, _, _ in demo.JOBS.values():
        assert [line for line in lines if line.startswith(title)]
    place = lines.index("5 recommendations for user 1, by FedRec++:")
    assert [line.split()[0] for line in lines[place + 2 : place + 7]] == ["1", "2", "3", "4", "5"]
    report = tmp_path / "demo" / "report.html"
    assert lines[-1] == f"report: {report}"
    page = report.read_text()
    assert "FedRec++" in page
    assert "synthetic" in page
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {*demo.JOBS, "report.html"}
    assert all(read_run(tmp_path / "demo" / name).is_done for name in demo.JOBS)


def test_the_demo_can_be_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.show_demo(tmp_path)
    first = capsys.readouterr().out
    demo.show_demo(tmp_path)
    again = capsys.readouterr().out
    assert again.splitlines()[-9:] == first.splitlines()[-9:]


def test_a_loss_is_told_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a denoiser the noise stays in."""
    title, system, settings = demo.JOBS["fedrec++-rho-3"]
    lossy: dict[str, Any] = {**demo.JOBS, "fedrec++-rho-3": (title, system, {**settings, "denoisers": 0})}
    monkeypatch.setattr(demo, "JOBS", lossy)
    with pytest.raises(HushrecError, match="the lossless property does not hold"):
        demo.show_demo(tmp_path)
    assert "identical to the last bit: no" in capsys.readouterr().out


def test_without_a_network_the_data_are_synthetic_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    asked: list[str] = []

    def load(name: str, **_: object) -> hushrec.Interactions:
        asked.append(name)
        if name == "ml-100k":
            raise HushrecError("ml-100k could not be fetched")
        return hushrec.load(DATA)

    monkeypatch.setattr(demo, "load", load)
    assert demo._data().is_synthetic
    assert asked == ["ml-100k", "synthetic:users=943,items=1682,ratings=100000"]
    assert capsys.readouterr().err.splitlines() == ["ml-100k could not be fetched", "going on with synthetic data"]
