"""Small runs of systems for implicit feedback, driven by the runtime in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.protocol import AnySystem, Cohort, Recorded
from hushrec.runtime.in_process import Losses
from hushrec.testing import small_runs


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


class Finished(small_runs.Finished):
    """A run after its last round."""

    @property
    def state(self) -> Any:
        return self.states[-1]

    def ask_again(self, sent: Recorded) -> Any:
        """What clients reply when a request of the last round comes again."""
        cohort = Cohort(sent.numbers, sent.numbers.astype(np.int64), self.private, sent.round_number)
        handler = self.system.handlers[type(sent.message)]
        return handler.answer(cohort, sent.message, self.config, self.draws).message


def run(
    system: AnySystem,
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
    state = system.start(data.num_users, data.num_items, config, draws)
    private = system.enrol(numbers, data.rows, data.num_items, config, draws)
    if prepare is not None:
        state = prepare(state, private)
    finished = small_runs.finish(
        system, config, draws, state, private, threads=threads, cohort_size=cohort_size, losses=losses
    )
    return Finished(**vars(finished))


def assert_same(one: Finished, other: Finished) -> None:
    """The same result to the last bit."""
    for left, right in ((one.scorer, other.scorer), (one.private, other.private)):
        np.testing.assert_array_equal(left.item_factors, right.item_factors)
        np.testing.assert_array_equal(left.user_factors, right.user_factors)
