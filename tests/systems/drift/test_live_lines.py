"""Lines of live sources: what they say, and bad ones."""

import pytest

from hushrec.errors import HushrecError
from hushrec.systems.drift.live_lines import Change, Event, parse


def test_events_and_changes_are_read() -> None:
    assert parse(b'{"user": "u", "item": 7, "positive": true, "time": 3, "more": []}') == Event("u", "7", True)
    assert parse(b'{"user": 1, "item": "i", "positive": 0}') == Event("1", "i", False)
    assert parse(b'{"owner": "shop", "adds": ["a", 2]}') == Change("shop", adds=("a", "2"))
    assert parse(b'{"owner": "shop", "adds": ["a"], "drops": ["b"]}') == Change("shop", ("a",), ("b",))
    assert parse('{"owner": "é", "leaves": true}'.encode()) == Change("é", leaves=True)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"secret",
        b"[]",
        b'{"user": "secret", "item": "i"}',
        b'{"user": "secret", "positive": true}',
        b'{"user": "secret", "item": "i", "positive": "yes"}',
        b'{"user": "secret", "item": "i", "positive": 2}',
        b'{"user": 1.5, "item": "secret", "positive": true}',
        b'{"user": "", "item": "secret", "positive": true}',
        b'{"user": "secret", "item": "i", "positive": true, "owner": "shop"}',
        b'{"owner": "secret"}',
        b'{"owner": "secret", "adds": []}',
        b'{"owner": "secret", "adds": ["a"], "leaves": true}',
        b'{"owner": "secret", "adds": [""]}',
        b'{"user": "secret\xff", "item": "i", "positive": true}',
        b'{"user": "secret", "item": "i", "positive": true} {}',
    ],
)
def test_a_bad_line_is_refused_in_one_line_that_does_not_repeat_it(line: bytes) -> None:
    with pytest.raises(HushrecError) as error:
        parse(line)
    assert "secret" not in str(error.value)
    assert "write {" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_line_that_is_nested_too_deep_is_bad() -> None:
    deep = b'{"user": "u", "item": "i", "positive": true, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(HushrecError, match="not as expected; write"):
        parse(deep)
