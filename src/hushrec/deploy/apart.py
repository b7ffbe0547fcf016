"""An engine's calls in threads of their own: Ctrl-C ends the waiting for a call, never a call in its midst.

Engines have locks and threads. What a signal raises between two of their lines, or while they import, can leave a
lock taken for good; whoever ends their threads then waits for ever.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from hushrec.deploy.engines import JobState, Session

_CLOSE_SECONDS = 5.0
Result = TypeVar("Result")


class Apart:
    """A session of an engine whose calls can be waited for, and left."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._session = _apart(connect)

    def connected(self) -> set[str]:
        """Names of the nodes that the server can reach now."""
        return _apart(self._session.connected)

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        """Start a job on these nodes; returns its id."""
        return _apart(lambda: self._session.submit(job, nodes))

    def state(self, job_id: str) -> JobState:
        """How the job is doing."""
        return _apart(lambda: self._session.state(job_id))

    def abort(self, job_id: str) -> None:
        """End the job, if it runs, and wait until it has ended."""
        _apart(lambda: self._session.abort(job_id))

    def close(self) -> None:
        """Leave; an engine that does not let go is left to itself."""
        with suppress(TimeoutError):
            _apart(self._session.close, _CLOSE_SECONDS)


def _apart(call: Callable[[], Result], seconds: float | None = None) -> Result:
    """What a call returns or raises, within so many seconds."""
    done: Future[Result] = Future()

    def work() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return done.result(seconds)
