"""What a node agreed to, what it gave away, and what of its budget is left: as values, for whoever shows it."""

from collections.abc import Mapping
from typing import Any

from hushrec.deploy.enrolment import NodeSettings
from hushrec.deploy.node_ledger import RunEntry, spent_of, total_epsilon, total_rounds
from hushrec.privacy.ledger import DELTA


def noisy_and_plain(entries: Mapping[str, RunEntry]) -> tuple[list[RunEntry], list[RunEntry]]:
    """Runs whose noise bounds what they tell, and the others."""
    noisy = [entry for entry in entries.values() if entry.opened.cost.epsilon is not None]
    return noisy, [entry for entry in entries.values() if entry.opened.cost.epsilon is None]


def told_of_node(name: str, settings: NodeSettings, entries: Mapping[str, RunEntry]) -> dict[str, Any]:
    """What the owner of a node may see of it, as names and values."""
    noisy, plain = noisy_and_plain(entries)
    return {
        "node": name,
        "systems": settings.systems,
        "required": settings.required,
        "accepts_everything": settings.accepts_everything,
        "accepted": settings.accepted,
        "budget": {
            limit: {"most": most, "charged": (spent := spent_of(limit, entries.values())), "left": most - spent}
            for limit, most in settings.budget.items()
        },
        "rounds": total_rounds(entry.cost for entry in entries.values()),
        "rounds_without_noise": sum(len(entry.rounds) for entry in plain),
        "epsilon": total_epsilon(entry.cost for entry in noisy),
        "delta": DELTA,
        "runs": [
            {
                "run": run,
                "system": entry.opened.system,
                "settings": entry.opened.settings,
                "began": entry.opened.time,
                "ended": None if entry.ended is None else entry.ended.time,
                "consent": entry.opened.consent,
                "rounds_answered": len(entry.rounds),
                "most_rounds": entry.opened.cost.rounds,
                "epsilon": entry.cost.epsilon,
            }
            for run, entry in entries.items()
        ],
    }
