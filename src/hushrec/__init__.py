"""hushrec: federated recommender systems. Run them, measure them, use them, from one implementation.

>>> import hushrec
>>> data = hushrec.load("synthetic:users=60,items=40,ratings=900")
>>> split = next(hushrec.k_folds(data))
>>> model = hushrec.FedRecPlusPlus(rho=3, denoisers=2, num_rounds=5).fit(split.train)
>>> sorted(model.evaluate(split.test))[:2]
['HR@10', 'MAE']
"""

from importlib import import_module
from typing import Any

from hushrec.data import (
    Interactions,
    k_folds,
    latest_share,
    leave_one_out,
    load,
    random_share,
    read,
    synthetic,
)
from hushrec.errors import HushrecError
from hushrec.recommender import ESTIMATORS, Recommender, load_run
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions

__version__ = "0.1.0"

__all__ = [
    "SYSTEMS",
    "HushrecError",
    "Interactions",
    "Recommender",
    "RuntimeOptions",
    "k_folds",
    "latest_share",
    "leave_one_out",
    "load",
    "load_run",
    "random_share",
    "read",
    "synthetic",
    "tune",
]


def __getattr__(name: str) -> Any:
    """`tune`, and every system's class: `hushrec.FedRec`, and those of systems that other packages bring."""
    if name == "tune":  # few need it, and it takes its time to load
        return import_module("hushrec.tuning").tune
    if name[:1].isupper() and name in ESTIMATORS:  # to look for a module loads no system
        return ESTIMATORS[name]
    raise AttributeError(f"module 'hushrec' has no attribute {name!r}; see `hushrec systems`")


def __dir__() -> list[str]:
    return sorted([*__all__, *ESTIMATORS])
