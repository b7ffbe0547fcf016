# mypy: allow-untyped-defs, allow-untyped-calls
"""Which scored items a client shows, and how their scores are disturbed: sampling, swapping, Laplace noise.

Guarantee: none for sampling and swapping in the sense of differential privacy. Sampling hides how many of the
shown items are positives; swapping gives the highest scores to negatives. The PTF-FedRec paper claims (epsilon,
delta) without values; over many rounds positives are shown more often than negatives, which neither hides, but a
sample of all alike does, or one that is drawn once. Rounding to few levels makes scores equal, not wrong. Laplace
noise of scale b on one score in [0, 1] is 1/b-differentially private for that score in that round only: not for
the fact that the item is listed, and all scores of all rounds add up.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Draws, chacha_block
from hushrec.protocol import Numbers, Ragged

Places = NDArray[np.int64]
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Sampling:
    """How many items are shown: a share beta of the positives, and gamma times as many negatives."""

    least_beta: float
    most_beta: float
    least_gamma: float
    most_gamma: float
    has_repeats: bool  # whether negatives are drawn with replacement


@dataclass(frozen=True)
class Swapping:
    """How many pairs of scores are exchanged: a share of the shown positives, rounded by chance or down to one."""

    share: float
    is_rounded_down: bool  # then at least one pair is exchanged, however few are shown


@dataclass(frozen=True)
class TrainedItems:
    """Per client: distinct slots of its table that it trained; the first `num_positives` slots are positives."""

    slots: Ragged
    num_positives: NDArray[np.int32]


@numba.njit(nogil=True, cache=True)
def _share(word):
    """A number in (0, 1) from 32 random bits."""
    return (np.float64(word) + 0.5) * 2.0**-32


@numba.njit(nogil=True, cache=True)
def _num_shown(key, numbers, round_number, num_positives, num_negatives, limits, has_repeats, out):
    words = np.empty(BLOCK_WORDS, np.uint32)
    for client in range(numbers.size):
        chacha_block(key, numbers[client], round_number, 0, words)
        beta = limits[0] + (limits[1] - limits[0]) * _share(words[0])
        gamma = limits[2] + (limits[3] - limits[2]) * _share(words[1])
        # DEVIATION: the paper does not say how to round; down, but to one at least, as in the authors' code.
        positives = max(int(beta * num_positives[client]), min(1, num_positives[client]))
        negatives = max(int(gamma * positives), 1)
        if not has_repeats or num_negatives[client] == 0:
            negatives = min(negatives, num_negatives[client])
        out[client, 0] = positives
        out[client, 1] = negatives


@numba.njit(nogil=True, cache=True)
def _sample(key, numbers, round_number, trained, num_shown, has_repeats, starts, out):
    """A partial shuffle of the client's positives, and of its negatives or draws from them."""
    slot_starts, slots, num_positives = trained
    words = np.empty(BLOCK_WORDS, np.uint32)
    for client in range(numbers.size):
        deck = slots[slot_starts[client] : slot_starts[client + 1]].copy()
        split = num_positives[client]
        place, used, counter = starts[client], BLOCK_WORDS, 1
        for kind in range(2):
            first, last = (0, split) if kind == 0 else (split, deck.size)
            is_put_back = kind == 1 and has_repeats
            for draw in range(num_shown[client, kind]):
                if used == BLOCK_WORDS:
                    chacha_block(key, numbers[client], round_number, counter, words)
                    counter, used = counter + 1, 0
                low = first if is_put_back else first + draw
                chosen = low + np.int64((np.uint64(words[used]) * np.uint64(last - low)) >> np.uint64(32))
                used += 1
                out[place] = deck[chosen]
                place += 1
                if not is_put_back:
                    deck[chosen], deck[low] = deck[low], deck[chosen]


def sample(trained: TrainedItems, numbers: Numbers, round_number: int, sampling: Sampling, draws: Draws) -> Ragged:
    """The slots that each client shows this round (Eq. 7)."""
    key = draws.key("shown-items")
    limits = np.array([sampling.least_beta, sampling.most_beta, sampling.least_gamma, sampling.most_gamma])
    num_negatives = trained.slots.lengths - trained.num_positives
    num_shown = np.empty((len(numbers), 2), np.int64)
    _num_shown(
        key, numbers, round_number, trained.num_positives, num_negatives, limits, sampling.has_repeats, num_shown
    )
    starts = np.concatenate([[0], np.cumsum(num_shown.sum(axis=1))])
    shown = np.empty(starts[-1], np.int32)
    parts = (trained.slots.starts, trained.slots.values, trained.num_positives)
    _sample(key, numbers, round_number, parts, num_shown, sampling.has_repeats, starts, shown)
    return Ragged(starts, shown)


def sample_alike(slots: Ragged, numbers: Numbers, round_number: int, sampling: Sampling, draws: Draws) -> Ragged:
    """A share beta of all slots of each client, whatever they are: each is shown equally often over the rounds."""
    return sample(TrainedItems(slots, slots.lengths.astype(np.int32)), numbers, round_number, sampling, draws)


def rounded(scores: Scores, num_levels: int) -> Scores:
    """Scores at the nearest of so many levels, evenly from 0 to 1."""
    steps = np.float32(num_levels - 1)
    nearest: Scores = np.rint(scores * steps) / steps
    return nearest


@numba.njit(nogil=True, cache=True)
def _best(slots, scores, is_taken, num_positives, wants_positive):
    """The place of the highest score of one kind that is not taken; -1 if there is none."""
    best = -1
    for place in range(slots.size):
        is_candidate = not is_taken[place] and (slots[place] < num_positives) == wants_positive
        if is_candidate and (best < 0 or scores[place] > scores[best]):
            best = place
    return best


@numba.njit(nogil=True, cache=True)
def _swap(key, numbers, round_number, starts, slots, scores, num_positives, share, is_rounded_down):
    words = np.empty(BLOCK_WORDS, np.uint32)
    for client in range(numbers.size):
        first, last = starts[client], starts[client + 1]
        own_slots, own_scores = slots[first:last], scores[first:last]
        is_taken = np.zeros(last - first, np.bool_)
        num_shown = 0
        for place in range(last - first):
            num_shown += own_slots[place] < num_positives[client]
        num_pairs = int(share * num_shown)
        if is_rounded_down:
            num_pairs = max(num_pairs, 1)
        else:
            chacha_block(key, numbers[client], round_number, 0, words)
            num_pairs += _share(words[0]) < share * num_shown - num_pairs
        for _ in range(num_pairs):
            positive = _best(own_slots, own_scores, is_taken, num_positives[client], True)
            negative = _best(own_slots, own_scores, is_taken, num_positives[client], False)
            if positive < 0 or negative < 0:
                break
            high, low = own_scores[positive], own_scores[negative]
            high_slot, low_slot = own_slots[positive], own_slots[negative]
            for place in range(last - first):
                if own_slots[place] == high_slot:
                    own_scores[place] = low
                    is_taken[place] = True
                elif own_slots[place] == low_slot:
                    own_scores[place] = high
                    is_taken[place] = True


def swap(
    shown: Ragged,
    scores: Scores,
    num_positives: NDArray[np.int32],
    numbers: Numbers,
    round_number: int,
    swapping: Swapping,
    draws: Draws,
) -> Scores:
    """Exchange the scores of a share of the shown positives, the highest, with the highest negatives' (Eq. 8)."""
    swapped, key = scores.copy(), draws.key("swapped-pairs")
    share, is_rounded_down = swapping.share, swapping.is_rounded_down
    _swap(key, numbers, round_number, shown.starts, shown.values, swapped, num_positives, share, is_rounded_down)
    return swapped


@numba.njit(nogil=True, cache=True)
def _add_laplace(key, numbers, round_number, starts, scale, scores):
    words = np.empty(BLOCK_WORDS, np.uint32)
    for client in range(numbers.size):
        for row in range(starts[client + 1] - starts[client]):
            if row % BLOCK_WORDS == 0:
                chacha_block(key, numbers[client], round_number, row // BLOCK_WORDS, words)
            share = _share(words[row % BLOCK_WORDS]) - 0.5
            noise = -scale * np.sign(share) * np.log(1.0 - 2.0 * abs(share))
            noisy = scores[starts[client] + row] + noise
            scores[starts[client] + row] = min(max(noisy, 0.0), 1.0)


def add_laplace(
    shown: Ragged, scores: Scores, numbers: Numbers, round_number: int, scale: float, draws: Draws
) -> Scores:
    """Scores with Laplace noise, cut to [0, 1]."""
    noisy = scores.copy()
    _add_laplace(draws.key("laplace-noise"), numbers, round_number, shown.starts, scale, noisy)
    return noisy
