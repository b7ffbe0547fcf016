"""Small runs of systems for implicit feedback, driven by the runtime in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.protocol import Cohort, Message, Recorded, Scorer, System, Transcript
from hushrec.runtime.in_process import InProcess, Losses, RuntimeOptions


@dataclass(frozen=True)
class Positives:
    """Who interacted with what, by user."""

    rows: UserRows
    num_items: int

    @property
    def num_users(self) -> int:
        return len(self.rows.starts) - 1


def positives(of_users: list[list[int]], num_items: int) -> Positives:
    """Per user a list of items."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in of_users])]).astype(np.int64)
    items = np.array([item for one in of_users for item in sorted(one)], np.int32)
    return Positives(UserRows(starts, items, None), num_items)


def some_positives(num_users: int = 24, num_items: int = 30, seed: int = 0) -> Positives:
    rows = synthetic(num_users, num_items, 8 * num_users, seed=seed).as_implicit().by_user()
    return Positives(rows, num_items)


def checkerboard(num_users: int = 40, num_items: int = 20) -> tuple[Positives, np.ndarray]:
    """Even users like even items, odd users odd ones; one liked item of each is withheld."""
    draws = np.random.default_rng(0)
    withheld = [int(draws.choice(np.arange(user % 2, num_items, 2))) for user in range(num_users)]
    liked = [
        [item for item in range(user % 2, num_items, 2) if item != withheld[user]] for user in range(num_users)
    ]
    return positives(liked, num_items), np.array(withheld)


@dataclass(frozen=True)
class Finished:
    """A run after its last round."""

    system: System[Any, Any, Any]
    config: Any
    draws: Draws
    state: Any
    private: Any
    transcript: Transcript

    @property
    def scorer(self) -> Scorer:
        return self.system.model(self.state, self.private, self.config, None)

    def sent(self, message_type: type[Message]) -> list[Recorded]:
        return [one for one in self.transcript.recorded if type(one.message) is message_type]

    def ask_again(self, sent: Recorded) -> Any:
        """What clients reply when a request of the last round comes again."""
        rows = sent.numbers.astype(np.int64)
        cohort = Cohort(sent.numbers, rows, self.private, sent.round_number)
        return self.system.handlers[type(sent.message)](cohort, sent.message, self.config, self.draws).message


def run(
    system: System[Any, Any, Any],
    data: Positives,
    *,
    seed: int = 0,
    threads: int = 1,
    cohort_size: int | None = None,
    losses: Losses | None = None,
    prepare: Callable[[Any, Any], Any] | None = None,
    **values: Any,
) -> Finished:
    """Run a system to its end. `prepare` may change the first state and private state."""
    draws, config = Draws(seed), system.configure({"num_factors": 5, "num_rounds": 4, **values})
    numbers = np.arange(data.num_users, dtype=np.int32)
    state = system.init(data.num_users, data.num_items, config, draws)
    private = system.enrol(numbers, data.rows, data.num_items, config, draws)
    if prepare is not None:
        state = prepare(state, private)
    transcript = Transcript(keep_payloads=True)
    options = RuntimeOptions(threads=threads, cohort_size=cohort_size, keep_payloads=True, losses=losses)
    runtime = InProcess(system, config, draws, private, transcript, options)
    try:
        for round_number in range(1, config.num_rounds + 1):
            state = runtime.run_round(state, round_number)
    finally:
        runtime.close()
    return Finished(system, config, draws, state, private, transcript)


def assert_same(one: Finished, other: Finished) -> None:
    """The same result to the last bit."""
    for left, right in ((one.scorer, other.scorer), (one.private, other.private)):
        np.testing.assert_array_equal(left.item_factors, right.item_factors)
        np.testing.assert_array_equal(left.user_factors, right.user_factors)
