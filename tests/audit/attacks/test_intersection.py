from collections.abc import Callable

import pytest

from audit.conftest import Bare, sent
from hushrec.audit.attacks.intersection import count, in_every_upload, judge
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import items_of


def test_items_in_every_upload_by_hand(owning: Callable[..., Truth]) -> None:
    """Client 0 lists 1, 2, 3 and then 1, 2, 4: both times 1 and 2, of which 1 is its own. Client 1 lists once."""
    first = count(None, [sent({0: [(1, 0), (2, 0), (3, 0)], 1: [(5, 0), (6, 0)]}, Bare)])
    truth = owning([[1], [5]], 8)
    assert judge(first, truth).scores.tolist() == [pytest.approx(1 / 3), 0.5]
    second = count(first, [sent({0: [(1, 0), (2, 0), (4, 0)]}, Bare)])
    assert items_of(second.counts.pairs[in_every_upload(second)]).tolist() == [1, 2, 5, 6]
    outcome = judge(second, truth)
    assert outcome.scores.tolist() == [0.5, 0.5]
    assert outcome.chances.tolist() == [pytest.approx(1 / 3), 0.5]


def test_the_same_list_again_tells_nothing(owning: Callable[..., Truth]) -> None:
    once = [sent({0: [(1, 0), (2, 0), (3, 0)]}, Bare)]
    outcome = judge(count(count(None, once), once), owning([[1]], 8))
    assert outcome.scores.tolist() == outcome.chances.tolist() == [pytest.approx(1 / 3)]
