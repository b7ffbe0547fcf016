import numpy as np
import pytest

from hushrec.audit.attacks.model_extraction import extract_items
from hushrec.errors import HushrecError


def test_as_many_users_as_factors_give_all_items() -> None:
    generator = np.random.default_rng(0)
    items, users = generator.normal(size=(50, 8)), generator.normal(size=(8, 8))
    found = extract_items(users, users @ items.T)
    assert found.is_solved.all()
    assert found.conditions.max() < 1e4
    np.testing.assert_allclose(found.vectors, items, rtol=1e-6, atol=1e-8)


def test_own_noise_does_not_protect_the_items() -> None:
    """The extractor knows what it sent; with the vectors before the noise it would fail."""
    generator = np.random.default_rng(0)
    items, users = generator.normal(size=(50, 8)), generator.normal(size=(12, 8))
    sent = users + generator.laplace(0, 0.5, users.shape)
    answers = sent @ items.T
    np.testing.assert_allclose(extract_items(sent, answers).vectors, items, rtol=1e-6, atol=1e-8)
    assert np.abs(extract_items(users, answers).vectors - items).mean() > 0.1


def test_too_few_users() -> None:
    generator = np.random.default_rng(0)
    users = generator.normal(size=(7, 8))
    with pytest.raises(HushrecError, match="fewer than 8 independent answers: the attack cannot start"):
        extract_items(users, generator.normal(size=(7, 50)))
    with pytest.raises(HushrecError, match="cannot start"):
        extract_items(np.concatenate([users, users]), generator.normal(size=(14, 50)))
