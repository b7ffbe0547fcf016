"""HTTP/1.1 as uvicorn speaks it, with bounds on connections and on heads of requests. The gate bounds bodies."""

import asyncio
import logging
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hushrec.serving.gate import Problem
from hushrec.serving.limits import Connections

MAX_HEAD_BYTES = 16_384  # beyond what the first read brings, at most 256 KB
HEAD_SECONDS = 10.0
_LOG_SECONDS = 1.0  # between two lines about connections that were refused: a flood must not fill a disk
LOGGER = logging.getLogger("uvicorn.error")


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection that is one too many, or whose request line and headers are endless or do not come."""

    _told_at = float("-inf")  # of the last line about connections that were refused, of all

    def __init__(self, *args: Any, connections_open: Connections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections_open = connections_open
        self._counted_for: str | None = None
        self._num_heads = 0
        self._head_bytes = 0
        self._is_head = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a first request, not for ever."""
        super().connection_made(transport)
        if self._connections_open is not None:
            peer = transport.get_extra_info("peername")
            address = str(peer[0]) if peer else ""
            reason = self._connections_open.refusal(address)
            if reason is not None:
                self._refuse(Problem(503, f"{reason}; try again later", (("retry-after", "1"),)))
                self._tell(reason, self._connections_open.num_refused)
                return
            self._counted_for = address
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._connections_open is not None and self._counted_for is not None:
            self._connections_open.close(self._counted_for)
            self._counted_for = None
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in; those that only make a head longer are counted."""
        head = self._num_heads
        super().data_received(data)
        if self._is_head and self._num_heads == head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(Problem(431, f"a request line and headers may have {MAX_HEAD_BYTES} bytes"))

    def on_message_begin(self) -> None:
        """A head begins."""
        self._num_heads, self._head_bytes, self._is_head = self._num_heads + 1, 0, True
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head ends."""
        self._is_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP in the same form as everything else."""
        self._refuse(Problem(400, msg))

    def _tell(self, reason: str, num_refused: int) -> None:
        if time.monotonic() - BoundedHttp._told_at >= _LOG_SECONDS:
            BoundedHttp._told_at = time.monotonic()
            LOGGER.warning("a connection was refused: %s (%d refused so far)", reason, num_refused)

    def _refuse(self, problem: Problem) -> None:
        if not self.transport.is_closing():
            self.transport.write(problem.as_http())
            self.transport.close()

    def _expect_head(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
