"""Rounds, from the first to the last, whatever carries them: in one process or over a network."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from hushrec.draws import Draws
from hushrec.errors import DivergedError, option
from hushrec.protocol import Answer, AnySystem, Ask, Fold, Message, Numbers, is_finite
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.wire import WireError
from hushrec.settings import to_dict

IsEnough = Callable[[Progress], bool]  # whether a training may end before its last round


class Runtime(Protocol):
    """What carries the asks of a round."""

    def run_round(self, state: Any, round_number: int) -> Any:
        """Drive one round of the driving side to its end."""
        ...


@dataclass(frozen=True)
class Expected:
    """The fold of an ask, which takes in replies of one type only, and of somebody."""

    fold: Fold
    kind: type[Message]

    def fork(self) -> "Expected":
        """An empty one."""
        return Expected(self.fold.fork(), self.kind)

    def add(self, numbers: Numbers, message: Message) -> None:
        """Take in one batch."""
        if type(message) is not self.kind:
            raise WireError(f"answered with {type(message).__name__}, not {self.kind.__name__}")
        if not len(numbers):
            raise WireError("answered for nobody")
        self.fold.add(numbers, message)

    def merge(self, other: "Expected") -> None:
        """Take in all that a fork took in."""
        self.fold.merge(other.fold)


def drive_round(
    system: AnySystem,
    state: Any,
    round_number: int,
    config: Any,
    draws: Draws,
    serve: Callable[[Ask], Answer],
) -> Any:
    """Bring a round's asks to those who serve them, until it returns the new state."""
    steps = system.round(state, round_number, config, draws)
    try:
        ask = next(steps)
        while True:
            kind = system.reply_to(type(ask.request), config)
            ask = steps.send(serve(replace(ask, replies=Expected(ask.replies, kind))))
    except StopIteration as end:
        return end.value
    except DivergedError as error:
        raise diverged(config, round_number, str(error)) from None


def run_rounds(
    system: AnySystem,
    config: Any,
    progress: Progress,
    runtime: Runtime,
    after_round: Callable[[Progress], None],
    is_enough: IsEnough | None = None,
) -> None:
    """Run what is left of the rounds; of those, no more than are enough."""
    while progress.round_number < config.num_rounds and not (is_enough and is_enough(progress)):
        cpu, wall = time.process_time(), time.perf_counter()
        round_number = progress.round_number + 1
        # What overflows is not finite, and refused below. A matrix product has other bits with more threads: with
        # one of them a run does not depend on the number of cores.
        with np.errstate(all="ignore"), threadpool_limits(1, user_api="blas"):
            progress.state = runtime.run_round(progress.state, round_number)
        progress.round_number = round_number
        progress.cpu_seconds += time.process_time() - cpu
        progress.wall_seconds += time.perf_counter() - wall
        if not (is_finite(progress.state) and is_finite(progress.private)):
            raise diverged(config, progress.round_number, "the model is not finite")
        after_round(progress)


def diverged(config: Any, round_number: int, symptom: str) -> DivergedError:
    """What to say when a round's result cannot be used."""
    values = to_dict(config)
    rates = {name: rate for name, rate in values.items() if name.endswith("learning_rate")}
    weight, rate = values.get("regularization") or 0.0, values.get("learning_rate") or 0.0
    if weight * rate > 1 and weight > rate:  # a step takes more than the whole of a vector away, by its weight
        advice = f"use a {option('regularization')} below {weight:g}, such as 0.001"
        return DivergedError(f"round {round_number}: {symptom}; the training diverges: {advice}")
    remedies = [
        f"a {option(name)} below {rate:g}" if rate else f"a smaller {option(name)}" for name, rate in rates.items()
    ]
    if values.get("row_norm") == 0:  # without which what a few send is enough
        remedies.append(f"{option('row_norm')}, if somebody may lie")
    advice = f": use {' or '.join(remedies)}" if remedies else ""
    return DivergedError(f"round {round_number}: {symptom}; the training diverges{advice}")
