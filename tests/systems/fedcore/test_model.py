"""Who is served with which vector: a partner's own users, visitors, strangers and newcomers."""

from collections.abc import Callable

import numpy as np
import pytest

from hushrec.data import PartnerRows
from hushrec.models import neucf, neucf_scoring
from hushrec.models.neucf_scoring import NeuCFModel
from hushrec.systems.fedcore.model import PartnerModel, own_model, partner_model
from hushrec.systems.fedcore.partners import Agreement, Partnership

PMF = Agreement("pmf", "relu", 2, "psi", 1.0, 0, 2, 0, 0)
NEUCF = PMF._replace(model="neucf")
TOP_2 = PMF._replace(top_k=2)

# a has users u, v and a visitor w; b has v, w and the visitors u and s, whom nobody knows. Three items and two.
ROWS = PartnerRows(
    starts=np.array([0, 3, 6]),
    users=np.array([0, 0, 1, 1, 2, 2], np.int32),
    items=np.array([0, 1, 2, 0, 1, 0], np.int32),
    ratings=np.array([5, 4, 3, 2, 1, 5], np.float32),
    user_starts=np.array([0, 3, 7]),
    item_starts=np.array([0, 3, 5]),
    user_ids=np.array(["u", "v", "w", "u", "v", "w", "s"]),
    item_ids=np.array(["p", "q", "r", "p", "z"]),
)
USERS = np.array([[1, 2], [3, 4], [9, 9], [9, 9], [3, 4], [5, 6], [9, 9]], np.float32)
ITEMS = np.array([[1, 0], [0, 1], [1, 1], [2, 0], [0, 2]], np.float32)
EVERYBODY = np.arange(7, dtype=np.int32)


def partnership(num_weights: int = 0) -> Partnership:
    """Learned vectors as above (9s are of visitors: never used); shown ones are ten times as large."""
    held = Partnership.enrol(np.array([0, 1], np.int32), ROWS, 2, num_weights, 2)
    held.user_factors[:], held.item_factors[:], held.shown_users[:] = USERS, ITEMS, 10 * USERS
    held.layers[:] = np.random.default_rng(0).normal(size=held.layers.shape)
    return held


# (1 + 3) / 2 and (2 + 4) / 2 at a; (3 + 5) / 2 and (4 + 6) / 2 at b.
MEANS = {"a": [2.0, 3.0], "b": [4.0, 5.0]}


def test_every_account_has_the_vector_it_is_served_with() -> None:
    """w at a is b's user: its shown vector. u at b is a's. s is nobody's: b's mean user."""
    model = partner_model(partnership(), PMF, None)
    assert model.user_vectors.tolist() == [[1, 2], [3, 4], [50, 60], [10, 20], [3, 4], [5, 6], MEANS["b"]]


def test_alone_a_partner_has_the_mean_user_for_visitors() -> None:
    model = own_model(partnership(), PMF, None).own
    assert model.user_vectors.tolist() == [[1, 2], [3, 4], MEANS["a"], MEANS["b"], [3, 4], [5, 6], MEANS["b"]]


def test_a_visitor_whom_several_know_is_served_by_the_first() -> None:
    """Three partners; x visits c, and a and b have it with different vectors (not aligned)."""
    rows = PartnerRows(
        np.array([0, 1, 2, 3]), np.array([0, 0, 1], np.int32), np.zeros(3, np.int32), np.ones(3, np.float32),
        np.array([0, 1, 2, 4]), np.array([0, 1, 2, 3]), np.array(["x", "x", "x", "y"]), np.array(["p", "q", "r"]),
    )  # fmt: skip
    held = Partnership.enrol(np.arange(3, dtype=np.int32), rows, 2, 0, 0)
    held.shown_users[:] = [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert partner_model(held, PMF, None).user_vectors[2].tolist() == [1, 1]


@pytest.mark.parametrize("make", [partner_model, own_model])
def test_other_partners_items_are_never_recommended(make: Callable[..., PartnerModel]) -> None:
    for terms, held in ((PMF, partnership()), (NEUCF, partnership(neucf.num_weights(1)))):
        scores = make(held, terms, (1.0, 5.0)).score(EVERYBODY)
        assert (scores[:3, 3:] == -np.inf).all()
        assert (scores[3:, :3] == -np.inf).all()
        assert np.isfinite(scores[:3, :3]).all()
        assert np.isfinite(scores[3:, 3:]).all()


def test_scores_and_predictions_of_pmf_by_hand() -> None:
    model = partner_model(partnership(), PMF, (1.0, 5.0))
    scores = model.score(EVERYBODY)
    assert scores[0, :3].tolist() == [1, 2, 3]
    assert scores[2, :3].tolist() == [50, 60, 110], "scores are for ranking: not clipped"
    assert scores[4, 3:].tolist() == [6, 8]
    pairs = np.array([0, 0, 4, 6], np.int32), np.array([0, 2, 4, 3], np.int32)
    assert model.predict(*pairs).tolist() == [1, 3, 5, 5], "predictions are"
    assert partner_model(partnership(), PMF, None).predict(*pairs).tolist() == [1, 3, 8, 8]


def test_neucf_scores_with_the_layers_of_the_partner_whose_items_they_are() -> None:
    held = partnership(neucf.num_weights(1))
    model = partner_model(held, NEUCF, None)
    assert (held.layers[0] != held.layers[1]).any()
    for first, last, layers in ((0, 3, held.layers[0]), (3, 5, held.layers[1])):
        users = np.arange(3, dtype=np.int32) if first == 0 else np.arange(3, 7, dtype=np.int32)
        expected = neucf_scoring.score(model.user_vectors[users], ITEMS[first:last], layers, "relu")
        np.testing.assert_allclose(model.score(users)[:, first:last], expected, rtol=1e-6)
        pairs = np.repeat(users, last - first), np.tile(np.arange(first, last, dtype=np.int32), len(users))
        np.testing.assert_allclose(model.predict(*pairs).reshape(len(users), -1), expected, rtol=1e-5)


# --- Answers -----------------------------------------------------------------------------------------------


def with_answers(are_ranks: bool = False) -> Partnership:
    """a asked about w, b about u (answered) and s (not)."""
    held = partnership()
    held.asked[:] = [[2, -1], [0, 3]]
    held.answers[0, 0] = [np.nan, 2, 1] if are_ranks else [7, 2.5, 3]
    held.answers[1, 0, :2] = [1, 2] if are_ranks else [0.5, 4]
    return held


def test_visitors_are_served_with_the_answers_that_came_back() -> None:
    model = own_model(with_answers(), PMF, (1.0, 5.0))
    scores = model.score(EVERYBODY)
    assert scores[2].tolist() == [7, 2.5, 3, -np.inf, -np.inf]
    assert scores[3].tolist() == [-np.inf, -np.inf, -np.inf, 0.5, 4]
    assert scores[6, 3:].tolist() == [8, 10], "without an answer: the mean user"
    assert scores[0, :3].tolist() == [1, 2, 3], "own users as ever"
    pairs = np.array([2, 3, 0], np.int32), np.array([0, 3, 1], np.int32)
    assert model.predict(*pairs).tolist() == [5, 1, 2]


def test_ranks_order_a_list_but_are_no_predictions() -> None:
    model = own_model(with_answers(are_ranks=True), TOP_2, (1.0, 5.0))
    assert model.score(EVERYBODY)[2].tolist() == [-np.inf, 2, 1, -np.inf, -np.inf]
    mean = np.array(MEANS["a"])
    expected = np.clip(ITEMS[:3] @ mean, 1, 5)
    users, items = np.full(3, 2, np.int32), np.arange(3, dtype=np.int32)
    np.testing.assert_allclose(model.predict(users, items), expected)


# --- Newcomers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [partner_model, own_model])
def test_a_newcomer_is_served_at_the_partner_whose_items_it_rated(make: Callable[..., PartnerModel]) -> None:
    """The vector that minimises sum (u v - r)^2 + |u - mean|^2, mean over the accounts, by least squares."""
    model = make(partnership(), PMF, (1.0, 5.0))
    items, ratings = np.array([0, 2], np.int32), np.array([5, 1], np.float32)
    base = model if isinstance(model, PartnerModel) else model.own
    mean = base.user_vectors[:3].mean(axis=0)
    rows = np.vstack([ITEMS[items], np.eye(2)])
    vector = np.linalg.lstsq(rows, np.concatenate([ratings, mean]), rcond=None)[0]
    scores = model.fold_in(items, ratings)
    np.testing.assert_allclose(scores[:3], ITEMS[:3] @ vector, rtol=1e-5)
    assert (scores[3:] == -np.inf).all()


def test_without_ratings_a_newcomer_is_the_mean_user_and_with_many_itself() -> None:
    model = own_model(partnership(), PMF, None)
    truth = np.array([-1.0, 2.0])
    items = np.tile(np.arange(3, dtype=np.int32), 2000)
    scores = model.fold_in(items, (ITEMS[items] @ truth).astype(np.float32))
    np.testing.assert_allclose(scores[:3], ITEMS[:3] @ truth, atol=0.01)


def test_a_newcomer_at_two_partners_is_served_by_each_alone() -> None:
    model = partner_model(partnership(), PMF, None)
    items, ratings = np.array([0, 4, 2], np.int32), np.array([5, 4, 1], np.float32)
    both = model.fold_in(items, ratings)
    for own, places in ((slice(0, 3), [0, 2]), (slice(3, 5), [1])):
        alone = model.fold_in(items[places], ratings[places])
        np.testing.assert_array_equal(both[own], alone[own])
    nobody = model.fold_in(np.empty(0, np.int32), np.empty(0, np.float32))
    assert (nobody == -np.inf).all()


def test_a_newcomer_of_a_layered_model_is_served_as_by_its_partners_network() -> None:
    held = partnership(neucf.num_weights(1))
    held.layers[:] = np.linspace(-1, 1, held.layers.size).reshape(held.layers.shape)
    model = partner_model(held, NEUCF, (1.0, 5.0))
    items, ratings = np.array([3, 4], np.int32), np.array([5, 1], np.float32)
    users = model.user_vectors[int(model.user_starts[1]) :]
    one = NeuCFModel(users, model.item_vectors[3:], model.layers[1], NEUCF.activation, (1.0, 5.0))
    scores = model.fold_in(items, ratings)
    assert (scores[:3] == -np.inf).all()
    np.testing.assert_allclose(scores[3:], one.fold_in(items - 3, ratings), rtol=1e-6)


def test_the_model_looks_at_vectors_and_does_not_change_them() -> None:
    held = with_answers()
    before = {
        name: getattr(held, name).copy() for name in ("user_factors", "item_factors", "shown_users", "answers")
    }
    for model in (partner_model(held, PMF, (1.0, 5.0)), own_model(held, PMF, (1.0, 5.0))):
        model.score(EVERYBODY)
        model.predict(EVERYBODY, np.zeros(7, np.int32))
        model.fold_in(np.array([0], np.int32), np.ones(1, np.float32))
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(held, name), array)
