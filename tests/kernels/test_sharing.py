"""Threads that share work: every part is done once, by whoever is there, and failures are not lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hushrec.kernels.sharing import Part, at_once, lending, num_column_parts, num_parts

MUCH = 1 << 30


def test_who_was_lent_no_thread_works_alone() -> None:
    assert num_parts(MUCH) == 1
    with lending(None, 3):
        assert num_parts(MUCH) == 1


def test_little_work_is_not_shared() -> None:
    with ThreadPoolExecutor(2) as pool, lending(pool, 2):
        assert (num_parts(1000), num_parts(MUCH)) == (1, 3)
    assert num_parts(MUCH) == 1


@pytest.mark.parametrize(
    ("num_columns", "expected"), [(32, 4), (24, 3), (20, 2), (8, 1), (6, 1), (17, 1), (64, 4)]
)
def test_parts_of_columns_are_equally_wide_and_no_narrower_than_eight(num_columns: int, expected: int) -> None:
    with ThreadPoolExecutor(3) as pool, lending(pool, 3):
        assert num_column_parts(num_columns, MUCH) == expected


@pytest.mark.parametrize("has_threads", [False, True])
def test_every_part_is_done_once(has_threads: bool) -> None:
    done: list[Part] = []
    with ThreadPoolExecutor(2) as pool, lending(pool if has_threads else None, 2):
        at_once(done.append, 3)
    assert sorted(done) == [(0, 3), (1, 3), (2, 3)]


def test_parts_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=20)
    with ThreadPoolExecutor(1) as pool, lending(pool, 1):
        at_once(lambda _part: meeting.wait() and None, 2)  # would break the barrier, one after the other


@pytest.mark.parametrize("failing", [0, 1])
def test_what_fails_in_a_part_is_raised_after_all_have_ended(failing: int) -> None:
    ended = threading.Event()

    def work(part: Part) -> None:
        if part[0] == failing:
            raise ZeroDivisionError
        ended.set()

    with (
        ThreadPoolExecutor(1) as pool,
        lending(pool, 1),
        pytest.raises(ZeroDivisionError),
    ):
        at_once(work, 2)
    assert ended.is_set()


def test_a_thread_that_was_lent_lends_nothing_on() -> None:
    """So the pool cannot wait for itself."""
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool, lending(pool, 1):
        at_once(lambda part: seen.append(num_parts(MUCH)) if part[0] else None, 2)
    assert seen == [1]


def test_what_no_thread_has_begun_is_done_here() -> None:
    blocked, done = threading.Event(), list[tuple[int, bool]]()
    with ThreadPoolExecutor(1) as pool, lending(pool, 1):
        pool.submit(blocked.wait, 20)  # the only thread is busy
        here = threading.get_ident()
        at_once(lambda part: done.append((part[0], threading.get_ident() == here)), 3)
        blocked.set()
    assert done == [(0, True), (1, True), (2, True)]
