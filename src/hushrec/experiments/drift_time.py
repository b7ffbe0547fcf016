"""Where the CPU time of DRIFT goes, by step and by owner (Sec. 6.3 of the report).

While `timed` is open, the functions below note their own time, without that of those they call.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hushrec.data import load
from hushrec.protocol import AnySystem
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings, settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job
from hushrec.systems.drift import members as ownership
from hushrec.systems.drift import owners as drift_owners
from hushrec.systems.drift import system as drift
from hushrec.systems.drift.cipher import KEY_BYTES, Form
from hushrec.systems.drift.messages import SentInteractions

STEPS = (
    "preprocessing",
    "encryption",
    "decryption",
    "block keeping",
    "gradients",
    "update",
    "messages, rest",
)
ORCHESTRATOR, ALL = "orchestrator", "all"
CIPHER = "seconds of AES-GCM"
_SAMPLE = 100_000
_TINY = "synthetic:users=40,items=30,ratings=600"
Seconds = dict[str, dict[str, float]]


class Clock:
    """CPU seconds by step and number of the owner; -1: of no owner."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()
        self._running = threading.local()

    def timing(self, step: str, function: Callable[..., Any], owner_of: Callable[..., int]) -> Callable[..., Any]:
        """The function, with its own time noted."""

        def timed_function(*arguments: Any) -> Any:
            outer = getattr(self._running, "inner_seconds", 0.0)
            self._running.inner_seconds = 0.0
            start = time.thread_time()
            try:
                result = function(*arguments)
            finally:
                spent = time.thread_time() - start
                own = spent - self._running.inner_seconds
                self._running.inner_seconds = outer + spent
            key = step, owner_of(result, *arguments)
            with self._lock:
                self.seconds[key] = self.seconds.get(key, 0.0) + own
            return result

        return timed_function


@contextmanager
def timed() -> Iterator[Clock]:
    """Note the time of the steps of all runs of DRIFT meanwhile."""
    clock, owner_of_groups = Clock(), dict[int, int]()

    def of_taking_in(groups: Any, owner: ownership.Owner, *_: Any) -> int:
        owner_of_groups[id(groups)] = owner.number
        return owner.number

    def of_learning(_result: Any, groups: Any, *_: Any) -> int:
        return owner_of_groups.get(id(groups), -1)

    places: list[tuple[Any, str, str, Callable[..., int]]] = [
        (ownership, "seal_interactions", "encryption", lambda _, _key, owner, *rest: owner),
        (ownership, "open_interactions", "decryption", lambda _, _key, owner, *rest: owner),
        (ownership.Owner, "take_in", "block keeping", of_taking_in),
        (drift_owners, "group_gradients", "gradients", of_learning),
        (drift, "_moved", "update", lambda *_: -1),
    ]
    before = [getattr(place, name) for place, name, _, _ in places]
    for (place, name, step, owner_of), function in zip(places, before, strict=True):
        setattr(place, name, clock.timing(step, function, owner_of))
    try:
        yield clock
    finally:
        for (place, name, _, _), function in zip(places, before, strict=True):
            setattr(place, name, function)


def warm_up(system: AnySystem, config: Any) -> None:
    """Run a little, so that nothing is compiled or read from a cache while time is taken."""
    data = load(_TINY)
    run(system, replace(config, epochs=1), data, settings_for(system, data=data), RuntimeOptions(threads=1))


def preprocessing_seconds(data: str, system: AnySystem, config: Any, settings: RunSettings) -> float:
    """Reading a data set, dealing its items to owners, splitting it and sorting the stream."""
    start = time.process_time()
    split = next(splits_for(system, load(data), settings))
    Job(system, config, settings.seed, split.train).start()
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
        name = ORCHESTRATOR if owner < 0 else names[owner] if names else ALL
        seconds[step][name] = spent
    total = sum(fold.cpu_seconds for fold in done.folds)
    seconds[STEPS[-1]][ALL] = total - sum(clock.seconds.values())
    fold = done.folds[0]
    num_messages = sum(count.rows for count in fold.messages if count.type == SentInteractions.__name__)
    ciphered = cipher_seconds(num_messages, form.plain_bytes) if form.is_encrypted else 0.0
    facts = fold.facts | {CIPHER: ciphered}
    return replace(done, folds=[replace(fold, seconds=seconds, facts=facts)])
