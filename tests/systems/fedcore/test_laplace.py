"""Rows are clipped, noised from their own draws, and rounded to a grid."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import kstest

from hushrec.draws import Draws, chacha_block
from hushrec.errors import DivergedError, HushrecError
from hushrec.systems.fedcore.laplace import BLOCK_DRAWS, grid_of, key_for, private_rows, scale_of

KEY = Draws(0).key("laplace")
CLIP, SCALE = 0.05, 0.1 / 15

some_rows = arrays(
    np.float32, array_shapes(min_dims=2, max_dims=2, max_side=24), elements=st.floats(-1, 1, width=32)
)


def slow_rows(
    rows: np.ndarray, clip: float, scale: float, party: int, round_number: int, first: int
) -> np.ndarray:
    """One number at a time, from the words of the stream."""
    out = np.empty_like(rows)
    words = np.empty(16, np.uint32)
    grid = grid_of(scale)
    for place, value in enumerate(rows.ravel().tolist()):
        row, column = divmod(place, rows.shape[1])
        norm = sum(abs(number) for number in rows[row].tolist())
        block, pair = divmod(first + place, BLOCK_DRAWS)
        chacha_block(KEY, party, round_number, block, words)
        high, low = int(words[2 * pair]), int(words[2 * pair + 1])
        size = -math.log(((high >> 1) * 2**32 + low + 0.5) / 2**63)
        noised = value * min(1.0, clip / norm if norm else 1.0) + (-size if high & 1 else size) * scale
        out[row, column] = round(noised / grid) * grid
    return out


def standard_noise(num_draws: int, round_number: int = 1, first: int = 0) -> np.ndarray:
    zeros = np.zeros((num_draws // 20, 20), np.float32)
    return private_rows(zeros, 1.0, 1.0, KEY, 3, round_number, first).ravel().astype(np.float64)


@pytest.mark.parametrize("shape", [(1, 1), (3, 20), (60, 20), (40, 32), (5, 7), (2, 700), (0, 20), (1030, 1)])
@pytest.mark.parametrize("first", [0, 5, 2**33 + 3])
def test_fast_equals_slow(shape: tuple[int, int], first: int) -> None:
    rows = np.random.default_rng(1).normal(0, 0.004, shape).astype(np.float32)
    fast = private_rows(rows, CLIP, SCALE, KEY, 7, 9, first)
    np.testing.assert_array_equal(fast, slow_rows(rows, CLIP, SCALE, 7, 9, first))


def test_moments() -> None:
    """Mean 0, mean size 1, mean square 2, as many above as below 0; |z| < 5 with a fixed seed: 6e-7 each."""
    noise = standard_noise(1_000_000)
    sizes = np.abs(noise)
    for values, mean, variance in ((noise, 0, 2), (sizes, 1, 1), (noise**2, 2, 20), (noise > 0, 0.5, 0.25)):
        assert abs(values.mean() - mean) < 5 * math.sqrt(variance / noise.size)
    assert abs(np.mean(noise[1:] * noise[:-1])) < 5 * 2 / math.sqrt(noise.size)


def test_distribution() -> None:
    """Kolmogorov-Smirnov, fixed seed, false-alarm rate 1e-6. The grid moves the curve by 3e-5 only."""
    assert kstest(standard_noise(200_000), "laplace").pvalue > 1e-6


def test_the_far_tail_is_there() -> None:
    """Of 4 million, 4e6 exp(-12) = 24.6 are beyond 12 scales; within 5 standard deviations: 6e-7."""
    beyond = int((np.abs(standard_noise(4_000_000)) > 12).sum())
    assert abs(beyond - 24.6) < 5 * math.sqrt(24.6)


@given(some_rows, st.floats(0.01, 2.0))
@settings(deadline=None, max_examples=60)
def test_clipped_to_the_norm_and_unchanged_below(rows: np.ndarray, clip: float) -> None:
    """With the same draws, the rows less noised zeros are the clipped rows, up to the grid."""
    scale = 1e-3
    zeros = private_rows(np.zeros_like(rows), clip, scale, KEY, 0, 1, 0).astype(np.float64)
    clipped = private_rows(rows, clip, scale, KEY, 0, 1, 0) - zeros
    rounding = 1.01 * grid_of(scale)
    norms = np.abs(rows.astype(np.float64)).sum(axis=1)
    assert (np.abs(clipped).sum(axis=1) <= clip + rows.shape[1] * rounding).all()
    is_below = norms <= clip
    assert (np.abs(clipped - rows)[is_below] <= rounding).all()
    expected = rows * (clip / np.maximum(norms, 1e-300))[:, None]
    assert (np.abs(clipped - expected)[~is_below] <= rounding).all()


def test_steps_of_a_round_share_no_draw_and_are_one_stream() -> None:
    whole = standard_noise(200)
    steps = [standard_noise(60), standard_noise(100, first=60), standard_noise(40, first=160)]
    np.testing.assert_array_equal(np.concatenate(steps), whole)
    # Nor does the stream come back within a long round: equal numbers are those that the grid makes equal.
    long = standard_noise(20_000)
    for shift in (1, 8, 16, 60, 512, 10_000):
        assert np.mean(long[shift:] == long[:-shift]) < 0.002


def test_same_bits_again_other_bits_elsewhere() -> None:
    rows = np.full((4, 20), 0.001, np.float32)
    here = private_rows(rows, CLIP, SCALE, KEY, 1, 2, 0)
    assert here.dtype == np.float32
    np.testing.assert_array_equal(here, private_rows(rows, CLIP, SCALE, KEY, 1, 2, 0))
    for key, party, round_number in ((KEY, 2, 2), (KEY, 1, 3), (Draws(1).key("laplace"), 1, 2)):
        other = private_rows(rows, CLIP, SCALE, key, party, round_number, 0)
        assert np.mean(other == here) < 0.1


def test_a_row_is_the_same_in_any_batch() -> None:
    rows = np.random.default_rng(2).normal(0, 0.01, (100, 20)).astype(np.float32)
    whole = private_rows(rows, CLIP, SCALE, KEY, 0, 1, 0)
    np.testing.assert_array_equal(private_rows(rows[37:41], CLIP, SCALE, KEY, 0, 1, 37 * 20), whole[37:41])


@pytest.mark.parametrize("scale", [SCALE, 1.0, 3e-7, 12.0])
def test_released_numbers_lie_on_a_grid_far_below_the_noise(scale: float) -> None:
    rows = np.random.default_rng(3).normal(0, scale, (100, 20)).astype(np.float32)
    released = private_rows(rows, 10 * scale, scale, KEY, 0, 1, 0).astype(np.float64) / grid_of(scale)
    np.testing.assert_array_equal(released, np.rint(released))
    assert 2**13 <= scale / grid_of(scale) < 2**14
    assert math.frexp(grid_of(scale))[0] == 0.5


def test_scale() -> None:
    assert scale_of(0.05, 15) == pytest.approx(0.1 / 15)


def test_refused() -> None:
    rows = np.zeros((2, 3), np.float32)
    for clip, scale in ((0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)):
        with pytest.raises(HushrecError, match="above 0"):
            private_rows(rows, clip, scale, KEY, 0, 1, 0)
    for bad in (np.nan, np.inf):
        rows[1, 1] = bad
        with pytest.raises(DivergedError, match="a gradient is not finite"):
            private_rows(rows, 1.0, 1.0, KEY, 0, 1, 0)


def test_the_same_rows_get_the_same_noise_and_others_get_other_noise() -> None:
    rows = np.random.default_rng(0).normal(0, 0.01, (8, 5)).astype(np.float32)
    others = rows.copy()
    others[0, 0] += np.float32(1e-3)
    key = Draws(0).key("noise")
    np.testing.assert_array_equal(key_for(key, rows), key_for(key, rows.copy()))
    noise, again, other = (
        private_rows(given, 1e6, 0.1, key_for(key, given), 0, 1, 0) - given for given in (rows, rows, others)
    )
    np.testing.assert_array_equal(noise, again)
    assert np.abs(noise - other).min() > 1e-4
