"""Runs in Trackio: a local database that its dashboard reads."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

from hushrec.errors import HushrecError, option
from hushrec.handover.public import Told
from hushrec.handover.tracking import PROJECT, Ending, KnownRounds

_PLACE = "TRACKIO_DIR"


class Trackio:
    """The run of one tracker, in a local database."""

    def __init__(self, place: str | None) -> None:
        """`place`: the folder of the database; Trackio reads where it is once, when it is loaded."""
        if place is not None and "trackio" not in sys.modules:
            os.environ[_PLACE] = str(Path(place).absolute())
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else it asks who the user is, where a token lies about
        import trackio
        from trackio.utils import TRACKIO_DIR

        if place is not None and Path(place).absolute() != TRACKIO_DIR:
            raise HushrecError(
                f"trackio keeps runs in {TRACKIO_DIR} in this process; leave the place in "
                f"{option('track', f'trackio={place}')} out, or start anew"
            )
        self._trackio = trackio
        self.place = str(TRACKIO_DIR)
        self._run: Any = None
        self._known = KnownRounds()

    def begin(self, known: str | None, name: str, settings: Mapping[str, Told]) -> str:
        """Open a run under a name of its own, or the known one again."""
        number = known or f"{name.replace(' ', '-')}-{uuid4().hex[:8]}"
        with redirect_stdout(sys.stderr):
            self._run = self._trackio.init(
                project=PROJECT, name=number, config=dict(settings), resume="allow", embed=False,
                auto_log_cpu=False, auto_log_gpu=False,
            )  # fmt: skip
        self._known = KnownRounds(None if known is None else _last_step_of(number))
        return number

    def tell(self, step: int, values: Mapping[str, float], order: int) -> None:
        """One row."""
        if not self._known.has(step, values):
            self._run.log(dict(values), step=step)

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: Ending) -> None:
        """Results as the last row."""
        self._run.log({**values, **digests, "ending": ending})
        with redirect_stdout(sys.stderr):
            self._run.finish()


def _last_step_of(name: str) -> Callable[[str], int | None]:
    """Looks up the last round that the database has of a run."""
    from trackio.sqlite_storage import SQLiteStorage

    rows = SQLiteStorage.get_logs(PROJECT, name)
    return lambda metric: max((row["step"] for row in rows if metric in row), default=None)
