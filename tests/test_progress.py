import io
import sys
from typing import Any

import pytest
from rich.console import Console

import hushrec
from hushrec.progress import counting


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    for is_wanted in (None, False):
        with counting("fit", 3, is_wanted) as tell:
            tell(3)
    assert capsys.readouterr() == ("", "")


def test_who_asks_gets_a_bar_without_a_terminal_too(capsys: pytest.CaptureFixture[str]) -> None:
    with counting("fit [red]", 3, True) as tell:
        tell(2)
    told = capsys.readouterr()
    assert told.out == ""
    assert "fit [red]" in told.err
    assert "round 2/3" in told.err


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda stderr: Console(file=screen, force_terminal=True, width=100)
    )
    data = hushrec.load("synthetic:users=20,items=15,ratings=100")
    hushrec.FedRec(rho=0, num_rounds=4, num_factors=2, preset="paper").fit(data)
    assert "round 4/4" in screen.getvalue()


class Display:
    """What IPython shows: lines that are written over."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    HTML = staticmethod(str)

    def display(self, line: str, display_id: bool) -> Any:
        assert display_id
        self.lines.append(line)
        return self

    def update(self, line: str) -> None:
        self.lines.append(line)


def test_a_notebook_gets_a_line_that_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Display()
    monkeypatch.setattr(Console, "is_jupyter", True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda stderr: Console(force_jupyter=True))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)  # type: ignore[arg-type]
    with counting("<fit>", 9) as tell:
        for number in range(1, 8):
            tell(number)
    assert shown.lines[0].startswith('&lt;fit&gt; <progress value="0" max="9"></progress> round 0/9')
    assert "round 7/9" in shown.lines[-1]
    assert len(shown.lines) < 7, "it is not written at every round"
