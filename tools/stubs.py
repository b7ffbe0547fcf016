"""Write what is known of the systems without loading them, from their configs.

`python tools/stubs.py` makes `src/hushrec/_estimators.pyi`, for type checkers and editors: the estimators are made
when they are asked for, so no editor could see their arguments else; and `src/hushrec/cli/declared.json`, so that
`--help` comes at once. With `--check` it only says whether they are as they should be.
"""

import inspect
import re
import subprocess
import sys
from pathlib import Path

from hushrec.cli import declared
from hushrec.estimators import estimator_named
from hushrec.recommender import Recommender
from hushrec.registry import SYSTEMS

STUB = Path(__file__).parents[1] / "src" / "hushrec" / "_estimators.pyi"
_HEAD = '''"""The estimators, as type checkers and editors see them. Made by tools/stubs.py: do not edit."""

from typing import Literal

from hushrec.recommender import Recommender
from hushrec.runtime.in_process import RuntimeOptions
'''


def stub() -> str:
    """The text of the stub."""
    kinds = [estimator_named(name) for name in SYSTEMS if SYSTEMS.is_built_in(name)]
    text = "\n".join([_HEAD, *(_class(kind) for kind in kinds)])
    command = [Path(sys.executable).with_name("ruff"), "format", "--stdin-filename", STUB, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _class(kind: type[Recommender]) -> str:
    parameters = inspect.signature(kind).parameters.values()
    arguments = ", ".join(f"{one.name}: {_annotation(one.annotation)} = {one.default!r}" for one in parameters)
    doc = "\n".join(f"    {line}".rstrip() for line in (kind.__doc__ or "").splitlines()).strip()
    made = f"def __init__(self, *, {arguments}) -> None: ..."
    return f'class {kind.__name__}(Recommender):\n    """{doc}\n    """\n\n    {made}\n'


def _annotation(kind: object) -> str:
    """A type as it is written; the modules of names that the stub imports are left out."""
    text = re.sub(r"\b(?:typing|hushrec(?:\.\w+)*)\.", "", inspect.formatannotation(kind))
    return re.sub(r"Optional\[(.*)\]$", r"\1 | None", text)


def main() -> int:
    """Write both, or check them; 1 if one is not as it should be."""
    built_in = [SYSTEMS[name] for name in SYSTEMS if SYSTEMS.is_built_in(name)]
    is_check, is_right = "--check" in sys.argv[1:], True
    for file, text in {STUB: stub(), declared.FILE: declared.as_json(built_in)}.items():
        is_same = file.exists() and file.read_text(encoding="utf-8") == text
        is_right = is_right and is_same
        if is_check:
            print(f"{file.name} is {'as it should be' if is_same else 'out of date: run python tools/stubs.py'}")
        else:
            file.write_text(text, encoding="utf-8")
    return int(is_check and not is_right)


if __name__ == "__main__":
    sys.exit(main())
