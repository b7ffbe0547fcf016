from collections.abc import Callable

import numpy as np

from audit.conftest import Bare, Told, sent
from hushrec.audit.attacks.listed_items import guess_listed, judge
from hushrec.audit.scoreboard import Truth


def test_f1_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 has 2 of 10 items and lists both and 2 more: F1 = 2 * 2 / 6; blindly 4 * 2/10 hits: 2 * 0.8 / 6.
    Client 2 lists what it has: 1. Client 1 lists nothing: nothing is said about it.
    """
    truth = owning([[0, 1], [2], [3]], 10)
    pairs = guess_listed([sent({0: [(0, 0), (1, 0), (5, 0), (6, 0), (5, 0)]}), sent({2: [(3, 0)]}, Bare)])
    outcome = judge(pairs, truth)
    assert outcome.victims.tolist() == [0, 2]
    np.testing.assert_allclose(outcome.scores, [4 / 6, 1])
    np.testing.assert_allclose(outcome.chances, [1.6 / 6, 0.1])


def test_what_the_server_lists_is_not_read() -> None:
    assert not len(guess_listed([sent({0: [(1, 0.5)]}, Told)]))
