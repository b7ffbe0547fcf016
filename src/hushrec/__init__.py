"""hushrec: federated recommender systems. Run them, measure them, use them, from one implementation.

>>> import hushrec
>>> data = hushrec.load("synthetic:users=60,items=40,ratings=900")
>>> split = next(hushrec.k_folds(data))
>>> model = hushrec.FedRecPlusPlus(rho=3, denoisers=2, num_rounds=5).fit(split.train)
>>> sorted(model.evaluate(split.test))[:2]
['HR@10', 'MAE']
"""

TYPE_CHECKING = False  # as type checkers read it; to import `typing` takes long, before Ctrl-C is heeded
if TYPE_CHECKING:
    from typing import Any

    from hushrec._estimators import *  # noqa: F403  # made by tools/stubs.py
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
    from hushrec.estimators import load_run
    from hushrec.recommender import Recommender
    from hushrec.registry import SYSTEMS
    from hushrec.runtime.in_process import RuntimeOptions
    from hushrec.tuning import tune
    from hushrec.workbench import audit, compare, report

__version__ = "0.1.0"

__all__ = [
    "SYSTEMS",
    "HushrecError",
    "Interactions",
    "Recommender",
    "RuntimeOptions",
    "audit",
    "compare",
    "k_folds",
    "latest_share",
    "leave_one_out",
    "load",
    "load_run",
    "random_share",
    "read",
    "report",
    "synthetic",
    "tune",
]


# Where each name is: nothing is loaded before it is asked for, so that a command starts, and ends, at once. A part
# of the library that is called by its own name has no place.
_PLACES = {
    "SYSTEMS": "hushrec.registry",
    "HushrecError": "hushrec.errors",
    "Recommender": "hushrec.recommender",
    "RuntimeOptions": "hushrec.runtime.in_process",
    "audit": None,
    "compare": "hushrec.workbench",
    "load_run": "hushrec.estimators",
    "report": None,
    "tune": "hushrec.tuning",
}


def __getattr__(name: str) -> "Any":
    """The names of the list above, parts of the library, and every system's class: `hushrec.FedRec`."""
    from importlib import import_module
    from importlib.util import find_spec

    if name in __all__:
        place = _PLACES.get(name, "hushrec.data")
        return getattr(import_module(place), name) if place else import_module(f"hushrec.{name}")
    if name[:1].isupper():  # to look for a module loads no system
        from hushrec.estimators import ESTIMATORS

        if name in ESTIMATORS:
            return ESTIMATORS[name]
    elif find_spec(f"hushrec.{name}"):
        return import_module(f"hushrec.{name}")
    raise AttributeError(f"module 'hushrec' has no attribute {name!r}; see `hushrec systems`")


def __dir__() -> list[str]:
    from hushrec.estimators import ESTIMATORS

    return sorted([*__all__, *ESTIMATORS])
