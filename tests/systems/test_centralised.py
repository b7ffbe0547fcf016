"""NeuMF, NGCF and LightGCN where all items are in one place."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Transcript
from hushrec.runtime.in_process import InProcess, Losses, RuntimeOptions
from hushrec.systems import lightgcn, neumf, ngcf

SYSTEMS = {one.SYSTEM.name: one.SYSTEM for one in (neumf, ngcf, lightgcn)}
NUM_ITEMS = 30


def some_rows(num_users: int = 20) -> UserRows:
    rows = synthetic(num_users, NUM_ITEMS, 6 * num_users, seed=0).by_user()
    return UserRows(rows.starts, rows.items, None)


class Running:
    """A run that can be stopped after any round."""

    def __init__(self, name: str, rows: UserRows, num_items: int = NUM_ITEMS, **values: Any) -> None:
        small = {"num_factors": 6, "batch_size": 64, "learning_rate": 0.01, **values}
        if name != "ngcf":
            small = {"layers": [6, 3], **small}
        self.system, self.rows, self.draws = SYSTEMS[name], rows, Draws(values.pop("seed", 0))
        self.config = self.system.configure(small)
        numbers = np.arange(len(rows.starts) - 1, dtype=np.int32)
        self.private = self.system.enrol(numbers, rows, num_items, self.config, self.draws)
        self.state = self.system.start(len(numbers), num_items, self.config, self.draws)
        self.transcript = Transcript(keep_payloads=True)

    def rounds(self, first: int, last: int, threads: int = 1, losses: Losses | None = None) -> "Running":
        options = RuntimeOptions(threads=threads, cohort_size=7, keep_payloads=True, losses=losses)
        runtime = InProcess(self.system, self.config, self.draws, self.private, self.transcript, options)
        try:
            for number in range(first, last + 1):
                self.state = runtime.run_round(self.state, number)
        finally:
            runtime.close()
        return self

    def scores(self) -> np.ndarray:
        users = np.arange(len(self.rows.starts) - 1, dtype=np.int32)
        return self.system.result.whole(self.state, self.private, self.config, None).score(users)


def assert_same(one: Running, other: Running) -> None:
    for entry in fields(one.state):
        np.testing.assert_array_equal(getattr(one.state, entry.name), getattr(other.state, entry.name))


@pytest.mark.parametrize("name", SYSTEMS)
def test_items_are_handed_over_once_and_the_same_run_gives_the_same_bits(name: str) -> None:
    one = Running(name, some_rows()).rounds(1, 3)
    assert {sent.round_number for sent in one.transcript.recorded} == {1}
    assert {type(sent.message) for sent in one.transcript.recorded} == set(SYSTEMS[name].messages)
    np.testing.assert_array_equal(one.state.items, one.rows.items)
    np.testing.assert_array_equal(one.state.starts, one.rows.starts)
    assert_same(one, Running(name, some_rows()).rounds(1, 3, threads=2))
    np.testing.assert_array_equal(one.scores(), Running(name, some_rows()).rounds(1, 3).scores())


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_resumed_from_arrays_goes_on_as_it_would_have(name: str) -> None:
    stopped, resumed = Running(name, some_rows()).rounds(1, 2), Running(name, some_rows())
    saved = {entry.name: getattr(stopped.state, entry.name).copy() for entry in fields(stopped.state)}
    resumed.state = replace(resumed.state, **saved)
    assert_same(resumed.rounds(3, 4), Running(name, some_rows()).rounds(1, 4))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_planted_checkerboards_withheld_item_is_ranked_first(name: str) -> None:
    """Even users have the even items but for one, odd users the odd ones. By chance a user's first of 11 is right
    with 1/11; drawn negatives now and then are the withheld item, so 38 of 40 must be.
    """
    num_users, num_items = 40, 20
    withheld = np.array([(user + 2 * (user // 2)) % num_items for user in range(num_users)])
    owned = [
        [item for item in range(user % 2, num_items, 2) if item != withheld[user]] for user in range(num_users)
    ]
    rows = UserRows(np.arange(0, 9 * num_users + 1, 9), np.array(owned, np.int32).ravel(), None)
    values = {"layers": [6, 6]} if name == "neumf" else {}
    scores = Running(name, rows, num_items, num_negatives=2, **values).rounds(1, 40).scores()
    scores[np.repeat(np.arange(num_users), 9), rows.items] = -1
    assert (scores.argmax(axis=1) == withheld).sum() >= 38


def test_negatives_are_uniform_among_the_items_that_a_user_does_not_have() -> None:
    """User 0 has items 0, 2, 3 of 6, user 1 none, user 2 all, user 3 item 5. 2000 per positive: each other
    item of a user |z| < 5, fixed seed, false-alarm rate 6e-7 each.
    """
    rows = UserRows(np.array([0, 3, 3, 9, 10]), np.array([0, 2, 3, 0, 1, 2, 3, 4, 5, 5], np.int32), None)
    state = Running("neumf", rows, 6).rounds(1, 1).state
    samples = neumf.with_negatives(state, 2000, np.random.default_rng(0))
    assert samples.labels[:10].all()
    assert not samples.labels[10:].any()
    drawn = np.zeros((4, 6), int)
    np.add.at(drawn, (samples.users[10:], samples.items[10:]), 1)
    for user, others in ((0, [1, 4, 5]), (3, [0, 1, 2, 3, 4])):
        total, share = drawn[user].sum(), 1 / len(others)
        assert total == 2000 * (6 - len(others))
        assert np.flatnonzero(drawn[user]).tolist() == others
        assert (np.abs(drawn[user, others] - total * share) < 5 * np.sqrt(total * share * (1 - share))).all()
    assert not drawn[[1, 2]].any()


@pytest.mark.parametrize("name", SYSTEMS)
def test_negatives_are_fresh_in_every_round(name: str) -> None:
    running = Running(name, some_rows()).rounds(1, 1)
    one, other = (
        neumf.with_negatives(running.state, 4, running.draws.generator("negatives", number)) for number in (1, 2)
    )
    assert len(one) == len(other) == 5 * len(running.rows.items)
    assert (one.items != other.items).mean() > 0.6


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_client_that_is_lost_has_no_items_on_the_server(name: str) -> None:
    """And gets finite scores all the same."""
    finished = Running(name, some_rows()).rounds(1, 2, losses=lambda _number, _request, to: to == 4)
    lengths = np.diff(finished.rows.starts)
    lengths[4] = 0
    np.testing.assert_array_equal(np.diff(finished.state.starts), lengths)
    np.testing.assert_array_equal(
        finished.state.items, np.delete(finished.rows.items, np.arange(*finished.rows.starts[4:6]))
    )
    assert np.isfinite(finished.scores()).all()
    with pytest.raises(HushrecError, match="no client handed over its items; there is nothing to train on"):
        Running(name, some_rows()).rounds(1, 1, losses=lambda _number, _request, to: to >= 0)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("neumf", {"layers": [0, 3]}, "layers= must be at least 1 each"),
        ("neumf", {"layers": []}, "layers= needs the width of one layer or more"),
        ("lightgcn", {"layers": []}, "layers= needs the width of one layer or more"),
        ("neumf", {"num_negatives": -1}, "num_negatives= must not be below 0"),
        ("ngcf", {"num_graph_layers": 0}, "num_graph_layers= must be at least 1"),
        ("ngcf", {"message_dropout": 1.0}, "message_dropout=1.0 is not in [0, 1)"),
        ("lightgcn", {"batch_size": 0}, "batch_size= must be at least 1"),
        ("lightgcn", {"head": "tree"}, "bad setting"),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError) as refused:
        SYSTEMS[name].configure(values)
    assert message in str(refused.value)
