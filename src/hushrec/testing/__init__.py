"""Tests that every system must pass, for systems of other packages, too. Needs pytest.

>>> from hushrec.testing import SystemContract
>>> class TestToy(SystemContract):
...     system = "toy"
"""

try:
    import pytest
except ImportError:
    raise ImportError("hushrec.testing needs pytest: pip install pytest") from None

pytest.register_assert_rewrite("hushrec.testing.contract", "hushrec.testing.checks")

from hushrec.testing.contract import SystemContract  # noqa: E402, pytest must know of it first

__all__ = ["SystemContract"]
