"""The compiled training against calculus and against the plain NumPy of `benchmarks.reference`."""

import numpy as np
import pytest
from benchmarks import reference

from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models.pmf import FactorModel, Step, train_clients
from hushrec.models.rating_clients import RatingClients, initial_factors
from hushrec.privacy.filling import list_items

NUM_FACTORS = 5
KEY = Draws(0).key("virtual-items")


def made(num_users: int = 12, num_items: int = 30, seed: int = 0) -> tuple[RatingClients, np.ndarray]:
    """Clients with vectors of ordinary size, one of them without a rating, and item factors."""
    rows = synthetic(num_users, num_items, 10 * num_users, seed=seed).by_user()
    is_kept = np.ones(len(rows.items), bool)
    is_kept[rows.starts[4] : rows.starts[5]] = False
    lengths = np.diff(rows.starts)
    lengths[4] = 0
    rows = UserRows(np.concatenate([[0], np.cumsum(lengths)]), rows.items[is_kept], rows.ratings[is_kept])
    clients = RatingClients.enrol(np.arange(num_users, dtype=np.int32), rows, num_items, NUM_FACTORS, Draws(seed))
    draws = np.random.default_rng(seed)
    clients.user_factors[:] = draws.normal(0, 0.7, clients.user_factors.shape)
    return clients, draws.normal(0, 0.7, (num_items, NUM_FACTORS)).astype(np.float32)


def stepped(
    local_steps: int = 0, learns_virtual: bool = False, is_sequential: bool = False, learning_rate: float = 0.3
) -> Step:
    return Step(np.float32(learning_rate), np.float32(0.01), local_steps, learns_virtual, is_sequential)


def trained(clients: RatingClients, rows: np.ndarray, item_factors: np.ndarray, rho: int, step: Step):
    listing = list_items(clients, rows, rows.astype(np.int32), rho, KEY, 1)
    return listing, train_clients(clients, rows, item_factors, listing, step)


def complex_step(loss, place: np.ndarray) -> np.ndarray:
    """The gradient of an analytic function, exact to rounding: Im f(x + ih) / h."""
    tiny = 1e-30
    gradient = np.empty(len(place))
    for coordinate in range(len(place)):
        moved = place.astype(complex)
        moved[coordinate] += 1j * tiny
        gradient[coordinate] = loss(moved).imag / tiny
    return gradient


def test_equation_7_is_the_gradient_of_the_loss() -> None:
    """Loss of U_u: the mean over I_u of (U_u V_i - r_ui)^2 / 2, plus lambda |U_u|^2 / 2. With a learning rate of 1
    the gradient is the way that U_u went.
    """
    clients, item_factors = made()
    before = clients.user_factors.copy()
    trained(clients, np.arange(12), item_factors, 0, stepped(learning_rate=1.0))
    for user in range(12):
        mine = slice(clients.starts[user], clients.starts[user + 1])
        known, ratings = item_factors[clients.items[mine]].astype(np.float64), clients.ratings[mine]
        if not len(ratings):
            np.testing.assert_array_equal(clients.user_factors[user], before[user])
            continue

        def loss(vector: np.ndarray, known=known, ratings=ratings) -> complex:
            return ((known @ vector - ratings) ** 2).mean() / 2 + np.float32(0.01) * (vector @ vector) / 2

        expected = complex_step(loss, before[user])
        went = before[user].astype(np.float64) - clients.user_factors[user]
        np.testing.assert_allclose(went, expected, rtol=1e-5, atol=2e-6)


def test_equation_3_is_the_gradient_of_the_loss() -> None:
    """Loss of V_i at one client: (U_u V_i - r_ui)^2 / 2 + lambda |V_i|^2 / 2, with the U_u before its update."""
    clients, item_factors = made()
    before = clients.user_factors.astype(np.float64)
    listing, result = trained(clients, np.arange(12), item_factors, 0, stepped())
    for user in range(12):
        for place in range(listing.starts[user], listing.starts[user + 1]):
            rating = clients.ratings[clients.starts[user] + listing.rated_place[place]]

            def loss(vector: np.ndarray, user=user, rating=rating) -> complex:
                return (before[user] @ vector - rating) ** 2 / 2 + np.float32(0.01) * (vector @ vector) / 2

            expected = complex_step(loss, item_factors[listing.items[place]])
            np.testing.assert_allclose(result.gradients[place], expected, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("is_sequential", [False, True])
@pytest.mark.parametrize("learns_virtual", [False, True])
@pytest.mark.parametrize(("rho", "local_steps"), [(0, 0), (1, 0), (2, 1), (2, 4), (9, 3)])
def test_equals_the_plain_reference(rho: int, local_steps: int, learns_virtual: bool, is_sequential: bool) -> None:
    """Eqs. 1, 3, 7, 8 for all clients, one after the other in float64; 9 virtual items per rated one are all."""
    clients, item_factors = made()
    slow = [
        reference.Client(
            user,
            clients.items[clients.starts[user] : clients.starts[user + 1]],
            clients.ratings[clients.starts[user] : clients.starts[user + 1]].astype(np.float64),
            clients.user_factors[user].astype(np.float64),
        )
        for user in range(12)
    ]
    step = stepped(local_steps, learns_virtual and rho > 0, is_sequential)
    listing, result = trained(clients, np.arange(12), item_factors, rho, step)
    training = reference.Training(
        float(step.learning_rate), float(step.regularization), local_steps, step.learns_virtual, is_sequential
    )
    for user in range(12):
        mine = slice(listing.starts[user], listing.starts[user + 1])
        items, places = listing.items[mine], listing.rated_place[mine]
        virtual = items[places < 0]
        rated, noise = reference.train_client(slow[user], item_factors.astype(np.float64), virtual, training)
        expected = np.empty((len(items), NUM_FACTORS))
        expected[places >= 0], expected[places < 0] = rated.rows, noise.rows
        np.testing.assert_allclose(result.gradients[mine], expected, rtol=2e-4, atol=1e-4)
        np.testing.assert_allclose(clients.user_factors[user], slow[user].user_factors, rtol=2e-4, atol=1e-4)
        sent = slice(result.noise_starts[user], result.noise_starts[user + 1])
        assert result.noise_items[sent].tolist() == virtual.tolist()
        np.testing.assert_array_equal(result.noise[sent], result.gradients[mine][places < 0])  # Eq. 8


@pytest.mark.parametrize("learns_virtual", [False, True])
def test_a_cohort_of_all_equals_cohorts_of_one(learns_virtual: bool) -> None:
    together, item_factors = made()
    apart, _ = made()
    _, result = trained(together, np.arange(12), item_factors, 2, stepped(3, learns_virtual))
    alone = [
        trained(apart, np.array([user]), item_factors, 2, stepped(3, learns_virtual))[1] for user in range(12)
    ]
    np.testing.assert_array_equal(together.user_factors, apart.user_factors)
    np.testing.assert_array_equal(result.gradients, np.concatenate([one.gradients for one in alone]))
    np.testing.assert_array_equal(result.noise, np.concatenate([one.noise for one in alone]))


def test_only_the_cohort_is_changed() -> None:
    clients, item_factors = made()
    before = clients.user_factors.copy()
    trained(clients, np.array([2, 7]), item_factors, 1, stepped())
    is_changed = (clients.user_factors != before).any(axis=1)
    assert np.flatnonzero(is_changed).tolist() == [2, 7]
    np.testing.assert_array_equal(clients.previous_user_factors[[2, 7]], before[[2, 7]])


def test_initial_factors_are_small_and_keyed() -> None:
    numbers = np.arange(2000, dtype=np.int32)
    factors = initial_factors("user-factors", numbers, NUM_FACTORS, Draws(0))
    assert np.abs(factors).max() <= 0.005
    assert np.abs(factors).max() > 0.00499
    for purpose, draws in (("item-factors", Draws(0)), ("user-factors", Draws(1))):
        assert (initial_factors(purpose, numbers, NUM_FACTORS, draws) != factors).mean() > 0.99


def test_each_client_predicts_after_updates_of_its_own() -> None:
    """After two updates: clients that have made three predict, those that have made two fill in their mean."""
    (mixed, item_factors), (new, _), (old, _) = made(), made(), made()
    mixed.num_updates[:] = np.arange(12) % 2 + 2
    step = stepped(3, learns_virtual=True)._replace(predict_after=2)
    (listing, result), (_, means), (_, predicted) = (
        trained(clients, np.arange(12), item_factors, 2, one)
        for clients, one in ((mixed, step), (new, step), (old, stepped(3, learns_virtual=True)))
    )
    for user in range(12):
        expected, vectors = (predicted, old) if user % 2 else (means, new)
        mine = slice(listing.starts[user], listing.starts[user + 1])
        np.testing.assert_array_equal(result.gradients[mine], expected.gradients[mine])
        np.testing.assert_array_equal(mixed.user_factors[user], vectors.user_factors[user])
    assert (means.gradients != predicted.gradients).any()


# --- What counts -------------------------------------------------------------------------------------------


def three_clients() -> RatingClients:
    """Before: 10, 20, 30; now 11, 21, 31, all updated in round 4."""
    rows = UserRows(np.arange(4), np.zeros(3, np.int32), np.ones(3, np.float32))
    clients = RatingClients.enrol(np.arange(3, dtype=np.int32), rows, 1, 1, Draws(0))
    clients.previous_user_factors[:] = [[10], [20], [30]]
    clients.user_factors[:] = [[11], [21], [31]]
    clients.updated_round[:] = 4
    clients.previous_round[:] = [3, 0, 3]
    clients.num_updates[:] = [4, 1, 2]
    return clients


def test_settle_undoes_what_did_not_count() -> None:
    """Of clients 0 and 2, the last update of 2 did not count: its last one was in round 3. A second call with the
    same rounds changes nothing more.
    """
    clients = three_clients()
    for _ in range(2):
        clients.settle(np.array([0, 2]), np.array([4, 3], np.int32))
        assert clients.user_factors.ravel().tolist() == [11, 21, 30]
        assert clients.updated_round.tolist() == [4, 4, 3]
        assert clients.num_updates.tolist() == [4, 1, 1]


def test_vectors_of_other_rounds_are_refused() -> None:
    """Client 1 has the vectors of rounds 0 and 4; neither is that of round 2, which was counted."""
    clients = three_clients()
    with pytest.raises(HushrecError, match="holds the vectors of other rounds than were counted"):
        clients.settle(np.array([1]), np.array([2], np.int32))


def test_settled_factors_change_nothing() -> None:
    clients = three_clients()
    assert clients.settled_factors(np.array([4, 0, 3], np.int32)).ravel().tolist() == [11, 20, 30]
    assert clients.settled_factors(np.array([4, 4, 4], np.int32)).ravel().tolist() == [11, 21, 31]
    assert clients.user_factors.ravel().tolist() == [11, 21, 31]
    assert clients.updated_round.tolist() == [4, 4, 4]


def test_a_repeated_request_gives_the_same_numbers() -> None:
    """Trained in round 1 without being counted, then settled and trained again: as if trained once."""
    once, item_factors = made()
    twice, _ = made()
    rows, nothing = np.arange(12), np.zeros(12, np.int32)
    _, expected = trained(once, rows, item_factors, 1, stepped(2))
    for _ in range(2):
        twice.settle(rows, nothing)
        _, result = trained(twice, rows, item_factors, 1, stepped(2))
        twice.updated(rows, 1)
    np.testing.assert_array_equal(twice.user_factors, once.user_factors)
    np.testing.assert_array_equal(result.gradients, expected.gradients)


# --- The learned model -------------------------------------------------------------------------------------


def some_model(rates: list[float] | None = None, sums_gradients: bool = False) -> FactorModel:
    draws = np.random.default_rng(3)
    user_factors, item_factors = (draws.normal(size=(size, NUM_FACTORS)).astype(np.float32) for size in (6, 9))
    return FactorModel(user_factors, item_factors, None, np.array(rates or []), 0.1, sums_gradients)


def test_predict_is_the_inner_product() -> None:
    model = some_model()
    users, items = np.array([0, 5, 5, 2], np.int32), np.array([8, 0, 0, 3], np.int32)
    expected = (model.user_factors[users].astype(np.float64) * model.item_factors[items]).sum(axis=1)
    np.testing.assert_allclose(model.predict(users, items), expected, rtol=1e-5)
    np.testing.assert_allclose(model.score(users)[np.arange(4), items], expected, rtol=1e-4)
    assert model.score(users).shape == (4, 9)
    assert model.predict(users[:0], items[:0]).shape == (0,)


def test_predictions_are_clipped_and_scores_are_not() -> None:
    """User factors 1, 2, -1 and item factor 3: products 3, 6, -3, clipped to 1..5."""
    model = FactorModel(
        np.array([[1], [2], [-1]], np.float32), np.array([[3]], np.float32), (1.0, 5.0), np.empty(0), 0.1
    )
    users = np.arange(3, dtype=np.int32)
    assert model.predict(users, np.zeros(3, np.int32)).tolist() == [3, 5, 1]
    assert model.score(users).ravel().tolist() == [3, 6, -3]


def newcomers_vector(model: FactorModel, scores: np.ndarray) -> np.ndarray:
    """Found from the scores, all items' factors being of full rank."""
    every = model.item_factors.astype(np.float64)
    vector = np.linalg.lstsq(every, scores.astype(np.float64), rcond=None)[0]
    np.testing.assert_allclose(every @ vector, scores, atol=1e-5)
    return vector


@pytest.mark.parametrize("sums_gradients", [False, True])
@pytest.mark.parametrize("items", [[0], [3, 1], [0, 1, 2, 3, 4, 5, 6]])
def test_fold_in_ends_where_the_gradient_vanishes(items: list[int], sums_gradients: bool) -> None:
    """At the minimum of the loss with one over the sum of the rates, here 1/20, added to the regularization of
    0.1; where gradients are summed, the errors weigh as many times as much as there are ratings.
    """
    model, ratings = some_model([12.0, 8.0], sums_gradients), np.linspace(1, 5, len(items))
    vector = newcomers_vector(model, model.fold_in(np.array(items, np.int32), ratings.astype(np.float32)))
    times = len(items) if sums_gradients else 1
    gradient = reference.user_gradient(vector, model.item_factors[items].astype(np.float64), ratings, 0.15 / times)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)


def test_fold_in_goes_about_as_far_as_the_steps_of_equation_7() -> None:
    """200 steps of 0.02 in all directions alike: with V V^T = 4, each step takes a share of 0.08, so that nearly
    all of the way is gone; the closed form stops at 4 / (4 + 0.1 + 1/4) of it.
    """
    model = FactorModel(
        np.zeros((1, 2), np.float32), np.array([[2, 0], [0, 2]], np.float32), None, np.full(200, 0.02), 0.1
    )
    scores = model.fold_in(np.array([0], np.int32), np.array([3.0], np.float32))
    np.testing.assert_allclose(scores, [3 * 4 / 4.35, 0], rtol=1e-6)


@pytest.mark.parametrize("has_biases", [False, True])
@pytest.mark.parametrize("count", [1, 3, 9, 5000])
@pytest.mark.parametrize("kind", ["low", "high", "mixed"])
def test_newcomers_scores_are_on_the_scale(kind: str, count: int, has_biases: bool) -> None:
    """Whatever they rate, and however large V is: gradient steps with these rates would end beyond all floats."""
    draws = np.random.default_rng(4)
    item_factors = draws.normal(0, 6, (9, NUM_FACTORS)).astype(np.float32)
    users = np.zeros((1, NUM_FACTORS), np.float32)
    model = FactorModel(users, item_factors, (1.0, 5.0), np.full(100, 0.8), 0.001, has_biases=has_biases)
    ratings = {"low": np.ones(count), "high": np.full(count, 5.0), "mixed": draws.integers(1, 6, count)}[kind]
    items = np.arange(count, dtype=np.int32) % 9
    scores = model.fold_in(items, ratings.astype(np.float32))
    assert scores.shape == (9,)
    assert (scores >= 1).all()
    assert (scores <= 5).all()
    assert len(np.unique(scores)) > 1


def test_fold_in_without_ratings_scores_nothing() -> None:
    scores = some_model([0.5, 0.5]).fold_in(np.empty(0, np.int32), np.empty(0, np.float32))
    assert scores.tolist() == [0] * 9
