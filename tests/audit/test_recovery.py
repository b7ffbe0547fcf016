import numpy as np
import pytest
from numpy.typing import NDArray

from hushrec.audit.matching import Quadratic, taken_apart
from hushrec.audit.recovery import recover_by_reference, train_neucf, train_pmf
from hushrec.errors import HushrecError


def made(num_users: int = 30, num_items: int = 60, width: int = 6, seed: int = 0) -> tuple[NDArray, NDArray]:
    generator = np.random.default_rng(seed)
    return generator.normal(0.6, 0.3, (num_users, width)), generator.normal(0.8, 0.4, (num_items, width))


def test_as_many_answers_as_factors_give_the_vectors() -> None:
    generator = np.random.default_rng(0)
    users, items = generator.normal(size=(30, 6)), generator.normal(size=(60, 6))
    found = recover_by_reference(items, users @ items.T, max_answers=6)
    good = found.conditions < 1e4
    assert good.all()
    np.testing.assert_allclose(found.vectors, users, rtol=1e-6, atol=1e-8)


def test_noise_on_answers_grows_with_the_condition() -> None:
    """With only as many answers as factors noise of 0.2 ruins the vectors; with all it is evened out."""
    users, items = made()
    answers = users @ items.T + np.random.default_rng(1).laplace(0, 0.2, (30, 60))
    few, all_ = recover_by_reference(items, answers, max_answers=6), recover_by_reference(items, answers)
    assert np.sqrt(np.mean((few.vectors - users) ** 2)) > 0.4
    assert np.sqrt(np.mean((all_.vectors - users) ** 2)) < 0.2
    assert (few.conditions >= all_.conditions).all()


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    users, items = made()
    whole = recover_by_reference(items, users @ items.T)
    monkeypatch.setattr("hushrec.audit.recovery._BLOCK_NUMBERS", 1)
    one_by_one = recover_by_reference(items, users @ items.T)
    for left, right in zip(whole, one_by_one, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10)


def test_too_few_answers() -> None:
    users, items = made()
    answers = users @ items.T
    used = np.zeros(answers.shape, bool)
    used[:, :5] = True
    with pytest.raises(HushrecError, match="fewer than 6 independent answers: the attack cannot start"):
        recover_by_reference(items, answers, is_used=used)
    used[3, 10] = True
    found = recover_by_reference(items, answers, is_used=used)
    assert np.flatnonzero(found.is_solved).tolist() == [3]
    assert np.isinf(found.conditions[4])
    assert not found.vectors[4].any()
    np.testing.assert_allclose(found.vectors[3], users[3], rtol=1e-6)


def test_the_same_item_twice_is_no_new_answer() -> None:
    users, items = made(num_items=5)
    items = np.concatenate([items, items])
    with pytest.raises(HushrecError, match="cannot start"):
        recover_by_reference(items, users @ items.T)


def test_places_alone_are_not_enough() -> None:
    _, items = made()
    with pytest.raises(HushrecError, match="cannot start without scores"):
        recover_by_reference(items, None)
    with pytest.raises(HushrecError, match="cannot start without scores"):
        train_pmf(items, None)
    with pytest.raises(HushrecError, match="cannot start without scores"):
        train_neucf(items, np.zeros(27), None, np.random.default_rng(0))


def test_training_is_ridge_regression() -> None:
    """One user at a time, through augmented least squares."""
    users, items = made()
    answers = users @ items.T + np.random.default_rng(1).normal(0, 0.1, (30, 60))
    used = np.random.default_rng(2).random(answers.shape) < 0.3
    found = train_pmf(items, answers, is_used=used, regularization=0.5)
    for user in range(30):
        left = np.concatenate([items[used[user]], np.sqrt(0.5) * np.eye(6)])
        right = np.concatenate([answers[user, used[user]], np.zeros(6)])
        np.testing.assert_allclose(found[user], np.linalg.lstsq(left, right)[0], rtol=1e-8)
    np.testing.assert_allclose(train_pmf(items, users @ items.T, regularization=1e-9), users, rtol=1e-4)


def neucf(users: NDArray, items: NDArray, layers: NDArray, quadratic: Quadratic | None) -> NDArray:
    dim = users.shape[1] // 2
    hidden, bias, output = taken_apart(layers, dim)
    scores = np.empty((len(users), len(items)))
    for u, user in enumerate(users):
        for i, item in enumerate(items):
            inputs = hidden @ np.concatenate([user[dim:], item[dim:]]) + bias
            if quadratic is None:
                values = np.maximum(inputs, 0)
            else:
                values = quadratic[0] * inputs**2 + quadratic[1] * inputs + quadratic[2]
            scores[u, i] = output[:dim] @ (user[:dim] * item[:dim]) + output[dim:] @ values
    return scores


@pytest.mark.parametrize("quadratic", [None, (0.125, 0.5, 0.25)])
def test_training_on_neucf_predicts_what_was_not_asked(quadratic: Quadratic | None) -> None:
    """From 40 of 60 answers; the scores of the others come out, though not always the vectors themselves."""
    generator = np.random.default_rng(0)
    users, items = generator.normal(0.3, 0.4, (10, 8)), generator.normal(0.3, 0.4, (60, 8))
    layers = generator.normal(0, 0.6, 44)
    answers = neucf(users, items, layers, quadratic)
    used = np.zeros(answers.shape, bool)
    used[:, :40] = True
    found = train_neucf(
        items, layers, answers, generator, is_used=used, regularization=1e-8, num_steps=80, quadratic=quadratic
    )
    misses = np.abs(neucf(found, items, layers, quadratic) - answers)[:, 40:]
    assert np.median(misses) < 1e-3
    assert misses.mean() < 0.05 * answers.std()


def test_noise_on_answers_spoils_the_training_on_neucf() -> None:
    generator = np.random.default_rng(0)
    users, items, layers = (generator.normal(0.3, 0.4, shape) for shape in ((10, 8), (60, 8), 44))
    answers = neucf(users, items, layers, None)
    noisy = answers + generator.laplace(0, 1.0, answers.shape)
    found = train_neucf(items, layers, noisy, generator)
    assert np.abs(neucf(found, items, layers, None) - answers).mean() > 0.1
