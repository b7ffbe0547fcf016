"""Measurements inside a run that look at more than its quality: at what parties hold or send after some rounds."""

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import Onlooker
from hushrec.draws import Draws
from hushrec.experiments import ptf_probes
from hushrec.experiments.fedcore_tables import identified, similarity
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job

_IDENTIFIED_AFTER = (1, 5, 20, 49)
_ATTACKED_AFTER = 20


def _identification(job: Job, progress: Progress) -> dict[str, float]:
    """Items of a that are among b's most similar ones: as they start, and after some rounds."""
    found: dict[str, float] = {}
    if progress.round_number in _IDENTIFIED_AFTER:
        one, other = progress.private.partners[:2]
        looks = {progress.round_number: (one.item_factors, other.item_factors)}
        if progress.round_number == 1:
            looks[0] = one.before[1], other.before[1]
        for after, (theirs, own) in sorted(looks.items()):
            counts = identified(job.train, theirs, own, job.config)
            found |= {f"{name}, t={after}": value for name, value in counts.items()}
    return found


def _similarity(privatizer: str) -> Probe:
    """Cosines of what b recovers from gradients that a defence has gone over."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        if progress.round_number != _ATTACKED_AFTER:
            return {}
        return similarity(job.train, progress.private, job.config, privatizer, Draws(job.seed))

    return look


def _top_guess(job: Job, progress: Progress) -> dict[str, float]:
    """The mean score of the attack on the uploads of a round; 0 if nobody sent one."""
    attack, onlooker = ATTACKS["top guess"], Onlooker(job)
    onlooker.begin(progress)
    scores = attack.judge(onlooker.guess(attack), onlooker.truth()).scores
    return {"top guess F1": float(scores.mean()) if len(scores) else 0.0}


PROBES: dict[str, Probe] = {
    "top guess F1": _top_guess,
    **ptf_probes.PROBES,
    "identification": _identification,
    **{f"similarity {name}": _similarity(name) for name in ("none", "average", "dp", "dp+average")},
}


def all_of(names: list[str]) -> Probe:
    """Several probes as one."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in names:
            found |= PROBES[name](job, progress)
        return found

    return look
