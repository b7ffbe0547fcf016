"""Measurements inside a run that look at more than its quality: at what parties hold or send after some rounds."""

from hushrec.experiments import drift_probes, fedcore_answer_probes, fedcore_probes, ptf_probes
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job

PROBES: dict[str, Probe] = {
    **ptf_probes.PROBES,
    **fedcore_probes.PROBES,
    **fedcore_answer_probes.PROBES,
    **drift_probes.PROBES,
}


def all_of(names: list[str]) -> Probe:
    """Several probes as one."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in names:
            found |= PROBES[name](job, progress)
        return found

    return look
