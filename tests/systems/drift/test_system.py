from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import owned, random_share, synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import (
    AnySystem,
    Cohort,
    Message,
    Ragged,
    Reply,
    Sealed,
    Transcript,
    kept_arrays,
    result_arrays,
)
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run as run_experiment
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.checkpoint import Progress, read_arrays
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job
from hushrec.systems.drift.messages import (
    Begin,
    BlockGradients,
    NextWindow,
    OwnerKey,
    Recommend,
    Register,
    SentInteractions,
    TakeIn,
    Vectors,
    Wanted,
)
from hushrec.systems.drift.users import events_of_window
from systems.owner_runs import learned_slowly, some_stream, stream
from systems.runs import Finished, assert_same, digest, losing, run, some_events

GOLDEN = "6104d3c1764491541c34c0f1cff117d85b3e1feedbfc4c04dcb74fdab8a3cf6b"
GOLDEN_WITHOUT_MAIL = "0dd824bdab37cce8a323248363bb9ad7646b352a58051ca0a8a4237933c31034"  # as before deeds
DRIFT = SYSTEMS["drift"]
BAD, GOOD = False, True
SHARED = ("most items that an owner shares", "of items that it holds")
HELD = [[0, 1, 2, 3, 4, 5, 6], [4, 5, 6, 7, 8, 9, 10]]
"""Three items have two owners, item 11 has none."""


def facts(finished: Finished) -> dict[str, int]:
    """What became of the messages, where anything did."""
    found = DRIFT.result.facts(finished.private, finished.config)
    return {name: int(count) for name, count in found.items() if count and name not in SHARED}


# --- The numbers -------------------------------------------------------------------------------------------


def test_hand_worked_round() -> None:
    """Owner a holds items 0 and 1, owner b items 1 and 2; v = (1, 2), psi = (1, 2, 3), alpha = 1/2, Theta = 1.

    User 0: bad 0, good 1, bad 2: with b, good 1 has no negative before it and is dropped; bad 2 begins a block.
    User 0: bad 0 again completes a's block (bad 0, good 1): w = 1 (2 - 1) = 1, s = 1 - sigma(1) = 0.2689414.
    v_0 = 1 + s/2 = 1.1344707, psi_1 = 2 + s/2 = 2.1344707, psi_0 = 1 - s/2 = 0.8655293.
    User 0: good 1, bad 1: completes (bad 0, good 1) of a and (bad 2, good 1) of b, both from these vectors.
    a: w = 1.1344707 * 1.2689414 = 1.4395769, s_a = 0.1916109; b: w = -1.1344707 * 0.8655293 = -0.9819176,
    s_b = 0.7274885.
    v_0 += (s_a * 1.2689414 - s_b * 0.8655293) / 2 = -0.1932598, so 0.9412109;
    psi_1 += (s_a + s_b) v_0 / 2 = 0.5213457, so 2.6558164; psi_0 -= s_a v_0 / 2 = 0.1086885, so 0.7568408;
    psi_2 -= s_b v_0 / 2 = 0.4126572, so 2.5873428. User 1 has one event: v_1 stays 2.
    Sent: 3 events with item 1 to both owners, 4 others to one, so 10; waiting: bad 1 with a and b.
    """
    signs = [(0, BAD), (1, GOOD), (2, BAD), (0, BAD), (1, GOOD), (1, BAD)]
    events = [*((0, item, sign) for item, sign in signs), (1, 2, GOOD)]

    def prepare(state: Any, _private: Any) -> Any:
        users, items = (np.array(values, np.float32)[:, None] for values in ([1, 2], [1, 2, 3]))
        return replace(state, user_factors=users, item_factors=items)

    finished = run(
        "drift", stream(events, [[0, 1], [1, 2]]), prepare=prepare, num_factors=1, num_rounds=1, window=1, theta=1,
        learning_rate=0.5, regularization=0.0,
    )  # fmt: skip
    assert finished.user_factors.ravel() == pytest.approx([0.9412109, 2.0], abs=1e-6)
    assert finished.item_factors.ravel() == pytest.approx([0.7568408, 2.6558164, 2.5873428], abs=1e-6)
    assert facts(finished) == {"interactions accepted": 10, "interactions waiting": 2}


@pytest.mark.parametrize("theta", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 7, 1000])
@pytest.mark.parametrize("open_blocks", ["go-on", "end"])
@pytest.mark.parametrize(("blocks", "block_loss"), [("pairs", "mean"), ("literal", "mean"), ("literal", "sum")])
def test_equals_the_report_in_plain_python(
    theta: int, window: int, open_blocks: str, blocks: str, block_loss: str
) -> None:
    """Two epochs of a random stream."""
    events, rate, ridge = some_stream(), 0.2, 0.05
    finished = run(
        "drift", stream(events, HELD, 12), num_factors=3, num_rounds=2, theta=theta, window=window,
        learning_rate=rate, regularization=ridge, open_blocks=open_blocks, blocks=blocks, block_loss=block_loss,
    )  # fmt: skip
    start = run("drift", stream(events, [[0], []], 12), num_factors=3, num_rounds=1, learning_rate=1e-30)
    vectors = {("user", number): row.astype(float) for number, row in enumerate(start.user_factors)}
    vectors |= {("item", number): row.astype(float) for number, row in enumerate(start.item_factors)}
    learned = learned_slowly(
        events, HELD, vectors, theta, rate, ridge, window, epochs=2, ends_blocks=open_blocks == "end",
        is_literal=blocks == "literal", is_sum=block_loss == "sum",
    )  # fmt: skip
    for number, row in enumerate(finished.user_factors):
        np.testing.assert_allclose(row, learned["user", number], atol=2e-5)
    for number, row in enumerate(finished.item_factors):
        np.testing.assert_allclose(row, learned["item", number], atol=2e-5)
    assert np.abs(finished.item_factors - start.item_factors).max() > 0.1


@pytest.mark.parametrize("theta", [1, 2])
def test_blocks_without_a_pair_are_asked_for_and_move_nothing(theta: int) -> None:
    """One owner; user 0: good 0, good 1, bad 2; user 1: bad 0, good 1, bad 2: two blocks, one of them with a pair.

    Read literally, Theta 2 is reached; with pairs only, not. With Theta 1 both readings end with the same model.
    """
    events = [(0, 0, GOOD), (0, 1, GOOD), (0, 2, BAD), (1, 0, BAD), (1, 1, GOOD), (1, 2, BAD)]
    usual = {"num_factors": 2, "num_rounds": 1, "theta": theta, "window": 10, "learning_rate": 0.5}
    ratings = stream(events, [[0, 1, 2]])
    literal, pairs = (run("drift", ratings, blocks=one, **usual) for one in ("literal", "pairs"))
    start = run("drift", ratings, **{**usual, "learning_rate": 1e-30})
    np.testing.assert_array_equal(literal.user_factors[0], start.user_factors[0])
    assert (literal.user_factors[1] != start.user_factors[1]).any()
    assert np.array_equal(literal.user_factors, pairs.user_factors) == (theta == 1)
    messages = [sent.message for sent in literal.transcript.recorded]
    asked = [one.numbers.values.tolist() for one in messages if type(one) is Wanted and one.num_rows]
    assert asked == ([[0, 0, 1, 1, 0, 1]] if theta == 1 else [[0, 1, 0, 1]])
    assert facts(literal)["interactions waiting"] == 2


def test_golden_transcript() -> None:
    """Of one window, without the gradients: exponentials are not the same on every machine."""
    finished = run("drift", some_events(2, 6, 20), num_factors=3, num_rounds=1, window=1000)
    assert digest(finished, BlockGradients) == GOLDEN
    assert digest(finished, BlockGradients, OwnerKey, SentInteractions) == GOLDEN_WITHOUT_MAIL


def test_newcomers_get_vectors_that_depend_on_their_number_only() -> None:
    """Owners bring items that the orchestrator did not know: as if it had known them."""
    events = some_stream()
    known, unknown = (run("drift", stream(events, HELD, size), window=20) for size in (11, 3))
    assert len(unknown.states[0].item_factors) == 3
    np.testing.assert_array_equal(unknown.item_factors, known.item_factors)
    assert len(run("drift", stream(events, HELD, 12)).item_factors) == 12


# --- What changes no bit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"encryption": "none"},
        {"flag": "inside"},
        {"batch": 4},
        {"batch": 4, "flag": "inside"},
        {"recommended": 3},
        {"epochs": 2, "parts": 3},
        {"epochs": 2, "parts": 50},
        {"threads": 2, "cohort_size": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("open_blocks", ["go-on", "end"])
def test_what_changes_no_bit_of_the_model(values: dict[str, Any], open_blocks: str) -> None:
    """How interactions travel, how an epoch is cut, who waits for whom."""
    usual = {"window": 20, "learning_rate": 0.5, "theta": 3, "open_blocks": open_blocks}
    ratings = some_events()
    assert_same(
        run("drift", ratings, num_rounds=2, **usual, **values), run("drift", ratings, num_rounds=2, **usual)
    )


def test_late_gradients_are_the_same_late_ones_again() -> None:
    """Whatever the threads; other ones than in time, but for the first window of the first round."""
    usual = {"window": 20, "learning_rate": 0.5, "max_delay": 3}
    late = run("drift", some_events(), **usual)
    assert_same(run("drift", some_events(), threads=2, cohort_size=1, **usual), late)
    in_time = run("drift", some_events(), **{**usual, "max_delay": 0})
    assert (late.item_factors != in_time.item_factors).any()
    assert facts(late) == facts(in_time)


@pytest.mark.parametrize("max_delay", [1, 3, 100])
def test_late_gradients_arrive_by_the_end_of_the_round(max_delay: int) -> None:
    """With steps so small that gradients do not depend on each other, the sum of the moves is the same."""
    usual = {"window": 20, "learning_rate": 1e-4, "num_rounds": 1}
    late, in_time = (run("drift", some_events(), max_delay=delay, **usual) for delay in (max_delay, 0))
    moved = in_time.item_factors - late.states[0].item_factors
    np.testing.assert_allclose(late.item_factors - late.states[0].item_factors, moved, atol=2e-7)
    assert np.abs(moved).max() > 1e-5


@pytest.mark.parametrize("stop_after", [1, 2, 5])
@pytest.mark.parametrize("blocks", ["pairs", "literal"])
def test_a_resumed_run_equals_one_without_interruption(stop_after: int, blocks: str, tmp_path: Path) -> None:
    data = owned(synthetic(24, 30, 300).as_signed(), "3", 0)
    sizes = {"epochs": 2, "parts": 3, "window": 20, "num_factors": 4}
    config = DRIFT.configure({**sizes, "learning_rate": 0.5, "recommended": 2, "blocks": blocks})
    job, options = Job(DRIFT, config, 0, data), RuntimeOptions(threads=1)

    class Stopped(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.round_number > stop_after:
            raise Stopped

    whole = run_job(job, options)
    with pytest.raises(Stopped):
        run_job(job, options, tmp_path / "state.npz", stop)
    assert read_arrays(tmp_path / "state.npz")["round_number"] == stop_after
    resumed = run_job(job, options, tmp_path / "state.npz")
    for ours, theirs in ((resumed.state, whole.state), (resumed.private, whole.private)):
        for name, array in kept_arrays(theirs).items():
            np.testing.assert_array_equal(kept_arrays(ours)[name], array)
    assert resumed.transcript.tallies == whole.transcript.tallies
    for user, items in resumed.private.gateway.shown.items():
        np.testing.assert_array_equal(items, whole.private.gateway.shown[user])


@pytest.mark.parametrize("request_type", [Register, Begin, NextWindow, TakeIn, Vectors, Recommend])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("open_blocks", "blocks"), [("go-on", "pairs"), ("end", "pairs"), ("end", "literal")])
def test_a_round_that_broke_off_and_begins_again_equals_one_that_did_not(
    request_type: type[Message], moment: str, open_blocks: str, blocks: str
) -> None:
    """It breaks off before or after some party did what it was asked to, in the third ask of that type, if any."""
    ratings, values = some_events(), {"window": 20, "num_factors": 4, "learning_rate": 0.5, "recommended": 2}
    values |= {"open_blocks": open_blocks, "blocks": blocks}
    config = DRIFT.configure({"epochs": 3, "parts": 1, **values})
    undisturbed = run("drift", ratings, num_rounds=3, **values)
    draws, numbers, asked = Draws(0), np.arange(ratings.num_parties, dtype=np.int32), 0
    breaks_at = 1 if request_type is Begin else 3
    private = DRIFT.enrol(numbers, ratings.rows, ratings.num_items, config, draws)

    class Broken(Exception):
        pass

    def breaking(cohort: Cohort[Any], request: Any, *others: Any) -> Reply:
        nonlocal asked
        asked += cohort.round_number == 2
        if asked == breaks_at and moment == "before":
            raise Broken
        reply = DRIFT.handlers[request_type].answer(cohort, request, *others)
        if asked == breaks_at:
            raise Broken
        return reply

    system = replace(
        DRIFT, handlers={**DRIFT.handlers, request_type: replace(DRIFT.handlers[request_type], answer=breaking)}
    )
    options = RuntimeOptions(threads=1, cohort_size=1)
    runtime, num_broken = InProcess(system, config, draws, private, Transcript(), options), 0
    state = system.start(len(numbers), ratings.num_items, config, draws)
    for round_number in (1, 2, 3):
        while True:
            try:
                state = runtime.run_round(state, round_number)
                break
            except Broken:
                num_broken += 1
    assert num_broken == 1
    for name, array in undisturbed.model_arrays().items():
        np.testing.assert_array_equal(result_arrays(state)[name], array)
    assert DRIFT.result.facts(private, config) == DRIFT.result.facts(undisturbed.private, config)


# --- Who is not there --------------------------------------------------------------------------------------


def test_an_owner_that_is_lost_for_a_round_is_survived_and_comes_back() -> None:
    """What it did not hear of in round 2 was not sent to it: nothing is missing."""
    values = {"window": 20, "learning_rate": 0.5}
    finished = run("drift", some_events(), losses=losing((2, None, 1)), **values)
    answered = {sent.round_number for sent in finished.sent(Wanted) if 1 in sent.numbers}
    assert answered == {1, 3, 4}
    told = {sent.round_number for sent in finished.sent(SentInteractions) if 1 in sent.addressees}
    assert told == {1, 3, 4}
    undisturbed = run("drift", some_events(), **values)
    for number in (1, 2):
        is_same = (finished.states[number].item_factors == undisturbed.states[number].item_factors).all()
        assert is_same == (number == 1)
    assert facts(finished).keys() == {"interactions accepted", "interactions waiting"}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("open_blocks", ["go-on", "end"])
def test_an_owner_whose_round_did_not_count_and_that_missed_its_repetition_undoes_it(
    parts: int, open_blocks: str
) -> None:
    """It did most of round 2 when the round broke off and was repeated without it; it is back in round 3."""
    ratings, values = some_events(), {"window": 10, "num_factors": 4, "learning_rate": 0.5}
    config = DRIFT.configure({"epochs": 4 // parts, "parts": parts, "open_blocks": open_blocks, **values})
    numbers, draws = np.arange(ratings.num_parties, dtype=np.int32), Draws(0)

    def play(is_broken: bool) -> tuple[Any, Any]:
        private = DRIFT.enrol(numbers, ratings.rows, ratings.num_items, config, draws)
        state, is_away, asked = DRIFT.start(len(numbers), ratings.num_items, config, draws), not is_broken, 0

        def losses(round_number: int, request: type[Message], to: np.ndarray) -> np.ndarray:
            nonlocal asked
            if round_number == 2 and not is_away:
                asked += request is Vectors
                if asked == 2:
                    raise ConnectionError
            return (to == 1) & (round_number == 2) & is_away

        options = RuntimeOptions(threads=1, losses=losses)
        runtime = InProcess(DRIFT, config, draws, private, Transcript(), options)
        for round_number in range(1, 5):
            try:
                state = runtime.run_round(state, round_number)
            except ConnectionError:
                is_away = True
                state = runtime.run_round(state, round_number)
        assert asked == (2 if is_broken else 0)
        return state, DRIFT.result.facts(private, config)

    (absent, told), (returned, told_again) = play(is_broken=False), play(is_broken=True)
    np.testing.assert_array_equal(returned.item_factors, absent.item_factors)
    np.testing.assert_array_equal(returned.user_factors, absent.user_factors)
    assert told_again == told


def test_mail_that_an_owner_never_took_in_is_counted_as_missing() -> None:
    """It is lost in the second window of the only round, and back in the third."""
    num_asked = 0

    def losses(_round: int, request: type[Message], to: np.ndarray) -> np.ndarray:
        nonlocal num_asked
        num_asked += request is TakeIn
        return (to == 1) & (request is TakeIn) & (num_asked == 2)

    finished = run("drift", some_events(), losses=losses, window=20, num_rounds=1)
    second = finished.sent(SentInteractions)[1]
    [place] = np.flatnonzero(second.addressees == 1)
    assert facts(finished)["messages missing"] == second.message.sequences.lengths[place] > 0


def test_an_owner_lost_with_its_gradients_moves_nothing() -> None:
    """All owners are lost when they should answer with gradients: vectors stay as they were."""
    finished = run("drift", some_events(), losses=lambda _number, request, to: (to >= 0) & (request is Vectors))
    np.testing.assert_array_equal(finished.item_factors, finished.states[0].item_factors)


def test_without_the_users_side_a_run_stops_in_one_line() -> None:
    with pytest.raises(HushrecError, match=r"\Athe users' side is lost: .*; bring it back and use --resume\Z"):
        run("drift", some_events(), losses=losing((2, Begin, 3)))


def test_without_any_owner_a_run_stops_in_one_line() -> None:
    with pytest.raises(HushrecError, match=r"\Ano owner holds an item; bring owners with items\Z"):
        run("drift", some_events(), losses=lambda _number, _request, to: to < 3)


def test_items_without_an_owner_are_never_learned_nor_recommended() -> None:
    """Windows of one event: some have no mail at all."""
    held = [[0, 1, 2], [2, 3, 4]]
    finished = run("drift", stream(some_stream(), held, 12), num_rounds=1, window=1, recommended=3)
    is_moved = (finished.item_factors != finished.states[0].item_factors).any(axis=1)
    assert is_moved.tolist() == [item < 5 for item in range(12)]
    shown = np.concatenate([sent.message.items.values.ravel() for sent in finished.sent(Recommend)])
    assert set(shown.tolist()) == set(range(5))
    deliveries = sum(sum(item in own for own in held) for _, item, _ in some_stream())
    assert facts(finished)["interactions accepted"] == deliveries
    assert facts(finished).keys() == {"interactions accepted", "interactions waiting"}


def test_data_without_negatives_is_refused_in_one_line() -> None:
    """No block is ever completed."""
    data = replace(synthetic(24, 30, 300), ratings=None, rating_range=None)
    config = DRIFT.configure({"epochs": 1, "window": 20})
    with pytest.raises(
        HushrecError, match=r"\Asynthetic does not tell what users liked .*; choose data with ratings.*\Z"
    ):
        run_job(job_for(DRIFT, config, 0, data), RuntimeOptions(threads=1))


# --- Who does what it should not ----------------------------------------------------------------------------


def spoilt(kind: type[Message], change: Callable[[Any], Any]) -> Callable[[Any], AnySystem]:
    """A system in which replies to a request are changed."""

    def changed(system: AnySystem) -> AnySystem:
        def handler(*arguments: Any) -> Reply:
            return change(system.handlers[kind].answer(*arguments))

        return replace(system, handlers={**system.handlers, kind: replace(system.handlers[kind], answer=handler)})

    return changed


def with_values(reply: Reply, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Reply:
    column = getattr(reply.message, name)
    changed = replace(column, values=change(column.values))
    return replace(reply, message=replace(reply.message, **{name: changed}))


def test_an_owner_that_wants_what_there_is_not_is_refused() -> None:
    change = spoilt(TakeIn, lambda reply: with_values(reply, "numbers", lambda numbers: numbers + 1000))
    with pytest.raises(HushrecError, match="an owner wants the vector of a user that there is not, or"):
        run("drift", some_events(), change=change)


def test_gradients_that_do_not_fit_are_refused() -> None:
    change = spoilt(Vectors, lambda reply: with_values(reply, "gradients", lambda rows: rows[:, :-1]))
    with pytest.raises(HushrecError, match="gradients came that do not fit the vectors that were sent"):
        run("drift", some_events(), change=change)


@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_gradients_that_cannot_be_summed_name_round_and_remedy(value: float) -> None:
    change = spoilt(Vectors, lambda reply: with_values(reply, "gradients", lambda rows: np.full_like(rows, value)))
    with pytest.raises(HushrecError, match=r"\Around 1: .*not finite.*use a learning_rate= below 0.1\Z"):
        run("drift", some_events(), change=change)


def test_an_owner_of_more_items_than_there_can_be_is_refused() -> None:
    change = spoilt(Register, lambda reply: with_values(reply, "items", lambda items: items + (1 << 26)))
    with pytest.raises(HushrecError, match=r"\Aan owner holds an item numbered [\d,]+; number items from 0.*\Z"):
        run("drift", some_events(), change=change)


def test_a_key_of_another_size_is_refused() -> None:
    def shorten(reply: Reply) -> Reply:
        [sealed] = reply.mail
        key = sealed.message.key
        short = replace(sealed.message, key=Ragged(key.starts, key.values[:, :15].copy()))
        return replace(reply, mail=(replace(sealed, message=short),))

    with pytest.raises(HushrecError, match=r"\Aan owner's key has not 16 bytes; use the same settings\Z"):
        run("drift", some_events(), change=spoilt(Register, shorten))


@pytest.mark.parametrize("starts", [[0, 2, 1], [0, 1, 3]])
def test_a_table_that_is_not_whole_is_refused(starts: list[int]) -> None:
    finished, table = run("drift", some_events(), num_rounds=1), np.zeros(1, np.int32)
    cohort = Cohort(np.array([3], np.int32), np.array([3]), finished.private, 2)
    with pytest.raises(HushrecError, match=r"\Athe table of who holds what is not whole; ask with all of it\Z"):
        DRIFT.handlers[Begin].answer(cohort, Begin(np.array(starts), table), finished.config, Draws(0))


def test_vectors_that_do_not_fit_are_refused() -> None:
    finished = run("drift", some_events(), num_rounds=1)
    cohort = Cohort(np.array([0], np.int32), np.array([0]), finished.private, 1)
    vectors = Vectors(Ragged.one(np.zeros((1000, 5), np.float32)))
    with pytest.raises(HushrecError, match=r"\Avectors came that do not fit what was asked for; ask in order\Z"):
        DRIFT.handlers[Vectors].answer(cohort, vectors, finished.config, Draws(0))


def test_altered_and_replayed_mail_changes_nothing_but_counts() -> None:
    """Before each letter comes one with altered contents and higher numbers, after it the same letter again."""

    def intrude(reply: Reply) -> Reply:
        [sealed] = reply.mail
        sent = sealed.message
        altered = replace(
            sent,
            sequences=replace(sent.sequences, values=sent.sequences.values + 1000),
            contents=replace(sent.contents, values=sent.contents.values ^ np.uint8(1)),
        )
        mail = Sealed(sent.join([altered, sent, sent]), np.tile(sealed.addressees, 3))
        return replace(reply, mail=(mail,))

    values = {"window": 20, "num_rounds": 2, "learning_rate": 0.5}
    attacked = run("drift", some_events(), change=spoilt(NextWindow, intrude), **values)
    undisturbed = run("drift", some_events(), **values)
    assert_same(attacked, undisturbed)
    num_sent = facts(undisturbed)["interactions accepted"]
    assert facts(attacked) == {
        **facts(undisturbed), "messages altered": num_sent, "messages replayed": num_sent,
    }  # fmt: skip


# --- What is sent ------------------------------------------------------------------------------------------


def test_owners_ask_for_the_vectors_of_their_blocks_only() -> None:
    """Users and items that the owner got interactions of; Theta = 3: groups have at most 3 users."""
    ratings = some_events()
    finished = run("drift", ratings, theta=3, num_rounds=3, window=20, cohort_size=1)
    rows, num_groups = ratings.rows, 0
    for sent in finished.sent(Wanted):
        [owner] = sent.numbers
        held = rows.held[rows.held_starts[owner] : rows.held_starts[owner + 1]]
        is_item = sent.message.is_item.values.astype(np.bool_)
        assert np.isin(sent.message.numbers.values[is_item], held).all()
        for group in np.unique(sent.message.groups.values):
            assert 1 <= (~is_item & (sent.message.groups.values == group)).sum() <= 3
            num_groups += 1
    assert num_groups > 10


def test_a_threshold_of_users_has_as_many_users_in_each_group() -> None:
    """With blocks, some groups have two blocks of one user."""
    num_users = {}
    for threshold in ("users", "blocks"):
        finished = run("drift", some_events(3, 12), threshold=threshold, theta=2, window=20, cohort_size=1)
        found = [
            int((sent.message.groups.values[sent.message.is_item.values == 0] == group).sum())
            for sent in finished.sent(Wanted)
            for group in np.unique(sent.message.groups.values)
        ]
        num_users[threshold] = set(found)
    assert num_users == {"users": {2}, "blocks": {1, 2}}


def test_the_orchestrator_gets_no_interaction() -> None:
    """All that it receives: what owners hold and want, gradients, numbers of windows and users, who is active.

    Where the users' side keeps users' vectors: sums of items' gradients, and that others are done.
    """
    kinds = {kind.__name__ for kind in DRIFT.messages if kind.receiver == "orchestrator"}
    published = {"Holdings", "Began", "WindowSent", "Wanted", "BlockGradients", "Recommended"}
    assert kinds == published | {"NamedUsers", "HandedUsers", "ItemSums", "MovedUsers"}
    silent = run("drift", some_events())
    assert not silent.sent(Recommend)


def test_recommended_items_are_the_best_that_a_user_does_not_know() -> None:
    ratings = some_events()
    finished = run("drift", ratings, num_rounds=1, window=1000, recommended=2, learning_rate=0.5)
    gateway, rows = finished.private.gateway, ratings.rows
    scores = finished.scorer.score(np.arange(rows.num_users, dtype=np.int32))
    assert sorted(gateway.shown) == np.unique(rows.users).tolist()
    for user, shown in gateway.shown.items():
        known, best = rows.items[rows.users == user], np.argsort(-scores[user])[:20]
        assert shown.tolist() == best[~np.isin(best, known)][:2].tolist()


@pytest.mark.parametrize("round_number", [1, 2, 3])
def test_a_new_process_knows_what_users_know(round_number: int) -> None:
    """From the stream: in the first epoch what came by the second window of the round, then all of it."""
    ratings, config = some_events(), DRIFT.configure({"epochs": 2, "parts": 2, "window": 60, "recommended": 2})
    numbers = np.arange(ratings.num_parties, dtype=np.int32)
    shown = []
    for is_new in (False, True):
        private = DRIFT.enrol(numbers, ratings.rows, ratings.num_items, config, Draws(0))
        gateway = private.gateway
        gateway.clock[:] = round_number, 1
        if not is_new:
            gateway.note_seen(0, {1: 120, 2: 240, 3: len(gateway.users)}[round_number])
        gateway.table_starts = np.zeros(31, np.int64)
        first, last = events_of_window(gateway, round_number, 1, config)
        users = Ragged.one(np.unique(gateway.users[first:last]))
        every = np.tile(np.arange(30, dtype=np.int32), (len(users.values), 1))
        request = Recommend(users, Ragged(users.starts, every))
        DRIFT.handlers[Recommend].answer(
            Cohort(numbers[-1:], np.array([3]), private, round_number), request, config, Draws(0)
        )
        shown.append({user: items.tolist() for user, items in gateway.shown.items()})
    assert shown[0] == shown[1]


def test_what_was_withheld_is_ranked_better_than_by_chance() -> None:
    """Of withheld events: a user's good ones are ranked above its bad ones (chance: 0.5, deviation below 0.03)."""
    split = random_share(synthetic(60, 50, 2400, seed=1), 0.2, 0)
    config = DRIFT.configure({"epochs": 5, "learning_rate": 0.3, "num_factors": 8, "parts": 1})
    job = Job(DRIFT, config, 0, owned(split.train, "3", 0))
    scorer = job.scorer(run_job(job, RuntimeOptions(threads=1)))
    test = split.test.as_signed()
    scores = scorer.predict(test.users, test.items)
    good, bad = np.nonzero((test.users[:, None] == test.users) & (test.ratings[:, None] > test.ratings))
    assert len(good) > 300
    assert (scores[good] > scores[bad]).mean() > 0.6


def test_divergence_is_refused_in_one_line() -> None:
    config = DRIFT.configure({"epochs": 4, "learning_rate": 1e38, "num_factors": 4})
    with pytest.raises(HushrecError, match=r"\Around \d+: .*use a learning_rate= below 1e\+38\Z"):
        run_experiment(
            DRIFT, config, synthetic(24, 30, 300), settings_for(DRIFT, split="random"), RuntimeOptions(threads=1)
        )
