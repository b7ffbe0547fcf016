"""Measurements inside a run that look at more than its quality: at what parties hold or send after some rounds."""

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import Onlooker
from hushrec.experiments import fedcore_answer_probes, fedcore_probes
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job


def _top_guess(job: Job, progress: Progress) -> dict[str, float]:
    """The mean score of the attack on the uploads of a round; 0 if nobody sent one."""
    attack, onlooker = ATTACKS["top guess"], Onlooker(job)
    onlooker.begin(progress)
    scores = attack.judge(onlooker.guess(attack), onlooker.truth()).scores
    return {"top guess F1": float(scores.mean()) if len(scores) else 0.0}


PROBES: dict[str, Probe] = {
    "top guess F1": _top_guess,
    **fedcore_probes.PROBES,
    **fedcore_answer_probes.PROBES,
}


def all_of(names: list[str]) -> Probe:
    """Several probes as one."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in names:
            found |= PROBES[name](job, progress)
        return found

    return look
