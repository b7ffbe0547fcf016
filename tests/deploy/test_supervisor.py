"""Whoever watches over a run brings it to its end. Clock and sessions are false here, the driver in part real."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from deploy.federation import (
    Expected,
    Fate,
    Federation,
    Leg,
    Lost,
    Ordered,
    ServerKilled,
    in_process,
    losing_from,
    small,
    some_split,
)
from deploy.watching import NODES, Clock, Engine, Job, driving, supervised
from hushrec.deploy import supervisor
from hushrec.deploy.driver import read_report
from hushrec.deploy.engines import JobState
from hushrec.deploy.orders import Attempt
from hushrec.deploy.supervisor import Submitted, Supervisor, Terms
from hushrec.errors import HushrecError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    return clock


def script(*steps: Callable[[Engine, int], JobState]) -> Job:
    """What each attempt does; the last step is repeated."""

    def job(engine: Engine, attempt: Attempt, _nodes: Sequence[str]) -> JobState:
        return steps[min(attempt.attempt, len(steps)) - 1](engine, attempt.attempt)

    return job


def done(engine: Engine, attempt: int) -> JobState:
    engine.tell(attempt, "done", 5)
    return JobState.DONE


def losing(name: str, round_number: int, is_proven: bool = True) -> Callable[[Engine, int], JobState]:
    def step(engine: Engine, attempt: int) -> JobState:
        why = "a frame ends 4 bytes too early" if is_proven else "refused: cannot"
        reason = f"round {round_number + 1}, ItemFactors: lost {name} ({why})"
        proven = [name] if is_proven else []
        engine.tell(attempt, "paused", round_number, lost={name: why}, reason=reason, proven=proven)
        return JobState.DONE

    return step


def crashing(round_number: int) -> Callable[[Engine, int], JobState]:
    def step(engine: Engine, attempt: int) -> JobState:
        engine.tell(attempt, "running", round_number)
        return JobState.FAILED

    return step


def hanging(engine: Engine, attempt: int) -> JobState:
    engine.tell(attempt, "running", 2)
    return JobState.RUNNING


def silent(_engine: Engine, _attempt: int) -> JobState:
    return JobState.RUNNING


# --- Jobs that end in one way or another -----------------------------------------------------------------------


def test_a_run_without_mishap_is_one_job(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(done))
    watcher, told, watched = supervised(engine)
    watcher.run()
    assert engine.attempts == [Attempt(tmp_path.name, 1, [])]
    assert told == []
    assert [report.status for report in watched] == ["done"]
    assert engine.closed == engine.sessions


def test_a_job_that_crashes_is_submitted_again(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(crashing(1), crashing(3), done))
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert [attempt.attempt for attempt in engine.attempts] == [1, 2, 3]
    assert told == [
        "the job ended after round 1; going on with a new one",
        "the job ended after round 3; going on with a new one",
    ]
    assert engine.closed == engine.sessions


def test_a_job_that_ends_without_a_word_is_submitted_again(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(lambda _engine, _attempt: JobState.FAILED, done))
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert told == ["the job ended after round 0; going on with a new one"]


def test_words_of_an_earlier_job_do_not_count(tmp_path: Path, clock: Clock) -> None:
    """A report that says done, of an attempt before, does not end the one that runs."""

    def stale(engine: Engine, attempt: int) -> JobState:
        engine.tell(attempt - 1, "done", 5)
        return JobState.FAILED

    engine = Engine(tmp_path, clock, script(crashing(1), stale, done))
    watcher, _, _ = supervised(engine)
    watcher.run()
    assert len(engine.attempts) == 3


def test_a_run_goes_on_after_its_watcher_died(tmp_path: Path, clock: Clock) -> None:
    """Numbers of attempts rise over all watchers, so that nodes can tell old packets from new ones."""
    engine = Engine(tmp_path, clock, lambda engine, attempt, _nodes: done(engine, attempt.attempt))
    engine.tell(7, "running", 3)
    watcher, _, _ = supervised(engine)
    watcher.run()
    assert engine.attempts[0].attempt == 8


def interrupted(engine: Engine, clock: Clock) -> None:
    """Somebody who orders a run, sees a part of it and presses Ctrl-C."""
    sleep, until = clock.sleep, clock.now + 5

    def sleep_until_then(seconds: float) -> None:
        sleep(seconds)
        if clock.now > until:
            raise KeyboardInterrupt

    clock.sleep = sleep_until_then  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        supervised(engine)[0].run()
    clock.sleep = sleep  # type: ignore[method-assign]


def test_a_job_that_runs_without_a_watcher_is_watched_again(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(hanging))
    interrupted(engine, clock)
    watcher, told, watched = supervised(engine)
    sleep = clock.sleep

    def sleep_and_work(seconds: float) -> None:
        sleep(seconds)
        done(engine, 1)

    clock.sleep = sleep_and_work  # type: ignore[method-assign]
    watcher.run()
    assert [attempt.attempt for attempt in engine.attempts] == [1]
    assert told == ["the run has gone on by itself; watching over it from round 3 on"]
    assert [report.status for report in watched] == ["done"]


LEFT: dict[str, Callable[[Engine], None]] = {
    "it crashed": lambda engine: engine.states.update({"job-1": JobState.FAILED}),
    "the server does not know it": lambda engine: engine.states.clear(),
    "it paused": lambda engine: engine.tell(1, "paused", 2, lost={"node-2": "no reply"}, reason="lost node-2"),
    "it is not known which it is": lambda engine: (engine.folder / "job.json").write_bytes(
        msgspec.json.encode(Submitted(engine.attempts[0]))
    ),
}


@pytest.mark.parametrize("fate", LEFT.values(), ids=list(LEFT))
def test_a_job_that_has_ended_without_a_watcher_is_followed_by_another(
    tmp_path: Path, clock: Clock, fate: Callable[[Engine], None]
) -> None:
    engine = Engine(tmp_path, clock, script(hanging, done))
    interrupted(engine, clock)
    fate(engine)
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert [attempt.attempt for attempt in engine.attempts] == [1, 2]
    assert told == []


def test_attempts_rise_also_if_a_job_never_told(tmp_path: Path, clock: Clock) -> None:
    """Packets of a job that was on its way when its watcher died are not mistaken for those of the next."""
    engine = Engine(tmp_path, clock, script(silent, done))
    interrupted(engine, clock)
    engine.states["job-1"] = JobState.FAILED
    supervised(engine)[0].run()
    assert [attempt.attempt for attempt in engine.attempts] == [1, 2]


def test_a_run_that_is_done_is_not_submitted_again(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(done))
    supervised(engine)[0].run()
    supervised(engine)[0].run()
    assert [attempt.attempt for attempt in engine.attempts] == [1]


def test_a_job_that_fails_for_good_is_an_error_of_one_line(tmp_path: Path, clock: Clock) -> None:
    def step(engine: Engine, attempt: int) -> JobState:
        engine.tell(attempt, "failed", 2, reason="round 3: the training diverges")
        return JobState.DONE

    engine = Engine(tmp_path, clock, script(step))
    watcher, _, _ = supervised(engine)
    with pytest.raises(HushrecError, match=r"^round 3: the training diverges$"):
        watcher.run()
    assert engine.closed == engine.sessions


def test_a_job_that_stands_still_is_aborted(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(hanging, done))
    watcher, told, _ = supervised(engine)
    before = clock.now
    watcher.run()
    assert engine.aborted == ["job-1"]
    assert told == ["no progress for 100 s; ending the job, going on with a new one"]
    assert 100 < clock.now - before < 103


def test_a_job_that_never_begins_is_aborted(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(silent, done))
    watcher, _, _ = supervised(engine)
    watcher.run()
    assert engine.aborted == ["job-1"]


def test_a_job_that_lost_nodes_is_ended_before_the_next_begins(tmp_path: Path, clock: Clock) -> None:
    """It may wait for their replies, and its workers keep those of the next job from the nodes' files."""

    def lingering(engine: Engine, attempt: int) -> JobState:
        losing("node-2", 1)(engine, attempt)
        return JobState.RUNNING

    engine = Engine(tmp_path, clock, script(lingering, done))
    watcher, _, _ = supervised(engine)
    watcher.run()
    assert engine.aborted == ["job-1"]
    assert len(engine.attempts) == 2


def test_a_job_that_cannot_be_aborted_is_left_behind(tmp_path: Path, clock: Clock) -> None:
    """The server does not answer when the stalled job is to be ended; it is back a moment later."""
    engine = Engine(tmp_path, clock, script(hanging, done))
    honest = engine.abort

    def unreachable(job_id: str) -> None:
        honest(job_id)
        raise HushrecError("the server cannot be reached")

    engine.abort = unreachable  # type: ignore[method-assign]
    watcher, _, _ = supervised(engine)
    watcher.run()
    assert len(engine.attempts) == 2


def test_progress_keeps_a_slow_job_alive(tmp_path: Path, clock: Clock) -> None:
    """A round every 9 s, with 10 s of patience for a round."""
    engine = Engine(tmp_path, clock, script(silent))
    start, sleep = clock.now, clock.sleep

    def sleep_and_work(seconds: float) -> None:
        sleep(seconds)
        rounds = int((clock.now - start) // 9)
        if engine.attempts and rounds:
            engine.tell(1, "done" if rounds >= 5 else "running", min(rounds, 5))

    clock.sleep = sleep_and_work  # type: ignore[method-assign]
    watcher, told, watched = supervised(engine, stall_seconds=10.0)
    watcher.run()
    assert told == []
    assert [report.round_number for report in watched] == [1, 2, 3, 4, 5]
    assert engine.aborted == []


def test_a_run_that_gets_nowhere_is_given_up(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(crashing(2)))
    watcher, _, _ = supervised(engine)
    with pytest.raises(HushrecError, match=r"no round was finished in 6 attempts; .* use --resume"):
        watcher.run()
    assert len(engine.attempts) == 7
    assert engine.closed == engine.sessions


def test_a_job_that_is_not_taken_is_offered_again(tmp_path: Path, clock: Clock) -> None:
    refusals = 2

    def job(engine: Engine, attempt: Attempt, _nodes: Sequence[str]) -> JobState:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise HushrecError("the server is busy")
        return done(engine, attempt.attempt)

    watcher, told, _ = supervised(Engine(tmp_path, clock, job))
    watcher.run()
    assert told == ["the job was not taken: the server is busy"] * 2


# --- Who is there ----------------------------------------------------------------------------------------------


def test_a_server_that_comes_late_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(done), answers_at=lambda seconds: seconds > 8)
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert len(engine.attempts) == 1
    assert told == ["waiting for the server, for up to 7 s (--patience)"]


def test_a_server_that_comes_soon_is_waited_for_without_a_word(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(done), answers_at=lambda seconds: seconds > 2)
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert told == []


def test_a_server_that_does_not_come_is_an_error(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(done), answers_at=lambda _seconds: False)
    watcher, _, _ = supervised(engine)
    with pytest.raises(HushrecError, match="cannot be reached, then use --resume"):
        watcher.run()
    assert 10 < clock.now - engine.started < 11


def test_a_server_that_dies_and_comes_back_goes_on(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(hanging, done), answers_at=lambda seconds: not 5 < seconds < 12)
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert told == [
        "the server does not answer (the server cannot be reached)",
        "the job ended after round 2; going on with a new one",
        "waiting for the server, for up to 7 s (--patience)",
    ]
    assert [attempt.attempt for attempt in engine.attempts] == [1, 2]


def test_the_last_words_before_a_server_died_count(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(done), answers_at=lambda seconds: seconds < 0.05)
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert told == []


def test_a_server_that_dies_while_nodes_are_waited_for_is_connected_anew(tmp_path: Path, clock: Clock) -> None:
    """The old session never answers again, a new one does."""
    engine = Engine(tmp_path, clock, script(done))
    broken = Engine(tmp_path, clock, script(done), answers_at=lambda _seconds: False)
    sessions = [broken, engine]

    def connect() -> Engine:
        return sessions.pop(0) if len(sessions) > 1 else engine

    told = list[str]()
    Supervisor(tmp_path, NODES, connect, Terms(3, 10.0), told.append, lambda _report: None).run()
    assert len(engine.attempts) == 1


def test_sessions_that_never_tell_who_is_there_are_an_error(tmp_path: Path, clock: Clock) -> None:
    engine, num_asked = Engine(tmp_path, clock, script(done)), 0

    def connected() -> set[str]:
        nonlocal num_asked
        num_asked += 1
        assert num_asked < 1000, "it goes on for ever"
        raise HushrecError("the server is starting")

    engine.connected = connected  # type: ignore[method-assign]
    watcher, _, _ = supervised(engine)
    with pytest.raises(HushrecError):
        watcher.run()
    assert engine.closed == engine.sessions


def test_a_node_that_comes_late_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(
        tmp_path, clock, script(done), lambda seconds: set(NODES) if seconds > 8 else {"node-1", "node-3"}
    )
    watcher, told, _ = supervised(engine)
    watcher.run()
    assert told == ["waiting for node-2, for up to 7 s (--patience)"]
    assert engine.attempts[0].away == []


def test_who_is_waited_for_is_told_again_when_it_is_another(tmp_path: Path, clock: Clock) -> None:
    def present(seconds: float) -> set[str]:
        return {"node-1"} if seconds < 4 else {"node-1", "node-2"} if seconds < 8 else set(NODES)

    watcher, told, _ = supervised(Engine(tmp_path, clock, script(done), present))
    watcher.run()
    assert [line.partition(", for up")[0] for line in told] == ["waiting for node-2, node-3", "waiting for node-3"]


def test_a_node_that_does_not_come_is_done_without(tmp_path: Path, clock: Clock) -> None:
    seen: list[Sequence[str]] = []

    def job(engine: Engine, attempt: Attempt, nodes: Sequence[str]) -> JobState:
        seen.append(nodes)
        return done(engine, attempt.attempt)

    engine = Engine(tmp_path, clock, job, lambda _seconds: {"node-1", "node-3", "a stranger"})
    watcher, told, _ = supervised(engine, min_nodes=2)
    watcher.run()
    assert told == [
        "waiting for node-2, for up to 7 s (--patience)",
        "going on without node-2 from round 1 on",
    ]
    assert engine.attempts[0].away == ["node-2"]
    assert seen == [["node-1", "node-3"]]


@pytest.mark.parametrize(("present", "least"), [(2, 3), (1, 2), (0, 1)])
def test_never_fewer_nodes_than_agreed(tmp_path: Path, clock: Clock, present: int, least: int) -> None:
    engine = Engine(tmp_path, clock, script(done), lambda _seconds: set(NODES[:present]))
    watcher, _, _ = supervised(engine, min_nodes=least)
    expected = f"{present} of 3 nodes are there, {least} are needed; start the others, then use --resume"
    with pytest.raises(HushrecError, match=f"^{re.escape(expected)}$"):
        watcher.run()
    assert engine.attempts == []
    assert engine.closed == engine.sessions


def test_without_patience_those_who_are_there_are_enough(tmp_path: Path, clock: Clock) -> None:
    watcher, _, _ = supervised(Engine(tmp_path, clock, script(done)), patience_seconds=0.0)
    watcher.run()


# --- Strikes ---------------------------------------------------------------------------------------------------


def test_a_node_that_spoils_a_round_three_times_is_left_out(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(*[losing("node-2", 1)] * 3, done))
    watcher, told, _ = supervised(engine, min_nodes=2)
    watcher.run()
    lost = "round 2, ItemFactors: lost node-2 (a frame ends 4 bytes too early); going on from round 2"
    assert told == [lost, lost, lost, "node-2 failed 3 times in one round and is left out from now on"]
    assert [attempt.away for attempt in engine.attempts] == [[], [], [], ["node-2"]]


def test_losses_in_other_rounds_are_forgiven(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(*[losing("node-2", number) for number in (0, 0, 1, 1, 2, 2)], done))
    watcher, _, _ = supervised(engine)
    watcher.run()
    assert engine.attempts[-1].away == []


def test_who_only_refuses_is_never_left_out(tmp_path: Path, clock: Clock) -> None:
    """It is tried again as often as anything else; then one line names it, and says what to do."""
    engine = Engine(tmp_path, clock, script(losing("node-2", 1, is_proven=False)))
    watcher, told, _ = supervised(engine, min_nodes=2)
    expected = (
        "no round was finished in 6 attempts; it may be the fault of node-2 (refused: cannot); "
        "see their logs, stop who is at fault, then use --resume"
    )
    with pytest.raises(HushrecError, match=f"^{re.escape(expected)}$"):
        watcher.run()
    assert all(attempt.away == [] for attempt in engine.attempts)
    assert watcher.banned == {}
    assert not any("left out" in line for line in told)


def test_all_who_may_be_at_fault_are_named(tmp_path: Path, clock: Clock) -> None:
    def framed(engine: Engine, attempt: int) -> JobState:
        lost = {"node-1": "wrote mail that node-2 refused", "node-2": "refused: letter 1"}
        engine.tell(attempt, "paused", 1, lost=lost, reason="round 2: lost")
        return JobState.DONE

    engine = Engine(tmp_path, clock, script(framed))
    watcher, _, _ = supervised(engine, min_nodes=1)
    with pytest.raises(HushrecError, match=r"fault of node-1 \(wrote .*\) or node-2 \(refused: letter 1\); see"):
        watcher.run()
    assert watcher.banned == {}


def test_suspects_of_a_round_that_was_finished_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    steps = [losing("node-1", 1, is_proven=False), losing("node-3", 2, is_proven=False)]
    engine = Engine(tmp_path, clock, script(*steps, *[losing("node-3", 2, is_proven=False)] * 9))
    watcher, _, _ = supervised(engine)
    with pytest.raises(HushrecError, match=r"fault of node-3 \(refused: cannot\); see"):
        watcher.run()


def test_leaving_out_never_goes_below_the_least(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(tmp_path, clock, script(losing("node-2", 1)))
    watcher, told, _ = supervised(engine, min_nodes=3)
    with pytest.raises(
        HushrecError, match=r"2 of 3 nodes are there, 3 are needed \(node-2 failed: a frame ends .*\); start"
    ):
        watcher.run()
    assert len(engine.attempts) == 3
    assert all("\n" not in line for line in told)


# --- With the real driver --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3)


@cache
def expected(first_round: int, numbers: tuple[int, ...]) -> Expected:
    losses = losing_from(first_round, np.array(numbers))
    return in_process("fedrec++", small("fedrec++"), some_split(), losses)


def watched_over(
    federation: Federation, clock: Clock, mishap: Callable[[Leg], Fate | None], **values: Any
) -> tuple[Ordered, Supervisor, list[str], Engine]:
    ordered = federation.order("fedrec++")
    terms = {name: values.pop(name) for name in ("min_nodes",) if name in values}
    engine = Engine(ordered.folder, clock, driving(federation, mishap), **values)
    watcher, told, _ = supervised(engine, **terms)
    return ordered, watcher, told, engine


def lost(_deliver: Any, _packet: bytes) -> bytes:
    raise Lost("no reply within 60 s")


def test_a_run_with_kills_ends_with_the_same_bits(federation: Federation, clock: Clock) -> None:
    happened = set[str]()

    def mishap(leg: Leg) -> Fate | None:
        if leg.round_number < 2 or leg.phase in {"enrol", "assign", "start", "agree"} | happened:
            return None
        happened.add(leg.phase)

        def fate(deliver: Any, packet: bytes) -> bytes:
            deliver(packet)
            federation.kill(leg.node)
            raise ServerKilled if leg.phase == "ItemFactors" else Lost("killed")

        return fate

    ordered, watcher, told, _ = watched_over(federation, clock, mishap)
    watcher.run()
    ordered.assert_equals(expected(99, ()))
    assert told[0] == "the job ended after round 1; going on with a new one"
    assert [line.split(";")[1] for line in told[1:]] == [
        " going on from round 2", " going on from round 3", " going on from round 4",
    ]  # fmt: skip
    assert all("\n" not in line for line in told)


def test_a_node_that_never_answers_again_is_left_out_and_the_rest_is_lossless(
    federation: Federation, clock: Clock
) -> None:
    """Three times silent in one round: the run goes on as if it were not there, and nobody calls it a liar."""
    ordered, watcher, told, _ = watched_over(
        federation,
        clock,
        lambda leg: lost if leg.node == "node-2" and leg.round_number >= 2 else None,
        min_nodes=2,
    )
    watcher.run()
    ordered.assert_equals(expected(2, tuple(federation.numbers("node-2").tolist())), away=["node-2"])
    assert "node-2 was silent 3 times in one round and is left out from now on" in told


def test_a_node_that_disconnects_is_done_without_from_that_round_on(federation: Federation, clock: Clock) -> None:
    gone = list[str]()

    def mishap(leg: Leg) -> Fate | None:
        if leg.node == "node-3" and leg.round_number >= 3:
            gone.append(leg.node)
            return lost
        return None

    ordered, watcher, told, _ = watched_over(
        federation, clock, mishap, min_nodes=2, connected_at=lambda _seconds: set(NODES) - set(gone)
    )
    watcher.run()
    ordered.assert_equals(expected(3, tuple(federation.numbers("node-3").tolist())), away=["node-3"])
    assert told[-1] == "going on without node-3 from round 3 on"


def test_below_the_least_a_run_stops_and_can_be_resumed(federation: Federation, clock: Clock) -> None:
    """The operator starts the node again and resumes: nobody was lost for good."""
    gone = list[str]()

    def mishap(leg: Leg) -> Fate | None:
        if leg.node == "node-3" and leg.round_number == 2 and not gone:
            gone.append(leg.node)
            federation.kill("node-3")
            return lost
        return None

    present = lambda _seconds: set(NODES) - set(gone)  # noqa: E731
    ordered, watcher, _, engine = watched_over(federation, clock, mishap, min_nodes=3, connected_at=present)
    with pytest.raises(HushrecError, match="2 of 3 nodes are there, 3 are needed; start the others"):
        watcher.run()
    report = read_report(ordered.folder)
    assert report is not None
    assert (report.status, report.round_number) == ("paused", 1)
    gone[0] = ""
    again, _, _ = supervised(engine)
    again.run()
    ordered.assert_equals(expected(99, ()))
    assert [attempt.attempt for attempt in engine.attempts] == [1, 2]


def test_garbage_again_and_again_bans_its_sender_alone(federation: Federation, clock: Clock) -> None:
    def garbage(deliver: Any, packet: bytes) -> bytes:
        return deliver(packet)[::-1]

    ordered, watcher, told, _ = watched_over(
        federation,
        clock,
        lambda leg: garbage if leg.node == "node-1" and leg.round_number >= 2 else None,
        min_nodes=2,
    )
    watcher.run()
    ordered.assert_equals(expected(2, tuple(federation.numbers("node-1").tolist())), away=["node-1"])
    assert told[0] == (
        "round 2, ItemFactors: lost node-1 (not a packet of this version of hushrec); going on from round 2"
    )
