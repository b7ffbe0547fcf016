"""Partners and servers of FedCORE that lie: refused with one line, also by a partner that has started anew."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from adversary.hostile_columns import asked
from adversary.in_process_runs import PARTNER_SETTINGS, after_rounds, numbers, running
from hushrec.errors import HushrecError
from hushrec.protocol import Answer, Ask, Collect, Numbers, kept_arrays, restore
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess
from hushrec.systems.fedcore.alignment import Align, Aligned, align_partners
from hushrec.systems.fedcore.encrypted_scores import KeyHolder
from hushrec.systems.fedcore.inference import Serve, Visits
from hushrec.systems.fedcore.messages import Settle, TakeStep, UserGradients
from systems.runs import some_partners

FEDCORE = SYSTEMS["fedcore"]
PARTNERS = numbers(0, 1)


def stepping(num_steps: int = 2, **values: Any) -> InProcess:
    """Two partners, aligned, after their first step."""
    runtime = running(
        "fedcore", some_partners(2), **PARTNER_SETTINGS | {"batch_size": 400, "alignment": "keyed-hash"} | values
    )
    for stage in (1, 2):
        runtime.serve(Ask(PARTNERS, Align(np.array(stage), PARTNERS), Collect()), 1)
    assert not isinstance(step(runtime, 0, num_steps), str)
    return runtime


def step(
    runtime: InProcess, number: int, num_steps: int = 2, partners: Numbers = PARTNERS, round_number: int = 1
) -> Any:
    request = TakeStep(np.array(number), np.array(num_steps), partners)
    return asked(runtime, Ask(PARTNERS, request, Collect()), round_number)


def with_mail(runtime: InProcess, change: Callable[[list[Any]], list[Any]]) -> None:
    """What a server does to the mail of the last step."""
    inbox = runtime.inboxes[UserGradients]
    assert isinstance(inbox, Collect)
    inbox.batches = change(inbox.batches)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda batches: [], "gradients are missing, or of nobody who takes part: 1; begin the round again"),
        (lambda batches: batches * 2, "gradients of partner 1 twice, or of another step; begin the round again"),
    ],
)
def test_mail_dropped_or_repeated_is_refused(change: Any, refusal: str) -> None:
    runtime = stepping()
    with_mail(runtime, change)
    assert step(runtime, 1) == refusal


def test_mail_of_an_earlier_step_is_refused() -> None:
    runtime = stepping(3)
    early = deepcopy(runtime.inboxes[UserGradients])
    assert not isinstance(step(runtime, 1, 3), str)
    runtime.inboxes[UserGradients] = early
    assert "of another step" in step(runtime, 2, 3)


def test_the_order_of_mail_does_not_matter() -> None:
    models = []
    for change in (lambda batches: batches, lambda batches: batches[::-1]):
        runtime = running(
            "fedcore", some_partners(3), **PARTNER_SETTINGS | {"alignment": "keyed-hash", "batch_size": 400}
        )
        everybody = numbers(0, 1, 2)
        for stage in (2, 3):
            runtime.serve(Ask(everybody, Align(np.array(stage), everybody), Collect()), 1)
        runtime.serve(Ask(everybody, TakeStep(np.array(0), np.array(1), everybody), Collect()), 1)
        with_mail(runtime, change)
        runtime.serve(Ask(everybody, Settle(np.array(1), everybody), Collect()), 1)
        models.append(runtime.private.user_factors.tobytes())
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("asking", "refusal"),
    [
        (lambda runtime: step(runtime, 1, 3), "a round of 3 steps leaves ratings out, or had another number"),
        (lambda runtime: step(runtime, 2, 2), "step 2 of 2 cannot be"),
        (lambda runtime: step(runtime, 0, 2, round_number=2), "round 2 is over or was not agreed on"),
        (lambda runtime: step(runtime, 1, 2, numbers(0, 1, 2)), "with whom nothing was aligned"),
        (lambda runtime: step(runtime, 1, 2, numbers(1, 0)), "the list of partners is none"),
        (lambda runtime: step(runtime, 1, 2, numbers(0)), "the list of partners is none"),
        (lambda runtime: step(runtime, 1, 2, numbers()), "the list of partners is none"),
    ],
)
def test_steps_that_were_not_agreed_on_are_refused(asking: Callable[[InProcess], Any], refusal: str) -> None:
    assert refusal in asking(stepping())


def test_a_round_of_more_steps_than_anybody_can_afford_is_refused() -> None:
    runtime = stepping()
    for partner in runtime.private.partners:
        partner.num_steps = 0
    assert "cannot be" in step(runtime, 0, 1 << 24)


def test_a_step_asked_for_twice_is_the_same() -> None:
    runtime = stepping()
    first = deepcopy(runtime.inboxes[UserGradients])
    assert not isinstance(step(runtime, 0), str)
    again = runtime.inboxes[UserGradients]
    assert isinstance(first, Collect)
    assert isinstance(again, Collect)
    for (_, one), (_, other) in zip(first.batches, again.batches, strict=True):
        np.testing.assert_array_equal(one.gradients.values, other.gradients.values)


def test_users_are_aligned_in_the_first_round_only() -> None:
    runtime = after_rounds("fedcore", some_partners(2), 1, **PARTNER_SETTINGS | {"num_rounds": 2})
    ask = Ask(PARTNERS, Align(np.array(0), PARTNERS), Collect())
    assert "before the first round" in str(asked(runtime, ask, 2))


@pytest.mark.parametrize("num_common", [[5, 4], [1, 2**24], [9, 3, 3]])
def test_more_common_users_than_the_others_have_are_refused(num_common: list[int]) -> None:
    everybody = np.arange(len(num_common), dtype=np.int32)
    asks = align_partners(everybody, len(everybody), "keyed-hash")
    told = Aligned(np.ones(len(everybody), np.int64), np.array(num_common))
    next(asks).replies.add(everybody, told)
    asks.send(Answer()).replies.add(everybody, told)
    with pytest.raises(HushrecError, match="more users in common with the others than they have"):
        asks.send(Answer())


def restarted_partners(runtime: InProcess) -> None:
    """The partners start anew, with what their nodes keep."""
    kept = {name: array.copy() for name, array in kept_arrays(runtime.private).items()}
    ratings = some_partners(2)
    fresh = FEDCORE.enrol(PARTNERS, ratings.rows, ratings.num_items, runtime.config, runtime.draws)
    restore(fresh, kept)
    runtime.private = fresh


def test_what_partners_hold_others_to_outlives_their_processes() -> None:
    """Another number of steps in a round, and who takes part with whom nothing was aligned."""
    runtime = stepping()
    restarted_partners(runtime)
    assert "had another number of them before" in step(runtime, 1, 3)
    assert "with whom nothing was aligned" in step(runtime, 1, 2, numbers(0, 1, 2))
    assert not isinstance(step(runtime, 1), str)


def test_a_checkpoint_without_pins_is_restored_and_damaged_ones_are_refused() -> None:
    runtime = stepping()
    kept = {name: array.copy() for name, array in kept_arrays(runtime.private).items()}
    damaged = kept | {"pins": kept["pins"][:-1]}
    with pytest.raises(ValueError, match="pins are damaged"):
        restore(runtime.private, damaged)
    del kept["pins"]
    restore(runtime.private, kept)
    assert runtime.private.partners[0].num_steps == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_visitors_are_served_once_and_at_the_end(is_restarted: bool) -> None:
    """Asked about others the second time, or too early, a partner refuses; also one that started anew."""
    pytest.importorskip("tenseal")
    values = PARTNER_SETTINGS | {"num_rounds": 2, "inference": "ckks", "num_asked": 2}
    runtime = after_rounds("fedcore", some_partners(2), 1, **values)
    serve = [Ask(PARTNERS, Serve(np.array(stage), PARTNERS), Collect()) for stage in range(5)]
    assert "after the last round" in str(asked(runtime, serve[0], 1))
    assert not isinstance(asked(runtime, serve[0], 2), str)
    honest = deepcopy(runtime.inboxes[Visits])
    assert not isinstance(asked(runtime, serve[1], 2), str)
    other = deepcopy(honest)
    for _, message in other.batches:  # type: ignore[attr-defined]
        message.names.values.setflags(write=True)
        message.names.values[:] = 7
    if is_restarted:
        restarted_partners(runtime)
    runtime.inboxes[Visits] = other
    assert "asks again, about others; one question was agreed on" in str(asked(runtime, serve[1], 2))
    runtime.inboxes[Visits] = honest
    assert not isinstance(asked(runtime, serve[1], 2), str)


def test_keys_have_one_size_whatever_is_in_them() -> None:
    pytest.importorskip("tenseal")
    draws = np.random.default_rng(0)
    sizes = {
        len(KeyHolder(20, 1682, draws.integers(0, 2**32, 8, dtype=np.uint32)).public_keys()) for _ in range(6)
    }
    assert len(sizes) == 1
