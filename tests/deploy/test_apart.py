"""Whoever waits for an engine can be interrupted, whatever the engine does."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from hushrec.deploy import apart
from hushrec.deploy.apart import Apart
from hushrec.deploy.engines import JobState
from hushrec.errors import HushrecError


@dataclass
class Engine:
    """A session that tells in which thread it is called, and hangs if it is told to."""

    hangs: threading.Event = field(default_factory=threading.Event)
    calls: list[tuple[str, bool]] = field(default_factory=list)

    def _called(self, what: str) -> None:
        self.calls.append((what, threading.current_thread() is threading.main_thread()))

    def connected(self) -> set[str]:
        self._called("connected")
        return {"node-1"}

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        self._called("submit")
        return f"{job.decode()} on {', '.join(nodes)}"

    def state(self, job_id: str) -> JobState:
        self._called("state")
        raise HushrecError(f"no job {job_id}")

    def abort(self, job_id: str) -> None:
        self._called("abort")

    def close(self) -> None:
        self._called("close")
        self.hangs.wait(60)


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Press Ctrl-C soon, as a terminal does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    yield
    timer.cancel()
    signal.signal(signal.SIGINT, before)


def test_calls_are_made_elsewhere_and_come_back() -> None:
    engine = Engine()
    engine.hangs.set()
    session = Apart(lambda: engine)
    assert session.connected() == {"node-1"}
    assert session.submit(b"job", ["a", "b"]) == "job on a, b"
    with pytest.raises(HushrecError, match="no job 7"):
        session.state("7")
    session.abort("7")
    session.close()
    assert engine.calls == [(what, False) for what in ("connected", "submit", "state", "abort", "close")]


@pytest.mark.usefixtures("_ctrl_c")
def test_a_connection_that_hangs_is_left_on_ctrl_c() -> None:
    """Not in its midst: what the call itself waits for is not interrupted."""
    hangs, has_ended = threading.Event(), threading.Event()

    def connect() -> Engine:
        hangs.wait(60)
        has_ended.set()
        return Engine()

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Apart(connect)
    assert time.monotonic() - begun < 30
    assert not has_ended.is_set()
    hangs.set()
    assert has_ended.wait(30)


def test_a_session_that_does_not_let_go_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_CLOSE_SECONDS", 0.1)
    engine = Engine()
    begun = time.monotonic()
    Apart(lambda: engine).close()
    assert time.monotonic() - begun < 30
    engine.hangs.set()
