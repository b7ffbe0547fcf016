"""The one kind of error that a user is meant to see."""


class HushrecError(Exception):
    """Bad input or an impossible wish. The message is one line that says what to do; exit code 2."""
