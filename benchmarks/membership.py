"""Membership and attribute inference on every system that they apply to: `python -m benchmarks.membership`.

Prints one table: for each system and each attack the score after a few rounds on ML-100K, seed 0, with 95% by
bootstrap over the victims, and what blind guesses have. A dash: nothing in the messages for the attack to look at,
or nobody to tell apart. Takes some ten minutes on one core.
"""

import sys
from typing import Any

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import audit
from hushrec.audit.scoreboard import Finding
from hushrec.data import Interactions, load
from hushrec.registry import SYSTEMS
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job

NUM_ROUNDS = 3
NAMES = (
    "shadow membership",
    "uploaded preferences",
    "public vectors",
    "gender inference",
    "age inference",
    "occupation inference",
)
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pmf", {}),
    ("fedrec", {}),
    ("fedrec", {"resample": "once"}),
    ("fedrec++", {}),
    ("fedrec-bpr", {}),
    ("sdcf", {}),
    ("fcf", {}),
    ("fedmf", {"encryption": "none"}),
    ("fedncf", {"participation": 1.0}),
    ("fedncf", {"participation": 1.0, "denoisers": 5, "rho": 3}),
    ("metamf", {}),
    ("ptf-fedrec", {}),
    ("ptf-fedrec", {"uploads": "balanced", "score_levels": 5}),
    ("ptf-fedrec", {"uploads": "once", "score_levels": 5}),
)


def findings_on(name: str, values: dict[str, Any], data: Interactions) -> dict[str, Finding]:
    """What came of the attacks that apply."""
    system = SYSTEMS[name]
    config = system.configure({"num_rounds": NUM_ROUNDS, **values})
    settings = settings_for(system, 0, 1, None, 0.2, owners="", data=data)
    job = Job(system, config, 0, next(splits_for(system, data, settings, config)).train)
    attacks = [ATTACKS[attack] for attack in NAMES if ATTACKS[attack].applies_to(system)]
    done = audit(job, RuntimeOptions(threads=1), lambda _progress, _scores: None, attacks)
    for attack, reason in done.left_out.items():
        print(f"{name} {values}: {attack} left out, as {reason}", file=sys.stderr)
    return {finding.attack.name: finding for finding in done.findings}


def shown(finding: Finding | None) -> str:
    """A cell: score, interval, chance."""
    if finding is None:
        return "-"
    low, high = finding.interval or (finding.score, finding.score)
    return f"{finding.score:.3f} ({low:.3f}..{high:.3f}) {finding.chance:.3f}"


def main() -> None:
    """Print the table, a line as soon as it is there."""
    data = load("ml-100k")
    print("|", " | ".join(("system", *NAMES)), "|")
    print("|", "|".join(["---"] * (len(NAMES) + 1)), "|")
    for name, values in RUNS:
        found = findings_on(name, values, data)
        options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in values.items())
        cells = (f"`{name} {options}`".replace(" `", "`"), *(shown(found.get(attack)) for attack in NAMES))
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
