import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

import hushrec.evaluation
from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation import evaluated_users, ranking_metrics, ranking_per_user


@dataclass(frozen=True)
class ListRows:
    starts: np.ndarray
    items: np.ndarray
    ratings: np.ndarray | None = None


def rows_of(lists: Sequence[Sequence[int]], ratings: Sequence[float] | None = None) -> ListRows:
    starts = np.concatenate(([0], np.cumsum([len(items) for items in lists]))).astype(np.int64)
    items = np.array([item for items in lists for item in items], np.int32)
    return ListRows(starts, items, None if ratings is None else np.array(ratings, np.float32))


def rows_of_mask(mask: np.ndarray) -> ListRows:
    return rows_of([np.flatnonzero(row).tolist() for row in mask])


def random_case(seed: int, num_users: int = 25, num_items: int = 40) -> tuple[np.ndarray, ListRows, ListRows]:
    """Coarse scores (many ties), users from inactive to having seen almost everything."""
    draws = np.random.default_rng(seed)
    scores = draws.integers(0, draws.choice([4, 1000]), (num_users, num_items)).astype(np.float32)
    is_train = draws.random((num_users, num_items)) < draws.random((num_users, 1))
    is_test = ~is_train & (draws.random((num_users, num_items)) < draws.random((num_users, 1)) ** 2)
    is_test[0] = ~is_train[0]
    is_test[0, 7], is_train[0, 7] = True, False
    return scores, rows_of_mask(is_train), rows_of_mask(is_test)


def test_hand_worked() -> None:
    """User 0: the scores rank items 4, 3, 2, 1, 0; item 3 is in training, so the ranking is 4, 2, 1, 0.
    Relevant: 2, 0. The hits are at ranks 2 and 4.

    K=2: 1 hit. Precision 1/2, Recall 1/2, HR 1, MRR 1/2, MAP (1/2) / 2 = 1/4,
         NDCG (1/log2 3) / (1 + 1/log2 3).
    K=4: 2 hits. Precision 2/4, Recall 1, MRR 1/2, MAP (1/2 + 2/4) / 2 = 1/2,
         NDCG (1/log2 3 + 1/log2 5) / (1 + 1/log2 3).
    K=1: nothing is hit, all are 0.
    """
    scores = np.array([[0.1, 0.2, 0.3, 0.4, 0.5]], np.float32)
    metrics = ranking_metrics(lambda users: scores[users], rows_of([[3]]), rows_of([[0, 2]]), (1, 2, 4))
    ideal = 1 + 1 / math.log2(3)
    assert metrics == pytest.approx(
        {
            **dict.fromkeys(["Precision@1", "Recall@1", "HR@1", "MRR@1", "NDCG@1", "MAP@1"], 0.0),
            **{"Precision@2": 1 / 2, "Recall@2": 1 / 2, "HR@2": 1, "MRR@2": 1 / 2, "MAP@2": 1 / 4},
            "NDCG@2": (1 / math.log2(3)) / ideal,
            **{"Precision@4": 2 / 4, "Recall@4": 1, "HR@4": 1, "MRR@4": 1 / 2, "MAP@4": 1 / 2},
            "NDCG@4": (1 / math.log2(3) + 1 / math.log2(5)) / ideal,
        },
        abs=1e-15,
    )


def test_perfect_ranking_reaches_one_with_more_relevant_items_than_ranks() -> None:
    """3 relevant items on top, K = 2: NDCG and MAP divide by what 2 ranks can hold; Recall is 2/3."""
    scores = np.array([[5, 4, 3, 2, 1]], np.float32)
    metrics = ranking_metrics(lambda users: scores[users], rows_of([[]]), rows_of([[0, 1, 2]]), (2,))
    assert metrics["NDCG@2"] == metrics["MAP@2"] == metrics["Precision@2"] == 1.0
    assert metrics["Recall@2"] == 2 / 3


def test_ties_go_to_the_lower_item() -> None:
    """All scores equal: the ranking is 0, 1, 2, 3; the relevant item 2 is third."""
    metrics = ranking_metrics(lambda users: np.zeros((len(users), 4)), rows_of([[]]), rows_of([[2]]), (2, 3))
    assert (metrics["MRR@2"], metrics["MRR@3"]) == (0.0, 1 / 3)


def test_users_without_relevant_items_are_left_out() -> None:
    """User 0 has no test item, user 1's only one is rated 2, user 3's training covers everything: the means
    go over user 2 alone, who gets a hit at rank 1. With relevant_from None user 1 counts, without a hit.
    """
    asked: list[int] = []

    def score_users(users: np.ndarray) -> np.ndarray:
        asked.extend(users.tolist())
        return np.tile(np.array([3, 2, 1], np.float32), (len(users), 1))

    train = rows_of([[0], [], [0], [0, 1, 2]])
    test = rows_of([[], [2], [1, 2], []], ratings=[2.0, 4.0, 3.5])
    assert evaluated_users(test, relevant_from=4).tolist() == [2]
    assert evaluated_users(test).tolist() == [1, 2]
    assert ranking_metrics(score_users, train, test, (1,), relevant_from=4)["Recall@1"] == 1.0
    assert asked == [2]
    assert ranking_per_user(score_users, train, test, (1,))["Recall@1"].tolist() == [0.0, 0.5]


def test_fewer_candidates_than_ranks() -> None:
    """User 0 has seen all but item 1, user 1 all but 0 and 3. K = 10: user 0 hits at 1, user 1 at 2."""
    scores = np.tile(np.array([4, 3, 2, 1], np.float32), (2, 1))
    train, test = rows_of([[0, 2, 3], [1, 2]]), rows_of([[1], [3]])
    values = ranking_per_user(lambda users: scores[users], train, test, (10,))
    assert values["MRR@10"].tolist() == [1.0, 0.5]
    assert values["Recall@10"].tolist() == [1.0, 1.0]
    assert values["Precision@10"].tolist() == [0.1, 0.1]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_equals_trec_eval(seed: int) -> None:
    """TREC gets our ranking as strictly falling scores (it breaks ties by its own rule), sorted here by
    Python. Its map_cut divides by |T|, so it is rescaled to min(|T|, K); its recip_rank has no cutoff, so
    it gets the first K items only.
    """
    scores, train, test = random_case(seed)
    cutoffs = (1, 5, 20, 60)
    ours = ranking_per_user(lambda users: scores[users], train, test, cutoffs)
    users = evaluated_users(test).tolist()
    relevant, runs = {}, {}
    for user in users:
        seen = set(train.items[train.starts[user] : train.starts[user + 1]].tolist())
        ranking = sorted(set(range(scores.shape[1])) - seen, key=lambda item: (-scores[user, item], item))
        runs[str(user)] = {f"i{item}": float(-rank) for rank, item in enumerate(ranking)}
        mine = test.items[test.starts[user] : test.starts[user + 1]].tolist()
        relevant[str(user)] = {f"i{item}": 1 for item in mine}
    for cutoff in cutoffs:
        short = {user: dict(list(run.items())[:cutoff]) for user, run in runs.items()}
        measures = {f"{name}.{cutoff}" for name in ("ndcg_cut", "recall", "map_cut", "P", "success")}
        theirs = pytrec_eval.RelevanceEvaluator(relevant, measures | {"recip_rank"}).evaluate(short)
        for position, user in enumerate(users):
            result = theirs[str(user)]
            num_relevant = len(relevant[str(user)])
            expected = {
                f"NDCG@{cutoff}": result[f"ndcg_cut_{cutoff}"],
                f"Recall@{cutoff}": result[f"recall_{cutoff}"],
                f"MAP@{cutoff}": result[f"map_cut_{cutoff}"] * num_relevant / min(num_relevant, cutoff),
                f"Precision@{cutoff}": result[f"P_{cutoff}"],
                f"HR@{cutoff}": result[f"success_{cutoff}"],
                f"MRR@{cutoff}": result["recip_rank"],
            }
            assert {name: ours[name][position] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_blocks_do_not_change_results() -> None:
    scores, train, test = random_case(3, num_users=50)
    sizes: list[int] = []

    def score_users(users: np.ndarray) -> np.ndarray:
        assert users.dtype == np.int32
        sizes.append(len(users))
        return scores[users]

    whole = ranking_per_user(score_users, train, test)
    for block_size in (1, 7, 50):
        sizes.clear()
        blocks = ranking_per_user(score_users, train, test, block_size=block_size)
        assert max(sizes) <= block_size
        assert blocks.keys() == whole.keys()
        for name, values in whole.items():
            np.testing.assert_array_equal(blocks[name], values)


def test_metrics_are_means_of_the_values_per_user() -> None:
    scores, train, test = random_case(4)
    metrics = ranking_metrics(lambda users: scores[users], train, test)
    values = ranking_per_user(lambda users: scores[users], train, test)
    assert metrics == {name: per_user.mean() for name, per_user in values.items()}
    assert len(metrics) == 18
    assert all(per_user.shape == evaluated_users(test).shape for per_user in values.values())
    assert all(type(value) is float for value in metrics.values())


@pytest.mark.parametrize(
    ("train", "test", "options", "message"),
    [
        (rows_of([[]]), rows_of([[]]), {}, "no user has a relevant test item"),
        (rows_of([[]]), rows_of([[1]], [2.0]), {"relevant_from": 3.0}, "lower relevant_from"),
        (rows_of([[]]), rows_of([[1]]), {"relevant_from": 3.0}, "leave relevant_from out"),
        (rows_of([[]]), rows_of([[1]], [math.nan]), {}, "one finite rating"),
        (rows_of([[]]), rows_of([[1]], [1.0, 2.0]), {}, "one finite rating"),
        (rows_of([[0], [1, 2]]), rows_of([[1], [0, 2]]), {}, "1 of 3 test rows are in train, too"),
        (rows_of([[], []]), rows_of([[1]]), {}, "train has 2 users and test 1"),
        (rows_of([[]]), rows_of([[2, 1]]), {}, "test has a user whose items are not ascending"),
        (rows_of([[0, 0]]), rows_of([[1]]), {}, "train has a user whose items .* repeat"),
        (rows_of([[-1]]), rows_of([[1]]), {}, "number items from 0"),
        (ListRows(np.array([0, 2]), np.array([0])), rows_of([[1]]), {}, "starts of train must rise"),
        (rows_of([[]]), rows_of([[3]]), {}, r"shape \(1, 3\) for 1 users; .* 4 or more"),
        (rows_of([[]]), rows_of([[1]]), {"cutoffs": ()}, "positive numbers"),
        (rows_of([[]]), rows_of([[1]]), {"cutoffs": (5, 0)}, "positive numbers"),
        (rows_of([[]]), rows_of([[1]]), {"block_size": 0}, "at least 1 user"),
    ],
)
def test_refuses(train: ListRows, test: ListRows, options: dict, message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        ranking_metrics(lambda users: np.zeros((len(users), 3), np.float32), train, test, **options)


def test_refuses_scores_that_are_not_numbers() -> None:
    with pytest.raises(DivergedError, match="not a number"):
        ranking_metrics(lambda users: np.full((1, 3), np.nan), rows_of([[]]), rows_of([[1]]))


def test_exported_names_exist_and_are_sorted() -> None:
    names = hushrec.evaluation.__all__
    assert names == sorted(names)
    assert all(hasattr(hushrec.evaluation, name) for name in names)
