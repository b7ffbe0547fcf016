import numpy as np
import pytest

from hushrec.kernels.adam import adam, adam_rounded_as_torch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("step_of", [adam, adam_rounded_as_torch])
def test_adam_equals_pytorchs(step_of) -> None:
    """Over 50 steps with gradients of very different sizes; a weight without gradient stays, bit for bit."""
    draws = np.random.default_rng(0)
    ours = draws.normal(size=200).astype(np.float32)
    start, theirs = ours.copy(), torch.nn.Parameter(torch.from_numpy(ours.astype(np.float64)))
    means, squares = np.zeros_like(ours), np.zeros_like(ours)
    optimizer = torch.optim.Adam([theirs], lr=0.01)
    sizes = 10.0 ** draws.uniform(-5, 3, 200)
    sizes[:10] = 0
    for step in range(1, 51):
        gradients = (sizes * draws.normal(size=200)).astype(np.float32)
        theirs.grad = torch.from_numpy(gradients.astype(np.float64))
        optimizer.step()
        step_of(ours, gradients, means, squares, 0.01, step)
        assert not gradients.any()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours[:10], start[:10])
    assert (ours[10:] != start[10:]).all()
