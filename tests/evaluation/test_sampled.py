import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation import evaluated_users, ranking_per_user, sampled_metrics, sampled_per_user
from hushrec.evaluation.sampled import drawn_negatives

NAMES = ("sampled HR@1", "sampled NDCG@1", "sampled HR@3", "sampled NDCG@3")


@dataclass(frozen=True)
class ListRows:
    starts: np.ndarray
    items: np.ndarray
    ratings: np.ndarray | None = None


def rows_of(lists: Sequence[Sequence[int]]) -> ListRows:
    starts = np.concatenate(([0], np.cumsum([len(items) for items in lists]))).astype(np.int64)
    return ListRows(starts, np.array([item for items in lists for item in items], np.int32))


def as_lists(rows: ListRows) -> list[list[int]]:
    return [rows.items[first:last].tolist() for first, last in zip(rows.starts, rows.starts[1:], strict=False)]


def random_case(seed: int, num_users: int = 30, num_items: int = 40) -> tuple[np.ndarray, ListRows, ListRows]:
    """Coarse scores (many ties), users with few items and with nearly all, some without a test item."""
    draws = np.random.default_rng(seed)
    scores = draws.integers(0, draws.choice([3, 1000]), (num_users, num_items)).astype(np.float32)
    train, test = [], []
    for _ in range(num_users):
        own = draws.permutation(num_items)[: draws.integers(1, num_items + 1)]
        has_test = bool(draws.random() < 0.8)
        train.append(sorted(own[has_test:].tolist()))
        test.append(own[:has_test].tolist())
    return scores, rows_of(train), rows_of(test)


def slow_ranks(scores: np.ndarray, test: ListRows, negatives: np.ndarray) -> list[int]:
    """The test item's place when it and the negatives are sorted, by Python."""
    ranks = []
    for user, drawn in zip(evaluated_users(test).tolist(), negatives.tolist(), strict=True):
        wanted = as_lists(test)[user][0]
        competing = [wanted, *(item for item in drawn if item >= 0)]
        ranks.append(1 + sorted(competing, key=lambda item: (-scores[user, item], item)).index(wanted))
    return ranks


def test_hand_worked() -> None:
    """Items 0..4 exist. Every user has all of them but two: these two are the negatives, whatever is drawn.

    User 0 (test 1, negatives 3 and 4): scores 0.2 against 0.4 and 0.1, rank 2.
    User 1 (test 0, negatives 1 and 2): 0.9 against 0.5 and 0.3, rank 1.
    User 2 (test 4, negatives 0 and 3): 0.1 against 0.6 and 0.2, rank 3.
    HR@1 = 1/3, HR@2 = 2/3; NDCG@1 = 1/3, NDCG@2 = (1/log2 3 + 1) / 3.
    """
    scores = np.array([[9, 0.2, 9, 0.4, 0.1], [0.9, 0.5, 0.3, 9, 9], [0.6, 9, 9, 0.2, 0.1]], np.float32)
    train, test = rows_of([[0, 2], [3, 4], [1, 2]]), rows_of([[1], [0], [4]])
    metrics = sampled_metrics(lambda users: scores[users], train, test, Draws(0), (1, 2), num_negatives=2)
    assert metrics == pytest.approx(
        {
            "sampled HR@1": 1 / 3,
            "sampled NDCG@1": 1 / 3,
            "sampled HR@2": 2 / 3,
            "sampled NDCG@2": (1 / math.log2(3) + 1) / 3,
        },
        abs=1e-15,
    )


@given(seed=st.integers(0, 2**32), num_negatives=st.sampled_from([1, 5, 20, 99]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_equals_plain_loops(seed: int, num_negatives: int) -> None:
    scores, train, test = random_case(seed)
    negatives = drawn_negatives(evaluated_users(test), train, test, num_negatives, Draws(seed))
    ranks = slow_ranks(scores, test, negatives)
    found = sampled_per_user(lambda users: scores[users], train, test, Draws(seed), (1, 3), num_negatives)
    for cutoff in (1, 3):
        assert found[f"sampled HR@{cutoff}"].tolist() == [float(rank <= cutoff) for rank in ranks]
        gains = [1 / math.log2(rank + 1) if rank <= cutoff else 0.0 for rank in ranks]
        assert found[f"sampled NDCG@{cutoff}"].tolist() == pytest.approx(gains, abs=1e-15)


@given(seed=st.integers(0, 2**32), num_negatives=st.sampled_from([1, 5, 20, 99]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_negatives_are_unknown_to_the_user_and_distinct(seed: int, num_negatives: int) -> None:
    _, train, test = random_case(seed)
    users = evaluated_users(test)
    somebodys = set(train.items.tolist()) | set(test.items.tolist())
    for user, drawn in zip(users, drawn_negatives(users, train, test, num_negatives, Draws(0)), strict=True):
        unknown = somebodys - set(as_lists(train)[user]) - set(as_lists(test)[user])
        chosen = drawn[drawn >= 0].tolist()
        assert len(set(chosen)) == len(chosen) == min(num_negatives, len(unknown))
        assert set(chosen) <= unknown
        assert (drawn[len(chosen) :] == -1).all()


@given(seed=st.integers(0, 2**32), block_size=st.integers(1, 40))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_blocks_do_not_matter(seed: int, block_size: int) -> None:
    scores, train, test = random_case(seed)
    whole, in_blocks = (
        sampled_per_user(lambda users: scores[users], train, test, Draws(1), (1, 3), 9, size)
        for size in (1000, block_size)
    )
    for name in NAMES:
        np.testing.assert_array_equal(in_blocks[name], whole[name])


def test_draws_are_keyed_by_user_and_seed() -> None:
    """A user alone gets the negatives that it gets in company; another seed gives others."""
    _, train, test = random_case(3, 20, 300)
    users = evaluated_users(test)
    together = drawn_negatives(users, train, test, 10, Draws(0))
    for place, user in enumerate(users):
        alone = drawn_negatives(np.array([user]), train, test, 10, Draws(0))
        np.testing.assert_array_equal(alone[0], together[place])
    assert (drawn_negatives(users, train, test, 10, Draws(1)) != together).any()


def test_negatives_are_drawn_uniformly() -> None:
    """20,000 users with item 0 in train and item 1 in test draw 3 of the items 2..11: each of these 6,000 times.

    That is the mean; the standard deviation is 65. One of 10 items is off by five of them in one of 170,000 seeds.
    """
    num_users = 20_000
    train, test = rows_of([[0]] * num_users + [list(range(2, 12))]), rows_of([[1]] * num_users + [[]])
    drawn = drawn_negatives(np.arange(num_users, dtype=np.int32), train, test, 3, Draws(0))
    counts = np.bincount(drawn.ravel(), minlength=12)
    assert counts[:2].tolist() == [0, 0]
    np.testing.assert_allclose(counts[2:], 6000, atol=5 * 65)


def test_users_without_a_test_item_are_left_out() -> None:
    asked: list[int] = []

    def score_users(users: np.ndarray) -> np.ndarray:
        asked.extend(users.tolist())
        return np.tile(np.array([3, 2, 1], np.float32), (len(users), 1))

    train, test = rows_of([[0], [1], [], [0, 1, 2]]), rows_of([[], [0], [2], []])
    found = sampled_per_user(score_users, train, test, Draws(0), (1,))
    assert asked == [1, 2]
    assert found["sampled HR@1"].tolist() == [1.0, 0.0]


def test_equal_scores_go_to_the_lower_item() -> None:
    """All items are equal: user 0's test item 2 comes behind 0 and 1 (rank 3), user 1's item 0 is first."""
    train, test = rows_of([[3], [1, 3]]), rows_of([[2], [0]])
    found = sampled_per_user(lambda users: np.zeros((len(users), 4)), train, test, Draws(0), (1, 2, 3))
    assert found["sampled HR@2"].tolist() == [0.0, 1.0]
    assert found["sampled NDCG@3"].tolist() == [0.5, 1.0]


def test_a_user_who_has_all_items_ranks_its_own_first() -> None:
    """Nothing is left to compete, and -inf is a score as well."""
    train, test = rows_of([[0, 1]]), rows_of([[2]])
    found = sampled_metrics(lambda users: np.full((len(users), 3), -np.inf), train, test, Draws(0), (1,))
    assert found == {"sampled HR@1": 1.0, "sampled NDCG@1": 1.0}


def test_items_that_nobody_has_do_not_compete() -> None:
    """Item 1 has the best score, and no interaction: user 0's test item is first among 0 and 2."""
    train, test = rows_of([[], [2]]), rows_of([[0], []])
    scores = np.array([[2, 3, 1, 9], [0, 0, 0, 0]], np.float32)
    found = sampled_metrics(lambda users: scores[users], train, test, Draws(0), (1,))
    assert found["sampled HR@1"] == 1.0


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_all_negatives_of_a_full_catalogue_are_the_full_metrics(seed: int) -> None:
    """Where every other item is drawn and somebody has each item, sampled is full."""
    scores, train, test = random_case(seed)
    everything = rows_of([*as_lists(train), list(range(scores.shape[1]))])
    nothing = rows_of([*as_lists(test), []])
    scores = np.vstack([scores, scores[:1]])
    full = ranking_per_user(lambda users: scores[users], everything, nothing, (1, 3))
    found = sampled_per_user(lambda users: scores[users], everything, nothing, Draws(0), (1, 3), num_negatives=40)
    for name in NAMES:
        np.testing.assert_allclose(found[name], full[name.removeprefix("sampled ")], atol=1e-15)


def test_a_sample_flatters() -> None:
    """As the module warns: fewer negatives, higher values, for the same scores."""
    scores, train, test = random_case(5, 200, 400)
    values = [
        sampled_metrics(lambda users: scores[users], train, test, Draws(0), num_negatives=size)["sampled HR@10"]
        for size in (400, 99, 20)
    ]
    assert values[0] < values[1] < values[2]


def test_what_cannot_be_measured_is_refused() -> None:
    train, test = rows_of([[0], [1]]), rows_of([[1], [0]])

    def score(users: np.ndarray) -> np.ndarray:
        return np.zeros((len(users), 2))

    with pytest.raises(HushrecError, match=r"user 1 has 2 test items; sampled metrics need one, split with leave"):
        sampled_metrics(score, rows_of([[], []]), rows_of([[1], [0, 1]]), Draws(0))
    with pytest.raises(HushrecError, match=r"no user has a test item; split with leave_one_out"):
        sampled_metrics(score, train, rows_of([[], []]), Draws(0))
    with pytest.raises(HushrecError, match=r"num_negatives is 0; draw at least 1"):
        sampled_metrics(score, train, test, Draws(0), num_negatives=0)
    with pytest.raises(HushrecError, match=r"cutoffs are \(0,\)"):
        sampled_metrics(score, train, test, Draws(0), (0,))
    with pytest.raises(HushrecError, match=r"block_size is 0"):
        sampled_metrics(score, train, test, Draws(0), block_size=0)
    with pytest.raises(HushrecError, match=r"shape \(2, 1\) for 2 users; .* 2 or more"):
        sampled_metrics(lambda users: np.zeros((len(users), 1)), train, test, Draws(0))
    with pytest.raises(DivergedError, match=r"a score is not a number"):
        sampled_metrics(lambda users: np.full((len(users), 2), np.nan), train, test, Draws(0))
    with pytest.raises(HushrecError, match="test rows are in train, too"):
        sampled_metrics(score, train, rows_of([[0], []]), Draws(0))
