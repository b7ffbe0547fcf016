"""Training (FedCORE, Eq. 15): fit visitors' vectors to a tenth of their scores, as one would to ratings.

Who asks about visitors has its own item vectors, for NeuCF also the shared layers. How good the vectors are, the
other scores tell.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.answers import ASKER, HOME, answers_to, is_answer
from hushrec.audit.partner_gradients import QUADRATIC
from hushrec.audit.recovery import train_neucf, train_pmf
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.models.neucf_scoring import score
from hushrec.protocol import Role, Seat, View

_SHARE = 0.1


class Trained(NamedTuple):
    """Scores as they came, as the vectors that were trained on some of them predict them, and on which."""

    answers: NDArray[np.float32]
    predicted: NDArray[np.floating]
    is_used: NDArray[np.bool_]


def train(view: View, own: Own) -> Trained:
    """Fit the vectors of all visitors that were answered about."""
    (places, answers), items, layers = answers_to(view, own), own.holds["item_factors"], own.holds["layers"]
    is_used = own.generator.random((len(places), len(items))) < _SHARE
    predicted: NDArray[np.floating]
    if len(layers):
        vectors = train_neucf(items, layers, answers, own.generator, is_used=is_used, quadratic=QUADRATIC)
        predicted = score(vectors.astype(np.float32), items, layers, "quadratic")
    else:
        predicted = train_pmf(items, answers, is_used=is_used) @ items.T
    assert answers is not None  # without scores the attack has refused to start
    return Trained(answers, predicted, is_used)


def judge(trained: Trained, _truth: Truth) -> Outcome:
    """By visitor, the correlation with the scores that were not trained on. Chance: none."""
    scores = [
        np.corrcoef(answers[~used], predicted[~used])[0, 1]
        for answers, predicted, used in zip(*trained, strict=True)
    ]
    return Outcome.of_victims(np.arange(len(scores)), np.array(scores), np.zeros(len(scores)))


ATTACK = Attack(
    name="training",
    seats=(Seat(Role.PARTNER, ASKER),),
    guesses="visitors' scores from a tenth of the answers",
    measure="correlation",
    sentence="Vectors trained on a tenth of the answers predict the other scores with a correlation of "
    "{score:.2f}.",
    reads=is_answer,
    look=lambda _before, view, own: train(view, own),
    judge=judge,
    only_last=True,
    settings=("top_k",),
    own=("item_factors", "layers", "helpers"),
    victim=Seat(Role.PARTNER, HOME),
)
