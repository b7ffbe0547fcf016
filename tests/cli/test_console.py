import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from hushrec.cli import console
from hushrec.cli.alphabet import PLAIN
from hushrec.cli.console import note, notes, results, watching
from hushrec.runs.watching import FoldProgress


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def test_results_go_to_stdout_and_notes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    results().print("a result")
    note("a note")
    notes().print("more")
    out, err = capsys.readouterr()
    assert (out, err) == ("a result\n", "a note\nmore\n")


def test_notes_are_one_line_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    text = "[bold]x[/nosuch] " + "word " * 80
    note(text)
    assert capsys.readouterr().err == f"{text}\n"


def test_tables_keep_their_width_when_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results().width == console.PIPED_WIDTH
    monkeypatch.setenv("COLUMNS", "60")
    assert results().width == console.PIPED_WIDTH


def progress_of(fold: int, round_number: int) -> FoldProgress:
    return FoldProgress(fold, 2, round_number, 3, {"MAE": 0.5, "RMSE": 0.98765}, 2_500_000)


def bar_of(watch: Any) -> Any:
    """The bar that a watcher moves: its own account of how far it is."""
    return next(cell.cell_contents for cell in watch.__closure__ if hasattr(cell.cell_contents, "tasks"))


def test_progress_shows_fold_round_metric_bytes_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(console, "_console", lambda is_error: terminal)
    with watching("fedrec", 3, 2) as watch:
        for fold in (1, 2):
            for round_number in (1, 2, 3):
                watch(progress_of(fold, round_number))
                assert bar_of(watch).tasks[0].completed == 3 * (fold - 1) + round_number
        assert bar_of(watch).tasks[0].total == 6
        bar_of(watch).refresh()
        text = screen.getvalue().rpartition("\r")[2]
    for part in ("fedrec fold 2/2", "round 3/3", "RMSE 0.9877", "2.50 MB sent", "left 0:00:00"):
        assert part in text


def test_progress_of_one_fold_and_without_ratings() -> None:
    with watching("fedrec", 3, 1) as watch:
        watch(FoldProgress(1, 1, 2, 3, {"NDCG@10": 0.25}, 10))
        (task,) = bar_of(watch).tasks
        assert task.completed == 2
        assert task.description == "fedrec"
        assert task.fields["metric"] == "NDCG@10 0.2500"


def test_progress_goes_to_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("fedrec", 3, 2) as watch:
        watch(progress_of(1, 1))
    assert capsys.readouterr().out == ""


def test_a_note_stands_above_the_progress_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is erased before the note, and written again below it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with watching("job", 3, 1):
        note("node-2 is lost")
    shown = capsys.readouterr().err
    before, _, after = shown.partition("node-2 is lost")
    assert "round 0/3" in before
    assert before.rpartition("\x1b[2K")[2] in ("", "\x1b[2m")  # erased; at most dim
    assert "round 0/3" in after
    note("later")
    assert "round" not in capsys.readouterr().err


def test_progress_leaves_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("fedrec", 3, 2) as watch:
        watch(progress_of(1, 1))
    assert capsys.readouterr().err == ""


def test_progress_counts_folds_that_were_finished_before() -> None:
    with watching("fedrec", 3, 2) as watch:
        watch(progress_of(2, 3))
        assert bar_of(watch).tasks[0].completed == 6


def test_time_left_is_told_of_rounds_that_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 seconds a round, 4 of 6 left."""
    now = [0.0]
    terminal = Console(file=io.StringIO(), force_terminal=True, get_time=lambda: now[0])
    monkeypatch.setattr(console, "_console", lambda is_error: terminal)
    with watching("fedrec", 3, 2) as watch:
        for round_number in (1, 2):
            now[0] = 50.0 * round_number
            watch(progress_of(1, round_number))
        assert bar_of(watch).tasks[0].time_remaining == 200


def test_without_a_terminal_a_line_is_written_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with watching("fedrec", 3, 2) as watch:
        for seconds in (59.0, 60.0, 119.0):
            now[0] = seconds
            watch(progress_of(1, 2))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedrec fold 1/2: round 2/3, RMSE 0.9877, 2.50 MB sent")


def test_texts_are_printed_as_they_are_in_tables_too(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a", box=None, pad_edge=False)
    table.add_row("[red]x[/nosuch] :smile:")
    results().print("[bold]y", ":smile:")
    results().print(table)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["[bold]y :smile:", "a", "[red]x[/nosuch] :smile:"]


# --- Tables of any width -----------------------------------------------------------------------------------------


def shown_at(width: int, table: Table, monkeypatch: pytest.MonkeyPatch, num_keys: int = 1) -> list[str]:
    screen = io.StringIO()
    terminal = Console(file=screen, width=width, color_system=None, markup=False, emoji=False, highlight=False)
    monkeypatch.setattr(console, "results", lambda: terminal)
    console.show(table, num_keys)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def board() -> Table:
    table = Table("name", "title", box=None, pad_edge=False)
    table.add_column("score", justify="right")
    table.add_row("one", "[red]Alien[/red] :smile:", "0.5 KB")
    table.add_row("two", "Dune", "0.25 KB")
    return table


def test_a_table_that_fits_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_at(60, board(), monkeypatch) == [
        "name  title                       score",
        "one   [red]Alien[/red] :smile:   0.5 KB",
        "two   Dune                      0.25 KB",
    ]


def test_a_narrower_one_is_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and title have 4 + 2 + 24 columns, the score needs 2 + 7 more."""
    assert shown_at(30, board(), monkeypatch) == [
        "name  title",
        "one   [red]Alien[/red] :smile:",
        "two   Dune",
        "name    score",
        "one    0.5 KB",
        "two   0.25 KB",
    ]


def test_the_narrowest_is_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown_at(18, board(), monkeypatch)
    assert lines[0] == "name     one"
    assert "  score  0.25 KB" in lines
    words = "".join("".join(lines).split())
    assert "[red]Alien[/red]:smile:" in words.replace("title", "")
    assert all(len(line) <= 18 for line in lines)


def listing() -> Table:
    """A rank and an id say what a row is of."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "item", "score"):
        table.add_column(heading, justify="right")
    table.add_column("title")
    table.add_row("1", "i16", "3.02", "Close Shave")
    table.add_row("2", "i7", "2.85", "A" * 60)
    return table


def test_stacked_rows_keep_all_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown_at(16, listing(), monkeypatch, num_keys=2)
    assert lines[:4] == ["item     1 i16", "  score  3.02", "  title  Close", "         Shave"]
    assert "".join(lines).count("A") == 60


@given(
    widths=st.lists(st.tuples(st.integers(1, 45), st.integers(1, 30), st.booleans()), min_size=2, max_size=7),
    width=st.integers(20, 120),
    num_keys=st.integers(1, 2),
)
def test_no_letter_is_lost_at_any_width(widths: list[tuple[int, int, bool]], width: int, num_keys: int) -> None:
    """Columns of words of one length and of several, of text and of numbers."""
    table = Table(box=None, pad_edge=False)
    for place, (_, _, is_number) in enumerate(widths):
        table.add_column(f"heading {place}", justify="right" if is_number else "left")
    cells = [
        chr(ord("a") + place) * long if is_number else " ".join([chr(ord("a") + place) * short] * 3)
        for place, (long, short, is_number) in enumerate(widths)
    ]
    table.add_row(*(cell.upper() for cell in cells))
    with pytest.MonkeyPatch.context() as monkeypatch:
        lines = shown_at(width, table, monkeypatch, num_keys)
    assert max(map(len, lines)) <= width
    shown = "".join(lines)
    for place, cell in enumerate(cells):
        letter = chr(ord("A") + place)
        times = shown.count(letter) / cell.upper().count(letter)
        assert times >= 1
        assert place < num_keys or times == 1


def test_one_long_word_does_not_stack_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown_at(60, listing(), monkeypatch)
    assert lines[0].split() == ["item", "score", "title"]
    assert "".join(lines).count("A") == 60
    assert len(lines) == 4


def test_letters_that_take_two_columns_are_counted_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of them and a number need 12 + 2 + 5 columns: 18 are too few to have them beside each other."""
    table = Table("title", "score", box=None, pad_edge=False)
    table.add_row("映画映画映画", "1")
    assert len(shown_at(19, table, monkeypatch)) == 2
    assert shown_at(18, table, monkeypatch) == ["title    映画映画", "         映画", "  score  1"]


def test_control_characters_break_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("title", "score", box=None, pad_edge=False)
    table.add_row("two\nlines\x1b[2J", "1")
    assert shown_at(60, table, monkeypatch)[1] == "two\\nlines\\u001b[2J  1"


def test_a_terminal_of_few_letters_has_straight_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding="ascii", errors=PLAIN)
    terminal = Console(file=screen, width=60, color_system=None)
    monkeypatch.setattr(console, "results", lambda: terminal)
    table = Table("title", "score", box=None, pad_edge=False)
    table.add_row("Amélie", "1 ± 2")
    table.add_row("Dune", "3")
    console.show(table)
    screen.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert lines[1].rstrip() == "Am\\u00e9lie  1 +- 2"
    assert lines[2].index("3") == lines[1].index("1 +-")


def test_progress_has_no_markup_and_fits_narrow_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (40, 120):
        screen = io.StringIO()
        terminal = Console(file=screen, force_terminal=True, width=width, color_system=None)
        monkeypatch.setattr(console, "_console", lambda is_error, terminal=terminal: terminal)
        with watching("[red]x[/nosuch] :smile:", 3, 1) as watch:
            watch(FoldProgress(1, 1, 2, 3, {"RMSE": 0.98765}, 2_500_000))
            bar_of(watch).refresh()
        text = "".join(screen.getvalue().split())
        for part in ("[red]x[/nosuch]:smile:", "round2/3", "RMSE0.9877", "2.50MBsent"):
            assert part in text
