import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import Ask, Cohort, Ragged, Transcript
from hushrec.runtime.in_process import InProcess, Losses, RuntimeOptions
from hushrec.runtime.wire import encode
from hushrec.systems.metamf.network import parts_of
from hushrec.systems.metamf.system import (
    SYSTEM,
    Clients,
    Config,
    Gradients,
    Recommenders,
    ServerState,
    check_upload,
    groups_of,
)
from systems.runs import losing, some_ratings

NUM_USERS, NUM_ITEMS = 24, 30
SMALL = {"num_factors": 8, "item_memory": 3, "memory_size": 12, "hidden_size": 16, "learning_rate": 0.01}


def some_items(num_users: int = NUM_USERS) -> UserRows:
    rows = some_ratings(NUM_USERS, NUM_ITEMS).rows
    end = rows.starts[num_users]
    return UserRows(rows.starts[: num_users + 1], rows.items[:end], None)


def run(
    rows: UserRows | None = None,
    *,
    num_items: int = NUM_ITEMS,
    threads: int = 1,
    cohort_size: int | None = None,
    losses: Losses | None = None,
    num_rounds: int = 3,
    seed: int = 0,
    **values: Any,
) -> tuple[list[ServerState], Clients, Transcript, Config]:
    """States before the first round and after each, clients, transcript and config."""
    rows = rows or some_items()
    config, draws = Config(**{**SMALL, "num_rounds": num_rounds, "batch_size": 10, **values}), Draws(seed)
    num_users = len(rows.starts) - 1
    states = [SYSTEM.start(num_users, num_items, config, draws)]
    clients = SYSTEM.enrol(np.arange(num_users, dtype=np.int32), rows, num_items, config, draws)
    transcript = Transcript(keep_payloads=True)
    options = RuntimeOptions(threads=threads, cohort_size=cohort_size, losses=losses)
    runtime = InProcess(SYSTEM, config, draws, clients, transcript, options)
    try:
        with np.errstate(all="ignore"):
            for round_number in range(1, num_rounds + 1):
                states.append(runtime.run_round(states[-1], round_number))
    finally:
        runtime.close()
    return states, clients, transcript, config


def frames(transcript: Transcript) -> Iterator[tuple[int, str, int, bytes]]:
    for sent in transcript.recorded:
        for place, party in enumerate(sent.numbers):
            frame = encode(sent.message.part(place, place + 1), sent.round_number, sent.numbers[place : place + 1])
            yield sent.round_number, type(sent.message).__name__, int(party), frame


def digest(transcript: Transcript) -> str:
    return hashlib.sha256(b"".join(frame for *_, frame in sorted(frames(transcript)))).hexdigest()


def assert_same(one: ServerState, other: ServerState) -> None:
    for name in ("parameters", "means", "squares", "num_steps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_same_bits_whatever_threads_and_cohorts() -> None:
    states, _, transcript, _ = run(cohort_size=1)
    for threads, cohort_size in ((1, 7), (1, None), (2, 1), (2, 4)):
        others, _, other_transcript, _ = run(threads=threads, cohort_size=cohort_size)
        assert_same(others[-1], states[-1])
        assert digest(other_transcript) == digest(transcript)


def test_another_seed_gives_another_run() -> None:
    one, other = (run(seed=seed)[0][-1].parameters for seed in (0, 1))
    assert (one != other).all()


def test_a_round_is_one_step_of_adam_per_group() -> None:
    """24 clients in groups of 10: three asks, each client once, ascending; three steps a round."""
    states, _, transcript, _ = run(num_rounds=2)
    assert [int(state.num_steps) for state in states] == [0, 3, 6]
    for round_number in (1, 2):
        asked = [
            sent.numbers
            for sent in transcript.recorded
            if isinstance(sent.message, Recommenders) and sent.round_number == round_number
        ]
        assert [len(numbers) for numbers in asked] == [10, 10, 4]
        assert all((np.diff(numbers) > 0).all() for numbers in asked)
        assert sorted(np.concatenate(asked).tolist()) == list(range(24))


def test_groups_differ_between_rounds_and_are_bounded_in_bytes() -> None:
    clients, sizes = np.arange(100, dtype=np.int32), Config().sizes(100, 1_000_000)
    groups = [groups_of(clients, Config().sizes(100, 50), 64, Draws(0).generator("groups", n)) for n in (1, 2)]
    assert groups[0][0].tolist() != groups[1][0].tolist()
    assert groups[0][0].dtype == np.int32
    assert {len(one) for one in groups_of(clients, sizes, 64, Draws(0).generator("groups"))} == {4}


def test_an_ask_that_comes_again_gets_the_same_reply() -> None:
    _, clients, transcript, config = run(num_rounds=1)
    request = next(sent for sent in transcript.recorded if isinstance(sent.message, Recommenders))
    rows = request.numbers.astype(np.int64)
    cohort = Cohort(request.numbers, rows, clients, 1)
    replies = [SYSTEM.handlers[Recommenders].answer(cohort, request.message, config, Draws(0)) for _ in range(2)]
    sent = next(sent for sent in transcript.recorded if isinstance(sent.message, Gradients))
    for reply in replies:
        assert reply.message.gradient.values.tobytes() == sent.message.gradient.values.tobytes()


def test_a_lost_client_equals_one_that_never_took_part() -> None:
    """One group, and the last client never answers: all but its own vector is as without it, up to rounding."""
    lost, config = NUM_USERS - 1, Config(**SMALL)
    dropped = run(losses=lambda _round, _request, to: to == lost, batch_size=64)[0]
    without = run(some_items(lost), batch_size=64)[0]
    parts = [
        parts_of(states[-1].parameters, config.sizes(num_users, NUM_ITEMS))
        for states, num_users in ((dropped, NUM_USERS), (without, lost))
    ]
    for name, part in parts[1].items():
        np.testing.assert_allclose(parts[0][name][: len(part)], part, rtol=1e-3, atol=1e-4)


def test_a_client_lost_in_one_round_is_survived() -> None:
    disturbed, undisturbed = run(losses=losing((2, None, 5), (2, None, 6)))[0], run()[0]
    assert_same(disturbed[1], undisturbed[1])
    assert np.isfinite(disturbed[-1].parameters).all()
    assert (disturbed[2].parameters != undisturbed[2].parameters).any()


def test_a_round_without_anyone_changes_nothing() -> None:
    states = run(losses=lambda number, _request, to: (to >= 0) & (number == 2))[0]
    assert_same(states[2], states[1])
    assert (states[3].parameters != states[2].parameters).any()


def test_states_are_not_changed_afterwards() -> None:
    """A state can be kept, saved and gone on from: the first is still that of `start`."""
    states = run()[0]
    assert_same(states[0], SYSTEM.start(NUM_USERS, NUM_ITEMS, Config(**SMALL), Draws(0)))


def test_participation() -> None:
    _, _, transcript, _ = run(participation=0.25, num_rounds=2)
    tallies = {kind: tally.messages for (_, kind), tally in transcript.tallies.items()}
    assert tallies == {Recommenders: 6, Gradients: 6}


def test_bytes_are_those_of_dense_recommenders_both_ways() -> None:
    """Per client and way 4 (30 * 8 + (8 + 2) * 2 + 1) and a frame's header."""
    _, _, transcript, _ = run(num_rounds=1)
    tally = transcript.total(Recommenders, Gradients)
    overhead = tally.payload_bytes / tally.messages - 4 * (30 * 8 + 10 * 2 + 1)
    assert 0 < overhead < 64


def test_two_tastes_are_learned() -> None:
    """Even users have all even items but one, odd users odd ones; by chance 1 in 11 has the left-out one first."""
    num_users, num_items = 40, 20
    left_out = np.random.default_rng(0).integers(num_items // 2, size=num_users) * 2 + np.arange(num_users) % 2
    items = [
        [item for item in range(user % 2, num_items, 2) if item != left_out[user]] for user in range(num_users)
    ]
    starts = np.arange(num_users + 1, dtype=np.int64) * (num_items // 2 - 1)
    rows = UserRows(starts, np.concatenate(items).astype(np.int32), None)
    states, clients, _, config = run(rows, num_items=num_items, num_rounds=60)
    scores = SYSTEM.result.whole(states[-1], clients, config, None).score(np.arange(num_users, dtype=np.int32))
    scores[np.repeat(np.arange(num_users), num_items // 2 - 1), rows.items] = -np.inf
    assert (scores.argmax(axis=1) == left_out).mean() > 0.5


def test_divergence_names_round_and_remedy() -> None:
    remedy = r"round \d+: the update of client \d+ is not finite or .*; .*use a learning_rate= below 1e\+30$"
    with pytest.raises(DivergedError, match=remedy):
        run(learning_rate=1e30, num_rounds=5)


@pytest.mark.parametrize("number", [1e21, -3e38, np.inf, np.nan])
def test_a_gradient_that_would_spoil_the_model_is_refused_with_its_sender(number: float) -> None:
    """The square of 1e21 is no float32: Adam would never move that parameter again."""
    sizes = Config().sizes(3, 4)
    rows = np.zeros((2, sizes.num_generated), np.float32)
    rows[1, 5:7] = number
    starts = np.arange(3) * sizes.num_generated
    with pytest.raises(DivergedError, match="the update of client 9 is not finite or not within"):
        check_upload(sizes, False, np.array([7, 9], np.int32), Gradients(Ragged(starts, rows.ravel())))


def test_recommenders_of_other_settings_are_refused() -> None:
    _, clients, _, config = run(num_rounds=1)
    cohort = Cohort(np.array([0], np.int32), np.array([0]), clients, 1)
    short = Recommenders(Ragged(np.array([0, 5]), np.zeros(5, np.float32)))
    with pytest.raises(HushrecError, match="use the server's settings"):
        SYSTEM.handlers[Recommenders].answer(cohort, short, config, Draws(0))


def test_short_gradients_are_refused() -> None:
    config, draws = Config(**SMALL), Draws(0)
    steps = SYSTEM.round(SYSTEM.start(NUM_USERS, NUM_ITEMS, config, draws), 1, config, draws)
    ask: Ask = next(steps)
    short = Gradients(Ragged(np.array([0, 3]), np.zeros(3, np.float32)))
    with pytest.raises(HushrecError, match=rf"^the gradient of client {ask.to[0]} has not 261 numbers"):
        ask.replies.add(ask.to[:1], short)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_factors": 0}, "num_factors= must be at least 1"),
        ({"batch_size": 0}, "batch_size= must be at least 1"),
        ({"num_negatives": -1}, "num_negatives= must not be below 0"),
        ({"participation": 0.0}, "participation=0.0 is not in"),
        ({"learning_rate": 0.0}, "learning_rate= must be above 0"),
        ({"regularization": -1.0}, "regularization= must not be below 0"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        Config(**values)
