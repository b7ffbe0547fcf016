"""Runs in Trackio: a local database that its dashboard reads."""

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

from hushrec.errors import HushrecError, option
from hushrec.handover.public import Told
from hushrec.handover.tracking import PROJECT, Ending

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
        self._last: int | None = None

    def begin(self, known: str | None, name: str, settings: Mapping[str, Told]) -> str:
        """Open a run under a name of its own, or the known one again."""
        number = known or f"{name.replace(' ', '-')}-{uuid4().hex[:8]}"
        with redirect_stdout(sys.stderr):
            self._run = self._trackio.init(
                project=PROJECT, name=number, config=dict(settings), resume="allow", embed=False,
                auto_log_cpu=False, auto_log_gpu=False,
            )  # fmt: skip
        from trackio.sqlite_storage import SQLiteStorage

        self._last = SQLiteStorage.get_max_step_for_run(PROJECT, number) if known else None
        return number

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        """One row; a round that was told before a run was killed is not told again."""
        if self._last is None or step > self._last:
            self._run.log(dict(values), step=step)

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: Ending) -> None:
        """Results as the last row."""
        self._run.log({**values, **digests, "ending": ending})
        with redirect_stdout(sys.stderr):
            self._run.finish()
