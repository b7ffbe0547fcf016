"""Lines of a file that grows, or of standard input, as they come."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hushrec.errors import HushrecError
from hushrec.runtime.lines import Lines, Place, followed, standard_input

EVENT = b'{"user": "u1", "item": "i7", "positive": true}'


def never() -> bool:
    return False


def is_event(_number: int, line: bytes) -> bool:
    return line == EVENT


def next_of(lines: Iterator[Lines]) -> Lines:
    """The next that are not empty."""
    return next(found for found in lines if found)


def texts(lines: list[Lines]) -> list[bytes]:
    return [line for found in lines for _, line in found]


def test_a_file_is_read_from_a_place_on(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\n\ntwo\r\n" + EVENT)
    whole = list(followed(path, Place(), True, never, is_event))
    assert texts(whole) == [b"one", b"", b"two\r", EVENT]
    places = [place for found in whole for place, _ in found]
    assert places == [Place(1, 4), Place(2, 5), Place(3, 10), Place(4, 10 + len(EVENT))]
    for number, place in enumerate(places):
        rest = list(followed(path, place, True, never, is_event))
        assert texts(rest) == texts(whole)[number + 1 :]
        assert [last for found in rest for last, _ in found] == places[number + 1 :]


def test_the_last_line_of_a_file_is_left_until_it_is_whole(tmp_path: Path) -> None:
    path, asked = tmp_path / "events", list[tuple[int, bytes]]()

    def is_whole(number: int, line: bytes) -> bool:
        asked.append((number, line))
        return line == EVENT

    for size in range(1, len(EVENT)):
        path.write_bytes(b"one\n" + EVENT[:size])
        found = [entry for lines in followed(path, Place(), True, never, is_whole) for entry in lines]
        assert found == [(Place(1, 4), b"one")]
    assert asked == [(2, EVENT[:size]) for size in range(1, len(EVENT))]
    path.write_bytes(b"one\n" + EVENT)
    assert texts(list(followed(path, Place(1, 4), True, never, is_whole))) == [EVENT]
    path.write_bytes(b"one\n" + EVENT + b"\n")
    assert texts(list(followed(path, Place(1, 4), True, never, is_whole))) == [EVENT]
    assert len(asked) == len(EVENT), "nobody is asked about a line that has an end"


def test_a_file_is_followed_as_it_grows_and_half_a_line_waits(tmp_path: Path) -> None:
    path, is_stopped = tmp_path / "events", threading.Event()
    path.write_bytes(b"one\ntw")
    lines = followed(path, Place(), False, is_stopped.is_set, is_event)
    assert texts([next_of(lines)]) == [b"one"]

    def append() -> None:
        with path.open("ab") as file:
            file.write(b"o\nthree\nhalf")

    timer = threading.Timer(0.2, append)
    timer.start()
    assert texts([next_of(lines)]) == [b"two", b"three"]
    timer.join()
    is_stopped.set()
    assert not any(lines)


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\ntwo\n")
    lines = followed(path, Place(), False, never, is_event)
    next_of(lines)
    path.write_bytes(b"one\n")
    with pytest.raises(HushrecError, match="append to it only"):
        next_of(lines)
    with pytest.raises(HushrecError, match="the same file"):
        list(followed(path, Place(2, 8), True, never, is_event))
    with pytest.raises(HushrecError, match=r"cannot be read .*; give another file, or -"):
        list(followed(tmp_path / "none", Place(), True, never, is_event))


def test_what_began_in_a_pipe_goes_on_in_one(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\ntwo\n")
    with pytest.raises(HushrecError, match=r"send the others so, too, .*: tail -n \+2 \S+ \| \.\.\.$"):
        list(followed(path, Place(1, 0), True, never, is_event))


def test_standard_input_gives_what_waits_and_ends() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        lines = standard_input(file, Place(3, 99), never)
        os.write(writing, b"one\ntwo\nth")
        assert next_of(lines) == [(Place(4, 99), b"one"), (Place(5, 99), b"two")]
        os.write(writing, b"ree")
        os.close(writing)
        assert [found for found in lines if found] == [[(Place(6, 99), b"three")]]


def test_standard_input_can_be_stopped_while_nothing_comes() -> None:
    reading, writing = os.pipe()
    is_stopped = threading.Event()
    timer = threading.Timer(0.2, is_stopped.set)
    timer.start()
    with os.fdopen(reading, "rb") as file:
        assert not any(standard_input(file, Place(), is_stopped.is_set))
    os.close(writing)


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hushrec.runtime.lines._LONGEST_LINE", 10)
    path = tmp_path / "events"
    path.write_bytes(b"one\n" + b"x" * 20)
    with pytest.raises(HushrecError, match="line 2 does not end"):
        list(followed(path, Place(), True, never, is_event))
