"""Write what type checkers and editors know of the estimators: `src/hushrec/_estimators.pyi`.

`python tools/stubs.py` makes it from the configs of the systems; with `--check` it only says whether it is as it
should be. The classes themselves are made when they are asked for, so no editor could see their arguments else.
"""

import inspect
import re
import subprocess
import sys
from pathlib import Path

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
    """Write the stub, or check it; 1 if it is not as it should be."""
    is_right = STUB.exists() and STUB.read_text(encoding="utf-8") == stub()
    if "--check" in sys.argv[1:]:
        print(f"{STUB.name} is {'as it should be' if is_right else 'out of date: run python tools/stubs.py'}")
        return int(not is_right)
    STUB.write_text(stub(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
