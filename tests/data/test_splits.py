from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.data import (
    Interactions,
    Split,
    global_time,
    k_folds,
    latest_share,
    leave_one_out,
    random_share,
    synthetic,
)
from hushrec.data.checking import checked
from hushrec.errors import HushrecError


def build(pairs: list[tuple[int, int]], seconds: list[int] | None = None) -> Interactions:
    return checked(
        Interactions(
            users=np.array([user for user, _ in pairs], np.int32),
            items=np.array([item for _, item in pairs], np.int32),
            ratings=np.arange(len(pairs), dtype=np.float32),
            timestamps=None if seconds is None else np.array(seconds, np.int64),
            order=None,
            user_ids=np.arange(7),
            item_ids=np.arange(10),
            titles=None,
            rating_range=None,
            name="made",
            sha256="",
            is_synthetic=False,
        )
    )


all_pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), unique=True, min_size=2, max_size=70)
seeds = st.integers(0, 2**32)


def pairs_of(data: Interactions) -> set[tuple[int, int]]:
    return set(zip(data.users.tolist(), data.items.tolist(), strict=True))


def assert_is_partition(split: Split, data: Interactions) -> None:
    assert len(split.train) + len(split.test) == len(data)
    assert pairs_of(split.train) | pairs_of(split.test) == pairs_of(data)


@settings(deadline=None)
@given(all_pairs, st.data(), seeds)
def test_k_folds_partition_into_equal_parts(pairs, draw, seed: int) -> None:
    data = build(pairs)
    num_folds = draw.draw(st.integers(2, len(data)))
    splits = list(k_folds(data, num_folds, seed))
    assert [split.fold for split in splits] == list(range(1, num_folds + 1))
    for split in splits:
        assert_is_partition(split, data)
    sizes = [len(split.test) for split in splits]
    assert sum(sizes) == len(data)
    assert max(sizes) - min(sizes) <= 1
    assert set.union(*(pairs_of(split.test) for split in splits)) == pairs_of(data)


@settings(deadline=None)
@given(all_pairs, st.randoms(use_true_random=False), seeds)
def test_random_splits_do_not_depend_on_the_order_of_rows(pairs, random, seed: int) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    one, other = build(pairs), build(shuffled)
    for split in (
        lambda data: next(k_folds(data, 2, seed)),
        lambda data: random_share(data, 0.4, seed),
        lambda data: leave_one_out(data, "random", seed),
    ):
        assert pairs_of(split(one).test) == pairs_of(split(other).test)


@settings(deadline=None)
@given(all_pairs, st.floats(0.01, 0.99), seeds)
def test_random_share_takes_the_share_of_each_user(pairs, share: float, seed: int) -> None:
    data = build(pairs)
    split = random_share(data, share, seed)
    assert_is_partition(split, data)
    tested = Counter(split.test.users.tolist())
    for user, count in Counter(data.users.tolist()).items():
        assert tested[user] == min(int(share * count + 0.5), count - 1)


@settings(deadline=None)
@given(all_pairs, st.floats(0.01, 0.99), st.data())
def test_latest_share_leaves_nothing_later_in_training(pairs, share: float, draw) -> None:
    seconds = draw.draw(st.lists(st.integers(0, 5), min_size=len(pairs), max_size=len(pairs)))
    data = build(pairs, seconds)
    split = latest_share(data, share)
    assert_is_partition(split, data)
    for user in set(split.test.users.tolist()):
        # Ratings are row numbers here, so (time, row) orders ties by the file.
        def when(part: Interactions, user: int = user) -> list[tuple[int, float]]:
            mine = part.users == user
            return list(zip(part.timestamps[mine].tolist(), part.ratings[mine].tolist(), strict=True))

        assert max(when(split.train)) < min(when(split.test))


@settings(deadline=None)
@given(all_pairs, st.sampled_from(["time", "random"]), seeds)
def test_leave_one_out_takes_one_from_whoever_has_two(pairs, by, seed: int) -> None:
    data = build(pairs, list(range(len(pairs))))
    split = leave_one_out(data, by, seed)
    assert_is_partition(split, data)
    tested = Counter(split.test.users.tolist())
    for user, count in Counter(data.users.tolist()).items():
        assert tested[user] == (1 if count > 1 else 0)


def test_seeds_differ_and_repeat(make) -> None:
    data = make([0] * 40, list(range(40)), [1.0] * 40)
    first = pairs_of(random_share(data, 0.5, 1).test)
    assert first == pairs_of(random_share(data, 0.5, 1).test)
    assert first != pairs_of(random_share(data, 0.5, 2).test)


def test_golden_fold(make) -> None:
    """Holds the deal still: a change here changes every published number."""
    data = make([0] * 10, list(range(10)), [1.0] * 10)
    folds = [sorted(split.test.items.tolist()) for split in k_folds(data, 5, 0)]
    assert folds == [[6, 9], [1, 5], [4, 8], [2, 3], [0, 7]]


def test_order_beats_timestamps_and_ties_fall_in_file_order(make) -> None:
    by_order = make([0, 0, 0], [0, 1, 2], [1, 2, 3], [9, -1, 1], [0, 2, 1])
    assert leave_one_out(by_order).test.items.tolist() == [1]
    by_file = make([0, 0, 0], [2, 1, 0], [1, 2, 3], [5, 5, 5])
    assert leave_one_out(by_file).test.items.tolist() == [0]


@pytest.mark.parametrize("num_folds", [1, 0, -3])
def test_too_few_folds(make, num_folds: int) -> None:
    with pytest.raises(HushrecError, match=f"{num_folds} folds leave nothing to train on; use at least 2"):
        k_folds(make([0, 0], [0, 1], [1, 2]), num_folds)


def test_more_folds_than_ratings(make) -> None:
    with pytest.raises(
        HushrecError,
        match="3 folds for 2 ratings leave a fold empty; use fewer folds, more ratings or another split",
    ):
        k_folds(make([0, 0], [0, 1], [1, 2]), 3)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_share_outside_zero_to_one(make, share: float) -> None:
    data = make([0, 0], [0, 1], [1, 2], [1, 2])
    for split in (random_share, latest_share):
        with pytest.raises(HushrecError, match="use a number between 0 and 1"):
            split(data, share)


def test_split_by_time_needs_all_times(make) -> None:
    with pytest.raises(HushrecError, match="made has no timestamps to split by; use a random split"):
        latest_share(make([0, 0], [0, 1], [1, 2]))
    with pytest.raises(HushrecError, match="1 rows of made have no timestamp to split by"):
        leave_one_out(make([0, 0], [0, 1], [1, 2], [-1, 2]))


def test_unknown_way_to_leave_one_out(make) -> None:
    with pytest.raises(HushrecError, match="by 'luck' is unknown; use time or random"):
        leave_one_out(make([0, 0], [0, 1], [1, 2]), "luck")


def test_negative_seed(make) -> None:
    data = make([0] * 6, list(range(6)), [1.0] * 6)
    for split in (k_folds, random_share):
        with pytest.raises(HushrecError, match="the seed is -1; use a number from 0 up"):
            split(data, seed=-1)


def test_global_time(make: Callable[..., Interactions]) -> None:
    """Rows at 5 and later are test; user 2 and item 3 were unknown before, and their rows are counted."""
    users, items = [0, 0, 1, 1, 0, 1, 2, 0], [0, 1, 0, 1, 2, 2, 0, 3]
    data = make(users, items, [3.0] * 8, [1, 2, 3, 4, 5, 6, 7, 8])
    known = make(users, items, [3.0] * 8, [1, 2, 3, 4, 4, 5, 7, 8])
    split = global_time(known, split_at="1970-01-01T00:00:05")
    assert split.train.timestamps.tolist() == [1, 2, 3, 4, 4]
    assert split.test.timestamps.tolist() == [5]
    assert list(split.facts.values()) == [5, 1, 1]
    assert global_time(known, test_share=0.375).test.timestamps.tolist() == [5]
    with pytest.raises(HushrecError, match="no row of made after the split is of a known user and item"):
        global_time(data, split_at="5")
    for moment, where in (("0", "before"), ("2024-01-31", "after")):
        with pytest.raises(HushrecError, match=f"made has no row {where} the moment to split at"):
            global_time(data, split_at=moment)
    with pytest.raises(HushrecError, match="split_at='soon' is no date; write for example 2024-01-31"):
        global_time(data, split_at="soon")
    with pytest.raises(HushrecError, match="made has no timestamps"):
        global_time(make([0], [0]))


def test_rows_of_one_moment_stay_together(make: Callable[..., Interactions]) -> None:
    data = make([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3] * 2, None, [1, 1, 9, 9, 1, 1, 9, 9])
    for share in (0.1, 0.3, 0.5):
        with pytest.raises(HushrecError, match="known user and item"):
            global_time(data, share)
    data = make([0, 0, 0, 1, 1, 1], [0, 1, 2, 2, 1, 0], None, [1, 1, 9, 1, 9, 9])
    for share in (0.1, 0.3, 0.5):
        assert global_time(data, share).test.timestamps.tolist() == [9, 9, 9]


def test_rows_with_and_without_ratings_are_split_alike() -> None:
    data = synthetic(40, 30, 500, seed=3)
    mixed = data.select(np.random.default_rng(0).permutation(len(data)))
    for split, other in zip(k_folds(mixed), k_folds(mixed.as_implicit()), strict=True):
        assert np.array_equal(split.test.users, other.test.users)
        assert np.array_equal(split.test.items, other.test.items)
    one, other = random_share(mixed), random_share(mixed.as_implicit())
    assert np.array_equal(one.test.items, other.test.items)


def test_chosen_rows_are_sorted_as_if_by_themselves() -> None:
    """The order of a part, taken from that of the whole, equals the order that is found anew."""
    data = synthetic(40, 30, 500, seed=3)
    mixed = data.select(np.random.default_rng(0).permutation(len(data)))
    assert mixed.canonical_order() is not None
    part = mixed.select(np.random.default_rng(1).random(len(data)) < 0.5)
    anew = replace(part)
    assert np.array_equal(part.canonical_order(), anew.canonical_order())
    assert np.array_equal(part.by_user().items, anew.by_user().items)
