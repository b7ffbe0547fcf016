"""Run the tests with every Python that hushrec supports and this machine has; say which could not be had.

`python tools/test_all.py` (or `make test-all`) makes a virtual environment for each, installs what tests need in
it, and runs them; words behind it go to pytest: `python tools/test_all.py tests/test_wheel.py -m ''`. Interpreters
are looked for on the PATH, as python3.12, and in pyenv's folder. The exit code is 1 if a test failed, or if no
Python was found at all.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEXT = "3.14"  # looked for, and told of, though nothing promises that it works


def supported() -> list[str]:
    """The versions that pyproject.toml names, and the next one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    words = [
        line.rpartition(" :: ")[2] for line in project["classifiers"] if line.startswith("Programming Language")
    ]
    found = [word for word in words if "." in word]
    return found if NEXT in found else [*found, NEXT]


def interpreter(version: str) -> Path | None:
    """A Python of this version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [path / "bin" / "python" for path in sorted(pyenv.glob(f"{version}.*"), reverse=True)]
    on_path = shutil.which(f"python{version}")
    for place in [*places, *([Path(on_path)] if on_path else [])]:
        asked = subprocess.run(
            [place, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
        )
        if asked.returncode == 0 and asked.stdout.strip() == str(tuple(map(int, version.split(".")))):
            return place
    return None


def environment(python: Path, version: str) -> Path:
    """The Python of a virtual environment with all that tests need; made if it is not there."""
    folder = ROOT / f".venv-{version}"
    inside = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", ROOT / "constraints.txt", "-e", f"{ROOT}[dev]"], check=True)
        (folder / ".installed").touch()
    return inside


def tested(version: str, words: list[str]) -> str:
    """What came of the tests with one version, in a line."""
    python = interpreter(version)
    if python is None:
        return "not run: no such Python here"
    begun = time.monotonic()
    try:
        inside = environment(python, version)
    except subprocess.CalledProcessError as error:
        return f"not run: what tests need cannot be installed (exit code {error.returncode})"
    done = subprocess.run([inside, "-m", "pytest", *words], cwd=ROOT)
    word = "passed" if done.returncode == 0 else f"FAILED (exit code {done.returncode})"
    return f"{word}, {time.monotonic() - begun:.0f} s, {python}"


def main(words: list[str]) -> int:
    """Run all, then say of each how it was."""
    told = {version: tested(version, words or ["-n", "2"]) for version in supported()}
    for version, line in told.items():
        print(f"Python {version}: {line}")
    is_wrong = any("FAILED" in line or "cannot be installed" in line for line in told.values())
    return int(is_wrong or all(line.startswith("not run") for line in told.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
