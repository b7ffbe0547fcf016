"""The list of mutants follows the code; `python tools/mutants.py` runs them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def _load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


tool = _load_tool()


def test_every_text_is_found_once_and_its_tests_exist() -> None:
    assert tool.check() == []


def test_there_are_enough_and_each_says_what_it_would_break() -> None:
    assert len(tool.MUTANTS) >= 40
    for mutant in tool.MUTANTS:
        assert len(mutant.breaks.split()) > 3, mutant.name


def test_a_list_that_no_longer_fits_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "src" / "hushrec" / "some.py"
    file.parent.mkdir(parents=True)
    file.write_text("if a < b:\n    pass\nif b < c:\n    pass\n")
    (tmp_path / "test_some.py").touch()
    once = tool.Mutant("once", "some.py", "a < b", "a > b", "test_some.py", "it")
    assert tool.check([once], tmp_path) == []
    broken = tool.Mutant("broken", "some.py", "b < c", "", "test_some.py", "it")
    assert [line.partition(":")[0] for line in tool.check([broken], tmp_path)] == ["broken"]
    twice = tool.Mutant("twice", "some.py", "pass", "raise", "test_some.py", "it")
    gone = tool.Mutant("gone", "other.py", "a < b", "a > b", "test_none.py", "it")
    found = tool.check([once, once, twice, gone], tmp_path)
    assert [line.partition(":")[0] for line in found] == ["once", "twice", "gone", "gone"]
    once.apply(tmp_path)
    assert file.read_text().startswith("if a > b:")
