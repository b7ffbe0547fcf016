"""Users' vectors with the users' side: the same model, and an orchestrator that is told of no user."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushrec.data import synthetic
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import Ragged, Role, kept_arrays, result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, prepared, run_job
from hushrec.systems.drift.keepers import KeptVectors
from hushrec.systems.drift.kept_by_users import SummedItems
from hushrec.systems.drift.live import Live
from hushrec.systems.drift.messages import ItemSums
from hushrec.systems.drift.replies import Held
from hushrec.testing.checks import asking_twice, assert_arrays
from hushrec.testing.small_runs import finish_on_nodes
from systems.owner_runs import some_stream, stream
from systems.runs import Finished, run

DRIFT = SYSTEMS["drift"]
HELD = [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 7, 8, 9, 10]]
USUAL: dict[str, Any] = {"num_factors": 3, "num_rounds": 2, "window": 40, "learning_rate": 0.2}


def both(**settings: Any) -> tuple[Finished, Finished]:
    ratings = stream(some_stream(), HELD, 12)
    return run("drift", ratings, **{**USUAL, **settings}), run(
        "drift", ratings, **{**USUAL, "user_vectors": "users", **settings}
    )


@pytest.mark.parametrize(
    "settings",
    [{}, {"theta": 1, "window": 1}, {"theta": 5, "window": 1000}, {"bias_pace": 2.0}, {"blocks": "literal"},
     {"open_blocks": "end"}, {"encryption": "none"}, {"unseen": 1}],
)  # fmt: skip
def test_vectors_end_with_the_bits_of_the_run_as_published(settings: dict[str, Any]) -> None:
    published, kept = both(**settings)
    np.testing.assert_array_equal(kept.item_factors, published.item_factors)
    np.testing.assert_array_equal(kept.private.vectors.now, published.user_factors)
    assert len(np.unique(published.user_factors)) > 10


def test_the_orchestrator_is_told_of_no_user() -> None:
    """Neither by a number nor by how many there are; what it gets of owners are sums of items' gradients."""
    _, kept = both(recommended=2)
    assert kept.states[-1].user_factors.shape == (0, 3)
    view = kept.transcript.seen_by(Role.ORCHESTRATOR)
    got = {type(one.message).__name__ for one in view if type(one.message).receiver == Role.ORCHESTRATOR}
    assert got == {"Holdings", "Began", "WindowSent", "NamedUsers", "HandedUsers", "ItemSums", "MovedUsers"}
    for one in view:
        assert one.addressees is None
        if hasattr(one.message, "users"):
            assert not one.message.num_rows
    began = [one.message.num_users.tolist() for one in view if type(one.message).__name__ == "Began"]
    assert began == [[0], [0]]


def test_an_owner_gets_the_vectors_of_all_that_it_holds_whatever_it_needs() -> None:
    _, kept = both()
    sent = [one.message for one in kept.transcript.recorded if type(one.message).__name__ == "HeldVectors"]
    assert len(sent) == 2 * 8
    assert {tuple(one.vectors.lengths.tolist()) for one in sent} == {(7, 7)}


def test_users_are_recommended_the_same() -> None:
    published, kept = both(recommended=2)
    shown, again = (one.private.gateway.shown for one in (published, kept))
    assert shown.keys() == again.keys()
    for user, items in shown.items():
        np.testing.assert_array_equal(items, again[user])


def some_job(**settings: Any) -> Job:
    values = {**DRIFT.about.small, "user_vectors": "users", "parts": 2, "epochs": 2, **settings}
    train = prepared(DRIFT, DRIFT.holders.sample(synthetic(24, 30, 288), 0))
    return Job(DRIFT, DRIFT.configure(values), 0, train)


def test_asked_twice_it_learns_once() -> None:
    once = run_job(some_job(), RuntimeOptions(1))
    twice = run_job(replace(some_job(), system=asking_twice(DRIFT)), RuntimeOptions(1))
    for one, other in ((once.state, twice.state), (once.private, twice.private)):
        assert_arrays(kept_arrays(one), kept_arrays(other))


def test_nodes_and_resumed_runs_end_alike(tmp_path: Path) -> None:
    whole = run_job(some_job(), RuntimeOptions(1))
    state, nodes, _ = finish_on_nodes(some_job(), tmp_path)
    assert_arrays(result_arrays(state), result_arrays(whole.state))
    users_side = next(node for node in nodes.values() if node.private.gateway is not None)
    np.testing.assert_array_equal(users_side.private.vectors.now, whole.private.vectors.now)

    def interrupt(progress: Any) -> None:
        if progress.round_number == 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run_job(some_job(), RuntimeOptions(1), tmp_path / "state.npz", interrupt)
    resumed = run_job(some_job(), RuntimeOptions(1), tmp_path / "state.npz")
    assert_arrays(kept_arrays(resumed.private), kept_arrays(whole.private))


def test_a_round_that_begins_again_undoes_what_it_moved() -> None:
    kept = KeptVectors(np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32))
    kept.begin(1)
    kept.now[:] = 5
    kept.begin(1)
    assert kept.now.ravel().tolist() == [0, 0]
    kept.now[:] = 7
    kept.begin(2)
    assert kept.before.ravel().tolist() == [7, 7]
    with pytest.raises(HushrecError, match="round 1 is over"):
        kept.begin(1)


def test_a_sum_that_cannot_be_is_refused_with_its_sender() -> None:
    held = Held.of(np.array([0, 1, 2, 2]), np.array([7, 9], np.int32))  # item 0 by owner 7, 1 by 9
    sums = SummedItems.zeros((3, 1), 4, held)
    items = Ragged(np.array([0, 1, 2]), np.array([0, 1], np.int32))
    with pytest.raises(DivergedError, match="owner 9"):
        sums.add(np.array([7, 9], np.int32), ItemSums(items, Ragged(items.starts, np.array([[1], [2**61]]))))
    for item in (1, 2, 3, 2**31 - 1):
        with pytest.raises(HushrecError, match="does not hold"):
            sums.add(
                np.array([7], np.int32),
                ItemSums(Ragged.one(np.array([item], np.int32)), Ragged.one(np.array([[1]]))),
            )
    with pytest.raises(HushrecError, match="twice"):
        sums.add(
            np.array([7], np.int32),
            ItemSums(Ragged.one(np.array([0, 0], np.int32)), Ragged.one(np.array([[1], [1]]))),
        )


def test_what_it_cannot_be_together_with_is_refused() -> None:
    with pytest.raises(HushrecError, match=r"leave .*max_delay"):
        DRIFT.configure({"user_vectors": "users", "max_delay": 1})
    with pytest.raises(HushrecError, match="leave --user-vectors out"):
        Live(DRIFT, DRIFT.configure({"user_vectors": "users", "parts": 1}), 0)
    state = DRIFT.start(3, 4, DRIFT.config(user_vectors="users"), Draws(0))
    assert DRIFT.result.server is not None
    with pytest.raises(HushrecError, match="recommend there"):
        DRIFT.result.server(state, DRIFT.config(user_vectors="users"), (0.0, 1.0))
