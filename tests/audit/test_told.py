from collections.abc import Callable

import numpy as np
import pytest

from hushrec.audit.scoreboard import Truth
from hushrec.audit.told import judge, judge_of_list, nothing_of, told_of
from hushrec.audit.uploads import paired


def test_f1_of_what_is_taken_for_rated(owning: Callable[..., Truth]) -> None:
    """Client 0 has 1 and 2, listed 1, 3, 4, is guessed 1 and 3: one hit of 2 + 2, of 3 + 2 for the whole list.

    Of what it listed it has 1: one hit of 2 + 1, of 3 + 1. Client 1 has 0, told nothing: the catalogue of 5.
    """
    truth = owning([[1, 2], [0]], 5)
    pairs = paired(np.zeros(3, np.int64), np.array([4, 1, 3]))
    told = told_of(np.array([0, 1]), pairs, np.array([False, True, True]))
    assert judge(told, truth).scores.tolist() == [2 / 4, 2 / 6]
    assert judge(told, truth).chances.tolist() == [2 / 5, 2 / 6]
    assert judge_of_list(told, truth).scores.tolist() == pytest.approx([2 / 3, 2 / 6])
    assert judge_of_list(told, truth).chances.tolist() == pytest.approx([2 / 4, 2 / 6])


def test_nothing_told_is_at_chance(owning: Callable[..., Truth]) -> None:
    """Without an answer, and with a list of which nothing is taken for rated."""
    truth = owning([[1, 2]], 5)
    asked = np.array([0])
    listed = told_of(asked, paired(np.zeros(2, np.int64), np.array([1, 3])), np.zeros(2, np.bool_))
    for told in (nothing_of(asked), listed):
        outcome = judge(told, truth)
        assert outcome.scores.tolist() == outcome.chances.tolist()
        assert len(outcome.scores) == 1
