# mypy: allow-untyped-defs, allow-untyped-calls
"""Adam (Kingma and Ba, ICLR 2015) for compiled kernels, in single precision."""

import math

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, error_model="numpy")
def adam(parameters, gradients, means, squares, learning_rate, num_steps):
    """Step number `num_steps`, in place (betas .9 and .999, epsilon 1e-8); gradients become zero."""
    step = np.float32(learning_rate / (1.0 - 0.9**num_steps))
    spread = np.float32(1.0 / math.sqrt(1.0 - 0.999**num_steps))
    for place in range(parameters.size):
        gradient = gradients[place]
        mean = np.float32(0.9) * means[place] + np.float32(0.1) * gradient
        square = np.float32(0.999) * squares[place] + np.float32(0.001) * gradient * gradient
        # Numbers that fade out would become denormal, with which processors are slow.
        mean = mean if abs(mean) > np.float32(1e-30) else np.float32(0.0)
        square = square if square > np.float32(1e-36) else np.float32(0.0)
        means[place], squares[place], gradients[place] = mean, square, np.float32(0.0)
        parameters[place] -= step * mean / (np.sqrt(square) * spread + np.float32(1e-8))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def adam_rounded_as_torch(parameters, gradients, means, squares, learning_rate, num_steps):
    """The same step with the roundings of `torch.optim.Adam`.

    PTF-FedRec's clients take it: which items they show hangs on the last bits of their scores, so every figure of
    its guide would move with another rounding.
    """
    step = np.float32(learning_rate / (1.0 - 0.9**num_steps))
    scale = np.float32(np.sqrt(1.0 - 0.999**num_steps))
    for place in range(parameters.size):
        gradient = gradients[place]
        mean = np.float32(0.9) * means[place] + np.float32(0.1) * gradient
        square = np.float32(0.999) * squares[place] + np.float32(0.001) * (gradient * gradient)
        means[place], squares[place], gradients[place] = mean, square, np.float32(0.0)
        parameters[place] -= step * (mean / (np.sqrt(square) / scale + np.float32(1e-8)))
