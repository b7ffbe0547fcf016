from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushrec.systems.drift.blocks import WAITING, Blocks, Groups, Reading, Threshold, blocks_per_user, stamp_of

Event = tuple[int, int, bool]  # user, item, whether it is positive
Block = tuple[int, list[tuple[int, bool]]]  # a user, and its items in order


class SlowBlocks:
    """Algorithm 2 as printed; unless read literally, without the blocks that have no negative."""

    def __init__(self, reading: Reading = "pairs") -> None:
        self.is_literal = reading == "literal"
        self.open: dict[int, list[tuple[int, bool]]] = {}
        self.saved: list[Block] = []

    def update(self, user: int, item: int, is_positive: bool) -> None:
        block = self.open.setdefault(user, [])
        if not is_positive and any(positive for _, positive in block):
            if self.is_literal or not all(positive for _, positive in block):
                self.saved.append((user, block))
            block = self.open[user] = []
        block.append((item, is_positive))

    def learn(self, theta: int, threshold: Threshold) -> list[list[Block]]:
        groups = []
        while True:
            chosen: list[Block] = []
            for block in self.saved:
                is_new = threshold == "blocks" or block[0] not in [user for user, _ in chosen]
                if is_new and len(chosen) < theta:
                    chosen.append(block)
            if len(chosen) < theta:
                return groups
            self.saved = [block for block in self.saved if not any(block is one for one in chosen)]
            groups.append(chosen)

    @property
    def num_waiting(self) -> int:
        """Of what is open, only what begins with a negative can ever give a pair; read literally, all waits."""
        waiting = [
            block for block in self.open.values() if self.is_literal or not all(positive for _, positive in block)
        ]
        return sum(map(len, waiting)) + sum(len(block) for _, block in self.saved)


def read(groups: Groups) -> list[list[Block]]:
    """The blocks of each group, found through its rows; checks the rows on the way."""
    found: list[list[Block]] = [[] for _ in range(groups.num_blocks // groups.theta)]
    for number in range(groups.num_blocks):
        first, last = groups.block_starts[number : number + 2]
        row, rows = groups.user_rows[number], groups.row_of_entry[first:last]
        group = number // groups.theta
        assert not groups.is_item[row]
        assert groups.is_item[rows].all()
        assert {int(groups.group_of_row[one]) for one in (row, *rows)} == {group}
        signs = groups.is_positive[first:last].tolist()
        found[group].append(
            (int(groups.numbers[row]), list(zip(groups.numbers[rows].tolist(), signs, strict=True)))
        )
    for group, blocks in enumerate(found):
        users, items = ({user for user, _ in blocks}, {item for _, block in blocks for item, _ in block})
        is_of_it = groups.group_of_row == group
        wanted = [(0, user) for user in sorted(users)] + [(1, item) for item in sorted(items)]
        kinds, numbers = groups.is_item[is_of_it].tolist(), groups.numbers[is_of_it].tolist()
        assert list(zip(kinds, numbers, strict=True)) == wanted, "what is needed and nothing else, in order"
    names = list(zip(groups.is_item.tolist(), groups.numbers.tolist(), strict=True))
    vectors = dict(zip(names, groups.vector_of_row.tolist(), strict=True))
    assert [vectors[name] for name in names] == groups.vector_of_row.tolist(), "one vector of one user or item"
    assert len(set(vectors.values())) == len(vectors)
    return found


def add(blocks: Blocks, events: list[Event], stamp: int = 1, round_number: int = 1, first: int = 1) -> None:
    users, items = (np.array([event[place] for event in events], np.int32) for place in (0, 1))
    signs = np.array([event[2] for event in events], np.bool_)
    blocks.make_room(0, 1 + int(users.max(initial=-1)))
    blocks.add(np.arange(first, first + len(events)), users, items, signs, stamp, round_number)


def num_waiting(blocks: Blocks) -> int:
    return int(np.count_nonzero(blocks.kept().stamps == WAITING))


def assert_same(one: Groups, other: Groups) -> None:
    for name, left, right in zip(Groups._fields, one, other, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


GOOD, BAD = True, False


def test_algorithm_2_by_hand() -> None:
    """User 0: bad 1, bad 2, good 3, good 4 is a block; bad 5 completes it and begins the next one.

    User 1: good 6 alone; bad 7 begins a block, since a block without a negative has no pair; good 8 stays open.
    """
    blocks = Blocks()
    add(blocks, [(0, 1, BAD), (1, 6, GOOD), (0, 2, BAD), (0, 3, GOOD), (0, 4, GOOD)])
    assert read(blocks.learn(1, "blocks", 1)) == []
    add(blocks, [(1, 7, BAD), (0, 5, BAD), (1, 8, GOOD)])
    assert blocks.num_saved == 1
    groups = blocks.learn(1, "blocks", 1)
    assert read(groups) == [[(0, [(1, BAD), (2, BAD), (3, GOOD), (4, GOOD)])]]
    assert num_waiting(blocks) == 3, "bad 5; bad 7 and good 8"


def test_algorithm_2_read_literally_by_hand() -> None:
    """User 1: good 6 and good 7 are a block without a negative; bad 8 completes it, so it counts towards Theta."""
    blocks = Blocks(reading="literal")
    add(blocks, [(0, 1, BAD), (1, 6, GOOD), (0, 2, GOOD), (1, 7, GOOD)])
    assert read(blocks.learn(2, "blocks", 1)) == []
    add(blocks, [(1, 8, BAD), (0, 3, BAD)])
    found = read(blocks.learn(2, "blocks", 1))
    assert found == [[(1, [(6, GOOD), (7, GOOD)]), (0, [(1, BAD), (2, GOOD)])]]
    assert num_waiting(blocks) == 2, "bad 8 and bad 3"


def test_theta_blocks_go_together() -> None:
    """Of three blocks two are learned from; the third waits for a fourth."""
    blocks = Blocks()
    add(blocks, [(user, item, sign) for user in range(3) for item, sign in enumerate([BAD, GOOD, BAD])])
    found = read(blocks.learn(2, "blocks", 1))
    assert [[user for user, _ in group] for group in found] == [[0, 1]]
    assert blocks.num_saved == 1
    add(blocks, [(0, 5, GOOD), (0, 6, BAD)])
    assert [[user for user, _ in group] for group in read(blocks.learn(2, "blocks", 2))] == [[2, 0]]


def test_theta_users_go_together() -> None:
    """Two blocks of one user never go together: the second waits until another user has one."""
    blocks = Blocks()
    add(blocks, [(0, item, sign) for item, sign in enumerate([BAD, GOOD, BAD, GOOD, BAD])])
    assert blocks.num_saved == 2
    assert read(blocks.learn(2, "users", 1)) == []
    add(blocks, [(1, item, sign) for item, sign in enumerate([BAD, GOOD, BAD])])
    found = read(blocks.learn(2, "users", 2))
    assert [[(user, block[0][0]) for user, block in group] for group in found] == [[(0, 0), (1, 0)]]
    assert blocks.num_saved == 1


EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=60)
THRESHOLDS = st.sampled_from(["blocks", "users"])
READINGS = st.sampled_from(["pairs", "literal"])


@given(EVENTS, st.lists(st.integers(0, 60)), st.integers(1, 3), THRESHOLDS, READINGS)
def test_equals_the_slow_way(
    events: list[Event], cuts: list[int], theta: int, threshold: Any, reading: Any
) -> None:
    """However the stream is cut into windows."""
    fast, slow = Blocks(reading=reading), SlowBlocks(reading)
    bounds = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    for window, (first, last) in enumerate(pairwise(bounds)):
        stamp = stamp_of(1, window)
        add(fast, events[first:last], stamp, first=first)
        for event in events[first:last]:
            slow.update(*event)
        groups = fast.learn(theta, threshold, stamp)
        assert read(groups) == slow.learn(theta, threshold)
        assert_same(fast.learned_at(stamp, theta), groups)
        assert fast.num_saved == len(slow.saved)
        assert num_waiting(fast) == slow.num_waiting


@settings(deadline=None)  # the first case compiles
@given(EVENTS)
def test_blocks_of_users_are_counted_as_they_are_saved(events: list[Event]) -> None:
    slow = SlowBlocks()
    for event in events:
        slow.update(*event)
    users, signs = np.array([one[0] for one in events], np.int32), np.array([one[2] for one in events], np.bool_)
    expected = np.bincount(np.array([user for user, _ in slow.saved], np.int64), minlength=4)
    np.testing.assert_array_equal(blocks_per_user(users, signs, 4), expected)


@given(EVENTS, EVENTS, st.integers(1, 3), THRESHOLDS, READINGS)
def test_restored_blocks_go_on_alike(
    before: list[Event], after: list[Event], theta: int, threshold: Any, reading: Any
) -> None:
    blocks = Blocks(reading=reading)
    add(blocks, before)
    learned = blocks.learn(theta, threshold, stamp_of(1, 0))
    again = Blocks.restored(blocks.kept(), len(blocks.heads), reading)
    assert_same(again.learned_at(stamp_of(1, 0), theta), learned)
    assert (again.num_saved, num_waiting(again)) == (blocks.num_saved, num_waiting(blocks))
    for one in (blocks, again):
        add(one, after, stamp_of(1, 1), first=1 + len(before))
    assert_same(again.learn(theta, threshold, stamp_of(1, 1)), blocks.learn(theta, threshold, stamp_of(1, 1)))


@given(EVENTS, EVENTS, EVENTS, st.integers(1, 3), THRESHOLDS, READINGS)
def test_a_round_begun_again_forgets_what_came_in_it(
    before: list[Event], lost: list[Event], instead: list[Event], theta: int, threshold: Any, reading: Any
) -> None:
    """And only that: what round 1 learned from stays learned, what round 2 learned from waits again."""
    once, twice = Blocks(reading=reading), Blocks(reading=reading)
    for blocks in (once, twice):
        add(blocks, before, stamp_of(1, 0))
        blocks.learn(theta, threshold, stamp_of(1, 0))
        blocks.forget_learned()
    num_before = num_waiting(once)
    assert len(twice.kept().users) == num_before, "nothing that was learned from is kept"
    add(twice, lost, stamp_of(2, 0), 2)
    twice.learn(theta, threshold, stamp_of(2, 0))
    twice.undo(2)
    assert num_waiting(twice) == num_before
    for blocks in (once, twice):
        add(blocks, instead, stamp_of(2, 0), 2)
    assert_same(twice.learn(theta, threshold, stamp_of(2, 0)), once.learn(theta, threshold, stamp_of(2, 0)))
    for left, right in zip(once.kept(), twice.kept(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_what_is_in_no_block_after_some_were_taken_away_is_forgotten() -> None:
    """The negative before two positives is gone, then another negative comes: no pair, only that one waits."""
    blocks = Blocks()
    add(blocks, [(0, 1, False), (0, 2, True), (0, 3, True), (0, 4, False)], stamp_of(1, 0))
    left = blocks.kept().take(blocks.kept().items != 1)
    again = Blocks.restored(left, 1)
    assert again.num_saved == 0
    assert num_waiting(again) == 1
    again.forget_learned()
    assert again.kept().items.tolist() == [4]


def test_many_interactions_find_room() -> None:
    """3000 of 1500 users: each has a bad and a good one, then each has a bad one."""
    blocks = Blocks()
    for sign in (BAD, GOOD):
        add(blocks, [(user, 7, sign) for user in range(1500)])
    assert read(blocks.learn(1, "blocks", 1)) == []
    add(blocks, [(user, 8, BAD) for user in range(1500)])
    groups = blocks.learn(1, "blocks", 1)
    assert groups.num_blocks == 1500
    assert groups.numbers[groups.user_rows].tolist() == list(range(1500))


@pytest.mark.parametrize("theta", [1, 2])
def test_nothing_is_no_group(theta: int) -> None:
    for groups in (Blocks().learn(theta, "blocks", 1), Blocks().learned_at(1, theta)):
        assert (groups.num_blocks, len(groups.numbers), groups.theta) == (0, 0, theta)
