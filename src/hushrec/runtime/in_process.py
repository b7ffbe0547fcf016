"""The runtime in one process: threads over cohorts. Frames are counted, not made."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.kernels.sharing import lending
from hushrec.privacy.sealing import LETTER_BYTES
from hushrec.protocol import Answer, AnySystem, Ask, Cohort, Fold, Lengths, Message, Numbers, Recorded, Transcript
from hushrec.protocol.padding import padding_of
from hushrec.runtime.rounds import drive_round
from hushrec.runtime.wire import frame_sizes

MOST_THREADS = 1024
# Replies of a cohort should stay in a core's cache until they are folded.
_COHORT_BYTES = 4 << 20
# Below this, threads wait for each other longer than they work.
_THREADS_BYTES = 8 << 20


# glibc's names for its two limits, from malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def _keep_freed_memory() -> None:
    """Have glibc keep freed buffers: to fault them in again for every cohort costs as much as the work."""
    if os.name != "posix":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 256 << 20)


class Losses(Protocol):
    """Who is lost, for tests of what a system does about it."""

    def __call__(self, round_number: int, request: type[Message], to: Numbers) -> NDArray[np.bool_]:
        """For each of `to`, whether its reply to this request never comes."""
        ...


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class RuntimeOptions:
    """What cannot change a number (but for `losses`, with which tests take parties away)."""

    threads: int = field(default_factory=_cpu_count)
    cohort_size: int | None = None  # clients; None: as many as stay in cache
    keep_payloads: bool = False
    losses: Losses | None = None

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise HushrecError(f"{option('threads')} must be at least 1")
        if self.threads > MOST_THREADS:
            raise HushrecError(f"{option('threads', self.threads)} is too many; use at most {MOST_THREADS}")
        if self.cohort_size is not None and self.cohort_size < 1:
            raise HushrecError(f"{option('cohort_size')} must be at least 1")


class InProcess:
    """Drives one run of a system in this process."""

    def __init__(
        self,
        system: AnySystem,
        config: Any,
        draws: Draws,
        private: Any,
        transcript: Transcript,
        options: RuntimeOptions,
    ) -> None:
        self.system, self.config, self.draws = system, config, draws
        self.private, self.transcript, self.options = private, transcript, options
        self._reply_bytes = system.reply_bytes(private, config)
        self.padding, self.num_asks = padding_of(config), 0
        self.inboxes: dict[type[Message], Fold] = {}
        _keep_freed_memory()
        self._pool = ThreadPoolExecutor(options.threads - 1) if options.threads > 1 else None

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def run_round(self, state: Any, round_number: int) -> Any:
        """Drive one round of the driving side to its end."""
        self.inboxes.clear()
        self.num_asks = 0
        with lending(self._pool, self.options.threads - 1):  # which serve nobody while the driving side computes
            return drive_round(
                self.system,
                state,
                round_number,
                self.config,
                self.draws,
                lambda ask: self.serve(ask, round_number),
            )

    def serve(self, ask: Ask, round_number: int) -> Answer:
        """Bring one ask to its handlers, and their replies to its fold."""
        to, request, answer = ask.to, ask.request, Answer()
        self.num_asks += 1
        if self.options.losses:
            is_lost = self.options.losses(round_number, type(request), to)
            if is_lost.any():
                answer = Answer(to[is_lost])
                to, request = to[~is_lost], request.take(np.flatnonzero(~is_lost))
        cohorts = self.cohorts(to)
        service = _Service(self, to, request, round_number, cohorts)
        if self._pool is None or len(cohorts) < self.options.threads:
            post = service.work(ask.replies, {})
        else:
            post = service.work_in_threads(self._pool, self.options.threads - 1, ask.replies)
        self.inboxes.update(post)
        return answer

    def cohorts(self, to: Numbers) -> list[tuple[int, int]]:
        """Places of the first and behind the last party of each cohort."""
        if self.options.cohort_size is not None:
            bounds = [*range(0, len(to), self.options.cohort_size), len(to)]
            return list(pairwise(bounds)) if len(to) else []
        reply_bytes = self._reply_bytes[to]
        total = int(reply_bytes.sum())
        # Several cohorts per thread, so that threads end at the same time; one where that is not worth it.
        is_shared = self.options.threads > 1 and total > _THREADS_BYTES
        size = min(_COHORT_BYTES, total // (4 * self.options.threads)) if is_shared else _COHORT_BYTES
        return cohort_bounds(reply_bytes, size)


def cohort_bounds(reply_bytes: NDArray[np.int64], size_bytes: int = _COHORT_BYTES) -> list[tuple[int, int]]:
    """Cut parties into cohorts whose replies have about this size: places of the first and behind the last."""
    if not len(reply_bytes):
        return []
    load = np.cumsum(reply_bytes)
    if load[-1] < size_bytes:
        return [(0, len(load))]
    cuts = np.unique(np.searchsorted(load, np.arange(0, int(load[-1]) + 1, max(size_bytes, 1))))
    bounds = [*cuts[cuts < len(load)].tolist(), len(load)]
    return [(first, last) for first, last in pairwise(bounds) if last > first]


Post = dict[type[Message], Fold]


class _Service:
    """One ask on its way through the cohorts."""

    def __init__(
        self, runtime: InProcess, to: Numbers, request: Message, round_number: int, cohorts: list[tuple[int, int]]
    ) -> None:
        self._runtime, self._to, self._request, self._round_number = runtime, to, request, round_number
        self._cohorts = iter(cohorts)
        self._lock = Lock()

    def work_in_threads(self, pool: ThreadPoolExecutor, num_helpers: int, replies: Fold) -> Post:
        """Work here and in helping threads, with a fold per thread; merge them at the end."""
        shared_post: Post = {}
        own = [(replies.fork(), Post()) for _ in range(num_helpers)]
        helpers = [pool.submit(self.work, fork, post, shared_post) for fork, post in own]
        here: Post = {}
        try:
            self.work(replies, here, shared_post)
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()
        for fork, _ in own:
            replies.merge(fork)
        for post in (here, *(post for _, post in own)):
            for mail_type, inbox in post.items():
                shared_post[mail_type].merge(inbox)
        return shared_post

    def work(self, replies: Fold, post: Post, shared_post: Post | None = None) -> Post:
        """Serve cohorts until none is left."""
        while (bounds := self._next_cohort()) is not None:
            self._serve_cohort(*bounds, replies, post, shared_post)
        return post

    def _next_cohort(self) -> tuple[int, int] | None:
        with self._lock:
            return next(self._cohorts, None)

    def _serve_cohort(self, first: int, last: int, replies: Fold, post: Post, shared_post: Post | None) -> None:
        runtime, transcript, round_number = self._runtime, self._runtime.transcript, self._round_number
        numbers, request = self._to[first:last], self._request.part(first, last)
        rows = numbers.astype(np.int64)
        handler = runtime.system.handlers[type(request)]
        mail = {kind: runtime.inboxes[kind] for kind in handler.reads if kind in runtime.inboxes}
        cohort = Cohort(numbers, rows, runtime.private, round_number, mail)
        asked = frame_sizes(request, len(numbers), runtime.padding)
        transcript.record(Recorded(round_number, numbers, request), int(asked.sum()))
        reply = handler.answer(cohort, request, runtime.config, runtime.draws)
        replies.add(numbers, reply.message)
        answered = frame_sizes(reply.message, len(numbers), runtime.padding)
        transcript.record(Recorded(round_number, numbers, reply.message), int(answered.sum()))
        for sealed in reply.mail:
            sizes = frame_sizes(sealed.message, len(sealed.addressees), runtime.padding) + LETTER_BYTES
            mailed = Recorded(round_number, numbers, sealed.message, sealed.addressees)
            transcript.record(mailed, int(sizes.sum()))
            np.add.at(answered, np.searchsorted(numbers, mailed.writers()), sizes)
            self._inbox_for(type(sealed.message), post, shared_post).add(sealed.addressees, sealed.message)
        transcript.watch(round_number, numbers, Lengths(np.int32(runtime.num_asks), asked, answered))

    def _inbox_for(self, mail_type: type[Message], post: Post, shared_post: Post | None) -> Fold:
        if mail_type not in post:
            runtime = self._runtime
            open_inbox = runtime.system.inboxes[mail_type]
            if shared_post is None:
                post[mail_type] = open_inbox(runtime.private, runtime.config)
            else:
                with self._lock:
                    if mail_type not in shared_post:
                        shared_post[mail_type] = open_inbox(runtime.private, runtime.config)
                    post[mail_type] = shared_post[mail_type].fork()
        return post[mail_type]
