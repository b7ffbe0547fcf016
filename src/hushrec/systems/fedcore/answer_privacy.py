"""Noise in the inference phase of FedCORE: on vectors of visitors (Eq. 17), or on the scores that are returned.

Guarantee: neighbours are the same users with the vector of one of them replaced by any other.
- A vector clipped to l1 norm `clip` changes by at most 2 clip in l1 norm (the sensitivity): with noise of scale
  2 clip / epsilon it is epsilon-differentially private. All that is computed from it, for any number of items and
  partners that ask, is post-processing and costs nothing more. Without clipping nothing is promised.
- A score clipped to the range of ratings changes by at most the length of that range: with noise of scale s it is
  (length / s)-differentially private. A visitor has as many scores as there are items, and all of them change
  with its vector, so they add up (`privacy.ledger`). The range counts as public.

DEVIATION: the paper adds noise as if vectors were clipped to 0.05 (scale 0.1 / epsilon), and its authors' code
does not clip them; the epsilon of its figures is therefore no guarantee. `inference_epsilon` is one,
`inference_noise` gives the paper's scale.

Symbols: epsilon = inference_epsilon, s = answer_noise.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hushrec.draws import Draws
from hushrec.privacy.ledger import DELTA, Ledger, Release
from hushrec.systems.fedcore.co_training import Rows
from hushrec.systems.fedcore.laplace import key_for, private_rows
from hushrec.systems.fedcore.partners import Partner, Partnership

UNCLIPPED = 1e9  # far beyond any norm


class VectorNoise(NamedTuple):
    """What is done to the vectors of visitors."""

    clip: float  # of the l1 norm
    scale: float  # of the Laplace noise; 0: neither clipped nor noised


def noisy_vectors(partner: Partner, noise: VectorNoise, draws: Draws) -> Rows:
    """The learned vectors of a partner's users, clipped and with noise (Eq. 17)."""
    vectors = partner.user_factors
    if not noise.scale:
        return vectors
    key = key_for(draws.key("inference-noise"), vectors)
    return private_rows(vectors, noise.clip, noise.scale, key, partner.number, 0, 0)


def clipped_and_noisy(partner: Partner, asker: int, scores: Rows, scale: float, draws: Draws) -> Rows:
    """Scores within the range of the partner's ratings, with noise.

    Scores of the same vectors get the same noise when they are asked for again.
    """
    low, high = range_of(partner.ratings)
    key = key_for(draws.key(f"answer-noise-{asker}"), partner.shown_users)
    middle = np.float32((low + high) / 2)
    centred = (np.clip(scores, low, high) - middle).reshape(-1, 1)
    return private_rows(centred, UNCLIPPED, scale, key, partner.number, 0, 0).reshape(scores.shape) + middle


def range_of(ratings: Rows) -> tuple[float, float]:
    """The range of ratings."""
    return float(ratings.min()), float(ratings.max())


def answer_ledgers(private: Partnership, epsilon: float, scale: float) -> dict[str, Ledger]:
    """What is released about a visitor, by the words for one release: its vector once, or each of its scores."""
    ledgers = {}
    is_asked = [partner.owed[:, 0] > 0 for partner in private.partners]
    if epsilon and any(is_it.any() for is_it in is_asked):
        ledgers["visitor's vector"] = Ledger([Release("laplace", epsilon, 1, "user")])
    if scale:
        for partner, is_it in zip(private.partners, is_asked, strict=True):
            low, high = range_of(partner.ratings) if len(partner.ratings) else (0.0, 0.0)
            if is_it.any() and high > low:
                count = int(partner.owed[is_it, 1].sum())
                found = Ledger([Release("laplace", (high - low) / scale, count, "user")])
                known = ledgers.get("visitor's score")
                if known is None or found.plain_sum() > known.plain_sum():
                    ledgers["visitor's score"] = found
    return ledgers


def answer_facts(ledgers: Mapping[str, Ledger]) -> dict[str, float]:
    """What noise on answers promises, each number by its name."""
    facts: dict[str, float] = {}
    for what, ledger in ledgers.items():
        facts[f"epsilon of a {what}"] = ledger.per_release()
        if ledger.count > 1:
            facts[f"releases of a {what}"] = ledger.count
            facts[f"epsilon of the {what}s together, delta {DELTA:g}"] = round(ledger.total(), 2)
    return facts
