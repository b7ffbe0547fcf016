from importlib.util import find_spec
from pathlib import Path

import pytest

import hushrec
from hushrec.registry import SYSTEMS, system_named
from hushrec.report.deviations import Mark, deviations, find_marks

PACKAGE = Path(hushrec.__file__).parent


def shown(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_all_that_grep_finds_are_found() -> None:
    """Every mark in the code of systems, models, mechanisms and measurements belongs to some system."""
    by_grep = {
        (shown(path), number)
        for folder in ("systems", "models", "privacy", "experiments", "data", "evaluation")
        for path in (PACKAGE / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "DEVIATION:" in line
    }
    found = {(one.file, one.line) for system in SYSTEMS.values() for one in deviations(system)}
    assert by_grep
    assert found == by_grep


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_says_where_what_it_builds_on_is(name: str) -> None:
    """A module that is not there, or has no mark, would be left out in silence."""
    found = {one.file for one in deviations(SYSTEMS[name])}
    for module in SYSTEMS[name].about.builds_on:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin)
        paths = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
        assert found & {shown(one) for one in paths}, f"{module} has no mark"


def test_a_system_has_its_own_and_what_it_is_built_on() -> None:
    def files(name: str) -> set[str]:
        return {found.file for found in deviations(system_named(name))}

    assert "systems/sdcf.py" in files("sdcf")
    assert "systems/sdcf.py" in files("sdcf-denoised")  # its Config inherits the step
    assert "systems/sdcf.py" not in files("fedrec++")
    assert "systems/fedrec_plus_plus.py" in files("fedrec++")
    assert files("pmf") == {"systems/pmf.py"}  # it only borrows a message of fedrec
    assert {"privacy/denoising.py", "privacy/filling.py"} <= files("fedrec++")


def test_ptf_fedrec_prints_where_it_departs() -> None:
    texts = [found.text for found in deviations(SYSTEMS["ptf-fedrec"])]
    for part in (
        "Eqs. 3 and 5 sum over a batch",
        "keeps the edges of its last upload",
        "must know how many positives",
    ):
        assert [text for text in texts if part in text], part


def test_texts_are_whole() -> None:
    source = '''"""Summary.

DEVIATION: in a docstring,
over two lines.

More.
"""

# DEVIATION: in a comment,
# over two lines.
# DEVIATION: the next one
x = 1  # DEVIATION: after code
# another comment
y = "a text that mentions DEVIATION: is none"
'''
    assert find_marks(source) == [
        Mark(3, "in a docstring, over two lines."),
        Mark(9, "in a comment, over two lines."),
        Mark(11, "the next one"),
        Mark(12, "after code"),
    ]
