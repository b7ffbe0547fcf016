"""The runtime with a toy system: everyone is asked for its number and mails it to a neighbour."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.data.holdings import USERS
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.protocol import (
    About,
    Answer,
    AnySystem,
    Ask,
    Cohort,
    Collect,
    Handler,
    Message,
    Paper,
    Ragged,
    Reply,
    Result,
    Role,
    Sealed,
    System,
    Transcript,
    each,
    ragged,
)
from hushrec.runtime import in_process
from hushrec.runtime.in_process import InProcess, RuntimeOptions


@dataclass(frozen=True, eq=False)
class Question(Message):
    sender, receiver = Role.SERVER, Role.CLIENT
    tag: Any = each(np.int32)


@dataclass(frozen=True, eq=False)
class Number(Message):
    sender, receiver = Role.CLIENT, Role.SERVER
    number: Any = each(np.int32)
    tag: Any = each(np.int32)


@dataclass(frozen=True, eq=False)
class Letter(Message):
    sender, receiver = Role.CLIENT, Role.DENOISER
    rows: Any = ragged(np.int32)


@dataclass(frozen=True, eq=False)
class Open(Message):
    sender, receiver = Role.SERVER, Role.DENOISER


@dataclass(frozen=True, eq=False)
class Content(Message):
    sender, receiver = Role.DENOISER, Role.SERVER
    total: Any = each(np.int64)


@dataclass
class Letters:
    """Sums by addressee."""

    sums: dict[int, int] = field(default_factory=dict)

    def fork(self) -> "Letters":
        return Letters()

    def add(self, addressees: np.ndarray, message: Letter) -> None:
        for place, addressee in enumerate(addressees.tolist()):
            own = message.rows.part(place, place + 1).values.sum()
            self.sums[addressee] = self.sums.get(addressee, 0) + int(own)

    def merge(self, other: "Letters") -> None:
        for addressee, total in other.sums.items():
            self.sums[addressee] = self.sums.get(addressee, 0) + total


@dataclass(frozen=True)
class Config:
    learning_rate: float = 0.5


def answer_number(cohort: Cohort[Any], request: Question, _config: Config, _draws: Draws) -> Reply:
    assert cohort.rows.tolist() == cohort.numbers.tolist()
    starts = np.arange(len(cohort.numbers) + 1)
    letter = Letter(Ragged(starts, cohort.numbers))
    return Reply(Number(cohort.numbers, request.tag), (Sealed(letter, (cohort.numbers + 1).astype(np.int32)),))


def open_letters(cohort: Cohort[Any], _request: Open, _config: Config, _draws: Draws) -> Reply:
    inbox = cohort.inboxes[Letter]
    assert isinstance(inbox, Letters)
    return Reply(Content(np.array([inbox.sums.get(number, 0) for number in cohort.numbers.tolist()])))


def toy(round_of: Callable[..., Any], handlers: dict[type[Message], Handler[Any, Any]] | None = None) -> AnySystem:
    usual = {Question: Handler(answer_number), Open: Handler(open_letters, reads=(Letter,))}
    return System(
        about=About("toy", "toy", Paper("", "", "", 2026), "Toy"),
        config=Config,
        feedback=EXPLICIT,
        holders=USERS,
        messages=(Question, Number, Letter, Open, Content),
        start=lambda *_: None,
        enrol=lambda *_: None,
        round=round_of,
        handlers=usual | (handlers or {}),
        result=Result(lambda *_: None),  # type: ignore[arg-type, return-value]
        reply_bytes=lambda private, _config: private,
        inboxes={Letter: lambda _private, _config: Letters()},
    )


def everyone(num_parties: int) -> np.ndarray:
    return np.arange(num_parties, dtype=np.int32)


def runtime_of(system: AnySystem, reply_bytes: np.ndarray, **options: Any) -> InProcess:
    transcript = Transcript(keep_payloads=True)
    return InProcess(system, Config(), Draws(0), reply_bytes, transcript, RuntimeOptions(**options))


def ask_all(state: Any, _round_number: int, _config: Config, _draws: Draws) -> Any:
    """One round: everyone for its number, then everyone for its letters."""
    to, numbers, letters = everyone(state), Collect(), Collect()
    answer = yield Ask(to, Question((10 * to).astype(np.int32)), numbers)
    second = yield Ask(to, Open(), letters)
    return numbers, letters, answer, second


def run_once(num_parties: int, **options: Any) -> Any:
    runtime = runtime_of(toy(ask_all), np.full(num_parties, 8), **options)
    try:
        return (*runtime.run_round(num_parties, 3), runtime.transcript)
    finally:
        runtime.close()


# --- Cohorts -----------------------------------------------------------------------------------------------


@given(
    reply_bytes=st.lists(st.integers(0, 3 << 20), max_size=60),
    threads=st.integers(1, 4),
    cohort_size=st.none() | st.integers(1, 70),
    data=st.data(),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_cohorts_cover_everyone_exactly_once(
    reply_bytes: list[int], threads: int, cohort_size: int | None, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(range(len(reply_bytes)))) if reply_bytes else st.just(set()))
    to = np.array(sorted(chosen), np.int32)
    runtime = runtime_of(toy(ask_all), np.array(reply_bytes, np.int64), cohort_size=cohort_size, threads=threads)
    bounds = runtime.cohorts(to)
    runtime.close()
    assert [place for first, last in bounds for place in range(first, last)] == list(range(len(to)))
    assert all(last > first for first, last in bounds)
    if cohort_size is not None:
        assert all(last - first <= cohort_size for first, last in bounds)


def test_cohorts_stay_in_cache() -> None:
    """Replies of 100 kB each: a cohort has the size that is wished for, give or take one reply."""
    sizes = np.full(500, 100_000)
    runtime = runtime_of(toy(ask_all), sizes, threads=2)
    bounds = runtime.cohorts(everyone(500))
    runtime.close()
    loads = [sizes[first:last].sum() for first, last in bounds]
    assert max(loads) <= in_process._COHORT_BYTES + 100_000
    assert len(bounds) >= 2 * 4


def test_options_are_checked() -> None:
    with pytest.raises(HushrecError, match="threads=1025 is too many; use at most 1024"):
        RuntimeOptions(threads=1025)
    with pytest.raises(HushrecError, match="threads= must be at least 1"):
        RuntimeOptions(threads=0)
    with pytest.raises(HushrecError, match="cohort_size= must be at least 1"):
        RuntimeOptions(cohort_size=0)
    assert RuntimeOptions().threads >= 1


# --- A round -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threads", "cohort_size"), [(1, None), (1, 1), (1, 7), (2, None), (2, 1), (3, 4)])
def test_everyone_is_asked_once_and_mail_arrives(threads: int, cohort_size: int | None) -> None:
    """Columns of the request follow the parties; who has number k got the letter of k - 1."""
    numbers, letters, answer, second, _ = run_once(20, threads=threads, cohort_size=cohort_size)
    assert not len(answer.lost)
    assert not len(second.lost)
    senders = np.concatenate([batch[0] for batch in numbers.batches])
    assert senders.tolist() == list(range(20))
    for batch in numbers.batches:
        np.testing.assert_array_equal(batch[1].number, batch[0])
        np.testing.assert_array_equal(batch[1].tag, 10 * batch[0])
    opened = np.concatenate([message.total for _, message in letters.batches])
    assert opened.tolist() == [0, *range(19)]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_transcript_holds_every_message(threads: int) -> None:
    *_, transcript = run_once(20, threads=threads, cohort_size=3)
    counts = {kind.__name__: tally.messages for (_, kind), tally in transcript.tallies.items()}
    assert counts == {"Question": 20, "Number": 20, "Letter": 20, "Open": 20, "Content": 20}
    assert {round_number for round_number, _ in transcript.tallies} == {3}
    letters = [one for one in transcript.recorded if type(one.message) is Letter]
    for one in letters:
        np.testing.assert_array_equal(one.addressees, one.numbers + 1)


def test_an_empty_ask_calls_nobody() -> None:
    for threads in (1, 2):
        numbers, letters, *_, transcript = run_once(0, threads=threads)
        assert (numbers.batches, letters.batches, transcript.recorded) == ([], [], [])


def test_mail_of_an_earlier_ask_is_gone() -> None:
    """The question is put to all, then to 2, 3 and 4 again: letters of the second time only are found."""

    def twice(state: int, _round_number: int, _config: Config, _draws: Draws) -> Any:
        to, letters = everyone(state), Collect()
        yield Ask(to, Question(to), Collect())
        yield Ask(to[2:], Question(to[2:]), Collect())
        yield Ask(to, Open(), letters)
        return letters

    for threads in (1, 2):
        runtime = runtime_of(toy(twice), np.full(5, 8), threads=threads, cohort_size=2)
        letters = runtime.run_round(5, 1)
        runtime.close()
        assert np.concatenate([message.total for _, message in letters.batches]).tolist() == [0, 0, 0, 2, 3]


# --- Losses and errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_a_lost_party_is_data(threads: int) -> None:
    """2 and 5 do not answer the question: they are not called, and no reply or mail of theirs is taken in."""
    asked = []

    def losses(round_number: int, request: type[Message], to: np.ndarray) -> np.ndarray:
        asked.append((round_number, request, to.tolist()))
        return np.isin(to, [2, 5]) & (request is Question)

    numbers, letters, answer, second, transcript = run_once(8, threads=threads, cohort_size=3, losses=losses)
    assert asked == [(3, Question, list(range(8))), (3, Open, list(range(8)))]
    assert answer.lost.tolist() == [2, 5]
    assert answer.came(everyone(8)).tolist() == [0, 1, 3, 4, 6, 7]
    assert not len(second.lost)
    for batch in numbers.batches:
        np.testing.assert_array_equal(batch[1].tag, 10 * batch[0])
    assert np.concatenate([batch[0] for batch in numbers.batches]).tolist() == [0, 1, 3, 4, 6, 7]
    assert np.concatenate([message.total for _, message in letters.batches]).tolist() == [0, 0, 1, 0, 3, 4, 0, 6]
    assert transcript.total(Question).messages == 6


def test_all_lost() -> None:
    numbers, _, answer, _, _ = run_once(4, losses=lambda _round, _request, to: to >= 0)
    assert numbers.batches == []
    assert answer.lost.tolist() == [0, 1, 2, 3]


def failing(error: Exception) -> AnySystem:
    def fail(cohort: Cohort[Any], request: Question, config: Config, draws: Draws) -> Reply:
        if 11 in cohort.numbers:
            raise error
        return answer_number(cohort, request, config, draws)

    return toy(ask_all, {Question: Handler(fail)})


def raised_within(seconds: float, act: Callable[[], Any]) -> BaseException | None:
    """What `act` raises; fails if it takes longer."""
    outcome: list[BaseException | None] = []

    def work() -> None:
        try:
            act()
        except Exception as error:
            outcome.append(error)
        else:
            outcome.append(None)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds)
    assert not worker.is_alive(), "hangs"
    return outcome[0]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_errors_of_handlers_propagate_without_hanging(threads: int) -> None:
    def act() -> None:
        runtime = runtime_of(failing(KeyError("broken")), np.full(40, 8), threads=threads, cohort_size=1)
        try:
            runtime.run_round(40, 1)
        finally:
            runtime.close()

    error = raised_within(30, act)
    assert isinstance(error, KeyError)
    assert "broken" in str(error)


@pytest.mark.parametrize("threads", [1, 2])
def test_divergence_names_round_and_remedy(threads: int) -> None:
    runtime = runtime_of(failing(DivergedError("too large")), np.full(40, 8), threads=threads, cohort_size=1)
    with pytest.raises(DivergedError, match=r"^round 6: too large; .* use a learning_rate= below 0.5$"):
        runtime.run_round(40, 6)
    runtime.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_of_the_driving_side_propagate(threads: int) -> None:
    def broken(_state: Any, _round_number: int, _config: Config, _draws: Draws) -> Any:
        yield Ask(everyone(3), Question(everyone(3)), Collect())
        raise HushrecError("cannot go on")

    runtime = runtime_of(toy(broken), np.full(3, 8), threads=threads)
    with pytest.raises(HushrecError, match=r"^cannot go on$"):
        runtime.run_round(None, 1)
    runtime.close()


def test_a_round_without_asks_returns_its_state() -> None:
    def quiet(state: Any, _round_number: int, _config: Config, _draws: Draws) -> Any:
        return state
        yield

    runtime = runtime_of(toy(quiet), np.empty(0, np.int64), threads=1)
    assert runtime.run_round("state", 1) == "state"
    assert Answer().came(everyone(2)).tolist() == [0, 1]
