"""Notebooks that are Markdown: their cells of code, as one script."""

import re
from pathlib import Path

_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cells_of(path: Path) -> list[str]:
    """The code of each cell, without its tags."""
    return [re.sub(r"\A(?::\w[^\n]*\n)+", "", cell) for cell in _CELL.findall(path.read_text(encoding="utf-8"))]


def script_of(path: Path) -> str:
    """All cells, one after the other; what a cell ends with is printed, as a notebook would."""
    shown = "\nimport ast as _ast, sys as _sys\n"
    return shown + "\n".join(f"_run({cell!r})" for cell in cells_of(path)).join([_RUN, "\n"])


_RUN = """
def _run(text, names=globals()):
    tree = _ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is not None:
        value = eval(compile(_ast.Expression(last.value), "<cell>", "eval"), names)
        if value is not None:
            print(value)
"""
