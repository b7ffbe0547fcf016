"""Runs in MLflow: a local store, or the server that MLFLOW_TRACKING_URI or the place names."""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from hushrec.handover.public import Told
from hushrec.handover.tracking import PROJECT, Ending, KnownRounds

_USUAL = "mlflow.db"
_MOST_AT_ONCE = 100  # parameters of one call
_STATUS: dict[Ending, str] = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

Entry = TypeVar("Entry")


# Before it is loaded: no word of its use to its makers, and none on its tables to people.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")


class MLflow:
    """The run of one tracker."""

    def __init__(self, place: str | None) -> None:
        """`place`: an address as MLflow takes it, or a file for its database."""
        from mlflow import MlflowClient

        told = place or os.environ.get("MLFLOW_TRACKING_URI") or _USUAL
        self.place = told if "://" in told or told.startswith("file:") else f"sqlite:///{Path(told).absolute()}"
        self._client = MlflowClient(tracking_uri=self.place)
        self._id = ""
        self._known = KnownRounds()

    def begin(self, known: str | None, name: str, settings: Mapping[str, Told]) -> str:
        """Open a run, or the known one again, whose last step is looked up."""
        from mlflow.entities import Param

        if known is not None:
            self._id = known
            self._client.update_run(known, status="RUNNING")
            self._known = KnownRounds(self._last_of)
            return known
        experiment = self._client.get_experiment_by_name(PROJECT)
        number = experiment.experiment_id if experiment else self._client.create_experiment(PROJECT)
        self._id, self._known = self._client.create_run(number, run_name=name).info.run_id, KnownRounds()
        for some in _parts([Param(key, str(value)) for key, value in settings.items()]):
            self._client.log_batch(self._id, params=some)
        return str(self._id)

    def _last_of(self, metric: str) -> int | None:
        return max((one.step for one in self._client.get_metric_history(self._id, metric)), default=None)

    def tell(self, step: int, values: Mapping[str, float], order: int) -> None:
        """One call."""
        if not self._known.has(step, values):
            self._log(values, step)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, [Metric(key, value, now, step) for key, value in values.items()])

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: Ending) -> None:
        """Results as metrics, digests as tags."""
        if values:
            self._log(values, 0)
        for key, value in digests.items():
            self._client.set_tag(self._id, key, value)
        self._client.set_terminated(self._id, status=_STATUS[ending])


def _parts(entries: list[Entry]) -> Iterator[list[Entry]]:
    for first in range(0, len(entries), _MOST_AT_ONCE):
        yield entries[first : first + _MOST_AT_ONCE]
