"""What a participant of a secure sum sends is looked at as it comes, so that it is known whose it was."""

from functools import partial

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.letters import LetterBox
from hushrec.privacy.secure_sum.messages import PublicKeys, Shares, Unmasking, rows_of_one
from hushrec.privacy.secure_sum.plan import Plan
from hushrec.privacy.secure_sum.server import Graph, _check_keys, _check_shares
from hushrec.protocol import Collect, Ragged

NUMBERS = np.array([2, 5, 7], np.int32)
# Everybody is everybody's neighbour.
GRAPH = Graph(NUMBERS, np.zeros((3, 32), np.uint8), np.array([[1, 2], [0, 2], [0, 1]]), Plan(2, 2, 2))


def keys(num_rows: int, width: int) -> PublicKeys:
    return PublicKeys(Ragged.one(np.zeros((num_rows, width), np.uint8)))


@pytest.mark.parametrize(("num_rows", "width"), [(0, 32), (2, 32), (1, 31), (1, 0), (1, 64)])
def test_a_key_of_another_size_is_refused(num_rows: int, width: int) -> None:
    fold = Collect(check=_check_keys)
    fold.add(NUMBERS[:1], keys(1, 32))
    with pytest.raises(HushrecError, match="no key of 32 bytes; leave it out"):
        fold.add(NUMBERS[1:2], keys(num_rows, width))
    assert len(fold.batches) == 1
    with pytest.raises(HushrecError, match="no key of 32 bytes"):
        fold.fork().add(NUMBERS[1:2], keys(num_rows, width))


def shares(*about: int, lost: int = -1, width: int = 32) -> Unmasking:
    told = np.array(about, np.int32)
    rows = np.zeros((len(told), width), np.uint8)
    return Unmasking(Ragged.one(told), Ragged.one(told == lost), Ragged.one(rows))


WRONG = {
    "about oneself": shares(5),
    "about a stranger": shares(6),
    "about one beyond all": shares(2**31 - 1),
    "twice": shares(2, 2),
    "in another order": shares(7, 2),
    "of the key of a survivor": shares(2, lost=2),
    "of another width": shares(2, 7, width=33),
    "of no width": shares(2, 7, width=0),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_shares_that_were_not_asked_for_are_refused_with_their_sender(wrong: str) -> None:
    fold = Collect(check=partial(_check_shares, GRAPH, NUMBERS))
    fold.add(NUMBERS[1:2], shares(2, 7))
    with pytest.raises(HushrecError, match=r"\Aparticipant 5 sent shares that .*; leave it out\Z"):
        fold.add(NUMBERS[1:2], WRONG[wrong])


def letter(writer: int, width: int = 32, num_rows: int = 1) -> Shares:
    rows = Ragged.one(np.zeros((num_rows, width), np.uint8))
    whole = rows_of_one(np.zeros((num_rows, 32), np.uint8)) if num_rows == 1 else rows
    return Shares(np.array([writer], np.int32), np.array([3], np.int32), whole, rows, whole, whole)


@pytest.mark.parametrize(("width", "num_rows"), [(31, 1), (0, 1), (32, 0), (32, 2)])
def test_a_letter_without_one_key_and_one_share_is_refused(width: int, num_rows: int) -> None:
    box = LetterBox()
    box.add(NUMBERS[:1], letter(5))
    with pytest.raises(HushrecError, match="not one key and one share of 32 bytes"):
        box.add(NUMBERS[:1], letter(7, width, num_rows))
    assert box.to(NUMBERS[:1]).shares.writer.tolist() == [5]


def test_a_neighbour_that_writes_twice_is_refused() -> None:
    box = LetterBox()
    box.add(NUMBERS[:1], letter(5))
    box.add(NUMBERS[1:2], letter(5))
    assert box.to(NUMBERS[:1]).shares.writer.tolist() == [5]
    box.add(NUMBERS[:1], letter(5))
    with pytest.raises(HushrecError, match="wrote twice for one sum"):
        box.to(NUMBERS[:1])
