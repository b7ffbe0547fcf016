"""A guard by itself: where no ledger of the node has refused before."""

import numpy as np
import pytest

from hushrec.runtime.guard import Guard, GuardError, Limits
from hushrec.systems.fedrec import ItemFactors

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
