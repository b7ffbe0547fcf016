import math

import numpy as np
import pytest

from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation import rating_metrics


def test_hand_worked() -> None:
    """Errors 0.5, -1, 0, 2: MAE = 3.5 / 4 = 0.875; RMSE = sqrt((0.25 + 1 + 0 + 4) / 4) = sqrt(1.3125)."""
    metrics = rating_metrics([3.5, 2.0, 4.0, 5.0], [3.0, 3.0, 4.0, 3.0])
    assert metrics == {"MAE": 0.875, "RMSE": math.sqrt(1.3125)}


def test_float32_input_is_summed_in_float64() -> None:
    """float32 carries 7 digits, so agreement to 12 shows that no step was done in it."""
    predicted = np.full(1_000_001, 1.0001, np.float32)
    exact = float(np.float32(1.0001)) - 1.0
    metrics = rating_metrics(predicted, np.ones(1_000_001, np.float32))
    assert metrics["MAE"] == pytest.approx(exact, rel=1e-12)
    assert metrics["RMSE"] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("predicted", "actual", "message"),
    [
        ([], [], "not empty"),
        ([1.0], [1.0, 2.0], "one prediction per rating"),
        ([[1.0]], [1.0], "one prediction per rating"),
        ([1.0, math.nan], [1.0, 2.0], "prediction number 1 is nan"),
        ([1.0, 2.0], [math.inf, 2.0], "rating number 0 is inf"),
    ],
)
def test_refuses(predicted: list[float], actual: list[float], message: str) -> None:
    with pytest.raises(HushrecError, match=message) as refused:
        rating_metrics(predicted, actual)
    assert isinstance(refused.value, DivergedError) == ("prediction number" in message)
