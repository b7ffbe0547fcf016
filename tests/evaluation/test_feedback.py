"""Warm and cold rows, by hand."""

import math

import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions
from hushrec.evaluation.feedback import cold_rows, warm_and_cold


class Threes:
    """Predicts 3 for all."""

    def predict(self, users, items):  # type: ignore[no-untyped-def]
        return np.full(len(users), 3, np.float32)


def data_of(users: list[int], items: list[int], ratings: list[float]) -> Interactions:
    columns = np.array(users, np.int32), np.array(items, np.int32), np.array(ratings, np.float32)
    return Interactions(*columns, None, None, np.arange(3), np.arange(4), None, (1.0, 5.0), "made", "", True)


def test_a_row_is_cold_without_its_user_or_its_item() -> None:
    """User 2 and item 3 have no training rating. Errors: warm 1 and 0, cold 2, 2 and 1."""
    train = data_of([0, 0, 1, 1], [0, 1, 1, 2], [5, 4, 3, 2])
    test = data_of([0, 1, 0, 2, 2], [2, 0, 3, 1, 3], [4, 3, 5, 1, 2])
    assert cold_rows(train, test).tolist() == [False, False, True, True, True]
    found = warm_and_cold(Threes(), train, test)
    assert found == {
        "MAE, warm": 0.5,
        "RMSE, warm": pytest.approx(math.sqrt(1 / 2)),
        "MAE, cold": pytest.approx(5 / 3),
        "RMSE, cold": pytest.approx(math.sqrt(9 / 3)),
    }
    assert warm_and_cold(Threes(), train, test.select(np.array([1, 1, 0, 0, 0], bool))) == {}
    assert warm_and_cold(Threes(), train, test.select(np.array([0, 0, 1, 1, 1], bool))) == {}


def test_a_fitted_model_tells_them_apart() -> None:
    data = hushrec.load("synthetic:users=60,items=120,ratings=300")
    split = next(iter(hushrec.k_folds(data)))
    is_cold = cold_rows(split.train, split.test)
    found = hushrec.PMF(num_rounds=2).fit(split.train).evaluate(split.test)
    parts = [found["RMSE, cold"] ** 2 * is_cold.sum(), found["RMSE, warm"] ** 2 * (~is_cold).sum()]
    assert 0 < is_cold.sum() < len(is_cold)
    assert found["RMSE"] == pytest.approx(math.sqrt(sum(parts) / len(is_cold)))
