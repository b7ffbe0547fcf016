"""Type checkers and editors know the arguments of every estimator."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hushrec.estimators import estimator_named
from hushrec.registry import SYSTEMS

ROOT = Path(__file__).parents[1]
STUB = (ROOT / "src" / "hushrec" / "_estimators.pyi").read_text(encoding="utf-8")


def test_what_is_known_without_loading_is_that_of_the_configs() -> None:
    pytest.importorskip("ruff")  # formats it
    command = [sys.executable, str(ROOT / "tools" / "stubs.py"), "--check"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "_estimators.pyi is as it should be\ndeclared.json is as it should be\n",
    ), done.stderr


@pytest.mark.parametrize("name", [name for name in SYSTEMS if SYSTEMS.is_built_in(name)])
def test_every_setting_is_in_the_stub_with_its_help(name: str) -> None:
    kind = estimator_named(name)
    (own,) = re.findall(rf"^class {kind.__name__}\(.*?-> None: \.\.\.$", STUB, re.MULTILINE | re.DOTALL)
    for setting in SYSTEMS[name].config.__dataclass_fields__.values():
        assert f"        {setting.name}: {setting.metadata['help']} (default" in own
        assert re.search(rf"[ ]{setting.name}: [^=]+ = ", own)


USES = """
import hushrec

hushrec.FedRecPlusPlus(rho=3, denoisers=2, preset="paper", seed=1)  # right
hushrec.FedRecPlusPlus(rho="x")  # wrong
hushrec.FedRecPlusPlus(rhoo=3)  # wrong
hushrec.FedRec(filling="all")  # wrong
hushrec.FedRec(preset="papers")  # wrong
model = hushrec.FedRec(rho=0).fit("synthetic")  # right
model.recommend([1], k="ten")  # wrong
found = hushrec.audit(model).to_polars(), hushrec.compare([model]).to_pandas(), hushrec.report(model)  # right
hushrec.audit(5)  # wrong
model.evaluate("test.csv", at=5, missing="drop", columns={"user": "who"})  # right
model.evaluate("test.csv", duplicates="first")  # wrong
hushrec.tune(hushrec.FedRec, "train.csv", trials=3, measure=["RMSE", "bytes"]).best.fit("train.csv")  # right
hushrec.tune("fedrec", "train.csv", trials="many")  # wrong
hushrec.tune("fedrec", "train.csv", tirals=3)  # wrong
hushrec.load_run("runs/one", side="servr")  # wrong
hushrec.SomebodyElses(anything=1)  # right
"""


def test_a_type_checker_tells_right_from_wrong(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    more = ["--cache-dir", str(ROOT / ".mypy_cache"), "--follow-imports", "silent", str(tmp_path / "uses.py")]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    refused = {int(number) for number in re.findall(r"uses\.py:(\d+): error", done.stdout)}
    lines = USES.splitlines()
    assert refused == {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}, done.stdout
