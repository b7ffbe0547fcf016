"""Training (FedCORE, Eq. 15): fit visitors' vectors to a share of their scores, as one would to ratings.

Who asks about visitors has its own item vectors, for NeuCF also the shared layers. How good the vectors are, the
other scores tell. The share is a tenth here; `training_1.py` and `training_50.py` have others.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.answers import ASKER, HOME, answers_to, is_answer
from hushrec.audit.partner_gradients import QUADRATIC
from hushrec.audit.recovery import train_neucf, train_pmf
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.models.neucf_scoring import score
from hushrec.protocol import Role, Seat, View

_USUAL = 0.1


class Trained(NamedTuple):
    """Scores as they came, as the vectors that were trained on some of them predict them, and on which."""

    answers: NDArray[np.float32]
    predicted: NDArray[np.floating]
    is_used: NDArray[np.bool_]


def train(_before: Trained | None, view: View, own: Own, share: float) -> Trained:
    """Fit the vectors of all visitors that were answered about."""
    (places, answers), items, layers = answers_to(view, own), own.holds["item_factors"], own.holds["layers"]
    is_used = own.generator.random((len(places), len(items))) < share
    predicted: NDArray[np.floating]
    if len(layers):
        vectors = train_neucf(items, layers, answers, own.generator, is_used=is_used, quadratic=QUADRATIC)
        predicted = score(vectors.astype(np.float32), items, layers, "quadratic")
    else:
        predicted = train_pmf(items, answers, is_used=is_used) @ items.T
    assert answers is not None  # without scores the attack has refused to start
    return Trained(answers, predicted, is_used)


def _correlation(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """0, if either is the same for all: nothing is told apart, as where no answer was used."""
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) > 0 and np.ptp(other) > 0 else 0.0


def judge(trained: Trained, _truth: Truth) -> Outcome:
    """By visitor, the correlation with the scores that were not trained on. Chance: none."""
    scores = [
        _correlation(answers[~used], predicted[~used]) for answers, predicted, used in zip(*trained, strict=True)
    ]
    return Outcome.of_victims(np.arange(len(scores)), np.array(scores), np.zeros(len(scores)))


def training_on(share: float) -> Attack[Trained]:
    """The attack with this share of the answers."""
    return Attack(
        name="training" if share == _USUAL else f"training on {share:.0%}",
        seats=(Seat(Role.PARTNER, ASKER),),
        guesses=f"visitors' scores from {share:.0%} of the answers",
        measure="correlation",
        sentence=f"Vectors trained on {share:.0%} of the answers predict the other scores with a correlation of "
        "{score:.2f}.",
        reads=is_answer,
        look=partial(train, share=share),
        judge=judge,
        only_last=True,
        settings=("top_k",),
        own=("item_factors", "layers", "helpers"),
        victim=Seat(Role.PARTNER, HOME),
        repairs=("--top-k 10",),
    )


ATTACK = training_on(_USUAL)
