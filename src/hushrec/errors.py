"""The errors that a user is meant to see."""


class HushrecError(Exception):
    """Bad input or an impossible wish. The message is one line that says what to do; exit code 2."""


class NewcomerError(HushrecError):
    """A model that knows only those whom it was trained with."""
