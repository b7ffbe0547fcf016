"""Noise in the inference phase: on vectors by epsilon, on scores, in the ledger, and in what is served."""

from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.ledger import DELTA, Ledger, Release
from hushrec.registry import SYSTEMS
from hushrec.systems.fedcore.answer_privacy import (
    UNCLIPPED,
    VectorNoise,
    answer_facts,
    answer_ledgers,
    clipped_and_noisy,
    noisy_vectors,
)
from hushrec.systems.fedcore.model import partner_model
from systems.runs import Finished, run, some_partners

FEDCORE = SYSTEMS["fedcore"]
TRAINED: dict[str, Any] = {"batch_size": 16, "num_rounds": 2, "num_asked": 3, "inference": "none"}


def finished(**options: Any) -> Finished:
    return run("fedcore", some_partners(2), **{**TRAINED, **options})


def test_epsilon_sets_the_scale_by_the_clipping_norm() -> None:
    """Sensitivity 2 * 10; epsilon 5: scale 4."""
    assert FEDCORE.configure({"inference_epsilon": 5.0}).vector_noise == VectorNoise(10.0, 4.0)
    assert FEDCORE.configure({"inference_noise": 0.1}).vector_noise == VectorNoise(UNCLIPPED, 0.1)
    assert FEDCORE.configure({}).vector_noise.scale == 0
    with pytest.raises(HushrecError, match="set twice; use inference_epsilon= or inference_noise="):
        FEDCORE.configure({"inference_epsilon": 5.0, "inference_noise": 0.1})


def test_vectors_are_clipped_before_noise_with_epsilon_and_not_without() -> None:
    partner = finished().private.partners[0]
    partner.user_factors[:] = 1.0  # an l1 norm of as many as there are factors
    width = partner.user_factors.shape[1]
    tiny = 1e-6
    clipped = noisy_vectors(partner, VectorNoise(width / 4, tiny), Draws(0))
    np.testing.assert_allclose(clipped, 0.25, atol=1e-4)
    np.testing.assert_allclose(noisy_vectors(partner, VectorNoise(UNCLIPPED, tiny), Draws(0)), 1.0, atol=1e-4)


def test_vectors_learned_since_get_other_noise_and_the_same_ones_the_same() -> None:
    """Else the difference of two releases would be free of noise."""
    partner, noise = finished().private.partners[0], VectorNoise(UNCLIPPED, 1.0)
    first, again = (noisy_vectors(partner, noise, Draws(0)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    before = partner.user_factors.copy()
    partner.user_factors[0] += 0.5
    moved = noisy_vectors(partner, noise, Draws(0))
    assert not np.allclose(moved - partner.user_factors, first - before, atol=0.01)


def test_scores_are_clipped_to_the_range_of_ratings_and_then_noised() -> None:
    """Laplace noise of scale 0.5 has a mean size of 0.5; of 40,000 draws the mean is within 0.02 of it, but for
    one time in 10^15 (8 standard errors of 0.5 / 200).
    """
    partner = finished().private.partners[0]
    low, high = float(partner.ratings.min()), float(partner.ratings.max())
    scores = np.full((20, 2000), 99.0, np.float32)
    noisy = clipped_and_noisy(partner, 1, scores, 0.5, Draws(0))
    assert abs(np.abs(noisy - high).mean() - 0.5) < 0.02
    np.testing.assert_array_equal(noisy, clipped_and_noisy(partner, 1, scores, 0.5, Draws(0)))
    assert not np.array_equal(noisy, clipped_and_noisy(partner, 0, scores, 0.5, Draws(0)))
    assert abs(clipped_and_noisy(partner, 1, -scores, 1e-6, Draws(0)).max() - low) < 1e-4


def test_the_ledger_counts_a_vector_once_and_every_score() -> None:
    """b was asked by a, which has 7 items, about 2 visitors: 7 scores of each, with (5 - 1) / 2 = 2 for one."""
    private = finished().private
    private.partners[1].owed[0] = 2, 7
    private.partners[1].ratings[:2] = 1, 5
    ledgers = answer_ledgers(private, 15.0, 2.0)
    assert ledgers["visitor's vector"].releases == [Release("laplace", 15.0, 1, "user")]
    assert ledgers["visitor's score"].releases == [Release("laplace", 2.0, 7, "user")]
    facts = answer_facts(ledgers)
    assert facts == {
        "epsilon of a visitor's vector": 15.0,
        "epsilon of a visitor's score": 2.0,
        "releases of a visitor's score": 7,
        f"epsilon of the visitor's scores together, delta {DELTA:g}": round(
            Ledger([Release("laplace", 2.0, 7, "user")]).total(), 2
        ),
    }
    assert 2.0 < facts[f"epsilon of the visitor's scores together, delta {DELTA:g}"] <= 14.0
    assert answer_ledgers(private, 0.0, 0.0) == {}


def test_nothing_is_released_where_nobody_asks() -> None:
    done = finished(inference_epsilon=5.0, answer_noise=0.1)
    assert set(FEDCORE.result.facts(done.private, done.config)) == {"common users"}
    assert not FEDCORE.result.promises(done.private, done.config)


def test_the_model_serves_visitors_with_noise_of_this_size_and_own_users_without() -> None:
    plain, noisy = finished(), finished(answer_noise=0.25)
    models = [partner_model(done.private, done.config.agreement, None) for done in (plain, noisy)]
    everybody = np.arange(len(plain.private.user_factors), dtype=np.int32)
    scores = [model.score(everybody) for model in models]
    is_visitor = np.concatenate([~partner.is_rated for partner in plain.private.partners])
    np.testing.assert_array_equal(scores[0][~is_visitor], scores[1][~is_visitor])
    limits = float(plain.private.rows.ratings.min()), float(plain.private.rows.ratings.max())
    is_finite = np.isfinite(scores[0][is_visitor])
    noise = (scores[1][is_visitor] - np.clip(scores[0][is_visitor], *limits))[is_finite]
    # Laplace: mean size 0.25, with a standard error of 0.25 / sqrt(count); 6 of them.
    assert abs(np.abs(noise).mean() - 0.25) < 6 * 0.25 / np.sqrt(len(noise))
    assert abs(noise.mean()) < 6 * 0.25 * np.sqrt(2 / len(noise))
    users, items = (places.astype(np.int32) for places in np.nonzero(np.isfinite(scores[1])))
    np.testing.assert_allclose(models[1].predict(users, items), scores[1][users, items], atol=1e-5)


def test_what_is_returned_has_noise_and_what_is_decrypted_has_none() -> None:
    pytest.importorskip("tenseal")
    done = finished(inference="ckks", answer_noise=0.5)
    asker, home = done.private.partners
    returned, own = asker.answers[:, : len(asker.item_factors)], home.decrypted[0]
    limits = float(home.ratings.min()), float(home.ratings.max())
    noise = (returned - np.clip(own, *limits)).ravel()
    assert abs(np.abs(noise).mean() - 0.5) < 6 * 0.5 / np.sqrt(len(noise))
    facts = FEDCORE.result.promises(done.private, done.config)
    assert facts["epsilon of a visitor's score"] == (limits[1] - limits[0]) / 0.5
    assert facts["releases of a visitor's score"] == len(asker.item_factors)
    assert "largest error of encrypted scores" not in facts


def test_places_follow_the_noisy_scores() -> None:
    pytest.importorskip("tenseal")
    plain, noisy = (finished(inference="ckks", top_k=3, answer_noise=scale).private for scale in (0.0, 50.0))
    assert not np.array_equal(plain.partners[0].answers, noisy.partners[0].answers, equal_nan=True)
