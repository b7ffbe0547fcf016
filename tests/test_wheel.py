"""The wheel and the source archive: what is in them, and that they work in an environment of their own."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

import hushrec

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SMALL = "synthetic:users=80,items=50,ratings=1500"


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hushrec.__version__"}
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited == [hushrec.__version__]
    assert f"## {hushrec.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_all_is_every_extra_but_those_that_cannot_be_together() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (named,) = extras["all"]
    names = set(named.removeprefix("hushrec[").removesuffix("]").split(","))
    assert names == set(extras) - {"all", "dev", "docs", "flower"}


def test_supported_pythons_are_said_once() -> None:
    project = PROJECT["project"]
    told = re.findall(r":: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    ((low, high),) = re.findall(r"^>=3\.(\d+),<3\.(\d+)$", project["requires-python"])
    assert told == [f"3.{minor}" for minor in range(int(low), int(high))]


def uses_blas(kernel: ast.FunctionDef) -> bool:
    products = [node for node in ast.walk(kernel) if isinstance(node, ast.MatMult)]
    names = [ast.unparse(node) for node in ast.walk(kernel) if isinstance(node, ast.Attribute)]
    return bool(products) or any(name.startswith(("np.dot", "np.vdot", "np.linalg")) for name in names)


def test_the_core_does_without_scipy() -> None:
    """It is in extras only. Numba takes matrix products in kernels from it, and says so only when one is run."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kernels = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and any("njit" in ast.unparse(one) for one in node.decorator_list)
        ]
        assert [kernel.name for kernel in kernels if uses_blas(kernel)] == [], path
        at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        loaded = {ast.unparse(node).split()[1].partition(".")[0] for node in at_once}
        assert "scipy" not in loaded, path


# --- What is built -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, and the wheel that is built from it."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def wheel_in(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_all_that_the_source_has(dist: Path) -> None:
    with zipfile.ZipFile(wheel_in(dist)) as archive:
        inside = {name for name in archive.namelist() if name.startswith("hushrec/")}
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        told = message_from_bytes(archive.read(name))
        scripts = [one for one in archive.namelist() if one.endswith(".data/scripts/hushrec")]
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    kept = {line.removeprefix("src/") for line in tracked.splitlines()}
    assert {name for name in kept if (ROOT / "src" / name).exists()} - inside == set()
    assert "hushrec/py.typed" in inside
    assert not [one for one in inside if one.endswith((".nbi", ".nbc", ".pyc"))]
    assert scripts
    assert told["Version"] == hushrec.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told.get_all("Project-URL")
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert "all" in told.get_all("Provides-Extra", [])


@pytest.mark.slow
def test_the_source_archive_has_what_is_needed_to_test_it(dist: Path) -> None:
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "bin/hushrec",
        "setup.py",
        "Makefile",
        "constraints.txt",
        "docs/cli.md",
        "tests/test_wheel.py",
        "LICENSE",
    }
    assert wanted <= names


# --- What is installed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment with the wheel and nothing that it does not ask for."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", f"{wheel_in(dist)}"], check=True)
    return folder / "bin"


def call(bin: Path, place: Path, *words: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    """A command outside of the clone, without its source, data or network."""
    hidden = ("PYTHONPATH", "HUSHREC_DATA", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "PIP_NO_INDEX": "1"}
    variables |= {
        "PATH": f"{bin}:/usr/bin:/bin",
        "HOME": str(place),
        "XDG_CACHE_HOME": str(place / "cache"),
        **nowhere,
    }
    done = subprocess.run([bin / words[0], *words[1:]], cwd=place, env=variables, capture_output=True, text=True)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_the_wheel_runs_outside_of_the_clone(installed: Path, tmp_path: Path) -> None:
    """Version, systems, a run, recommendations, an audit, a card, an export: with no extra at all."""
    assert call(installed, tmp_path, "hushrec", "--version").stdout == f"hushrec {hushrec.__version__}\n"
    where = call(installed, tmp_path, "python", "-c", "import hushrec; print(hushrec.__file__)").stdout
    assert where.startswith(str(installed.parent))
    assert "fedrec++" in call(installed, tmp_path, "hushrec", "systems").stdout
    run = ["run", "fedrec++", "--data", SMALL, "--preset", "paper", "--rounds", "5", "--no-baselines", "--json"]
    told: dict[str, Any] = json.loads(call(installed, tmp_path, "hushrec", *run, "--out", "one").stdout)
    assert told["mean"]["RMSE"] > 0
    assert "score" in call(installed, tmp_path, "hushrec", "recommend", "one", "--user", "1", "-k", "3").stdout
    assert "server" in call(installed, tmp_path, "hushrec", "audit", "one").stdout
    assert call(installed, tmp_path, "hushrec", "card", "one").stdout.startswith("# Model card: fedrec++")
    call(installed, tmp_path, "hushrec", "export", "one", "--to", "out")
    assert (tmp_path / "out" / "items.arrow").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["report", "one"],
        ["run", "fedrec", "--data", SMALL, "--track", "mlflow"],
        ["export", "one", "--to", "onnx", "--format", "onnx"],
        ["serve", "one"],
        ["tune", "pmf", "--data", SMALL, "--out", "tuned"],
        ["run", "fedmf", "--data", SMALL, "--rounds", "1"],
    ],
    ids=lambda words: words[0],
)
def test_what_an_extra_is_missing_for_says_so(installed: Path, tmp_path: Path, words: list[str]) -> None:
    run = [
        "run",
        "fedrec",
        "--data",
        SMALL,
        "--preset",
        "paper",
        "--rounds",
        "2",
        "--no-baselines",
        "--out",
        "one",
    ]
    call(installed, tmp_path, "hushrec", *run)
    told = call(installed, tmp_path, "hushrec", *words, exit_code=2).stderr
    assert len([line for line in told.splitlines() if line.startswith("hushrec: ")]) == 1
    assert "install it with: pip install" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(installed: Path, dist: Path, tmp_path: Path) -> None:
    """With no network and no data: synthetic, labelled, up to a report."""
    pip = [installed / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", f"{wheel_in(dist)}[report]"], check=True)
    done = call(installed, tmp_path, "hushrec", "demo", "--out", "shown")
    assert "(SYNTHETIC, made by a generator)" in done.stdout
    assert "identical to the last bit: yes" in done.stdout
    assert done.stdout.splitlines()[-1] == "report: shown/report.html"
    assert "FedRec++" in (tmp_path / "shown" / "report.html").read_text(encoding="utf-8")
