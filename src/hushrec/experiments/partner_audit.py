"""The audit of partners: what one finds out about another, round after round, beside blind guessing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.item_identification import twin_ranks
from hushrec.audit.attacks.model_extraction import extract_items
from hushrec.audit.attacks.vector_recovery import recover_by_reference, train_pmf
from hushrec.audit.scoreboard import Finding, Headline, Outcome, finding_of
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.experiments.partner_attacks import Recovered, Sample, cosines, recovered, sent, twins_of
from hushrec.protocol import Role
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job
from hushrec.systems.fedcore.partners import Partnership

_CLOSE = 0.01  # a vector is found if it is off by less than this share of its length
_TOP_SHARE = 0.01
_TRAINED_SHARE = 0.1


@dataclass(frozen=True)
class View:
    """One look at the partners: what b received about a sample of ratings, and what it makes of it."""

    job: Job
    private: Partnership
    config: Any
    sample: Sample
    found: Recovered  # by the attack that knows nothing that b does not have


@dataclass(frozen=True)
class PartnerAttack(Headline):
    """One attack of a partner, with its score for each victim and that of blind guessing."""

    judge: Callable[[View], Outcome]
    is_of_answers: bool = False  # on the inference phase, which comes last


def _per_user(values: NDArray[Any], owners: NDArray[np.int64]) -> NDArray[np.float64]:
    """Means over each user's ratings."""
    counts = np.bincount(owners)
    means: NDArray[np.float64] = np.bincount(owners, values)[counts > 0] / counts[counts > 0]
    return means


def _outcome(scores: NDArray[Any], chances: NDArray[Any]) -> Outcome:
    return Outcome(np.arange(len(scores)), np.asarray(scores, np.float64), np.asarray(chances, np.float64))


def _directions(view: View) -> Outcome:
    """Chance: the mean of b's own item vectors as the guess for all."""
    truth, own = view.sample.vectors, view.private.partners[1].item_factors
    blind = np.broadcast_to(own.mean(axis=0), truth.shape)
    owners = view.sample.owners
    return _outcome(
        _per_user(cosines(view.found.vectors, truth), owners), _per_user(cosines(blind, truth), owners)
    )


def _ratings(view: View) -> Outcome:
    """Chance: the commonest of b's own ratings as the guess for all."""
    assert view.found.ratings is not None
    known, counts = np.unique(view.private.partners[1].ratings, return_counts=True)
    nearest = known[np.argmin(np.abs(view.found.ratings[:, None] - known), axis=1)]
    is_commonest = view.sample.ratings == known[np.argmax(counts)]
    owners = view.sample.owners
    return _outcome(_per_user(nearest == view.sample.ratings, owners), _per_user(is_commonest, owners))


def _items(view: View) -> Outcome:
    """Chance: as many items as are looked at, of all that b has."""
    own = view.private.partners[1].item_factors
    top = max(1, round(_TOP_SHARE * len(twins_of(view.job.train)[0])))
    found = _per_user(twin_ranks(view.found.vectors, own, view.sample.twins) < top, view.sample.owners)
    return _outcome(found, np.full(len(found), top / len(own)))


def _homes(view: View) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Visitors of a that were answered by b: places in a's list, and their numbers at b."""
    rows, (one, other) = view.private.rows, view.private.partners[:2]
    ids_at_b = rows.user_ids[rows.user_starts[1] : rows.user_starts[2]]
    is_answered = np.isfinite(one.answers[:, : len(one.item_factors)]).any(axis=1)
    places = np.flatnonzero(is_answered & (one.helpers == other.number))
    number = {str(name): place for place, name in enumerate(ids_at_b)}
    return places, np.array([number[str(rows.user_ids[one.asked[place]])] for place in places], np.int64)


def _answered(view: View, places: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """Scores as they came back; None if only the best places did."""
    one = view.private.partners[0]
    return None if view.config.top_k else one.answers[places, : len(one.item_factors)]


def _visitors(view: View) -> Outcome:
    """Partner a recovers the vectors of b's users from answers."""
    one, other = view.private.partners[:2]
    places, at_b = _homes(view)
    solved = recover_by_reference(one.item_factors, _answered(view, places), max_answers=one.item_factors.shape[1])
    truth = other.user_factors[at_b]
    return _outcome(_is_close(solved.vectors, truth) & solved.is_solved, np.zeros(len(places)))


def _trained(view: View) -> Outcome:
    """Partner a fits vectors to a tenth of the answers; scored by the other nine."""
    one = view.private.partners[0]
    places, _ = _homes(view)
    answers = _answered(view, places)
    rng = Draws(view.job.seed).generator("training-attack")
    is_used = rng.random((len(places), len(one.item_factors))) < _TRAINED_SHARE
    vectors = train_pmf(one.item_factors, answers, is_used=is_used)
    assert answers is not None  # without scores the attack has refused to start
    scores = [
        np.corrcoef(answer[~used], predicted[~used])[0, 1]
        for answer, predicted, used in zip(answers, vectors @ one.item_factors.T, is_used, strict=True)
    ]
    return _outcome(np.array(scores), np.zeros(len(places)))


def _extracted(view: View) -> Outcome:
    """Partner b recovers a's item vectors from the scores that it decrypted: all of them, whatever it returned."""
    one, other = view.private.partners[:2]
    places, at_b = _homes(view)
    sent = other.shown_users[at_b]
    # What b decrypts is the product; of answers cut to the best places, a has less, b has not.
    answers = one.answers[places, : len(one.item_factors)] if not view.config.top_k else sent @ one.item_factors.T
    solved = extract_items(sent, answers)
    return _outcome(
        _is_close(solved.vectors, one.item_factors) & solved.is_solved, np.zeros(len(one.item_factors))
    )


def _is_close(found: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
    is_close: NDArray[np.bool_] = np.linalg.norm(found - truth, axis=1) < _CLOSE * np.linalg.norm(truth, axis=1)
    return is_close


ATTACKS = (
    PartnerAttack(
        "gradient inversion", Role.PARTNER, "the direction of the item vector behind a gradient", "cosine",
        "From gradients of common users a partner recovers item vectors with a cosine of {score:.3f} to the true "
        "ones; its own mean item vector has {chance:.3f}.", _directions,
    ),
    PartnerAttack(
        "ratings from gradients", Role.PARTNER, "the rating behind a gradient", "share",
        "It reads {score:.0%} of the ratings exactly; always guessing the commonest rating gives {chance:.0%}.",
        _ratings,
    ),
    PartnerAttack(
        "item identification", Role.PARTNER, "which own item it is, as the best few", "share",
        "For {score:.1%} of the gradients the true item is among the best few (1% of the number of common items); "
        "by chance {chance:.1%}.",
        _items,
    ),
    PartnerAttack(
        "accuracy reference", Role.PARTNER, "visitors' vectors from as many answers as they have numbers", "share",
        "From as many answers as a vector has numbers, {score:.0%} of the visitors' vectors are recovered to 1%.",
        _visitors, is_of_answers=True,
    ),
    PartnerAttack(
        "training", Role.PARTNER, "visitors' scores from a tenth of the answers", "correlation",
        "Vectors trained on a tenth of the answers predict the other scores with a correlation of {score:.2f}.",
        _trained, is_of_answers=True,
    ),
    PartnerAttack(
        "model extraction", Role.PARTNER, "the other's item vectors from decrypted scores", "share",
        "The partner that decrypts recovers {score:.0%} of the other's item vectors to 1%.",
        _extracted, is_of_answers=True,
    ),
)  # fmt: skip


class PartnerAudit:
    """Has every attack look after each round, and at the answers in the end."""

    def __init__(self, job: Job) -> None:
        self._job, self._draws = job, Draws(job.seed)
        self._last: dict[str, Outcome] = {}
        self._rounds: dict[str, list[float | None]] = {attack.name: [] for attack in ATTACKS}
        self.left_out: dict[str, str] = {}

    def look(self, progress: Progress) -> dict[str, float]:
        """Attack what partners hold now; the mean scores."""
        job, config, private = self._job, self._job.config, progress.private
        found = sent(job.train, private, config, progress.round_number, self._draws)
        attacks = recovered(found, private, config, self._draws)
        view = View(job, private, config, found, attacks.get("blind ", attacks[""]))
        means = {}
        for attack in ATTACKS:
            if attack.is_of_answers and (config.model != "pmf" or (private.asked < 0).all()):
                self.left_out[attack.name] = "no visitor was asked about with model pmf"
                continue
            try:
                outcome = attack.judge(view)
            except HushrecError as error:
                self.left_out[attack.name] = str(error)
                continue
            self.left_out.pop(attack.name, None)
            self._last[attack.name] = outcome
            means[f"{attack.name} {attack.measure}"] = float(outcome.scores.mean())
            self._rounds[attack.name].append(float(outcome.scores.mean()))
        return means

    def findings(self) -> list[Finding]:
        """The scoreboard, of the last round."""
        return [
            finding_of(attack, outcome.scores, outcome.chances, self._rounds[attack.name], self._draws)
            for attack in ATTACKS
            if (outcome := self._last.get(attack.name)) is not None and len(outcome.scores)
        ]
