"""What came of a search: its trials, the best of them, and how to have it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from hushrec.errors import HushrecError
from hushrec.estimators import estimator_named
from hushrec.recommender import Recommender
from hushrec.tables import Tabular
from hushrec.tuning.bench import Outcome
from hushrec.tuning.measures import is_small_good

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Row:
    """A finished trial."""

    number: int  # 0: the default
    settings: dict[str, Any]  # of those that are searched
    outcome: Outcome

    @property
    def state(self) -> State:
        """Whether it was trained to its end."""
        if self.outcome.fault:
            return "failed"
        return "pruned" if self.outcome.is_pruned else "complete"

    @property
    def measured(self) -> dict[str, float]:
        """The measures, if it is complete."""
        return self.outcome.measured


@dataclass(frozen=True)
class Tuned(Tabular):
    """All trials of a search, which become a frame when it is asked.

    `best_settings` and `best` are of the trial with the best first measure, of several that of the front.
    """

    system: str
    measures: tuple[str, ...]
    values: dict[str, Any]  # settings that were not searched: named, or chosen by the data
    rows: tuple[Row, ...]
    seed: int = 0  # of all of them

    @property
    def default(self) -> Row | None:
        """The trial with the settings as they are by default."""
        return next((row for row in self.rows if row.number == 0), None)

    @cached_property
    def best_row(self) -> Row:
        """The trial with the best first measure; the earliest of equals."""
        done = [row for row in self.rows if row.measured]
        if not done:
            faults = [row.outcome.fault for row in self.rows if row.outcome.fault]
            raise HushrecError(f"no trial could be measured{f'; the last: {faults[-1]}' if faults else ''}")
        return min(self.front if len(self.measures) > 1 else done, key=lambda row: self._costs(row)[0])

    @cached_property
    def front(self) -> list[Row]:
        """The trials of which no other is as good in all measures and better in one, by the first measure."""
        done = [row for row in self.rows if row.measured]
        costs = [self._costs(row) for row in done]
        kept = [
            row for row, own in zip(done, costs, strict=True) if not any(_dominates(other, own) for other in costs)
        ]
        return sorted(kept, key=self._costs)

    def _costs(self, row: Row) -> tuple[float, ...]:
        """The measures with such signs that less is better."""
        return tuple(row.measured[name] * (1 if is_small_good(name) else -1) for name in self.measures)

    @property
    def best_settings(self) -> dict[str, Any]:
        """The settings of the best trial: those that were found, and those that were given."""
        return {**self.values, **self.best_row.settings}

    @property
    def best(self) -> Recommender:
        """An estimator with the best settings, to be fitted."""
        return estimator_named(self.system)(seed=self.seed, **self.best_settings)

    def to_arrow(self) -> pa.Table:
        """A row per trial: its number, state, measures, settings, seconds of CPU, and why it failed."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.settings))
        columns: dict[str, Sequence[Any]] = {
            "trial": [row.number for row in self.rows],
            "state": [row.state for row in self.rows],
            **{name: [row.measured.get(name) for row in self.rows] for name in self.measures},
            **{name: [row.settings.get(name) for row in self.rows] for name in names},
            "seconds": [row.outcome.seconds for row in self.rows],
            "fault": [row.outcome.fault or None for row in self.rows],
        }
        return pa.table(columns)

    def described(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {
            "system": self.system,
            "measures": list(self.measures),
            "settings": self.values,
            "trials": [_described(row) for row in self.rows],
            "best": _described(self.best_row),
            "best_settings": self.best_settings,
            **({"front": [row.number for row in self.front]} if len(self.measures) > 1 else {}),
        }


def _described(row: Row) -> dict[str, Any]:
    return {
        "trial": row.number,
        "state": row.state,
        "measured": row.measured,
        "settings": row.settings,
        "seconds": row.outcome.seconds,
        **({"fault": row.outcome.fault} if row.outcome.fault else {}),
    }


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(own <= theirs for own, theirs in zip(one, other, strict=True))
