"""What PTF-FedRec's clients show: how many, which, and with which scores."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.draws import Draws
from hushrec.protocol import Ragged
from hushrec.systems.ptf_fedrec.defenses import (
    Sampling,
    Swapping,
    TrainedItems,
    add_laplace,
    rounded,
    sample,
    sample_alike,
    swap,
)


def one_client(num_positives: int, num_negatives: int) -> TrainedItems:
    slots = np.arange(num_positives + num_negatives, dtype=np.int32)
    return TrainedItems(Ragged(np.array([0, len(slots)]), slots), np.array([num_positives], np.int32))


def always(beta: float, gamma: float, has_repeats: bool = False) -> Sampling:
    return Sampling(beta, beta, gamma, gamma, has_repeats)


def shown(trained: TrainedItems, sampling: Sampling, round_number: int = 1, number: int = 0) -> np.ndarray:
    return sample(trained, np.array([number], np.int32), round_number, sampling, Draws(0)).values


# --- Sampling ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positives", "negatives", "beta", "gamma", "expected"),
    [
        (5, 20, 0.5, 2.0, (2, 4)),  # int(2.5) and int(2 * 2)
        (9, 36, 1.0, 4.0, (9, 36)),
        (10, 40, 0.1, 1.5, (1, 1)),  # int(1.5)
        (3, 12, 0.1, 4.0, (1, 4)),  # at least one
        (4, 16, 0.5, 0.1, (2, 1)),  # at least one
        (4, 3, 1.0, 4.0, (4, 3)),  # no more than there are
        (4, 0, 1.0, 4.0, (4, 0)),
        (0, 6, 1.0, 4.0, (0, 1)),
    ],
)
def test_how_many_are_shown(
    positives: int, negatives: int, beta: float, gamma: float, expected: tuple[int, int]
) -> None:
    found = shown(one_client(positives, negatives), always(beta, gamma))
    assert ((found < positives).sum(), (found >= positives).sum()) == expected


def test_with_repeats_negatives_are_drawn_again() -> None:
    found = shown(one_client(4, 3), always(1.0, 4.0, has_repeats=True))
    assert sorted(found[:4]) == [0, 1, 2, 3], "positives are not"
    assert len(found[4:]) == 16
    assert set(found[4:]) == {4, 5, 6}


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), min_size=1, max_size=6),
    st.floats(0.05, 1.0),
    st.floats(0.1, 5.0),
    st.integers(1, 50),
)
def test_shown_slots_are_distinct_and_trained(
    clients: list[tuple[int, int]], beta: float, gamma: float, round_number: int
) -> None:
    """Some slots are left out of what was trained, as after a round whose items were replaced."""
    slots = [np.array([*range(p), *range(p, p + 2 * n, 2)], np.int32) for p, n in clients]
    starts = np.concatenate([[0], np.cumsum([len(own) for own in slots])])
    trained = TrainedItems(Ragged(starts, np.concatenate(slots)), np.array([p for p, _ in clients], np.int32))
    numbers = np.arange(len(clients), dtype=np.int32)
    found = sample(trained, numbers, round_number, Sampling(0.05, beta, 0.1, gamma, False), Draws(1))
    for place, own in enumerate(slots):
        mine = found.values[found.starts[place] : found.starts[place + 1]]
        assert len(set(mine.tolist())) == len(mine)
        assert set(mine.tolist()) <= set(own.tolist())


def test_every_slot_is_shown_as_often() -> None:
    """One of 4 positives and 2 of 8 negatives, 2000 rounds: 500 each, |z| < 5, fixed seed."""
    trained, sampling = one_client(4, 8), always(0.25, 2.0)
    counts = np.bincount(np.concatenate([shown(trained, sampling, number) for number in range(1, 2001)]))
    assert counts.sum() == 3 * 2000
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_shares_are_uniform_in_their_limits() -> None:
    """beta in (0.1, 1) and gamma in (1, 4), of 100 positives: means 55 and 2.5, 2000 clients, |z| < 5."""
    one, number = one_client(100, 400), 2000
    starts = np.arange(number + 1, dtype=np.int64) * 500
    many = TrainedItems(Ragged(starts, np.tile(one.slots.values, number)), np.full(number, 100, np.int32))
    found = sample(many, np.arange(number, dtype=np.int32), 1, Sampling(0.1, 1.0, 1.0, 4.0, False), Draws(0))
    positives = np.add.reduceat((found.values < 100).astype(int), found.starts[:-1])
    gammas = (found.lengths - positives) / positives
    assert (positives.min(), positives.max()) == (10, 99)
    assert abs(positives.mean() - 54.5) < 5 * 90 / np.sqrt(12 * number)
    assert abs(gammas.mean() - 2.5) < 5 * 3 / np.sqrt(12 * number) + 0.02
    assert 0.95 < gammas.min() < 1.05
    assert 3.95 < gammas.max() < 4


def test_draws_are_a_clients_own() -> None:
    trained, sampling = one_client(10, 40), Sampling(0.1, 1.0, 1.0, 4.0, False)
    two = TrainedItems(
        Ragged(np.array([0, 50, 100]), np.tile(trained.slots.values, 2)), np.array([10, 10], np.int32)
    )
    together = sample(two, np.array([3, 7], np.int32), 2, sampling, Draws(0))
    np.testing.assert_array_equal(together.part(1, 2).values, shown(trained, sampling, 2, number=7))
    assert shown(trained, sampling, 2, 7).tolist() != shown(trained, sampling, 3, 7).tolist()


def test_alike_shows_positives_and_negatives_equally_often() -> None:
    """A quarter of 4 positives and 8 negatives together, 2000 rounds: 3 each time, each 500 times, |z| < 5."""
    trained, number = one_client(4, 8), np.array([0], np.int32)
    rounds = [
        sample_alike(trained.slots, number, one, always(0.25, 2.0), Draws(0)).values for one in range(1, 2001)
    ]
    assert {len(set(one.tolist())) for one in rounds} == {3}
    counts = np.bincount(np.concatenate(rounds), minlength=12)
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    ("num_levels", "expected"),
    [(2, [0, 0, 0, 1, 1, 1]), (3, [0, 0.5, 0.5, 0.5, 0.5, 1]), (5, [0, 0.25, 0.5, 0.5, 0.75, 1])],
)
def test_scores_are_rounded_to_levels(num_levels: int, expected: list[float]) -> None:
    """Half way goes to the even step: 0.5 of one step is 0."""
    scores = np.array([0, 0.3, 0.5, 0.51, 0.7, 1], np.float32)
    found = rounded(scores, num_levels)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


# --- Swapping ----------------------------------------------------------------------------------------------

DOWN = partial(Swapping, is_rounded_down=True)


def swapped(own: Ragged, scores: np.ndarray, num_positives: int, how: Swapping, number: int = 0) -> np.ndarray:
    parties = np.array([number], np.int32)
    return swap(own, scores, np.array([num_positives], np.int32), parties, 1, how, Draws(0))


SLOTS = [0, 1, 2, 3, 4, 5]
SCORES = [0.9, 0.8, 0.2, 0.7, 0.1, 0.6]
"""Slots 0 to 2 are positives. By score: 0, 1, 2 and 3, 5, 4."""


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, [0.7, 0.8, 0.2, 0.9, 0.1, 0.6]),  # at least one pair
        (0.5, [0.7, 0.8, 0.2, 0.9, 0.1, 0.6]),  # int(1.5)
        (0.7, [0.7, 0.6, 0.2, 0.9, 0.1, 0.8]),  # 0 with 3, 1 with 5
        (1.0, [0.7, 0.6, 0.1, 0.9, 0.2, 0.8]),  # 2 with 4 as well
    ],
)
def test_the_highest_of_both_kinds_exchange_scores(share: float, expected: list[float]) -> None:
    for order in (np.arange(6), np.array([5, 3, 1, 0, 2, 4])):
        given_slots = Ragged(np.array([0, 6]), np.array(SLOTS, np.int32)[order])
        found = swapped(given_slots, np.array(SCORES, np.float32)[order], 3, DOWN(share))
        np.testing.assert_array_equal(found, np.array(expected, np.float32)[order])


def test_without_one_kind_nothing_is_swapped() -> None:
    for slots in ([0, 1, 2], [3, 4, 5]):
        scores = np.array([0.5, 0.4, 0.3], np.float32)
        own = Ragged(np.array([0, 3]), np.array(slots, np.int32))
        np.testing.assert_array_equal(swapped(own, scores, 3, DOWN(1.0)), scores)


def test_an_item_that_is_listed_twice_has_one_score() -> None:
    own = Ragged(np.array([0, 4]), np.array([0, 3, 3, 4], np.int32))
    found = swapped(own, np.array([0.9, 0.7, 0.7, 0.1], np.float32), 1, DOWN(0.1))
    np.testing.assert_array_equal(found, np.array([0.7, 0.9, 0.9, 0.1], np.float32))


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30),
    st.integers(0, 30),
    st.floats(0, 1),
    st.booleans(),
    st.integers(0, 99),
)
def test_swapping_keeps_the_scores_as_a_multiset(
    scores: list[float], num_positives: int, share: float, is_down: bool, seed: int
) -> None:
    slots = np.random.default_rng(seed).permutation(len(scores)).astype(np.int32)
    given_scores = np.array(scores, np.float32)
    before = given_scores.copy()
    own = Ragged(np.array([0, len(slots)]), slots)
    found = swapped(own, given_scores, num_positives, Swapping(share, is_down), seed)
    np.testing.assert_array_equal(given_scores, before)
    np.testing.assert_array_equal(np.sort(found), np.sort(before))
    shown_positives = (slots < num_positives).sum()
    assert (found != before).sum() <= 2 * (max(int(share * shown_positives), 1) if is_down else shown_positives)


def test_the_share_of_swapped_pairs_is_met_on_average() -> None:
    """0.1 of 13 positives: one pair, with chance 0.3 two. Of 4,000 clients |z| < 4."""
    own = Ragged(np.array([0, 26]), np.arange(26, dtype=np.int32))
    scores = np.linspace(1, 0, 26).astype(np.float32)
    pairs = [
        int((swapped(own, scores, 13, Swapping(0.1, False), number) != scores).sum()) // 2
        for number in range(4000)
    ]
    assert set(pairs) == {1, 2}
    assert abs(np.mean(pairs) - 1.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)
    for share, expected in ((0.0, 0), (1.0, 13)):
        found = swapped(own, scores, 13, Swapping(share, False))
        assert (found != scores).sum() == 2 * expected


# --- Noise -------------------------------------------------------------------------------------------------


def test_laplace_noise_has_its_scale_and_stays_in_range() -> None:
    """Scores of one half with scale 0.05: hardly any is cut. Mean and mean size of the noise |z| < 5."""
    own, number = Ragged(np.array([0, 20000]), np.arange(20000, dtype=np.int32)), np.array([4], np.int32)
    half = np.full(20000, 0.5, np.float32)
    noise = add_laplace(own, half, number, 1, 0.05, Draws(0)) - half
    assert abs(noise.mean()) < 5 * 0.05 * np.sqrt(2 / 20000)
    assert abs(np.abs(noise).mean() - 0.05) < 5 * 0.05 / np.sqrt(20000)
    wide = add_laplace(own, half, number, 1, 3.0, Draws(0))
    assert (wide.min(), wide.max()) == (0, 1)
    assert wide.dtype == np.float32
    assert (half == 0.5).all()


def test_noise_is_a_clients_own() -> None:
    scores, draws = np.full(40, 0.5, np.float32), Draws(0)
    two, one = (
        Ragged(np.array([0, 20, 40]), np.zeros(40, np.int32)),
        Ragged(np.array([0, 20]), np.zeros(20, np.int32)),
    )
    together = add_laplace(two, scores, np.array([3, 7], np.int32), 1, 0.1, draws)
    np.testing.assert_array_equal(
        together[20:], add_laplace(one, scores[:20], np.array([7], np.int32), 1, 0.1, draws)
    )
    assert (together[:20] != together[20:]).all()
