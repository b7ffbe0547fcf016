"""Print how large an install is: the core, each of its packages, and what each extra adds.

`python tools/install_sizes.py .venv/lib/python3.11/site-packages` looks at what is installed there, by the files
that each package has recorded, compiled ones too; what hushrec needs is read from pyproject.toml. An extra that is
not installed there is left out.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_SHOWN_MEGABYTES = 5.0  # smaller packages are summed up


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_in(folder: Path) -> dict[str, Distribution]:
    """What is installed in a folder, by name."""
    return {_key(one.name): one for one in distributions(path=[str(folder)])}


def needed(requirements: Iterable[str], installed: dict[str, Distribution]) -> set[str]:
    """The names of all packages that these requirements bring, those of packages among them too."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(one), "") for one in requirements]
    while left:
        one, within = left.pop()
        if one.marker and not one.marker.evaluate({"extra": within}):
            continue
        name = _key(one.name)
        if name not in installed:
            raise LookupError(name)
        found.add(name)
        theirs = [Requirement(text) for text in installed[name].requires or []]
        wanted = {"", *one.extras} - {within for known, within in seen if known == name}
        seen |= {(name, within) for within in wanted}
        left += [(each, within) for within in wanted for each in theirs]
    return found


def megabytes(one: Distribution) -> float:
    """How much room a package's files take."""
    paths = {Path(str(one.locate_file(entry))) for entry in one.files or []}
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def _print_core(core: set[str], sizes: dict[str, float]) -> None:
    print(f"core: {sum(sizes[name] for name in core):.0f} MB in {len(core)} packages")
    large = sorted((name for name in core if sizes[name] >= _SHOWN_MEGABYTES), key=lambda name: -sizes[name])
    for name in large:
        print(f"  {name:16} {sizes[name]:6.0f} MB")
    print(f"  {'all others':16} {sum(sizes[name] for name in core.difference(large)):6.0f} MB")


def main(folder: Path) -> None:
    """Print the table."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    installed = installed_in(folder)
    core = needed(project["dependencies"], installed)
    sizes = {name: megabytes(one) for name, one in installed.items()}
    _print_core(core, sizes)
    print("extras, besides the core:")
    for extra, requirements in project["optional-dependencies"].items():
        if extra == "dev":
            continue
        try:
            added = needed(requirements, installed) - core
        except LookupError as missing:
            print(f"  {extra:16} not installed ({missing.args[0]} is missing)")
            continue
        large = sorted(added, key=lambda name: -sizes[name])[:3]
        told = ", ".join(f"{name} {sizes[name]:.0f}" for name in large)
        print(f"  {extra:16} {sum(sizes[name] for name in added):6.0f} MB in {len(added)} packages ({told})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
