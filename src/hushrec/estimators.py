"""The estimators: a class for each system, and fitted ones from the folders of runs."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from hushrec.protocol import AnySystem
from hushrec.recommender import Recommender
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import Side, load_fold
from hushrec.runs.record import read_run
from hushrec.runs.signatures import docstring_of, keywords_of
from hushrec.settings import to_dict

# How many raters an item needed in lists of older runs, which did not say.
_OLDER_MIN_RATERS = 10


def estimator(system: AnySystem) -> type[Recommender]:
    """The class of a system: its settings are the keyword arguments, its docstring tells what they mean."""
    shared = list(inspect.signature(Recommender).parameters.values())[:-1]  # all but **settings
    members = {
        "system": system,
        "__signature__": inspect.Signature([*keywords_of(system), *shared]),
        "__doc__": docstring_of(system),
        "__module__": "hushrec",
    }
    return type(system.about.class_name, (Recommender,), members)


@cache
def estimator_named(system_name: str) -> type[Recommender]:
    """The class of the system of this name: always the same."""
    return estimator(SYSTEMS[system_name])


class _Estimators(Mapping[str, type[Recommender]]):
    """The estimators, by the names of their classes. Those of other packages are looked at last, if at all."""

    def __getitem__(self, class_name: str) -> type[Recommender]:
        ours = ((name, SYSTEMS[name]) for name in SYSTEMS if SYSTEMS.is_built_in(name))
        for systems in (ours, _usable()):
            for name, system in systems:
                if system.about.class_name == class_name:
                    return estimator_named(name)
        raise KeyError(class_name)

    def __iter__(self) -> Iterator[str]:
        return (system.about.class_name for _, system in _usable())

    def __len__(self) -> int:
        return len(list(_usable()))


def _usable() -> Iterator[tuple[str, AnySystem]]:
    yield from SYSTEMS.items()  # not before it is asked for: it loads them all


ESTIMATORS = _Estimators()


def load_run(path: str | Path, fold: int | None = None, side: Side | None = None) -> Recommender:
    """A fitted recommender from a run's folder (its first fold, unless told).

    Where server and clients have models of their own, `side` says whose; the server's, unless told.
    """
    job, progress = load_fold(Path(path), fold, side)
    recommender = estimator_named(job.system.name)(seed=job.seed, **to_dict(job.config))
    recommender._fitted = job, progress
    min_raters = read_run(Path(path)).provenance.min_raters
    recommender._min_raters = _OLDER_MIN_RATERS if min_raters is None else min_raters
    return recommender
