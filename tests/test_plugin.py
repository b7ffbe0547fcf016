"""A package of somebody else's adds a system, an attack and a data set, and is gone when it is uninstalled."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hushrec.testing as hushrec_testing
from hushrec.errors import HushrecError
from hushrec.plugins import Registry

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, as pip installs it: without a network, in a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "site", folder / "source"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / "site"


def python(folder: Path | None, *arguments: str | Path) -> str:
    """What a new process prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


class Ended(NamedTuple):
    """A command after its end."""

    code: int
    printed: str
    said: str


COMMANDS = """
import contextlib, io, json, sys
from hushrec.cli.app import main

ended = []
for command in sys.argv[1:]:
    out, err, code, sys.argv = io.StringIO(), io.StringIO(), 0, ["hushrec", *command.split()]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    ended.append((code or 0, out.getvalue(), err.getvalue()))
print(json.dumps(ended))
"""


def hushrec(folder: Path | None, *commands: str) -> list[Ended]:
    """Commands of a new process, one after another."""
    return [Ended(*ended) for ended in json.loads(python(folder, "-c", COMMANDS, *commands))]


def names_in(listing: Ended) -> list[str]:
    assert listing.code == 0, listing.said
    return [entry["name"] for entry in json.loads(listing.printed)]


def test_its_system_attack_and_data_set_are_there(installed: Path) -> None:
    ran, audited, systems, datasets, described, helped = hushrec(
        installed,
        "run toy --data toy-data --rounds 3 --json",
        "audit toy --data toy-data --rounds 3 --json",
        "systems --json",
        "data list --json",
        "data describe toy-data --json",
        "run --help",
    )
    assert ran.code == 0, ran.said
    assert json.loads(ran.printed)["system"] == "toy"
    assert audited.code == 0, audited.said
    found = {attack["name"]: attack["score"] for attack in json.loads(audited.printed)["attacks"]}
    assert found["toy-count"] == found["listed items"] == 1.0
    assert "toy" in names_in(systems)
    assert "toy-data" in names_in(datasets)
    sizes = json.loads(described.printed)
    assert (sizes["users"], sizes["items"], sizes["interactions"]) == (60, 40, 1200)
    assert "as small as a system can be" in helped.printed


def test_its_own_test_is_the_contract(installed: Path) -> None:
    tested = python(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", PLUGIN / "tests")
    assert tested.count(".") > 20
    assert "s" not in tested.splitlines()[0]


def test_without_pytest_the_contract_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytest", None)
    path = Path(hushrec_testing.__file__)
    with pytest.raises(ImportError, match=r"\Ahushrec.testing needs pytest: pip install pytest\Z"):
        exec(compile(path.read_text(), path, "exec"), {})


def test_it_has_an_estimator(installed: Path) -> None:
    assert "Toy" in python(installed, "-c", "import hushrec; print(hushrec.Toy(num_rounds=1))")


def test_uninstalled_it_is_gone() -> None:
    systems, datasets, *refused = hushrec(
        None, "systems --json", "data list --json", "run toy --data synthetic", "run pmf --data toy-data"
    )
    assert "toy" not in names_in(systems)
    assert "toy-data" not in names_in(datasets)
    for ended in refused:
        assert ended.code == 2
        assert "toy" in ended.said


def test_it_is_small() -> None:
    assert sum(map(_lines_of_code, PLUGIN.glob("*/*.py"))) < 150


def _lines_of_code(path: Path) -> int:
    """Lines that are neither empty nor of a comment or a docstring."""
    text, of_docs = path.read_text(), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            of_docs |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(number not in of_docs and bool(line.strip()) and line.strip()[0] != "#" for number, line in lines)


# --- Packages that are broken ------------------------------------------------------------------------------

BROKEN = {
    "bad_nowhere:SYSTEM": "No module named 'bad_nowhere'",
    "bad_module:NOTHING": "has no attribute 'NOTHING'",
    "bad_module:NUMBER": "bad_module:NUMBER is no System",
    "bad_module:SYSTEM": "bad_module:SYSTEM calls itself pmf",
    "bad_lines": "line 1 line 2",
    "bad_end": "SystemExit(3)",
}
"""Entry points that cannot be used, and what is wrong with them."""


def broken(folder: Path, place: str) -> Path:
    """A package with such entry points."""
    (folder / "bad_module.py").write_text("from hushrec.systems.pmf import SYSTEM as SYSTEM\nNUMBER = 7\n")
    (folder / "bad_lines.py").write_text("raise ValueError('line 1\\nline 2')\n")
    (folder / "bad_end.py").write_text("import sys\nsys.exit(3)\n")
    return package(folder, "bad-package", f"bad = {place}")


def package(folder: Path, name: str, entry: str) -> Path:
    """Adds a package with an entry point in each group."""
    about = folder / f"{name.replace('-', '_')}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    groups = [f"[hushrec.{group}]\n{entry}\n" for group in ("systems", "attacks", "datasets")]
    (about / "entry_points.txt").write_text("\n".join(groups))
    return folder


def test_a_name_that_is_taken_is_told_of_once_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours come first, then packages by name, whatever the order in which they are found."""
    for name, entry in (("b-package", "twice = hushrec.systems.pmf:SYSTEM"), ("a-package", "twice = nowhere:A")):
        package(tmp_path, name, entry)
    package(tmp_path, "c-package", "fcf = nowhere:SYSTEM")
    monkeypatch.syspath_prepend(tmp_path)
    registry = fcf_and_others()
    for _ in range(2):
        assert registry["fcf"].name == "fcf"
        with pytest.raises(HushrecError, match="the system twice of a-package cannot be loaded"):
            registry.named("twice")
    assert sorted(record.getMessage() for record in caplog.records) == [
        "the system fcf of c-package is left out: hushrec has one of that name; remove one of these packages",
        "the system twice of b-package is left out: a-package has one of that name; remove one of these packages",
    ]


def fcf_and_others() -> Registry[Any]:
    """A registry of one system of ours, and those of other packages."""
    ours = {"fcf": "hushrec.systems.fcf"}
    return Registry("system", "hushrec.systems", "SYSTEM", ours, kind="hushrec.protocol:System")


@pytest.mark.parametrize("place", BROKEN)
def test_what_cannot_be_used_is_named_in_one_line_and_left_out(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(broken(tmp_path, place))
    monkeypatch.delitem(sys.modules, "bad_module", raising=False)
    registry = fcf_and_others()
    with pytest.raises(
        HushrecError, match=r"\Athe system bad of bad-package cannot be loaded \(.*\); .*\Z"
    ) as told:
        registry.named("bad")
    assert BROKEN[place] in str(told.value)
    assert "bad" in registry
    for _ in range(2):
        assert [name for name in registry if name in dict(registry.items())] == [
            name for name in registry if name != "bad"
        ]
    assert [record.getMessage() for record in caplog.records] == [str(told.value)]


@pytest.mark.parametrize("place", ["bad_nowhere:SYSTEM", "bad_end:SYSTEM"])
def test_a_broken_package_does_no_harm_to_others(place: str, tmp_path: Path) -> None:
    data = "synthetic:users=20,items=20,ratings=200"
    *fine, refused_system, refused_data = hushrec(
        broken(tmp_path, place),
        "--help",
        f"audit fedrec --data {data} --rounds 2",
        "run --help",
        "systems",
        "data list",
        "run bad --data synthetic",
        "run pmf --data bad",
    )
    for ended in fine:
        assert ended.code == 0, ended.said
    assert "bad-package" not in fine[0].said
    for kind, ended in (("attack", fine[1]), ("data set", fine[4])):
        [told] = [line for line in ended.said.splitlines() if "bad-package" in line]
        assert told.startswith(f"the {kind} bad of bad-package cannot be loaded (")
    for kind, ended in (("system", refused_system), ("data set", refused_data)):
        assert ended.code == 2
        [line] = ended.said.strip().splitlines()
        assert f"the {kind} bad of bad-package cannot be loaded (" in line
