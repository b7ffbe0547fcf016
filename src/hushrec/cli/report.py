"""stub until written."""


def report() -> None:
    """Stub."""
