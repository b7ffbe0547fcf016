from dataclasses import dataclass

import numpy as np

from hushrec.audit.attacks.flag_reading import guess_positives
from hushrec.audit.attacks.wire_reading import read_messages
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged


@dataclass(frozen=True)
class Letter(Message):
    """Reveals: flags, bytes."""

    sender, receiver = Role.USER, Role.OWNER
    flags: Ragged = ragged(np.uint8, 2, high=1)
    contents: Ragged = ragged(np.uint8, 2)


def letters(owners: list[int], lengths: list[int], flags: np.ndarray, pairs: list[tuple[int, int]]) -> Recorded:
    starts = np.cumsum([0, *lengths])
    contents = np.array(pairs, "<u4").view(np.uint8).reshape(len(pairs), 8)
    message = Letter(Ragged(starts, flags.astype(np.uint8)), Ragged(starts, contents))
    return Recorded(1, np.array([9], np.int32), message, np.array(owners, np.int32))


def test_plain_bytes_and_flags_are_read_owner_after_owner() -> None:
    read = read_messages([
        letters([0, 2], [1, 2], np.array([[1], [0], [1]]), [(7, 1), (8, 2), (70_000, 3)]),
        letters([0], [1], np.array([[0]]), [(5, 4)]),
    ])  # fmt: skip
    assert read.owners.tolist() == [0, 0, 2, 2]
    assert read.users.tolist() == [7, 5, 8, 70_000]
    assert read.items.tolist() == [1, 4, 2, 3]
    assert guess_positives(read, 1).ravel().tolist() == [True, False, False, True]


def test_without_flags_all_are_taken_for_positive() -> None:
    read = read_messages([letters([0], [2], np.empty((2, 0)), [(7, 1), (8, 2)])])
    assert guess_positives(read, 3).tolist() == [[True] * 3] * 2


def test_nothing_seen() -> None:
    assert not len(read_messages([]).owners)
