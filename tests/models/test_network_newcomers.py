"""Newcomers of NeuMF, NGCF and LightGCN, against networks that were made with them as one more user."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from hushrec.draws import Draws
from hushrec.models.server_model import Learned, ModelSettings, Pairs, initial, scorer, train

SIZES = (12, 15)
NEW = np.array([1, 4, 9], np.int32)
NONE = np.empty(0, np.float32)


def settings(model: str, head: str = "product", num_graph_layers: int = 3) -> ModelSettings:
    return ModelSettings(
        model=model, head=head, num_factors=6, layers=(6, 3), num_graph_layers=num_graph_layers, epochs=2,
        batch_size=16, learning_rate=0.05, loss="mean",
    )  # fmt: skip


def edges() -> Pairs:
    draws = np.random.default_rng(0)
    users, items = (draws.integers(0, size, 70).astype(np.int32) for size in SIZES)
    return Pairs(users, items, draws.random(70).astype(np.float32))


def with_one_more(learned: Learned, vector: np.ndarray) -> tuple[Learned, Pairs]:
    """The same network and graph with a 13th user: with this vector, and edges of weight 1."""
    vectors = learned.parameters[: sum(SIZES) * 6].reshape(-1, 6)
    users, items = vectors[: SIZES[0]], vectors[SIZES[0] :]
    flat = np.concatenate([users, vector.astype(np.float32)[None], items]).ravel()
    parameters = np.concatenate([flat, learned.parameters[sum(SIZES) * 6 :]])
    known = edges()
    graph = Pairs(
        np.concatenate([known.users, np.full(3, SIZES[0], np.int32)]),
        np.concatenate([known.items, NEW]),
        np.concatenate([known.labels, np.ones(3, np.float32)]),
    )
    return Learned(parameters, *(np.zeros_like(parameters) for _ in range(2)), np.array(0, np.int64)), graph


VECTOR = np.linspace(-1, 1, 6)


def trained(chosen: ModelSettings) -> Learned:
    return train(initial(chosen, *SIZES, Draws(0)), chosen, SIZES, edges(), edges(), 1, Draws(0))


@pytest.mark.parametrize(("model", "head"), [("ngcf", "product"), ("lightgcn", "product"), ("lightgcn", "mlp")])
def test_a_newcomer_is_one_more_node(model: str, head: str) -> None:
    """After one layer its outputs are those of a network with it, whatever its vector."""
    chosen = settings(model, head, num_graph_layers=1)
    learned = trained(chosen)
    whole, graph = with_one_more(learned, VECTOR)
    expected = scorer(whole, chosen, (SIZES[0] + 1, SIZES[1]), graph).user_outputs[SIZES[0]]
    found, _ = scorer(learned, chosen, SIZES, edges()).newcomers._as_node(NEW)(VECTOR)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", ["ngcf", "lightgcn"])
def test_what_items_send_in_later_layers_is_near_to_what_they_would_send(model: str) -> None:
    """There they would hear of the newcomer, who is one of many; here they do not."""
    chosen = settings(model)
    learned = trained(chosen)
    whole, graph = with_one_more(learned, VECTOR)
    expected = scorer(whole, chosen, (SIZES[0] + 1, SIZES[1]), graph).user_outputs[SIZES[0]]
    found, _ = scorer(learned, chosen, SIZES, edges()).newcomers._as_node(NEW)(VECTOR)
    assert np.corrcoef(expected, found)[0, 1] > 0.9


@pytest.mark.parametrize("model", ["ngcf", "lightgcn"])
def test_slopes_of_outputs(model: str) -> None:
    chosen = settings(model)
    outputs = scorer(trained(chosen), chosen, SIZES, edges()).newcomers._as_node(NEW)
    found, slopes = outputs(VECTOR)
    for place in range(len(found)):
        numeric = approx_fprime(VECTOR, lambda moved, place=place: outputs(moved)[0][place], 1e-7)
        np.testing.assert_allclose(slopes[place], numeric, atol=1e-5)


@pytest.mark.parametrize(("model", "head"), [("ngcf", "product"), ("lightgcn", "product"), ("lightgcn", "mlp")])
def test_scores_are_those_of_the_outputs(model: str, head: str) -> None:
    chosen = settings(model, head)
    known = scorer(trained(chosen), chosen, SIZES, edges())
    logits = known.head.logits(known.newcomers.outputs(NEW), known.item_outputs)[0]
    np.testing.assert_allclose(known.fold_in(NEW, NONE), 1 / (1 + np.exp(-logits)), rtol=1e-4)


def test_the_vector_of_neumf_has_less_loss_than_most_users() -> None:
    """Less than that of the mean user, from which it starts, and of most others, whose vectors are as usual."""
    chosen = settings("neumf", "mlp")
    learned = train(initial(chosen, *SIZES, Draws(0)), chosen, SIZES, edges(), None, 1, Draws(0))
    model = scorer(learned, chosen, SIZES, None, num_negatives=20)  # so that all others count in full
    labels = np.isin(np.arange(SIZES[1]), NEW)

    def loss(scores: np.ndarray) -> np.ndarray:
        return -np.log(np.where(labels, scores, 1 - scores)).sum(axis=-1)

    everybody = model.score(np.arange(SIZES[0], dtype=np.int32))
    mean = model.user_outputs.mean(axis=0, keepdims=True)
    of_mean = 1 / (1 + np.exp(-model.head.logits(mean, model.item_outputs)[0]))
    assert loss(model.fold_in(NEW, NONE)) < min(loss(of_mean), np.median(loss(everybody)))


def test_without_graph_layers_a_vector_is_sought() -> None:
    chosen = settings("ngcf", num_graph_layers=0)
    learned = train(initial(chosen, *SIZES, Draws(0)), chosen, SIZES, edges(), edges(), 1, Draws(0))
    scores = scorer(learned, chosen, SIZES, edges()).fold_in(NEW, NONE)
    assert scores[NEW].mean() > np.delete(scores, NEW).mean()


@pytest.mark.parametrize("model", ["neumf", "ngcf", "lightgcn"])
def test_a_newcomer_changes_nothing_and_may_have_everything(model: str) -> None:
    chosen = settings(model, "mlp")
    learned = initial(chosen, *SIZES, Draws(0))
    known, users = scorer(learned, chosen, SIZES, edges()), np.arange(SIZES[0], dtype=np.int32)
    before, parameters = known.score(users), learned.parameters.copy()
    for items in (NEW, NEW[:1], np.arange(SIZES[1], dtype=np.int32)):
        scores = known.fold_in(items, NONE)
        assert ((scores > 0) & (scores < 1)).all()
        np.testing.assert_array_equal(known.fold_in(items, NONE), scores)
    np.testing.assert_array_equal(known.score(users), before)
    np.testing.assert_array_equal(learned.parameters, parameters)
