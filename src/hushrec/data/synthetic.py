"""Synthetic ratings with a taste structure that can be learnt, for tests, scale runs and demos."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from numba import njit

from hushrec.data.checking import checked
from hushrec.data.interactions import Interactions
from hushrec.data.splits import check_seed
from hushrec.errors import HushrecError

LOW, HIGH = 1.0, 5.0

_MEAN = 3.5
_USER_BIAS, _ITEM_BIAS, _TASTE = 0.3, 0.4, 0.8  # standard deviations, in points of rating
_POPULARITY_EXPONENT = 0.8
_ACTIVITY_SIGMA = 1.0
_LEAST_RATINGS = 5  # of a user, where the total allows
_FACTORS, _COUNTS, _DRAWS = 11, 12, 13  # purposes of randomness
_BLOCK = 4096  # users per task

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S11, _S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (11, 27, 30, 31, 32))
_LOW_HALF = np.uint64(0xFFFFFFFF)


def synthetic(
    num_users: int = 1000,
    num_items: int = 500,
    num_ratings: int = 20_000,
    num_factors: int = 8,
    seed: int = 0,
    noise: float = 0.4,
) -> Interactions:
    """Exactly `num_ratings` ratings of 1..5, grouped by user and sorted by item.

    A rating is 3.5 + user bias + item bias + the product of `num_factors` tastes + Gaussian noise of
    standard deviation `noise`, rounded. Items are drawn by a Zipf-like popularity and, more often than
    not, by liking; activity of users is log-normal. The draws of a user depend on the seed and the user
    only, so the number of threads changes nothing.
    """
    check_seed(seed)
    _check_sizes(num_users, num_items, num_ratings, num_factors, noise)
    draws = np.random.default_rng([seed, _FACTORS])
    user_factors = draws.standard_normal((num_users, num_factors), np.float32)
    item_factors = draws.standard_normal((num_items, num_factors), np.float32) / np.sqrt(np.float32(num_factors))
    user_bias = draws.standard_normal(num_users, np.float32) * np.float32(_USER_BIAS)
    item_bias = draws.standard_normal(num_items, np.float32) * np.float32(_ITEM_BIAS)
    popularity = draws.permutation(np.arange(1, num_items + 1) ** -_POPULARITY_EXPONENT)
    by_popularity = np.argsort(-popularity).astype(np.int32)
    keep_chance, other = _alias_table(popularity)
    starts = np.concatenate([[0], np.cumsum(_ratings_per_user(num_users, num_items, num_ratings, seed))])
    items = np.empty(num_ratings, np.int32)
    ratings = np.empty(num_ratings, np.float32)
    first_state = np.random.default_rng([seed, _DRAWS]).integers(2**64, dtype=np.uint64)

    def fill(first: int) -> None:
        last = min(first + _BLOCK, num_users)
        _fill_users(
            first, last, first_state, starts, items, ratings, user_factors, item_factors,
            user_bias, item_bias, keep_chance, other, by_popularity, np.float32(noise),
        )  # fmt: skip

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in threads.map(fill, range(0, num_users, _BLOCK)):
            pass
    return checked(
        Interactions(
            users=np.repeat(np.arange(num_users, dtype=np.int32), np.diff(starts)),
            items=items,
            ratings=ratings,
            timestamps=None,
            order=None,
            user_ids=np.arange(1, num_users + 1, dtype=np.int64),
            item_ids=np.arange(1, num_items + 1, dtype=np.int64),
            titles=None,
            rating_range=(LOW, HIGH),
            name="synthetic",
            sha256="",
            is_synthetic=True,
        )
    )


def _check_sizes(num_users: int, num_items: int, num_ratings: int, num_factors: int, noise: float) -> None:
    if min(num_users, num_items, num_factors) < 1:
        raise HushrecError("synthetic data needs at least one user, one item and one factor")
    if not num_users <= num_ratings <= num_users * num_items:
        raise HushrecError(
            f"{num_ratings} ratings do not fit {num_users} users and {num_items} items; "
            f"use {num_users} to {num_users * num_items}"
        )
    if not (np.isfinite(noise) and noise >= 0):
        raise HushrecError(f"noise is {noise:g}; use a number from 0 up")


def _ratings_per_user(num_users: int, num_items: int, num_ratings: int, seed: int) -> npt.NDArray[np.int64]:
    """Log-normal numbers between a least number and all items that add up to `num_ratings`."""
    activity = np.random.default_rng([seed, _COUNTS]).lognormal(0.0, _ACTIVITY_SIGMA, num_users)
    least = min(_LEAST_RATINGS, num_ratings // num_users, num_items)
    too_small, too_large = 0.0, num_items / float(activity.min())
    for _ in range(100):
        scale = (too_small + too_large) / 2
        if np.clip(activity * scale, least, num_items).sum() < num_ratings:
            too_small = scale
        else:
            too_large = scale
    wanted = np.clip(activity * too_small, least, num_items)
    counts = np.floor(wanted).astype(np.int64)
    while missing := num_ratings - int(counts.sum()):
        has_room = counts < num_items if missing > 0 else counts > least
        places = np.flatnonzero(has_room)
        places = places[np.argsort(-np.sign(missing) * (wanted - counts)[places], kind="stable")]
        counts[places[: abs(missing)]] += np.sign(missing)
    return counts


@njit(cache=True)
def _alias_table(weights: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Walker's alias method: draw a place evenly, keep it with its chance, else take the other."""
    size = weights.size
    keep_chance = weights * (size / weights.sum())
    other = np.arange(size).astype(np.int32)
    small = np.empty(size, np.int32)
    large = np.empty(size, np.int32)
    num_small = num_large = 0
    for place in range(size):
        if keep_chance[place] < 1.0:
            small[num_small] = place
            num_small += 1
        else:
            large[num_large] = place
            num_large += 1
    while num_small > 0 and num_large > 0:
        num_small -= 1
        poor, rich = small[num_small], large[num_large - 1]
        other[poor] = rich
        keep_chance[rich] -= 1.0 - keep_chance[poor]
        if keep_chance[rich] < 1.0:
            num_large -= 1
            small[num_small] = rich
            num_small += 1
    return keep_chance, other


@njit(cache=True, nogil=True)
def _mixed(state: np.uint64) -> np.uint64:
    """The output function of SplitMix64."""
    state = (state ^ (state >> _S30)) * _MIX_1
    state = (state ^ (state >> _S27)) * _MIX_2
    return state ^ (state >> _S31)


@njit(cache=True, nogil=True)
def _uniform(bits: np.uint64) -> float:
    return (np.float64(bits >> _S11) + 0.5) * 2.0**-53


@njit(cache=True, nogil=True)
def _product(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> np.float32:
    total = np.float32(0.0)
    for factor in range(left.size):
        total += left[factor] * right[factor]
    return total


@njit(cache=True, nogil=True)
def _pick_items(
    state: np.uint64,
    picked: npt.NDArray[np.int32],
    is_taken: npt.NDArray[np.bool_],
    user_factors: npt.NDArray[np.float32],
    item_factors: npt.NDArray[np.float32],
    item_bias: npt.NDArray[np.float32],
    keep_chance: npt.NDArray[np.float64],
    other: npt.NDArray[np.int32],
    by_popularity: npt.NDArray[np.int32],
) -> np.uint64:
    """Fill `picked` with distinct items, ascending; the state of the generator afterwards."""
    num_picked = 0
    for _ in range(30 * picked.size):
        state += _GOLDEN
        bits = _mixed(state)
        item = np.int64(((bits >> _S32) * np.uint64(is_taken.size)) >> _S32)
        if np.float64(bits & _LOW_HALF) * 2.0**-32 >= keep_chance[item]:
            item = np.int64(other[item])
        if is_taken[item]:
            continue
        liking = item_bias[item] + _product(user_factors, item_factors[item])
        state += _GOLDEN
        if _uniform(_mixed(state)) < 1.0 / (1.0 + np.exp(-1.0 - 1.5 * liking)):
            is_taken[item] = True
            picked[num_picked] = item
            num_picked += 1
            if num_picked == picked.size:
                break
    rank = 0
    while num_picked < picked.size:  # who rates nearly everything has rated what is popular
        item = np.int64(by_popularity[rank])
        rank += 1
        if not is_taken[item]:
            is_taken[item] = True
            picked[num_picked] = item
            num_picked += 1
    picked.sort()
    return state


@njit(cache=True, nogil=True)
def _fill_users(
    first: int,
    last: int,
    first_state: np.uint64,
    starts: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    ratings: npt.NDArray[np.float32],
    user_factors: npt.NDArray[np.float32],
    item_factors: npt.NDArray[np.float32],
    user_bias: npt.NDArray[np.float32],
    item_bias: npt.NDArray[np.float32],
    keep_chance: npt.NDArray[np.float64],
    other: npt.NDArray[np.int32],
    by_popularity: npt.NDArray[np.int32],
    noise: np.float32,
) -> None:
    is_taken = np.zeros(item_bias.size, np.bool_)
    for user in range(first, last):
        start, end = starts[user], starts[user + 1]
        state = _pick_items(
            _mixed(first_state + np.uint64(user) * _MIX_1), items[start:end], is_taken, user_factors[user],
            item_factors, item_bias, keep_chance, other, by_popularity,
        )  # fmt: skip
        for row in range(start, end):
            item = items[row]
            is_taken[item] = False
            taste = _product(user_factors[user], item_factors[item])
            state += _GOLDEN
            radius = np.sqrt(-2.0 * np.log(_uniform(_mixed(state))))
            state += _GOLDEN
            error = noise * radius * np.cos(2.0 * np.pi * _uniform(_mixed(state)))  # Box-Muller
            rating = _MEAN + user_bias[user] + item_bias[item] + _TASTE * taste + error
            ratings[row] = min(HIGH, max(LOW, np.floor(rating + 0.5)))
