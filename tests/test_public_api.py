import doctest
import inspect
import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import hushrec

HEAVY = {"torch", "matplotlib", "tenseal", "sklearn", "pandas"}


def test_the_names_are_these() -> None:
    """Users rely on them: a name that goes or comes is a change to write down."""
    assert hushrec.__all__ == [
        "DRIFT",
        "FCF",
        "NGCF",
        "PMF",
        "SAROS",
        "SDCF",
        "SYSTEMS",
        "Average",
        "FedCORE",
        "FedMF",
        "FedRec",
        "FedRecPlusPlus",
        "HushrecError",
        "Interactions",
        "LightGCN",
        "MetaMF",
        "NeuCF",
        "NeuMF",
        "PTFFedRec",
        "RuntimeOptions",
        "SDCFDenoised",
        "k_folds",
        "latest_share",
        "leave_one_out",
        "load",
        "load_run",
        "random_share",
        "read",
        "synthetic",
    ]
    assert len(set(hushrec.__all__)) == len(hushrec.__all__)


@pytest.mark.parametrize("name", [name for name in hushrec.__all__ if name != "SYSTEMS"])
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
    code = "import sys, json, hushrec, hushrec.cli.app; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "numpy" in loaded
    assert not loaded & HEAVY
    assert done.stderr == ""
