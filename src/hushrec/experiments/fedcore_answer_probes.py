"""What answers about visitors are worth in FedCORE to the partner that asks, honest or not (Figures 5 and 6).

Partner a, the first one, asks about all users whom only b knows. It can use the answers as they are (FedCORE), or
fit the users' vectors to some of them and use these from then on (FedCORE_TR, Eq. 15; FedCORE_AR, Eq. 16). Both
are measured by the test ratings of these users. Answers are computed in the clear: under encryption they differ by
less than 1e-6, and nothing here depends on that.

And the paper's four levels of privacy, decided by the attacks of the audit on what was really sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import Onlooker
from hushrec.audit.partner_gradients import QUADRATIC
from hushrec.audit.recovery import recover_by_reference, train_neucf, train_pmf
from hushrec.audit.scoreboard import Finding, Score
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation import rating_metrics
from hushrec.models.neucf_scoring import score
from hushrec.runs.folds import Probe
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job
from hushrec.systems.fedcore.answer_privacy import range_of

Rows = NDArray[np.floating]

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the items, for TR
_SCALES_OFF = 6  # Laplace noise is beyond that once in 400


class Asked(NamedTuple):
    """Answers to a about all users whom only b knows, and what a has itself."""

    visitors: NDArray[np.int32]  # accounts at a
    answers: NDArray[np.float32]  # (visitors, items of a)
    items: NDArray[np.float32]
    layers: NDArray[np.float32]


def asked_about(job: Job, progress: Progress) -> Asked:
    """What b would answer, with the noise that was agreed on."""
    private = progress.private
    one, other = private.partners[:2]
    names, known = private.ids_of(0)[0], private.ids_of(1)[0][other.is_rated]
    visitors = np.flatnonzero(~one.is_rated & np.isin(names, known)).astype(np.int32)
    if not len(visitors):
        raise HushrecError("no visitor of the first partner is known to the second; deal fewer common users")
    answers = job.scorer(progress).score(visitors)[:, : len(one.item_factors)]
    return Asked(visitors, answers, one.item_factors, one.layers)


Use = Callable[[Asked, Job, Progress], Rows]


def _as_they_are(asked: Asked, _job: Job, _progress: Progress) -> Rows:
    return asked.answers


def _usable(scale: float, low: float, high: float) -> tuple[float, float]:
    """Between which answers an attacker looks. With noise they were clipped before, and those near the ends of the
    range may have been: as in the authors' code, it leaves these out.
    """
    margin = min(_SCALES_OFF * scale, (high - low) / 4)
    return (low + margin, high - margin) if scale else (-np.inf, np.inf)


def _by_reference(takes_all: bool) -> Use:
    """AR: vectors from as many answers as they have numbers, or from all of them."""

    def use(asked: Asked, job: Job, progress: Progress) -> Rows:
        if len(asked.layers):
            raise HushrecError("AR needs scores that are products of vectors; use it with --model pmf")
        low, high = _usable(job.config.answer_noise, *range_of(progress.private.partners[0].ratings))
        is_used = (asked.answers > low) & (asked.answers < high)
        most = None if takes_all else asked.items.shape[1]
        solved = recover_by_reference(asked.items, asked.answers, is_used=is_used, max_answers=most)
        scores: Rows = solved.vectors @ asked.items.T
        return scores

    return use


def _by_training(share: float) -> Use:
    """TR: vectors that are fitted to the answers about a share of the items, drawn at random."""

    def use(asked: Asked, job: Job, _progress: Progress) -> Rows:
        generator = Draws(job.seed).generator("requested-items")
        count = max(1, round(share * len(asked.items)))
        chosen = np.sort(generator.permutation(len(asked.items))[:count])
        items, answers = asked.items[chosen], asked.answers[:, chosen]
        if not len(asked.layers):
            return train_pmf(items, answers) @ asked.items.T
        activation = job.config.activation
        quadratic = QUADRATIC if activation == "quadratic" else None
        vectors = train_neucf(items, asked.layers, answers, generator, quadratic=quadratic)
        return score(vectors.astype(np.float32), asked.items, asked.layers, activation)

    return use


def _visitors(use: Use) -> Probe:
    """MAE and RMSE of what a predicts for its visitors after the last round."""

    def look(job: Job, progress: Progress) -> dict[str, float]:
        if progress.round_number != job.config.num_rounds:
            return {}
        asked, test = asked_about(job, progress), job.test
        assert test is not None
        assert test.ratings is not None
        row_of = np.full(test.num_users, -1)
        row_of[asked.visitors] = np.arange(len(asked.visitors))
        is_theirs = row_of[test.users] >= 0
        scores = use(asked, job, progress)[row_of[test.users[is_theirs]], test.items[is_theirs]]
        limits = job.train.rating_range or (-np.inf, np.inf)
        found = rating_metrics(np.clip(scores, *limits).astype(np.float32), test.ratings[is_theirs])
        return {f"visitors' {metric}": value for metric, value in found.items()}

    return look


# --- Levels of privacy -----------------------------------------------------------------------------------


class Leak(NamedTuple):
    """How much of something an attack reads, and how much would be read blindly."""

    score: float
    chance: float
    is_real: bool  # whether the interval of the score is above chance

    @classmethod
    def of(cls, finding: Finding | None) -> "Leak":
        """What an audit found; nothing, where an attack could not start."""
        if finding is None:
            return cls(0.0, 0.0, False)
        least = finding.score if finding.interval is None else finding.interval[0]
        return cls(finding.score, finding.chance, least > finding.chance)


def level_of(raw_data: bool, features: bool, ids: bool) -> int:
    """The paper's level of protection, by what leaks: raw data, complete features, and the ids of the features.

    >>> level_of(True, True, True), level_of(False, True, True), level_of(True, True, False)
    (1, 2, 3)
    >>> level_of(False, False, True), level_of(False, False, False)
    (3, 4)
    """
    if features and ids:
        return 1 if raw_data else 2
    return 3 if features or ids else 4


def _told(raw_data: Leak, features: Leak, ids: Leak) -> dict[str, float]:
    level = level_of(raw_data.is_real, features.is_real, ids.is_real)
    leaks = {"raw data": raw_data, "features": features, "ids": ids}
    told = {f"{name} read": leak.score for name, leak in leaks.items()}
    told |= {f"{name}, chance": leak.chance for name, leak in leaks.items()}
    reached = {f"level {number} reached": float(level >= number) for number in (2, 3, 4)}
    return told | reached | {"level": float(level)}


def _findings(job: Job, progress: Progress, *names: str) -> list[Finding | None]:
    onlooker = Onlooker(job)
    onlooker.begin(progress)
    findings = []
    for name in names:
        total: Any = Score(ATTACKS[name])
        try:
            total.add(total.attack.judge(onlooker.guess(total.attack), onlooker.truth()))
        except HushrecError as error:
            total.fail(str(error))
        findings.append(total.finding(Draws(job.seed)))
    return findings


def _level_in_training(job: Job, progress: Progress) -> dict[str, float]:
    """What b reads of a's ratings and item vectors in the gradients of the last round."""
    if progress.round_number != job.config.num_rounds:
        return {}
    found = _findings(job, progress, "ratings from gradients", "item vectors", "item identification")
    return _told(*(Leak.of(finding) for finding in found))


def _level_in_inference(job: Job, progress: Progress) -> dict[str, float]:
    """What a reads of b's user vectors in the answers about visitors, whom it names itself: their ids are known.

    No attack is known that reads b's ratings in them.
    """
    if progress.round_number != job.config.num_rounds:
        return {}
    (vectors,) = _findings(job, progress, "accuracy reference")
    return _told(Leak.of(None), Leak.of(vectors), Leak(1.0, 0.0, True))


PROBES: dict[str, Probe] = {
    "visitors, answers": _visitors(_as_they_are),
    "visitors, AR": _visitors(_by_reference(takes_all=False)),
    "visitors, AR from all answers": _visitors(_by_reference(takes_all=True)),
    **{f"visitors, TR {share:g}": _visitors(_by_training(share)) for share in SHARES},
    "level in training": _level_in_training,
    "level in inference": _level_in_inference,
}
