"""Write down what is sent in a round of every system, for the pictures of the documentation.

python tools/rounds.py            writes docs/_ext/hushrec_docs/rounds.json
python tools/rounds.py --check    says whether it is as it should be
python tools/rounds.py drift      writes the entry of one system anew
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "_ext"))

from hushrec_docs.rounds import FILE, as_json, read_rounds, recorded

from hushrec.registry import SYSTEMS


def main() -> int:
    """Make the file, or compare it."""
    names = [word for word in sys.argv[1:] if word != "--check"]
    built_in = [name for name in SYSTEMS if SYSTEMS.is_built_in(name)]
    known = read_rounds() if names and FILE.exists() else {}
    made = {name: recorded(name) if name in (names or built_in) else known.get(name, []) for name in built_in}
    text = as_json(made)
    if "--check" in sys.argv:
        is_same = FILE.read_text(encoding="utf-8") == text
        print(f"{FILE.name} is {'as it should be' if is_same else 'not up to date; run tools/rounds.py'}")
        return 0 if is_same else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
