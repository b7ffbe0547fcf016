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


# What an extra takes on the disk with all that it needs, as measured on Linux, Python 3.11.
_SIZES = {
    "report": "98 MB",
    "baselines": "154 MB",
    "dp": "152 MB",
    "deploy": "107 MB",
    "flower": "165 MB",
}


def how_to_install(extra: str) -> str:
    """The command for an extra, which is given in the folder of the project: it is on no index."""
    size = _SIZES.get(extra, "less than 30 MB")
    return f"pip install '.[{extra}]' in the clone of hushrec ({size})"


class LostForGoodError(HushrecError):
    """What a run cannot go on without is lost or damaged: to try again is useless."""
