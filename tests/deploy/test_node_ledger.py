"""What a node gave away is never more than its budget, whatever is killed and however runs are interleaved."""

import math
import multiprocessing
import os
import signal
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.deploy.node_ledger import (
    Cost,
    NodeLedger,
    Opened,
    OverBudget,
    cost_of,
    parse_budget,
    spent_of,
    total_epsilon,
    total_rounds,
)
from hushrec.errors import HushrecError, LostForGoodError
from hushrec.privacy.ledger import DELTA, Ledger, Release, epsilon_of_gaussian
from hushrec.protocol import Spending

NOW = "2026-11-18T12:00:00+00:00"


def opened(run: str, rounds: int = 10, spending: Spending | None = None, system: str = "fedrec") -> Opened:
    return Opened(run, NOW, system, {"rounds": rounds}, "protected", cost_of(rounds, spending))


def gaussian(multiplier: float, delta: float = DELTA) -> Spending:
    return Spending(epsilon_of_gaussian(multiplier, delta), delta, "user", multiplier)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger.jsonl"


# --- The file --------------------------------------------------------------------------------------------------


def test_a_ledger_comes_back_as_it_was(path: Path) -> None:
    ledger = NodeLedger(path)
    assert ledger.entries() == {}
    ledger.open(opened("aa"), {})
    ledger.open(opened("bb", spending=gaussian(2.0)), {})
    for number in (1, 2, 2, 1):
        ledger.note_round("aa", number, NOW)
    ledger.end("aa", None, NOW)
    again = NodeLedger(path).entries()
    assert again == ledger.entries()
    assert again["aa"].rounds == {1, 2}
    assert again["aa"].cost == Cost(2)
    assert again["bb"].cost == Cost(10, epsilon_of_gaussian(2.0, DELTA), 2.0)
    assert len(path.read_bytes().splitlines()) == 5
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}


def test_lines_are_only_added(path: Path) -> None:
    ledger, before = NodeLedger(path), b""
    for step in (
        lambda: ledger.open(opened("aa"), {}),
        lambda: ledger.note_round("aa", 1, NOW),
        lambda: ledger.note_round("aa", 2, NOW),
        lambda: ledger.end("aa", None, NOW),
    ):
        step()
        assert path.read_bytes().startswith(before)
        assert len(path.read_bytes()) > len(before)
        before = path.read_bytes()


def test_a_line_is_on_disk_before_anything_goes_on(path: Path) -> None:
    ledger, synced = NodeLedger(path), list[int]()
    with patch.object(os, "fsync", lambda _file: synced.append(path.stat().st_size)):
        ledger.open(opened("aa"), {})
        ledger.note_round("aa", 1, NOW)
    assert len(synced) == 2
    assert synced[-1] == path.stat().st_size


def some_ledger(path: Path) -> bytes:
    ledger = NodeLedger(path)
    ledger.open(opened("aa"), {})
    ledger.note_round("aa", 1, NOW)
    ledger.note_round("aa", 2, NOW)
    return path.read_bytes()


def test_what_a_killed_process_had_begun_to_write_is_dropped(path: Path) -> None:
    """Wherever it was cut: its reply never left."""
    whole = some_ledger(path)
    first = whole[: whole.rindex(b"\n", 0, -1) + 1]
    for length in range(len(first), len(whole)):
        path.write_bytes(whole[:length])
        ledger = NodeLedger(path)
        assert ledger.entries()["aa"].rounds == {1}
        ledger.note_round("aa", 2, NOW)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_changed_byte_is_refused_in_one_line(path: Path, line: int) -> None:
    whole = some_ledger(path)
    place = sum(len(one) + 1 for one in whole.split(b"\n")[:line]) + 80
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(
        LostForGoodError, match=f"is damaged in line {line + 1}: what this node gave away"
    ) as raised:
        NodeLedger(path).entries()
    assert "\n" not in str(raised.value)


def test_a_line_that_is_taken_out_is_missed(path: Path) -> None:
    lines = some_ledger(path).splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(LostForGoodError, match="damaged in line 2"):
        NodeLedger(path).entries()


def test_a_file_that_shrinks_or_goes_under_a_running_node_is_refused(path: Path) -> None:
    some_ledger(path)
    ledger = NodeLedger(path)
    assert "aa" in ledger.entries()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(LostForGoodError, match="has become shorter"):
        ledger.check_round("aa", 3)
    path.unlink()
    with pytest.raises(LostForGoodError, match="is gone"):
        ledger.open(opened("bb"), {})


def test_a_full_disk_is_an_error_and_leaves_the_ledger_whole(path: Path) -> None:
    whole = some_ledger(path)
    ledger = NodeLedger(path)
    ledger.entries()
    write = os.fdopen

    class Short:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Short":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            return int(self.file.write(data[:10]))

    with (
        patch.object(os, "fdopen", lambda *about: Short(write(*about))),
        pytest.raises(HushrecError, match="make room on the disk"),
    ):
        ledger.note_round("aa", 3, NOW)
    assert NodeLedger(path).entries()["aa"].rounds == {1, 2}
    ledger.note_round("aa", 3, NOW)
    assert path.read_bytes().startswith(whole)
    assert NodeLedger(path).entries()["aa"].rounds == {1, 2, 3}


# --- Rounds ----------------------------------------------------------------------------------------------------


def test_rounds_are_those_that_the_run_was_charged_for(path: Path) -> None:
    ledger = NodeLedger(path)
    ledger.open(opened("aa", rounds=3), {})
    for number in (0, 4, 1000):
        with pytest.raises(OverBudget, match=f"round {number} of a run of 3; order a new run"):
            ledger.check_round("aa", number)
        with pytest.raises(OverBudget, match=f"round {number} of a run of 3"):
            ledger.note_round("aa", number, NOW)
    with pytest.raises(OverBudget, match="not in this node's ledger"):
        ledger.check_round("bb", 1)


def test_nothing_new_is_answered_in_a_run_that_has_ended(path: Path) -> None:
    ledger = NodeLedger(path)
    ledger.open(opened("aa"), {})
    ledger.note_round("aa", 1, NOW)
    ledger.end("aa", None, NOW)
    ledger.end("aa", None, NOW)
    ledger.check_round("aa", 1)  # the last answer may have been lost
    ledger.open(opened("aa"), {})
    with pytest.raises(OverBudget, match="round 2 of a run that has ended on this node"):
        ledger.check_round("aa", 2)
    assert len(path.read_bytes().splitlines()) == 3


def test_a_run_keeps_its_settings(path: Path) -> None:
    ledger = NodeLedger(path)
    ledger.open(opened("aa", rounds=3), {})
    for other in (opened("aa", rounds=4), opened("aa", rounds=3, system="sdcf")):
        with pytest.raises(OverBudget, match="the same run with other settings"):
            ledger.open(other, {})


# --- Budgets ---------------------------------------------------------------------------------------------------


def test_a_run_holds_the_most_that_it_may_cost_and_gives_back_the_rest(path: Path) -> None:
    ledger, budget = NodeLedger(path), {"rounds": 25.0}
    ledger.open(opened("aa"), budget)
    ledger.open(opened("bb"), budget)
    told = "this run may cost rounds 10, and of this node's budget 5 is left"
    with pytest.raises(OverBudget, match=told):
        ledger.check_open(opened("cc"), budget)
    with pytest.raises(OverBudget, match=told):
        ledger.open(opened("cc"), budget)
    ledger.note_round("aa", 1, NOW)
    ledger.end("aa", None, NOW)
    ledger.open(opened("cc"), budget)
    ledger.open(opened("cc"), budget)  # known: not charged twice
    assert spent_of("rounds", ledger.entries().values()) == 21
    with pytest.raises(OverBudget, match=r"of this node's budget 4 is left"):
        ledger.open(opened("dd"), budget)


def test_a_budget_that_was_lowered_stops_what_goes_on(path: Path) -> None:
    ledger = NodeLedger(path)
    ledger.open(opened("aa"), {"rounds": 10.0})
    with pytest.raises(OverBudget):
        ledger.open(opened("aa"), {"rounds": 9.0})


def test_a_budget_of_one_system_is_for_that_one(path: Path) -> None:
    ledger, budget = NodeLedger(path), {"sdcf:rounds": 10.0, "fcf:epsilon": 1.0}
    ledger.open(opened("aa", 1000), budget)
    ledger.open(opened("bb", system="sdcf"), budget)
    with pytest.raises(OverBudget, match="may cost sdcf:rounds 10"):
        ledger.open(opened("cc", system="sdcf"), budget)


def test_epsilon_is_for_runs_with_noise_and_no_others_are_taken(path: Path) -> None:
    ledger, budget = NodeLedger(path), {"epsilon": 8.0}
    with pytest.raises(OverBudget, match="no noise bounds what this run tells; order it with --epsilon-total"):
        ledger.open(opened("aa"), budget)
    loose = Spending(0.1, 0.5, "user")  # delta of one half promises nothing
    with pytest.raises(OverBudget, match="no noise bounds"):
        ledger.open(opened("aa", spending=loose), budget)
    ledger.open(opened("aa", spending=Spending(5.0, 1e-6, "rating")), budget)
    with pytest.raises(OverBudget, match="may cost epsilon 5, and of this node's budget 3 is left"):
        ledger.open(opened("bb", spending=Spending(5.0, DELTA, "rating")), budget)
    ledger.open(opened("bb", spending=Spending(3.0, DELTA, "rating")), budget)


def test_a_large_delta_does_not_make_gaussian_noise_cheap(path: Path) -> None:
    """Epsilon is counted at our delta, whatever the operator's is."""
    honest, cheat = cost_of(1, gaussian(0.5)), cost_of(1, gaussian(0.5, delta=0.4))
    assert cheat == honest
    assert gaussian(0.5, delta=0.4).epsilon < (honest.epsilon or 0) / 2


def test_gaussian_runs_add_up_as_the_accountant_says() -> None:
    pytest.importorskip("dp_accounting")
    costs = [cost_of(5, gaussian(multiplier)) for multiplier in (1.0, 2.0, 4.0)]
    releases = [Release("gaussian", cost.epsilon or 0, 1, "user", cost.multiplier) for cost in costs]
    assert total_epsilon(costs) == pytest.approx(Ledger(releases).total(), rel=1e-3)
    assert total_epsilon(costs) < sum(cost.epsilon or 0 for cost in costs)


def test_nothing_is_spent_where_nothing_was_answered(path: Path) -> None:
    ledger = NodeLedger(path)
    ledger.open(opened("aa", spending=gaussian(1.0)), {"epsilon": 10.0})
    ledger.end("aa", gaussian(1.0), NOW)
    assert ledger.entries()["aa"].cost == Cost(0, 0.0)


def test_a_run_that_was_given_up_is_closed_by_its_owner(path: Path) -> None:
    ledger = NodeLedger(path)
    ledger.open(opened("aabb"), {})
    ledger.open(opened("aacc", spending=gaussian(1.0)), {})
    ledger.note_round("aabb", 1, NOW)
    ledger.note_round("aacc", 1, NOW)
    for start, number in (("aa", 2), ("bb", 0)):
        with pytest.raises(HushrecError, match=f"--close {start}: {number} runs that go on begin so"):
            ledger.close(start, NOW)
    ledger.close("aab", NOW)
    ledger.close("aac", NOW)
    assert ledger.entries()["aabb"].cost == Cost(1)
    assert ledger.entries()["aacc"].cost == Cost(1, epsilon_of_gaussian(1.0, DELTA), 1.0)
    with pytest.raises(HushrecError, match="0 runs"):
        ledger.close("aabb", NOW)


@pytest.mark.parametrize("text", ["epsilon", "epsilon=", "epsilon=-1", "rounds=nan", "rounds=inf", "eps=8", "=3"])
def test_a_budget_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(HushrecError, match="write epsilon=8, rounds=500 or fedrec:rounds=100"):
        parse_budget([text], ["fedrec"])


def test_budgets_as_they_are_typed() -> None:
    typed = ["epsilon=8", " rounds = 500 ", "fedrec:rounds=0"]
    assert parse_budget(typed, ["fedrec"]) == {"epsilon": 8.0, "rounds": 500.0, "fedrec:rounds": 0.0}
    with pytest.raises(HushrecError, match="does not take part in sdcf"):
        parse_budget(["sdcf:rounds=3"], ["fedrec"])


# --- Whatever happens ------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["enrol", "round", "end", "kill", "close"]),
        st.integers(0, 4),  # which run
        st.integers(1, 6),  # which round, or how many
        st.floats(0.05, 5.0),  # noise
        st.integers(0, 200),  # where a killed process stops to write
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(STEPS, st.integers(0, 15), st.floats(0.1, 30.0), st.integers(0, 3))
def test_no_budget_is_ever_overdrawn(
    steps: list[tuple[str, int, int, float, int]], most_rounds: int, most_epsilon: float, num_nodes: int
) -> None:
    """Two processes keep one ledger; one that is killed may leave half a line. What left is within the budget."""
    budget = {"rounds": float(most_rounds), "epsilon": most_epsilon}
    left: dict[str, set[int]] = {}  # rounds whose replies have left, by run
    noise: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, patch.object(os, "fsync", lambda _file: None):
        path = Path(folder) / "ledger.jsonl"
        ledgers = [NodeLedger(path) for _ in range(num_nodes + 1)]
        for place, (what, number, amount, multiplier, cut) in enumerate(steps):
            ledger, run = ledgers[place % len(ledgers)], f"run-{number}"
            try:
                if what == "enrol":
                    noise.setdefault(run, multiplier)
                    ledger.open(opened(run, amount, gaussian(noise[run])), budget)
                elif what == "round":
                    ledger.check_round(run, amount)
                    ledger.note_round(run, amount, NOW)
                    left.setdefault(run, set()).add(amount)
                elif what == "end":
                    ledger.end(run, gaussian(noise.get(run, 1.0)), NOW)
                elif what == "close":
                    ledger.close(run, NOW)
                else:  # killed while it writes a line
                    with path.open("ab") as file:
                        file.write(b"0123456789abcdef"[: cut % 16])
                    ledgers[place % len(ledgers)] = NodeLedger(path)
            except HushrecError:
                pass
            _assert_within(NodeLedger(path), budget, left, noise)


def _assert_within(ledger: NodeLedger, budget: dict[str, float], left: dict[str, set[int]], noise: Any) -> None:
    entries = ledger.entries()
    for name, most in budget.items():
        assert spent_of(name, entries.values()) <= most * (1 + 1e-8)
    assert {run: entry.rounds for run, entry in entries.items() if entry.rounds} == left
    assert sum(map(len, left.values())) <= total_rounds(entry.cost for entry in entries.values())
    gone = [cost_of(1, gaussian(noise[run])) for run in left]
    assert total_epsilon(gone) <= budget["epsilon"] * (1 + 1e-8)


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8))
def test_runs_together_cost_no_less_than_each_and_no_more_than_their_sum(multipliers: list[float]) -> None:
    costs = [cost_of(1, gaussian(multiplier)) for multiplier in multipliers]
    total = total_epsilon(costs)
    assert total >= max(cost.epsilon or 0.0 for cost in costs) * (1 - 1e-9)
    # The plain sum has the deltas of all; at one delta the total may be above it where noise is large.
    smaller = sum(epsilon_of_gaussian(multiplier, DELTA / len(costs)) for multiplier in multipliers)
    assert total <= smaller * (1 + 1e-9)
    assert math.isfinite(total)


# --- Several processes -----------------------------------------------------------------------------------------


def _take_part(path: str, name: str, begins: Any) -> None:
    """Open runs of ten rounds as long as there is budget, and answer them."""
    begins.wait()
    ledger = NodeLedger(Path(path))
    for number in range(10):
        run = f"{name}-{number}"
        try:
            ledger.open(opened(run), {"rounds": 50.0})
        except OverBudget:
            break
        for round_number in range(1, 11):
            ledger.note_round(run, round_number, NOW)


def test_processes_together_stay_within_a_budget(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    begins = context.Barrier(2)
    workers = [
        context.Process(target=_take_part, args=(str(path), name, begins), daemon=True) for name in ("a", "b")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    entries = NodeLedger(path).entries()
    assert len(entries) == 5
    assert all(entry.rounds == set(range(1, 11)) for entry in entries.values())


def _answer_for_ever(path: str, told: Any) -> None:
    ledger = NodeLedger(Path(path))
    for number in range(1, 100_000):
        ledger.note_round("aa", number, NOW)
        told.send(number)  # the reply leaves


def test_a_killed_process_has_written_down_all_that_left(path: Path) -> None:
    NodeLedger(path).open(opened("aa", rounds=100_000), {})
    context = multiprocessing.get_context("spawn")
    last = 0
    for wanted in (20, 40):
        reader, writer = context.Pipe(duplex=False)
        worker = context.Process(target=_answer_for_ever, args=(str(path), writer), daemon=True)
        worker.start()
        writer.close()
        assert worker.pid is not None
        while last < wanted:
            last = max(last, reader.recv())
        os.kill(worker.pid, signal.SIGKILL)
        worker.join(30)
        with suppress(EOFError):
            while True:
                last = max(last, reader.recv())
        rounds = NodeLedger(path).entries()["aa"].rounds
        assert set(range(1, last + 1)) <= rounds
        assert len(rounds) == max(rounds)
