"""Error of predicted ratings."""

import numpy as np
from numpy.typing import ArrayLike

from hushrec.errors import DivergedError, HushrecError


def rating_metrics(predicted: ArrayLike, actual: ArrayLike) -> dict[str, float]:
    """Mean absolute error and root mean squared error, in units of the rating, summed in float64.

    Predictions are taken as they are: clip them to the range of the ratings first if the paper does.

    >>> rating_metrics([3.0, 5.0], [3.0, 3.0])["MAE"]
    1.0
    """
    predictions = np.asarray(predicted, dtype=np.float64)
    ratings = np.asarray(actual, dtype=np.float64)
    if predictions.shape != ratings.shape:
        raise HushrecError(
            f"predictions of shape {predictions.shape} for ratings of shape {ratings.shape}; "
            "give one prediction per rating"
        )
    if ratings.size == 0:
        raise HushrecError("there are no ratings to compare with; give a test set that is not empty")
    for values, name, kind in ((ratings, "rating", HushrecError), (predictions, "prediction", DivergedError)):
        if not np.isfinite(values).all():
            first = int(np.argmin(np.isfinite(values)))
            raise kind(f"{name} number {first} is {values.flat[first]}; give finite numbers only")
    errors = predictions - ratings
    return {"MAE": float(np.abs(errors).mean()), "RMSE": float(np.sqrt(np.square(errors).mean()))}
