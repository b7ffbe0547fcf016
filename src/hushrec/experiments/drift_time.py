"""Where the CPU time of DRIFT goes, by step and by owner (Sec. 6.3 of the report)."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hushrec.data import load
from hushrec.protocol import AnySystem
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings, settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job
from hushrec.systems.drift import SYSTEM as DRIFT
from hushrec.systems.drift.cipher import KEY_BYTES, Form
from hushrec.systems.drift.messages import NextWindow, SentInteractions, TakeIn, Vectors
from hushrec.systems.drift.owners import owner_learn, owner_take_in
from hushrec.systems.drift.stopwatch import ORCHESTRATOR, Step, Stopwatch
from hushrec.systems.drift.system import orchestrator_round
from hushrec.systems.drift.users import users_send

STEPS = (
    "preprocessing",
    "encryption",
    "decryption",
    "block keeping",
    "gradients",
    "update",
    "messages, rest",
)
ALL = "all"
CIPHER = "seconds of AES-GCM"
_SAMPLE = 100_000
_TINY = "synthetic:users=40,items=30,ratings=600"
Seconds = dict[str, dict[str, float]]


class Clock:
    """CPU seconds of steps, by number of the owner; those of a step within another one count once."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[Step, int], float] = {}
        self._lock = threading.Lock()
        self._running = threading.local()

    @contextmanager
    def __call__(self, step: Step, owner: int = ORCHESTRATOR) -> Iterator[None]:
        """Note the time of a block, without that of blocks within it."""
        outer = getattr(self._running, "inner_seconds", 0.0)
        self._running.inner_seconds = 0.0
        start = time.thread_time()
        try:
            yield
        finally:
            spent = time.thread_time() - start
            own = spent - self._running.inner_seconds
            self._running.inner_seconds = outer + spent
            with self._lock:
                self.seconds[step, owner] = self.seconds.get((step, owner), 0.0) + own


def timed(stopwatch: Stopwatch) -> AnySystem:
    """DRIFT, with a stopwatch in the hands of all parties."""
    own = DRIFT.handlers
    timed_handlers = {
        NextWindow: replace(own[NextWindow], answer=partial(users_send, stopwatch=stopwatch)),
        TakeIn: replace(own[TakeIn], answer=partial(owner_take_in, stopwatch=stopwatch)),
        Vectors: replace(own[Vectors], answer=partial(owner_learn, stopwatch=stopwatch)),
    }
    orchestrator = partial(orchestrator_round, stopwatch=stopwatch)
    return replace(DRIFT, round=orchestrator, handlers={**own, **timed_handlers})


def warm_up(config: Any) -> None:
    """Run a little, so that nothing is compiled or read from a cache while time is taken."""
    data = load(_TINY)
    run(DRIFT, replace(config, epochs=1), data, settings_for(DRIFT, data=data), RuntimeOptions(threads=1))


def preprocessing_seconds(data: str, config: Any, settings: RunSettings) -> float:
    """Reading a data set, dealing its items to owners, splitting it and sorting the stream."""
    start = time.process_time()
    split = next(splits_for(DRIFT, load(data), settings, config))
    Job(DRIFT, config, settings.seed, split.train).start()
    return time.process_time() - start


def cipher_seconds(num_messages: int, plain_bytes: int) -> float:
    """AES-GCM by itself: CPU time to encrypt and decrypt so many messages, from a sample of them."""
    count = min(_SAMPLE, num_messages)
    cipher, bounds = AESGCM(bytes(KEY_BYTES)), [bytes(13)] * count
    nonces, plain = [number.to_bytes(12, "little") for number in range(count)], [bytes(plain_bytes)] * count
    start = time.process_time()
    sealed = list(map(cipher.encrypt, nonces, plain, bounds))
    list(map(cipher.decrypt, nonces, sealed, bounds))
    return (time.process_time() - start) * num_messages / max(count, 1)


def with_seconds(done: Run, clock: Clock, preprocessing: float, form: Form) -> Run:
    """The run with the time of its steps, and of AES-GCM by itself; what no step accounts for is the rest."""
    names = done.provenance.names
    seconds: Seconds = {step: {} for step in STEPS}
    seconds["preprocessing"][ALL] = preprocessing
    for (step, owner), spent in sorted(clock.seconds.items()):
        name = "orchestrator" if owner == ORCHESTRATOR else names[owner] if names else ALL
        seconds[step][name] = spent
    total = sum(fold.cpu_seconds for fold in done.folds)
    seconds[STEPS[-1]][ALL] = total - sum(clock.seconds.values())
    fold = done.folds[0]
    num_messages = sum(count.rows for count in fold.messages if count.type == SentInteractions.__name__)
    ciphered = cipher_seconds(num_messages, form.plain_bytes) if form.is_encrypted else 0.0
    facts = fold.facts | {CIPHER: ciphered}
    return replace(done, folds=[replace(fold, seconds=seconds, facts=facts)])
