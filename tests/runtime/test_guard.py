"""A guard by itself: where no ledger of the node has refused before."""

import numpy as np
import pytest

from hushrec.protocol import Ragged
from hushrec.runtime.guard import MOST_CONTENTS, MOST_RELAYED, Guard, GuardError, Limits, Slices
from hushrec.systems import fcf
from hushrec.systems.fedrec import ItemFactors
from hushrec.systems.fedrec_plus_plus import Noise
from hushrec.systems.metamf.system import Recommenders

NUMBERS = np.array([0, 1], np.int32)
REQUEST = ItemFactors(np.full((3, 2), 0.5, np.float32), np.zeros(2, np.int32))


@pytest.mark.parametrize("round_number", [0, 4, 2**31])
def test_rounds_that_nobody_agreed_to_are_refused(round_number: int) -> None:
    with pytest.raises(GuardError, match=f"asked for round {round_number} of 3; order a run of as many rounds"):
        Guard(Limits(3)).admit(round_number, REQUEST, NUMBERS)


def test_a_round_does_not_come_again_after_a_later_one() -> None:
    guard = Guard(Limits(3))
    guard.memory = guard.admit(2, REQUEST, NUMBERS)
    assert guard.admit(2, REQUEST, NUMBERS) == guard.memory, "a repeat of the same is answered"
    with pytest.raises(GuardError, match="asked for round 1 after round 2"):
        guard.admit(1, REQUEST, NUMBERS)


def test_where_a_model_moves_within_a_round_a_client_answers_so_many_of_them() -> None:
    """Others may be told something else; what a client was told before may be repeated at any time."""
    guard = Guard(Limits(3))

    def ask(number: int, size: float, round_number: int = 1) -> None:
        request = fcf.ItemFactors(np.full((3, 2), size, np.float32))
        guard.memory = guard.admit(round_number, request, np.array([number], np.int32))

    for size in range(MOST_CONTENTS):
        ask(0, size / 10)
    ask(0, 0.0)
    ask(0, (MOST_CONTENTS - 1) / 10)
    with pytest.raises(GuardError, match="a client was asked in round 1 with 12 other ItemFactors"):
        ask(0, 9.0)
    ask(1, 9.0)
    ask(0, 9.0, round_number=2)


def test_in_a_round_that_begins_again_each_may_have_its_own_recommender() -> None:
    guard = Guard(Limits(3))
    starts = np.array([0, 2, 4])
    for size in range(MOST_CONTENTS + 1):
        rows = np.array([0.5, 0.5, size, size], np.float32)
        if size < MOST_CONTENTS:
            guard.memory = guard.admit(1, Recommenders(Ragged(starts, rows)), NUMBERS)
            continue
        with pytest.raises(GuardError, match="12 other Recommenders"):
            guard.admit(1, Recommenders(Ragged(starts, rows)), NUMBERS)
    assert [len(told) for told in next(iter(guard.memory.varied.values())).values()] == [1, MOST_CONTENTS]


def noise(items: list[int], *rows: float) -> Noise:
    table = np.repeat(np.array(rows, np.float32)[:, None], 2, axis=1)
    return Noise(Ragged.one(np.array(items, np.int32)), Ragged.one(table))


def test_whose_noise_it_is_shows_in_its_items_and_the_ends_of_its_rows() -> None:
    """Noise of two clients differs by one of these; what is between is not read again."""
    parts = [
        noise([1, 4, 7, 9], 1, 2, 3, 4),
        noise([1, 4, 8, 9], 1, 2, 3, 4),
        noise([1, 4, 7, 9], 5, 2, 3, 4),
        noise([1, 4, 7, 9], 1, 2, 3, 5),
        noise([1, 4, 7], 1, 2, 4),
        noise([1, 4], 1, 4),
        noise([1], 1),
        noise([]),
    ]
    found = [Slices().with_message(one, np.array([0])).digests[0] for one in parts]
    assert len(set(found)) == len(parts)
    assert found[0] == Slices().with_message(noise([1, 4, 7, 9], 1, 9, 9, 4), np.array([0])).digests[0]


def test_a_relay_remembers_so_many_asks_and_passes_on_no_letters_of_others() -> None:
    """Of a round; who could make it remember any number would fill its disk, or have it forget."""
    guard, letters = Guard(Limits(3)), [(f"{ask} 7", b"letter") for ask in range(MOST_RELAYED)]
    guard.memory = guard.admit_relay(1, letters)
    guard.memory = guard.admit_relay(1, letters[-1:])
    with pytest.raises(GuardError, match="letters of more than 4,096 asks in a round"):
        guard.admit_relay(1, [("other 7", b"letter")])
    assert len(guard.memory.relayed) == MOST_RELAYED
    assert len(guard.admit_relay(2, [("other 7", b"letter")]).relayed) == 1
