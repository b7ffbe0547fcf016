from dataclasses import dataclass
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation.held_back import held_back_metrics, held_back_names


@dataclass(frozen=True)
class Rows:
    starts: np.ndarray
    items: np.ndarray
    ratings: np.ndarray | None


def rows_of(lists: list[list[bool]]) -> Rows:
    """A list of signs per user; items are numbered from 0 in each."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    items = np.concatenate([np.empty(0), *(np.arange(len(one)) for one in lists)]).astype(np.int32)
    return Rows(starts, items, np.array([sign for one in lists for sign in one], np.float32))


def slowly(scores: list[list[float]], lists: list[list[bool]], cutoff: int) -> dict[str, float]:
    """As the module's docstring says, user by user."""
    maps, ndcgs, own = [], [], []
    for score, signs in zip(scores, lists, strict=True):
        if not any(signs):
            continue
        ranked = [signs[item] for item in sorted(range(len(signs)), key=lambda item: (-score[item], item))]
        top = ranked[:cutoff]
        gain = sum(hit / log2(rank + 1) for rank, hit in enumerate(top, start=1))
        possible = min(sum(signs), cutoff)
        ndcgs.append(gain / sum(1 / log2(rank + 1) for rank in range(1, cutoff + 1)))
        own.append(gain / sum(1 / log2(rank + 1) for rank in range(1, possible + 1)))
        precisions = [hit * sum(top[: place + 1]) / (place + 1) for place, hit in enumerate(top)]
        maps.append(sum(precisions) / possible)
    found = (np.mean(maps), np.mean(ndcgs), np.mean(own))
    return dict(zip(held_back_names([cutoff]), map(float, found), strict=True))


def test_by_hand() -> None:
    """Ranked: good, bad, good. The gain is 1 + 1/2; of three hits it would be 1 + .6309 + 1/2, of two 1 + .6309.

    Average precision: (1/1 + 2/3) / 2. The second user has nothing relevant and does not count.
    """
    scores = iter([[0.9, 0.1, 0.5, 0.3]])
    test = rows_of([[True, True, False], [False]])
    found = held_back_metrics(lambda _users, _items: np.array(next(scores)), test, (3,), 0.5)
    assert found == {
        "held-back MAP@3": pytest.approx((1 + 2 / 3) / 2),
        "held-back NDCG@3": pytest.approx(1.5 / 2.1309298),
        "held-back NDCG@3 (own ideal)": pytest.approx(1.5 / 1.6309298),
    }


def test_a_short_list_does_not_reach_the_report_s_ideal() -> None:
    """One relevant item, ranked first: 1 / (1 + .6309 + ... to rank 10), though nothing could be better."""
    found = held_back_metrics(lambda users, _items: np.zeros(len(users)), rows_of([[True]]), (10,))
    assert found["held-back NDCG@10"] == pytest.approx(1 / 4.5435595)
    assert found["held-back NDCG@10 (own ideal)"] == found["held-back MAP@10"] == 1


LISTS = st.lists(st.lists(st.booleans(), max_size=7), min_size=1, max_size=5).filter(
    lambda lists: any(map(any, lists))
)


@given(LISTS, st.integers(0, 9), st.integers(1, 9))
def test_equals_the_slow_way(lists: list[list[bool]], seed: int, cutoff: int) -> None:
    """With many equal scores: the lower item number comes first."""
    draws = np.random.default_rng(seed)
    scores = [draws.integers(0, 3, len(one)).astype(float).tolist() for one in lists]
    flat = np.array([score for one in scores for score in one])
    found = held_back_metrics(lambda _users, _items: flat, rows_of(lists), (cutoff,), 0.5)
    assert found == pytest.approx(slowly(scores, lists, cutoff))


def test_a_random_order_has_the_level_that_the_shares_say() -> None:
    """5 of 8 good: a rank is good with chance 5/8, so NDCG@10 is 5/8 of the gain of ranks 1 to 8, over that of 10.

    The mean of 20,000 users is within 0.003 of it but for one seed in a million.
    """
    draws, test = np.random.default_rng(0), rows_of([[True] * 5 + [False] * 3] * 20_000)
    found = held_back_metrics(lambda users, _items: draws.random(len(users)), test, (10,), 0.5)
    gains = np.cumsum(1 / np.log2(np.arange(2, 12)))
    assert found["held-back NDCG@10"] == pytest.approx(5 / 8 * gains[7] / gains[9], abs=0.003)


@pytest.mark.parametrize(
    ("signs", "cutoffs", "said"),
    [([[True]], (), "give one or more"), ([[True]], (0,), "give one or more"), ([[False]], (1,), "no user has")],
)
def test_what_cannot_be_measured_is_refused(signs: list[list[bool]], cutoffs: tuple[int, ...], said: str) -> None:
    with pytest.raises(HushrecError, match=said):
        held_back_metrics(lambda users, _items: np.zeros(len(users)), rows_of(signs), cutoffs, 0.5)


def test_a_limit_needs_ratings() -> None:
    rows = Rows(np.array([0, 1]), np.zeros(1, np.int32), None)
    with pytest.raises(HushrecError, match="leave relevant_from out"):
        held_back_metrics(lambda users, _items: np.zeros(len(users)), rows, (1,), 0.5)


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DivergedError, match="not a number"):
        held_back_metrics(lambda users, _items: np.full(len(users), np.nan), rows_of([[True]]), (1,))
