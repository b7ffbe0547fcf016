from dataclasses import replace
from pathlib import Path

import hushrec
from hushrec.report.deviations import Mark, deviations, find_marks
from hushrec.registry import SYSTEMS, system_named

PACKAGE = Path(hushrec.__file__).parent


def test_all_that_grep_finds_are_found() -> None:
    """Every mark in the code of systems, models and mechanisms belongs to some system."""
    by_grep = {
        (f"{path.parent.name}/{path.name}", number)
        for folder in ("systems", "models", "privacy")
        for path in (PACKAGE / folder).glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "DEVIATION:" in line
    }
    found = {(one.file, one.line) for system in SYSTEMS.values() for one in deviations(system)}
    assert by_grep
    assert found == by_grep


def test_a_system_has_its_own_and_what_it_is_built_on() -> None:
    def files(name: str) -> set[str]:
        return {found.file for found in deviations(system_named(name))}

    assert "systems/sdcf.py" in files("sdcf")
    assert "systems/sdcf.py" in files("sdcf-denoised")  # its Config inherits the step
    assert "systems/sdcf.py" not in files("fedrec++")
    assert "systems/fedrec_plus_plus.py" in files("fedrec++")
    assert not any(file.startswith("systems/") for file in files("pmf"))  # it only borrows a message of fedrec


def test_models_of_clients_and_more_models_are_parts_of_a_system() -> None:
    """With the marks of a module outside of any function, which count for all who use it."""
    marked = next(one for one in deviations(SYSTEMS["ngcf"]) if one.file == "systems/ngcf.py")
    bare = replace(SYSTEMS["pmf"], name="bare")
    assert marked not in deviations(bare)

    def made_of() -> None: ...

    made_of.__module__, made_of.__qualname__ = "hushrec.systems.ngcf", "Config"
    assert marked in deviations(replace(bare, own_model=made_of))
    assert marked in deviations(replace(bare, more_models=made_of))


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
