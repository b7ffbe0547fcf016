"""Masks cancel to the last bit, and what is behind one tells nothing."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.privacy.dense_sum import DenseSum
from hushrec.privacy.masking import MaskedSum, MaskSums, as_ragged, draw_masks, fixed_point
from hushrec.protocol import Ragged


@dataclass(frozen=True)
class Sent:
    words: Ragged


@dataclass(frozen=True)
class Plain:
    gradients: Ragged


def numbered(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


numbers_in_range = st.floats(-7.5, 7.5, width=32)


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, st.tuples(st.integers(1, 7), st.integers(1, 9)), elements=numbers_in_range))
def test_masks_cancel_and_leave_the_bits_of_a_plain_sum(table: np.ndarray) -> None:
    """Clients upload to the sum and to two collectors in turn; the first of them has numbers of its own."""
    count, width = table.shape
    clients, collectors = numbered(count), np.arange(count, dtype=np.int32) % 2
    words = fixed_point(clients, table)
    masks = draw_masks(Draws(3).key("masks"), clients, 5, words)
    uploads, collected, inbox = MaskedSum.zeros(width), MaskedSum.zeros(width), MaskSums(width)
    uploads.add(clients, Sent(as_ragged(words + masks)))
    inbox.add(collectors, Sent(as_ragged(masks)))
    present = np.unique(collectors)
    own = np.zeros((len(present), width), np.int64)
    own[0] = fixed_point(clients[:1], table[:1])[0]
    collected.add(present, Sent(as_ragged(inbox.release(present, own))))
    plain = DenseSum.zeros((width, 1), num_summands=count + 1)
    twice = np.vstack([table, table[:1]])
    plain.add(numbered(count + 1), Plain(Ragged(np.arange(count + 2) * width, twice.reshape(-1, 1))))
    np.testing.assert_array_equal(uploads.without(collected), plain.to_float().ravel())


def test_forks_give_the_same_sums() -> None:
    masks = draw_masks(Draws(0).key("masks"), numbered(6), 1, np.zeros((6, 4), np.int64))
    to, whole, parts = np.array([5, 9, 5, 5, 9, 9], np.int32), MaskSums(4), MaskSums(4)
    whole.add(to, Sent(as_ragged(masks)))
    fork, total, piece = parts.fork(), MaskedSum.zeros(4), MaskedSum.zeros(4)
    parts.add(to[:3], Sent(as_ragged(masks[:3])))
    fork.add(to[3:], Sent(as_ragged(masks[3:])))
    parts.merge(fork)
    both, none = np.array([5, 9], np.int32), np.zeros((2, 4), np.int64)
    np.testing.assert_array_equal(parts.release(both, none), whole.release(both, none))
    assert whole.has_mail(both)
    assert not whole.has_mail(np.array([5, 6], np.int32))
    total.add(to[:3], Sent(as_ragged(masks[:3])))
    piece.add(to[3:], Sent(as_ragged(masks[3:])))
    total.merge(piece)
    np.testing.assert_array_equal(total.totals, whole.release(both, none).sum(axis=0))


def test_masks_are_uniform_and_each_its_own() -> None:
    """12,800 bits of each place: a share of ones off 1/2 by .025 has odds of 64 in 70 million (5.6 sigma)."""
    key, words = Draws(1).key("masks"), np.zeros((400, 32), np.int64)
    masks = draw_masks(key, numbered(400), 2, words)
    bits = masks.view(np.uint64).ravel()[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.025
    assert len(np.unique(masks)) == masks.size
    again = draw_masks(key, np.array([7], np.int32), 2, words[:1])
    np.testing.assert_array_equal(again[0], masks[7])
    assert (draw_masks(key, np.array([7], np.int32), 3, words[:1]) != again).all()


def test_other_numbers_have_other_masks() -> None:
    """Else two uploads of one round would differ by what differs behind their masks."""
    key, party, words = Draws(1).key("masks"), numbered(1), np.zeros((1, 32), np.int64)
    other = words.copy()
    other[0, 31] = 1
    assert (draw_masks(key, party, 2, words) != draw_masks(key, party, 2, other)).all()
    assert (draw_masks(key, party, 2, words) != draw_masks(Draws(2).key("masks"), party, 2, words)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 8.0])
def test_a_number_that_would_spoil_the_sum_is_refused_by_its_owner(bad: float) -> None:
    table = np.array([[1, 2], [0, bad]], np.float32)
    with pytest.raises(DivergedError, match=r"the update of client 9 is not finite or not within ±8"):
        fixed_point(np.array([4, 9], np.int32), table)


def test_an_upload_of_another_size_is_refused() -> None:
    with pytest.raises(HushrecError, match="an upload has not 3 numbers; leave it out"):
        MaskedSum.zeros(3).add(numbered(1), Sent(as_ragged(np.zeros((1, 2), np.int64))))
