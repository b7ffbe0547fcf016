"""The toy keeps the contract of every system."""

from hushrec.testing import SystemContract


class TestToy(SystemContract):
    """All tests are inherited."""

    system = "toy"
