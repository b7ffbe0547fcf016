from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from audit.conftest import Bare
from hushrec.audit.attacks.sent_blocks import Layout, Sent, count, judge, layout_of, sends_blocks
from hushrec.audit.scoreboard import Truth
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged, shared

LAYOUT = [[1, 2, 3, 0], [4, 5, 0, 0]]  # three numbers to a block, five in all


@dataclass(frozen=True)
class Stored(Message):
    """Reveals: blocks."""

    sender, receiver = Role.SERVER, Role.CLIENT
    blocks: np.ndarray = shared(np.uint8, 2)
    num_additions: np.ndarray = shared(np.int64)


@dataclass(frozen=True)
class Steps(Message):
    """Reveals: which blocks."""

    sender, receiver = Role.CLIENT, Role.SERVER
    places: Ragged = ragged(np.int32, low=0)
    blocks: Ragged = ragged(np.uint8, 2)


def stored(numbers: list[list[int]], num_additions: int = 0) -> Recorded:
    blocks = np.array(numbers, "<i4").view(np.uint8)
    return Recorded(1, np.arange(9, dtype=np.int32), Stored(blocks, np.full(len(blocks), num_additions)))


def steps(places: dict[int, list[int]]) -> Recorded:
    starts = np.cumsum([0, *(len(own) for own in places.values())])
    values = np.array([place for own in places.values() for place in own], np.int32)
    blocks = Ragged(starts, np.zeros((len(values), 4), np.uint8))
    return Recorded(1, np.array(list(places), np.int32), Steps(Ragged(starts, values), blocks))


def counted(numbers: list[list[int]], *rounds: dict[int, list[int]]) -> Sent:
    sent = count(None, [stored(numbers), steps(rounds[0])])
    for places in rounds[1:]:
        sent = count(sent, [stored([[9, 9, 9, 9], [9, 9, 9, 9]], 1), steps(places)])
    return sent


def test_layout_by_hand() -> None:
    assert layout_of(np.array(LAYOUT, "<i4").view(np.uint8)) == Layout(2, 3, 5)
    assert layout_of(np.zeros((2, 17), np.uint8)) is None


def test_auc_by_hand(owning: Callable[..., Truth]) -> None:
    """Five items of one number: 0, 1, 2 in the first block, 3, 4 in the second. Client 0 has item 0, and sends
    the first block twice, the second once: item 0 is above 3 and 4, level with 1 and 2. Client 1 sends all alike.
    """
    sent = counted(LAYOUT, {0: [0, 1], 1: [0, 1]}, {0: [0], 1: [1, 0]})
    outcome = judge(sent, owning([[0], [4]], 5))
    assert outcome.victims.tolist() == [0, 1]
    assert outcome.scores.tolist() == [0.75, 0.5]
    assert outcome.chances.tolist() == [0.5, 0.5]


def test_an_item_in_two_blocks_is_in_what_is_sent_if_both_are(owning: Callable[..., Truth]) -> None:
    """Three items of two numbers: item 1 lies in both blocks, so the second block without the first is not its."""
    sent = counted([[1, 2, 3, 0], [4, 5, 6, 0]], {0: [1]}, {0: [0, 1]}, {0: [1]})
    assert judge(sent, owning([[2]], 3)).scores.tolist() == [1.0]
    assert judge(sent, owning([[1]], 3)).scores.tolist() == [0.25]


def test_without_a_start_in_the_clear_nothing_is_told(owning: Callable[..., Truth]) -> None:
    sent = count(None, [stored(LAYOUT, 3), steps({0: [1]})])
    assert [len(column) for column in judge(sent, owning([[2]], 3))] == [0, 0, 0, 0]


def test_it_reads_blocks_with_their_places_only() -> None:
    assert [sends_blocks(kind) for kind in (Steps, Stored, Bare)] == [True, False, False]


def test_a_message_is_known_by_its_columns_alone() -> None:
    """What else a message can tell of itself was not sent."""

    @dataclass(frozen=True)
    class Other(Message):
        sender, receiver = Role.SERVER, Role.CLIENT
        blocks: np.ndarray = shared(np.uint8, 2)

        @property
        def num_additions(self) -> np.ndarray:
            return np.zeros(len(self.blocks))

    first = stored(LAYOUT)
    sent = count(None, [first._replace(message=Other(first.message.blocks)), steps({0: [1]})])
    assert sent.layout is None
