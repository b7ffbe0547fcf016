"""What attacks on PTF-FedRec find after every round; some remember the rounds before."""

from dataclasses import dataclass, field

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import Onlooker
from hushrec.audit.scoreboard import Outcome
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job


@dataclass
class Watcher:
    """Has an attack look at each round of a run, and remember what it saw; another run begins anew."""

    attack: str
    _job: Job | None = field(default=None, repr=False)
    _onlooker: Onlooker | None = field(default=None, repr=False)

    def look(self, job: Job, progress: Progress) -> Outcome:
        """What came of the attack on a round."""
        if self._onlooker is None or self._job is not job:
            self._job, self._onlooker = job, Onlooker(job)
        attack, onlooker = ATTACKS[self.attack], self._onlooker
        onlooker.begin(progress)
        return attack.judge(onlooker.guess(attack), onlooker.truth())


def _top_guess(job: Job, progress: Progress) -> dict[str, float]:
    """The mean score of the attack on the uploads of a round; 0 if nobody sent one."""
    scores = Watcher("top guess").look(job, progress).scores
    return {"top guess F1": float(scores.mean()) if len(scores) else 0.0}


def _order_change() -> Probe:
    """The mean F1 of a round; 0 if nobody has uploaded twice."""
    watcher = Watcher("order change")

    def look(job: Job, progress: Progress) -> dict[str, float]:
        scores = watcher.look(job, progress).scores
        return {"order change F1": float(scores.mean()) if len(scores) else 0.0}

    return look


def _extraction(which: str) -> Probe:
    """How much of the server's lists the copy has, how much a model of own data, and by how much it is more."""
    watcher = Watcher(f"server extraction {which}")

    def look(job: Job, progress: Progress) -> dict[str, float]:
        outcome = watcher.look(job, progress)
        score, chance = float(outcome.scores.mean()), float(outcome.chances.mean())
        return {watcher.attack: score, f"own data alone {which}": chance, f"gain {which}": score - chance}

    return look


PROBES: dict[str, Probe] = {
    "top guess F1": _top_guess,
    "order change F1": _order_change(),
    **{f"server extraction {which}": _extraction(which) for which in ("1%", "10%", "50%", "untold")},
}
