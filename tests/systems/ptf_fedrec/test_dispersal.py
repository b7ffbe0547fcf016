"""What PTF-FedRec's server tells a client."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import DivergedError
from hushrec.protocol import Ragged
from hushrec.systems.ptf_fedrec.dispersal import Dispersal, Strategy, disperse


@dataclass(frozen=True)
class Table:
    """A scorer whose scores are given."""

    scores: np.ndarray

    def score(self, users: np.ndarray) -> np.ndarray:
        return self.scores[users]


SCORES = np.array([[0.1, 0.9, 0.3, 0.8, 0.7, 0.2], [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]], np.float32)
NUM_UPDATES = np.array([3, 5, 1, 5, 0, 2])
UPLOADED = Ragged(np.array([0, 1, 4]), np.array([1, 0, 2, 3], np.int32))


def told(how: Dispersal, round_number: int = 2) -> list[dict[int, float]]:
    clients = np.array([0, 1], np.int32)
    items, scores = disperse(Table(SCORES), clients, UPLOADED, NUM_UPDATES, how, round_number, Draws(0))
    np.testing.assert_array_equal(items.starts, scores.starts)
    return [
        dict(zip(items.part(one, one + 1).values.tolist(), scores.part(one, one + 1).values.tolist(), strict=True))
        for one in range(2)
    ]


def test_by_hand() -> None:
    """By updates the items are 1, 3, 0, 5, 2, 4. Client 0 uploaded 1: sure are 3 and 0, then by score 4 and 2 are
    left. Client 1 uploaded 0, 2, 3: sure are 1 and 5, and 4 is all that is left.
    """
    found = told(Dispersal(4, 0.5, "confidence+hard"))
    assert [list(one) for one in found] == [[3, 0, 4, 2], [1, 5, 4]]
    for client, one in enumerate(found):
        assert one == {item: SCORES[client, item] for item in one}


@pytest.mark.parametrize(
    ("how", "first"),
    [
        (Dispersal(2, 1.0, "confidence+hard"), [3, 0]),
        (Dispersal(2, 0.0, "confidence+hard"), [3, 4]),
        (Dispersal(3, 0.5, "confidence+hard"), [3, 0, 4]),  # round(1.5) is 2
        (Dispersal(2, 1.0, "confidence"), [3, 0]),
        (Dispersal(2, 0.0, "hard"), [3, 4]),
    ],
)
def test_shares_and_ablations(how: Dispersal, first: list[int]) -> None:
    assert list(told(how)[0]) == first


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_no_strategy_tells_what_was_uploaded_or_tells_twice(strategy: Strategy) -> None:
    for size in range(1, 8):
        first, second = told(Dispersal(size, 0.5, strategy))
        assert 1 not in first
        assert not {0, 2, 3} & second.keys()
        assert (len(first), len(second)) == (min(size, 5), min(size, 3))


def test_what_no_rule_chooses_is_drawn() -> None:
    """Each of the 5 items that client 0 may be told is the only one in about a fifth of 400 rounds, |z| < 5."""
    for how in (Dispersal(1, 1.0, "random"), Dispersal(1, 0.0, "random"), Dispersal(1, 1.0, "hard")):
        counts = np.bincount([next(iter(told(how, number)[0])) for number in range(400)], minlength=6)
        assert counts[1] == 0
        assert np.abs(np.delete(counts, 1) - 80).max() < 5 * np.sqrt(400 * 0.2 * 0.8)


def test_blocks_of_clients_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    how = Dispersal(3, 0.5, "confidence+hard")
    whole = told(how)
    monkeypatch.setattr("hushrec.systems.ptf_fedrec.dispersal._BLOCK_CLIENTS", 1)
    assert told(how) == whole


def test_scores_that_are_not_finite_are_divergence() -> None:
    scores = Table(np.where(np.arange(6) == 2, np.nan, SCORES))
    with pytest.raises(DivergedError, match="a score of the server's model is not finite"):
        disperse(scores, np.array([0, 1], np.int32), UPLOADED, NUM_UPDATES, Dispersal(2, 0.5, "hard"), 1, Draws(0))
