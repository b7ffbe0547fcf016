"""The one policy of rounding: what its docstring promises is so, at the borders too."""

import ast
import doctest
import re
from pathlib import Path

import pytest

import hushrec
from hushrec.report import numbers
from hushrec.report.numbers import (
    format_bytes,
    format_difference,
    format_given,
    format_metric,
    format_number,
    format_seconds,
    format_share,
    format_spread,
)

SOURCE = Path(hushrec.__file__).parent


def test_the_examples_hold() -> None:
    found = doctest.testmod(numbers)
    assert found.attempted >= 6
    assert found.failed == 0


PATHS = [
    path
    for room in ("cli", "report")
    for path in sorted((SOURCE / room).rglob("*.py"))
    if path.name != "numbers.py"
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nobody_rounds_by_hand(path: Path) -> None:
    """But for the labels of a histogram, which are keys in JSON and stay as they are."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [text for text in texts if re.fullmatch(r"[#+,]*\.\d+[efg%]|[^{]*%\.\d+[efg][^}]*", text)]
    assert found == ([".2g", ".2g"] if path.parts[-2:] == ("work", "data.py") else [])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (0.2, "0.2 B"),
        (999.4, "999 B"),
        (999.6, "1.00 KB"),
        (1000, "1.00 KB"),
        (12345, "12.3 KB"),
        (999_499, "999 KB"),
        (999_500, "1.00 MB"),
        (2.5e15, "2.50 PB"),
        (12e18, "12,000 PB"),
    ],
)
def test_bytes_have_three_digits(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.994, "9.99"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"), (-0.5, "-0.500"), (1234.5, "1,234")],
)
def test_other_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (-0.002, "-2.00 ms"),
        (599.4, "599 s"),
        (600, "10.0 min"),
    ],
)
def test_times_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_metrics_have_four_decimals_and_shares_are_per_cent() -> None:
    assert format_spread(0.94236, 0.00645) == "0.9424 ± 0.0065"
    assert format_spread(0.5, None) == format_metric(0.5) == "0.5000"
    assert format_difference(-0.00004) == "-0.0000"
    assert format_share(1) == "100%"
    assert format_share(1 / 3) == "33.3%"


def test_what_was_given_stands_as_it_is() -> None:
    assert [format_given(value) for value in (0.001, 1e-5, 5.0, 0.1234567)] == ["0.001", "1e-05", "5", "0.123457"]
