"""Rounds go from where they are to the last, and stop at once where a result cannot be used."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import Answer, Ask, Collect, Message, Transcript, kept
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.rounds import diverged, drive_round, run_rounds


@dataclass(frozen=True)
class Config:
    num_rounds: int = 4
    learning_rate: float = 0.5


@dataclass(frozen=True)
class WithoutRate:
    num_rounds: int = 4


CONFIG = Config()


@dataclass(frozen=True)
class State:
    weights: np.ndarray = kept(result=True)


@dataclass
class Private:
    vectors: np.ndarray = kept(result=True)
    scratch: np.ndarray = kept()


def asking(num_asks: int, fails_with: Exception | None = None) -> Any:
    def one_round(state: State, round_number: int, _config: Any, _draws: Draws) -> Any:
        lost = 0
        for place in range(num_asks):
            answer = yield Ask(np.array([place], np.int32), SimpleNamespace(place=place), Collect())
            lost += len(answer.lost)
        if fails_with is not None:
            raise fails_with
        return State(state.weights + round_number + lost)

    return SimpleNamespace(round=one_round, reply_to=lambda _request, _config: Message)


@pytest.mark.parametrize("num_asks", [0, 1, 3])
def test_asks_are_served_in_order_until_the_round_returns(num_asks: int) -> None:
    served = []

    def serve(ask: Ask) -> Answer:
        served.append(ask.request.place)
        return Answer(np.array([ask.request.place], np.int32))

    state = drive_round(asking(num_asks), State(np.zeros(2)), 5, CONFIG, Draws(0), serve)
    assert served == list(range(num_asks))
    assert state.weights.tolist() == [5 + num_asks] * 2


def test_divergence_is_told_with_round_and_remedy() -> None:
    error = DivergedError("the update of client 3 is not finite")
    with pytest.raises(DivergedError) as caught:
        drive_round(asking(1, error), State(np.zeros(2)), 7, CONFIG, Draws(0), lambda _ask: Answer())
    expected = (
        "round 7: the update of client 3 is not finite; the training diverges: use a learning_rate= below 0.5"
    )
    assert str(caught.value) == expected == str(diverged(CONFIG, 7, "the update of client 3 is not finite"))


def test_a_rate_of_zero_stands_for_the_usual_one_and_has_no_number_to_tell() -> None:
    told = str(diverged(replace(CONFIG, learning_rate=0.0), 2, "the model is not finite"))
    assert told.endswith("use a smaller learning_rate=")


def test_without_a_rate_there_is_no_advice() -> None:
    told = str(diverged(WithoutRate(), 2, "the model is not finite"))
    assert told == "round 2: the model is not finite; the training diverges"


def test_other_errors_of_a_round_or_of_who_serves_it_pass() -> None:
    with pytest.raises(HushrecError, match=r"^as it is$"):
        drive_round(
            asking(1, HushrecError("as it is")), State(np.zeros(2)), 1, CONFIG, Draws(0), lambda _: Answer()
        )

    def broken(_ask: Ask) -> Answer:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive_round(asking(1), State(np.zeros(2)), 1, CONFIG, Draws(0), broken)


class Adding:
    """Adds the round's number; may spoil the result or fail in a round."""

    def __init__(self, spoils: int = 0, fails: int = 0) -> None:
        self.spoils, self.fails, self.rounds = spoils, fails, list[int]()

    def run_round(self, state: State, round_number: int) -> State:
        self.rounds.append(round_number)
        if round_number == self.fails:
            raise HushrecError("lost")
        return State(state.weights + (np.nan if round_number == self.spoils else round_number))


def progress(**values: Any) -> Progress:
    return replace(Progress(State(np.zeros(2)), None, Transcript()), **values)


def test_products_of_a_round_are_computed_by_one_thread() -> None:
    """Their bits depend on the number of threads, and so would the model on the number of cores."""
    counts = []

    class Looking(Adding):
        def run_round(self, state: State, round_number: int) -> State:
            counts.append({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
            return super().run_round(state, round_number)

    with threadpool_limits(2, user_api="blas"):
        run_rounds(asking(0), CONFIG, progress(), Looking(), lambda _now: None)
        after = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert counts == [{1}] * 4
    assert after == {2}


def test_all_rounds_run_and_each_is_kept() -> None:
    kept = []
    current, runtime = progress(), Adding()
    run_rounds(
        asking(0), CONFIG, current, runtime, lambda now: kept.append((now.round_number, now.state.weights[0]))
    )
    assert kept == [(1, 1), (2, 3), (3, 6), (4, 10)]
    assert current.wall_seconds > 0


def test_rounds_go_on_where_they_were() -> None:
    current, runtime = progress(round_number=2), Adding()
    run_rounds(asking(0), CONFIG, current, runtime, lambda _now: None)
    assert runtime.rounds == [3, 4]
    run_rounds(asking(0), CONFIG, current, runtime, lambda _now: None)
    assert runtime.rounds == [3, 4]


def test_a_failed_round_is_not_counted() -> None:
    kept = []
    current = progress()
    with pytest.raises(HushrecError, match="lost"):
        run_rounds(asking(0), CONFIG, current, Adding(fails=3), lambda now: kept.append(now.round_number))
    assert kept == [1, 2]
    assert current.round_number == 2
    assert current.state.weights.tolist() == [3, 3]


def test_a_model_that_is_not_finite_is_not_kept() -> None:
    kept = []
    with pytest.raises(DivergedError, match=r"round 2: the model is not finite; .*learning_rate= below 0.5"):
        run_rounds(asking(0), CONFIG, progress(), Adding(spoils=2), lambda now: kept.append(now.round_number))
    assert kept == [1]


def test_private_arrays_are_looked_at_where_they_are_here() -> None:
    no_result = Private(np.ones(2), np.array([np.inf]))  # what is only kept may be anything
    run_rounds(asking(0), CONFIG, progress(private=no_result), Adding(), lambda _now: None)
    private = Private(np.array([1.0, np.inf]), np.ones(1))
    with pytest.raises(DivergedError, match="round 1"):
        run_rounds(asking(0), CONFIG, progress(private=private), Adding(), lambda _now: None)
