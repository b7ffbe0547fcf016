"""The errors that a user is meant to see."""


class HushrecError(Exception):
    """Bad input or an impossible wish. The message is one line that says what to do; exit code 2."""


class NewcomerError(HushrecError):
    """A model that knows only those whom it was trained with."""


class PublicError(HushrecError):
    """An error whose words name nothing private: a node may send them to the server."""


class DivergedError(PublicError):
    """A number that is not finite or far too large: the training diverges."""


class MissingExtraError(HushrecError):
    """A package is not installed without which a part of hushrec does not work: one of its extras."""


# What is large, on the disk (Linux, Python 3.11).
_SIZES = {
    "neural": " (5.4 GB; 0.75 GB if you first pip install torch --index-url https://download.pytorch.org/whl/cpu)"
}


def how_to_install(extra: str) -> str:
    """The command for an extra, which is given in the folder of the project: it is on no index."""
    return f"pip install '.[{extra}]' in the clone of hushrec{_SIZES.get(extra, '')}"


class LostForGoodError(HushrecError):
    """What a run cannot go on without is lost or damaged: to try again is useless."""
