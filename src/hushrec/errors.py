"""The errors that a user is meant to see, and how they name settings: as options, or as arguments in Python."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_face = {"is_typed": False}  # whether whoever reads the messages of this process types commands


@contextmanager
def naming_options() -> Iterator[None]:
    """Have messages name settings as they are typed. The command line does so while a command runs."""
    before, _face["is_typed"] = _face["is_typed"], True
    try:
        yield
    finally:
        _face["is_typed"] = before


def is_typed() -> bool:
    """Whether errors are read on the command line, not in Python."""
    return _face["is_typed"]


def option(name: str, value: object = None) -> str:
    """A setting as its user writes it: `--num-factors 5` on the command line, `num_factors=5` in Python.

    >>> option("num_factors", 5), option("filling", "none"), option("rho")
    ('num_factors=5', "filling='none'", 'rho=')
    >>> with naming_options():
    ...     option("num_factors", 5), option("stop_early", False), option("layers", (8, 4)), option("rho")
    ('--num-factors 5', '--no-stop-early', '--layers 8,4', '--rho')
    """
    if not _face["is_typed"]:
        return f"{name}=" if value is None else f"{name}={value!r}"
    flag = name.removeprefix("num_") if name == "num_rounds" else name.replace("_", "-")
    if value is None or isinstance(value, bool):
        return f"--no-{flag}" if value is False else f"--{flag}"
    return f"--{flag} {','.join(map(str, value)) if isinstance(value, tuple | list) else value}"


class HushrecError(Exception):
    """Bad input or an impossible wish. The message is one line that says what to do; exit code 2."""

    def __str__(self) -> str:
        return " ".join(super().__str__().splitlines())  # ids and names of columns may hold the end of a line


class NewcomerError(HushrecError):
    """A model that knows only those whom it was trained with."""


class PublicError(HushrecError):
    """An error whose words name nothing private: a node may send them to the server."""


class NotAsOrderedError(HushrecError):
    """A node's files do not fit an order. `for_log` says so without a word of what is in them.

    It is for the node's own log. The server is not told: by orders of many kinds it could ask for single items.
    """

    def __init__(self, message: str, for_log: str) -> None:
        super().__init__(message)
        self.for_log = for_log


class DivergedError(PublicError):
    """A number that is not finite or far too large: the training diverges."""


class ModelDivergedError(DivergedError):
    """A model that came to be of no use, whatever the data of those it came to: a node may say so each time."""


class OutOfRangeError(DivergedError):
    """Numbers that cannot be added up. Who sends such is at fault: an honest party says that it diverges."""


class MadeUpError(OutOfRangeError):
    """Numbers that an honest party never sends, whatever mail it got: it looks at them before it sends them."""


class FaultyPartyError(HushrecError):
    """Parties sent what they should not have. It was found when all replies were in; `numbers` says who it was."""

    def __init__(self, message: str, numbers: Iterable[int]) -> None:
        super().__init__(message)
        self.numbers = tuple(numbers)


class MissingExtraError(HushrecError):
    """A package is not installed without which a part of hushrec does not work: one of its extras."""


# What is large, on the disk (Linux, Python 3.11); tools/install_sizes.py measures it.
_SIZES = {
    "report": "98 MB",
    "baselines": "154 MB",
    "dp": "152 MB",
    "deploy": "107 MB",
    "flower": "165 MB",
    "mlflow": "108 MB",
    "tensorboard": "87 MB",
    "wandb": "83 MB",
    "trackio": "91 MB",
}


def how_to_install(extra: str) -> str:
    """The command for an extra, which is given in the folder of the project: it is on no index."""
    size = f" ({_SIZES[extra]})" if extra in _SIZES else ""
    return f"pip install '.[{extra}]' in the clone of hushrec{size}"


class LostForGoodError(HushrecError):
    """What a run cannot go on without is lost or damaged: to try again is useless."""
