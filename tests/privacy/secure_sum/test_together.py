"""Who stays together: no combination of sums is of fewer than the least, whoever is missing or lost."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.settings import SecureSums
from hushrec.privacy.secure_sum.together import Together, draw_group, fixed_groups

ON = SecureSums(secure_sums=True, secure_together=3)


def numbers(*values: int) -> Any:
    return np.array(values, np.int32)


def fresh(num_parties: int = 12, least: int = 3) -> Together:
    return Together(np.zeros(num_parties, np.int32), least, np.random.default_rng(0))


def test_blocks_by_hand() -> None:
    """Six are in a sum. Then 0 is missing: of its block two more stay out, so that both parts have three."""
    one = fresh()
    assert one.admitted(numbers(0, 1, 2, 3, 4, 5)).tolist() == [0, 1, 2, 3, 4, 5]
    one.note(numbers(0, 1, 2, 3, 4, 5))
    assert one.allows(numbers(0, 1, 2, 3, 4, 5))
    assert not one.allows(numbers(1, 2, 3, 4, 5)), "the difference would be 0's own"
    left = one.admitted(numbers(1, 2, 3, 4, 5))
    assert len(left) == 3
    one.note(left)
    assert sorted(np.unique(one.blocks, return_counts=True)[1].tolist()) == [3, 3, 6]
    assert len(one.admitted(left[1:])) == 0, "blocks of three are whole or not there"


def test_newcomers_wait_until_they_are_enough() -> None:
    one = fresh()
    one.note(numbers(0, 1, 2))
    assert one.admitted(numbers(0, 1, 2, 3, 4)).tolist() == [0, 1, 2]
    assert one.admitted(numbers(0, 1, 2, 3, 4, 5)).tolist() == [0, 1, 2, 3, 4, 5]


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_whatever_sums_are_made_no_block_is_smaller_than_the_least(seed: int, least: int) -> None:
    """So every combination of sums is one of sums over such blocks: the rank of who took part is their number."""
    generator = np.random.default_rng(seed)
    one, made = Together(np.zeros(30, np.int32), least, generator), []
    for _ in range(8):
        present = np.flatnonzero(generator.random(30) < generator.uniform(0.3, 1)).astype(np.int32)
        chosen = one.admitted(present)
        survivors = chosen[generator.random(len(chosen)) < 0.97]
        if len(survivors) and one.allows(survivors):
            one.note(survivors)
            made.append(np.isin(np.arange(30), survivors))
    sizes = np.unique(one.blocks[one.blocks > 0], return_counts=True)[1]
    assert (sizes >= least).all()
    if made:
        patterns = np.stack(made).astype(np.float64)
        assert np.linalg.matrix_rank(patterns) <= len(sizes)
        for block in np.unique(one.blocks):
            assert (patterns[:, one.blocks == block] == patterns[:, one.blocks == block][:, :1]).all()


def test_groups_are_the_same_in_all_rounds_and_each_has_its_turn() -> None:
    rounds = [tuple(draw_group(20, 0.25, number, ON, Draws(0)).tolist()) for number in range(1, 9)]
    assert len(set(rounds)) == 4
    assert sorted(set(rounds[:4])) == sorted(set(rounds[4:]))
    assert sorted(number for group in rounds[:4] for number in group) == list(range(20))


def test_without_the_switch_participants_are_drawn_anew() -> None:
    off = SecureSums(secure_sums=True)
    rounds = {tuple(draw_group(20, 0.25, number, off, Draws(0)).tolist()) for number in range(1, 9)}
    assert len(rounds) == 8


def test_groups_that_are_too_small_are_refused_in_one_line() -> None:
    with pytest.raises(HushrecError, match=r"\Asecure_together=3 is more than the 2 who take part.*\Z"):
        fixed_groups(20, 10, ON, Draws(0))
