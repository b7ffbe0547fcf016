from collections.abc import Callable

import numpy as np

from hushrec.audit.attacks.packet_lengths import judge, watch
from hushrec.audit.scoreboard import Truth
from hushrec.protocol import Lengths, Recorded, View

Owning = Callable[[list[list[int]], int], Truth]


def passing(ask: int, answered: dict[int, int], asked: int = 100, round_number: int = 1) -> Recorded:
    sizes = np.array(list(answered.values()))
    lengths = Lengths(np.int32(ask), np.full(len(sizes), asked), sizes)
    return Recorded(round_number, np.array(list(answered), np.int32), lengths)


def test_lengths_put_clients_in_order(owning: Owning) -> None:
    """Items 1, 2, 3, 3; lengths 10, 30, 20, 40.

    Client 0 is below all: 3 of 3. Client 1 is rightly above 0, wrongly above 2, rightly below 3: 2 of 3. Client 2
    is rightly above 0, wrongly below 1; with 3 there is nothing to compare: 1 of 2. Client 3: 2 of 2.
    """
    truth = owning([[0], [0, 1], [0, 1, 2], [1, 2, 3]], 4)
    outcome = judge(watch(None, [passing(1, {0: 10, 1: 30}), passing(1, {2: 20, 3: 40})]), truth)
    assert outcome.victims.tolist() == [0, 1, 2, 3]
    assert np.allclose(outcome.scores, [1, 2 / 3, 1 / 2, 1])
    assert outcome.chances.tolist() == [0.5] * 4


def test_rounds_are_averaged_and_asks_of_few_left_out(owning: Owning) -> None:
    """In round 1 client 1 sends less than client 0, over both rounds more; a denoiser's own ask does not count."""
    truth = owning([[0], [0, 1], [0, 1, 2]], 4)
    first: View = [passing(1, {0: 20, 1: 10, 2: 40}), passing(2, {0: 500}), passing(3, {0: 5, 1: 5, 2: 5})]
    seen = watch(None, first)
    assert np.allclose(judge(seen, truth).scores, [1 / 2, 1 / 2, 1])
    seen = watch(seen, [passing(1, {0: 20, 1: 35, 2: 40}, round_number=2)])
    assert np.allclose(judge(seen, truth).scores, [1, 1, 1])


def test_equal_lengths_tell_nothing(owning: Owning) -> None:
    """Also if somebody was asked less often: whoever is not asked is taken for the mean."""
    truth = owning([[0], [0, 1], [0, 1, 2]], 4)
    outcome = judge(watch(None, [passing(1, {1: 64, 2: 64}), passing(2, {0: 8, 1: 8, 2: 8})]), truth)
    assert outcome.scores.tolist() == [0.5] * 3


def test_nothing_seen(owning: Owning) -> None:
    assert not len(judge(watch(None, []), owning([[0], [0, 1]], 3)).victims)
