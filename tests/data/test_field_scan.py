import numpy as np
import pyarrow as pa
import pytest

from hushrec.data.arrow_columns import ids_of
from hushrec.data.field_scan import has_byte, has_leading_zeros, span_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2,0.5\n0,10,3\n", False),
        ("1,07,3\n", True),
        ("1, 07,3\n", True),
        ("00,1\n", True),
        ('"007",1\n', True),
        ("1,2\n-05,2\n", True),
        ("1,2,2024-01-05 00:00:00\n", False),
        ("1,10:05:00\n", False),
        ("1,100\n", False),
        ("0", False),
        ("", False),
    ],
)
def test_leading_zeros(text: str, expected: bool) -> None:
    """Only at the start of a field: zeros of dates and times do not count."""
    assert has_leading_zeros(np.frombuffer(text.encode(), np.uint8), ord(",")) == expected


def test_leading_zeros_are_found_wherever_they_are() -> None:
    text = b"12,34\n" * 50 + b"12,034\n" + b"12,34\n" * 50
    assert has_leading_zeros(np.frombuffer(text, np.uint8), ord(","))
    assert not has_leading_zeros(np.frombuffer(text.replace(b",034", b",304"), np.uint8), ord(","))


def test_numbers_equal_those_of_numpy() -> None:
    values = np.random.default_rng(1).integers(-50, 200, 3_000)
    assert span_of(values) == (values.min(), values.max())
    numbers, ids = ids_of(pa.chunked_array([values[:7], values[:0], values[7:]]), "user")
    expected_ids, expected = np.unique(values, return_inverse=True)
    assert ids.tolist() == expected_ids.tolist()
    assert numbers.tolist() == expected.tolist()


def test_bytes() -> None:
    content = np.frombuffer(b'user,"item"', np.uint8)
    assert has_byte(content, ord('"'))
    assert not has_byte(content, ord(";"))
