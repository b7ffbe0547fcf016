"""What a vector is the sum of, against the steps that made it."""

import numpy as np
import pytest

from hushrec.models.bpr_virtual import step_weights


@pytest.mark.parametrize("num_steps", [1, 2, 10])
def test_a_vector_is_the_sum_of_what_its_pairs_added(num_steps: int) -> None:
    """Accelerated steps from zero, as in `models.bpr`; each pair adds its slope at each, by the step's weight."""
    differences = np.random.default_rng(0).normal(size=(12, 3))
    share, regularization, step = 0.5, 0.7, 0.05
    vector, ahead, momentum, slopes = np.zeros(3), np.zeros(3), 1.0, []
    for _ in range(num_steps):
        slopes.append(1 / (1 + np.exp(differences @ ahead)))
        moved = ahead - step * (regularization * ahead - share * slopes[-1] @ differences)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead, vector = moved + (momentum - 1) / following * (moved - vector), moved
        momentum = following
    weights = step_weights(step, regularization, share, num_steps)
    np.testing.assert_allclose((weights @ np.array(slopes)) @ differences, vector, rtol=1e-5)


def test_weights_by_hand() -> None:
    """Two steps of 1/2, lambda 1, share 1. The first leaves 1/2 and no momentum: (m - 1) / f is zero with m = 1.

    The second halves what is there and adds 1/2: 1/4 and 1/2.
    """
    np.testing.assert_allclose(step_weights(0.5, 1.0, 1.0, 2), [0.25, 0.5])
