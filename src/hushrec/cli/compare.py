"""stub until written."""


def compare() -> None:
    """Stub."""
