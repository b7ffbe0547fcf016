from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit

from hushrec.draws import Draws
from hushrec.systems.metamf.network import (
    MetaModel,
    Positives,
    Sizes,
    client_gradients,
    generate,
    initial_parameters,
    parts_of,
    uploads_of,
)
from hushrec.systems.metamf.newcomers import GeneratedLogits

torch = pytest.importorskip("torch")

SIZES = Sizes(num_users=5, num_items=7, num_factors=8, item_memory=3, memory=6, hidden=10)


def recommenders(num_clients: int, sizes: Sizes = SIZES) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.7, (num_clients, sizes.num_generated)).astype(np.float32)


def logits(rows: "torch.Tensor", sizes: Sizes = SIZES) -> "torch.Tensor":
    """All items' outputs of flat recommenders, written out with slices."""
    items, factors, width = sizes.num_items, sizes.num_factors, sizes.width
    bounds = np.cumsum([0, items * factors, factors * width, width, width, 1]).tolist()
    vectors, first, bias, second, last = (rows[:, a:b] for a, b in pairwise(bounds))
    hidden = torch.relu(vectors.reshape(-1, items, factors) @ first.reshape(-1, factors, width) + bias[:, None, :])
    return (hidden @ second[:, :, None])[:, :, 0] + last


def gradients(held: Positives, generated: np.ndarray, num_negatives: int, round_number: int = 1) -> np.ndarray:
    who = np.arange(len(generated))
    key = Draws(3).key("negatives")
    return client_gradients(held, who, who.astype(np.int32), generated, SIZES, num_negatives, key, round_number)


def held_by(*items: list[int]) -> Positives:
    starts = np.cumsum([0, *(len(one) for one in items)])
    return Positives(starts, np.array([item for one in items for item in one], np.int32))


def test_client_gradient_is_that_of_autograd() -> None:
    """Each client owns all items but one, so every drawn item is that one: labels and weights are known."""
    held = held_by([0, 1, 2, 3, 4, 5], [0, 1, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])
    rows = torch.from_numpy(recommenders(3)).requires_grad_()
    labels, weights = torch.ones(3, 7), torch.ones(3, 7)
    for client, missing in enumerate((6, 2, 0)):
        labels[client, missing], weights[client, missing] = 0, 4 * 6
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits(rows), labels, weights, reduction="none")
    losses.sum().div(5 * 6).backward()
    found = gradients(held, rows.detach().numpy(), num_negatives=4)
    np.testing.assert_allclose(found, rows.grad.numpy(), rtol=1e-4, atol=1e-6)
    assert (found != 0).mean() > 0.3


def test_clients_without_items_or_with_all_of_them() -> None:
    """No items: no gradient. All items: nothing can be drawn, only the own ones count."""
    rows = torch.from_numpy(recommenders(2)).requires_grad_()
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits(rows)[1], torch.ones(7))
    losses.backward()
    found = gradients(held_by([], list(range(7))), rows.detach().numpy(), num_negatives=4)
    assert not found[0].any()
    np.testing.assert_allclose(found[1], rows.grad.numpy()[1], rtol=1e-4, atol=1e-6)


def test_drawn_items_are_uniform_among_those_not_owned() -> None:
    """One layer that passes the first factor through: the gradient of an item counts how often it was drawn.

    600 rounds of 8 draws from 5 items: each is drawn 960 times, with a standard deviation of 28.
    """
    plain = np.zeros((1, SIZES.num_generated), np.float32)
    first = SIZES.num_vector_numbers
    plain[0, first], plain[0, first + SIZES.num_factors * SIZES.width] = 1, 1
    plain[0, first + (SIZES.num_factors + 1) * SIZES.width] = 1
    error = 1 / (1 + np.exp(-1.0)) / 10
    counts = np.zeros(7)
    for round_number in range(600):
        found = gradients(held_by([2, 4]), plain, num_negatives=4, round_number=round_number)
        counts += found[0, :first].reshape(7, 8)[:, 0] / error
    others = counts[[0, 1, 3, 5, 6]]
    assert counts[[2, 4]].max() < 0
    assert abs(others - 960).max() < 5 * 28
    assert round(float(others.sum())) == 4800


def test_a_client_alone_gets_the_same_bits() -> None:
    held, rows = held_by([0, 3], [1], [2, 5, 6], [4]), recommenders(4)
    together = gradients(held, rows, 2)
    for client in range(4):
        who = np.array([client])
        alone = client_gradients(
            held, who, who.astype(np.int32), rows[who], SIZES, 2, Draws(3).key("negatives"), 1
        )
        assert alone.tobytes() == together[client].tobytes()


def test_server_gradient_is_that_of_autograd_through_the_whole_network() -> None:
    """Users 0, 2 and 4 get recommenders, user 2 does not answer; most item vectors have no gradient."""
    parameters = initial_parameters(SIZES, Draws(0))
    users = np.array([0, 2, 4], np.int32)
    generated = generate(parameters, SIZES, users)
    rows = generated.recommenders()
    upload = np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    vectors = upload[:, : SIZES.num_vector_numbers].reshape(3, 7, 8)
    vectors[:, [1, 2, 5]] = 0
    upload[1] = 0
    batches = [(np.array([2]), upload[2:]), (np.array([0]), upload[:1])]
    found = np.full(parameters.size, np.nan, np.float32)
    generated.gradient(uploads_of(batches, 3, SIZES), out=found)

    flat = torch.from_numpy(parameters).clone().requires_grad_()
    part, start = {}, 0
    for name, view in parts_of(parameters, SIZES).items():
        part[name] = flat[start : start + view.size].reshape(view.shape)
        start += view.size
    shared = part["users"][[0, 2, 4]] @ part["memory"]

    def through(name: str, hidden_of: str) -> "torch.Tensor":
        hidden = torch.relu(shared @ part[f"{hidden_of}_hidden"].T + part[f"{hidden_of}_hidden_bias"])
        return hidden @ part[name].T + part[f"{name}_bias"]

    left, right = through("left", "items").reshape(3, 7, 3), through("right", "items").reshape(3, 3, 8)
    dense = torch.cat([(left @ right).reshape(3, -1), through("first", "first"), through("second", "second")], 1)
    np.testing.assert_allclose(rows, dense.detach().numpy(), rtol=1e-5, atol=1e-6)
    dense.backward(torch.from_numpy(upload))
    np.testing.assert_allclose(found, flat.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        generated.scores(), torch.sigmoid(logits(dense)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_the_start_of_a_user_does_not_depend_on_later_users() -> None:
    more = parts_of(initial_parameters(SIZES._replace(num_users=9), Draws(0)), SIZES._replace(num_users=9))
    for name, part in parts_of(initial_parameters(SIZES, Draws(0)), SIZES).items():
        np.testing.assert_array_equal(part, more[name][: len(part)])
    assert 0.8 < more["users"].std() < 1.2
    assert not more["left_bias"].any()


def test_scorer() -> None:
    scorer = MetaModel(initial_parameters(SIZES, Draws(0)), SIZES)
    scores = scorer.score(np.array([3, 1], np.int32))
    assert scores.shape == (2, 7)
    assert scores.dtype == np.float32
    assert len(np.unique(scores)) > 10  # where all hidden units are off, scores are equal
    users, items = np.array([1, 3, 1, 3, 3], np.int32), np.array([6, 0, 2, 5, 5], np.int32)
    expected = scores[[1, 0, 1, 0, 0], items]
    np.testing.assert_allclose(scorer.predict(users, items), expected, rtol=1e-5)


def test_logits_by_a_users_vector_and_their_slopes() -> None:
    parameters = initial_parameters(SIZES, Draws(0))
    users = parts_of(parameters, SIZES)["users"].astype(np.float64)
    logits_of = GeneratedLogits(parts_of(parameters, SIZES), SIZES.item_memory)
    scores = MetaModel(parameters, SIZES).score(np.arange(len(users), dtype=np.int32))
    for user in range(len(users)):
        found, slopes = logits_of(users[user])
        np.testing.assert_allclose(expit(found), scores[user], rtol=1e-4)
        for item in range(SIZES.num_items):
            numeric = approx_fprime(users[user], lambda moved, item=item: logits_of(moved)[0][item], 1e-7)
            np.testing.assert_allclose(slopes()[item], numeric, atol=1e-5)


def test_a_newcomers_vector_has_less_loss_than_any_users() -> None:
    parameters, items = initial_parameters(SIZES, Draws(0)), np.array([0, 5], np.int32)
    model, labels = MetaModel(parameters, SIZES), np.isin(np.arange(SIZES.num_items), items)
    before = parameters.copy()

    def loss(scores: np.ndarray) -> np.ndarray:
        return -np.log(np.where(labels, scores, 1 - scores)).sum(axis=-1)

    newcomer = model.fold_in(items, np.ones(2, np.float32))
    assert loss(newcomer) < loss(model.score(np.arange(SIZES.num_users, dtype=np.int32))).min()
    np.testing.assert_array_equal(parameters, before)


def test_scores_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, users = MetaModel(initial_parameters(SIZES, Draws(0)), SIZES), np.arange(5, dtype=np.int32)
    whole = scorer.score(users)
    monkeypatch.setattr("hushrec.systems.metamf.network._SCORED_BYTES", 1)
    np.testing.assert_allclose(scorer.score(users), whole, rtol=1e-5)
