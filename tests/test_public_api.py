import doctest
import inspect
import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import hushrec
from hushrec.estimators import ESTIMATORS

HEAVY = {
    *("numba", "numpy", "pyarrow", "scipy", "torch", "matplotlib", "tenseal"),
    *("sklearn", "pandas", "polars", "narwhals", "IPython"),
}


def test_the_names_are_these() -> None:
    """Users rely on them: a name that goes or comes is a change to write down."""
    assert hushrec.__all__ == [
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
    assert len(set(hushrec.__all__)) == len(hushrec.__all__)


def test_systems_have_classes_under_names_that_stay() -> None:
    """The same holds for them; a new system adds one."""
    promised = {
        "DRIFT", "FCF", "NGCF", "PMF", "SAROS", "SDCF", "Average", "FedCORE", "FedMF", "FedRec", "FedRecBPR",
        "FedRecPlusPlus", "LightGCN", "MetaMF", "NeuCF", "NeuMF", "PTFFedRec", "SDCFDenoised",
    }  # fmt: skip
    assert promised <= set(ESTIMATORS)
    assert dir(hushrec) == sorted([*hushrec.__all__, *ESTIMATORS])


def test_a_class_is_imported_by_its_name_and_nothing_else_is() -> None:
    from hushrec import FedRecPlusPlus

    assert FedRecPlusPlus is hushrec.FedRecPlusPlus
    for name in ("FedRecMinusMinus", "fedrec", "_FedRec"):
        with pytest.raises(AttributeError, match=rf"module 'hushrec' has no attribute '{name}'; see"):
            getattr(hushrec, name)


def test_to_look_for_a_class_loads_no_system_behind_it() -> None:
    """A package that brings a broken system does no harm to ours."""
    code = (
        "import sys, hushrec; from hushrec import settings; hushrec.FedRec; "
        "print(*[name for name in sys.modules if name.startswith('hushrec.systems.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"hushrec.systems.pmf", "hushrec.systems.fedrec"}


@pytest.mark.parametrize("name", [name for name in dir(hushrec) if name != "SYSTEMS"])
def test_every_name_is_documented(name: str) -> None:
    exported = getattr(hushrec, name)
    text = exported.__doc__ or ""
    assert text.strip().partition("\n")[0].endswith((".", ":")), f"{name} has no one-line summary"
    assert not text.startswith(f"{name}("), "that is what a dataclass says of itself"
    if inspect.isclass(exported) and not issubclass(exported, Exception):
        for method, function in inspect.getmembers(exported, inspect.isfunction):
            assert method.startswith("_") or inspect.getdoc(function), f"{name}.{method}"


def test_the_example_of_the_module_runs() -> None:
    result = doctest.testmod(hushrec)
    assert result.attempted == 5
    assert result.failed == 0


def test_the_version_is_the_distributions() -> None:
    assert hushrec.__version__ == version("hushrec")


def test_import_is_light() -> None:
    code = "import sys, json, hushrec, hushrec.cli.verbs; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & HEAVY
    assert done.stderr == ""
