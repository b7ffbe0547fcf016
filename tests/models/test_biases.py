"""Biases beside factors, against calculus, against plain NumPy and against what was worked out by hand."""

import numpy as np
import pytest

from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.models.biases import Scale, as_ratings, eased, initial_items, initial_users, moved_items, scale_of
from hushrec.models.pmf import FactorModel, Step, train_clients
from hushrec.models.rating_clients import RatingClients
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.filling import list_items
from hushrec.protocol import Ragged
from hushrec.systems.fedrec import ItemGradients

NUM_FACTORS, NUM_USERS, NUM_ITEMS = 4, 12, 30
REGULARIZATION, SHRINKAGE, RATE = np.float32(0.05), np.float32(3.0), np.float32(0.5)
KEY = Draws(0).key("virtual-items")


def made() -> tuple[RatingClients, np.ndarray]:
    """Clients and items with factors and biases of ordinary size; client 4 has no rating."""
    rows = synthetic(NUM_USERS, NUM_ITEMS, 10 * NUM_USERS).by_user()
    is_kept = np.ones(len(rows.items), bool)
    is_kept[rows.starts[4] : rows.starts[5]] = False
    lengths = np.diff(rows.starts)
    lengths[4] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows = UserRows(starts, rows.items[is_kept], rows.ratings[is_kept], rows.rating_range)
    numbers = np.arange(NUM_USERS, dtype=np.int32)
    clients = RatingClients.enrol(numbers, rows, NUM_ITEMS, NUM_FACTORS, Draws(0), has_biases=True)
    draws = np.random.default_rng(1)
    clients.user_factors[:] = draws.normal(0, 0.7, clients.user_factors.shape)
    return clients, draws.normal(0, 0.7, (NUM_ITEMS, NUM_FACTORS + 1)).astype(np.float32)


def stepped(local_steps: int = 0, learns_virtual: bool = False, is_sequential: bool = False) -> Step:
    return Step(
        RATE, REGULARIZATION, local_steps, learns_virtual, is_sequential, shrinkage=SHRINKAGE, has_biases=True
    )


def gradient(loss, place: np.ndarray) -> np.ndarray:
    """Exact to rounding, by the complex step: Im f(x + ih) / h."""
    found = np.empty(len(place))
    for coordinate in range(len(place)):
        moved = place.astype(complex)
        moved[coordinate] += 1e-30j
        found[coordinate] = loss(moved).imag / 1e-30
    return found


def predicted(user: np.ndarray, items: np.ndarray) -> np.ndarray:
    """b_u + b_i + the product of factors."""
    return items[..., :-1] @ user[:-1] + items[..., -1] + user[-1]


def user_loss(user: np.ndarray, items: np.ndarray, targets: np.ndarray) -> complex:
    """Squared errors, lambda |U|^2 for each of them, and s ratings' worth of |(U, b)|^2; over n + s, halved."""
    factors, count = user[:-1] @ user[:-1], len(targets)
    errors = ((predicted(user, items) - targets) ** 2).sum()
    penalties = REGULARIZATION * count * factors + SHRINKAGE * (user @ user)
    return (errors + penalties) / (count + SHRINKAGE) / 2


# --- Clients -----------------------------------------------------------------------------------------------


def test_users_move_by_the_gradient_of_the_loss() -> None:
    clients, item_factors = made()
    before = clients.user_factors.astype(np.float64)
    rows = np.arange(NUM_USERS)
    listing = list_items(clients, rows, rows.astype(np.int32), 0, KEY, 1)
    train_clients(clients, rows, item_factors, listing, stepped())
    for user in range(NUM_USERS):
        mine = slice(clients.starts[user], clients.starts[user + 1])
        known, targets = item_factors[clients.items[mine]].astype(np.float64), clients.ratings[mine]
        if not len(targets):
            assert user == 4
            np.testing.assert_array_equal(clients.user_factors[user], before[user].astype(np.float32))
            continue
        expected = gradient(lambda place, i=known, t=targets: user_loss(place, i, t), before[user])
        went = (before[user] - clients.user_factors[user]) / RATE
        np.testing.assert_allclose(went, expected, rtol=1e-4, atol=5e-6)


def test_uploads_are_gradients_of_the_loss() -> None:
    """Of V_i at one client: (e_ui)^2 / 2 + lambda |V_i|^2 / 2, where the bias is not part of the norm."""
    clients, item_factors = made()
    before = clients.user_factors.astype(np.float64)
    rows = np.arange(NUM_USERS)
    listing = list_items(clients, rows, rows.astype(np.int32), 0, KEY, 1)
    result = train_clients(clients, rows, item_factors, listing, stepped())
    for user in range(NUM_USERS):
        for place in range(listing.starts[user], listing.starts[user + 1]):
            target = clients.ratings[clients.starts[user] + listing.rated_place[place]]

            def loss(item: np.ndarray, user=user, target=target) -> complex:
                error = predicted(before[user], item) - target
                return error**2 / 2 + REGULARIZATION * (item[:-1] @ item[:-1]) / 2

            expected = gradient(loss, item_factors[listing.items[place]].astype(np.float64))
            np.testing.assert_allclose(result.gradients[place], expected, rtol=1e-4, atol=5e-6)


def plain_client(user, items, targets, virtual, step):
    """A client in float64: its vector after the round, and what it uploads for rated and for virtual items."""
    rate = float(RATE)

    def descend(at, known, wanted):
        return at - rate * gradient(lambda place: user_loss(place, known, wanted), at)

    moved = local = descend(user, items, targets)
    for _ in range(step.local_steps - 1):
        local = descend(local, items, targets)
    filled = predicted(local, virtual) if step.local_steps else np.full(len(virtual), targets.mean())
    if step.learns_virtual:
        moved = descend(user, np.concatenate([items, virtual]), np.concatenate([targets, filled]))
    vector = moved if step.is_sequential else user

    def upload(known, wanted):
        errors = predicted(vector, known) - wanted
        factors = errors[:, None] * vector[:-1] + float(REGULARIZATION) * known[:, :-1]
        return np.column_stack([factors, errors])

    return moved, upload(items, targets), upload(virtual, filled)


@pytest.mark.parametrize("is_sequential", [False, True])
@pytest.mark.parametrize("learns_virtual", [False, True])
@pytest.mark.parametrize(("rho", "local_steps"), [(0, 0), (1, 0), (2, 1), (2, 4), (9, 3)])
def test_equals_plain_numpy(rho: int, local_steps: int, learns_virtual: bool, is_sequential: bool) -> None:
    clients, item_factors = made()
    before, every = clients.user_factors.astype(np.float64), item_factors.astype(np.float64)
    rows, step = np.arange(NUM_USERS), stepped(local_steps, learns_virtual and rho > 0, is_sequential)
    listing = list_items(clients, rows, rows.astype(np.int32), rho, KEY, 1)
    result = train_clients(clients, rows, item_factors, listing, step)
    for user in set(range(NUM_USERS)) - {4}:
        mine, rated = (
            slice(listing.starts[user], listing.starts[user + 1]),
            slice(*clients.starts[user : user + 2]),
        )
        items, is_rated = listing.items[mine], listing.rated_place[mine] >= 0
        targets = clients.ratings[rated].astype(np.float64)
        moved, of_rated, of_virtual = plain_client(
            before[user], every[items[is_rated]], targets, every[items[~is_rated]], step
        )
        np.testing.assert_allclose(clients.user_factors[user], moved, rtol=2e-4, atol=1e-4)
        np.testing.assert_allclose(result.gradients[mine][is_rated], of_rated, rtol=2e-4, atol=1e-4)
        np.testing.assert_allclose(result.gradients[mine][~is_rated], of_virtual, rtol=2e-4, atol=1e-4)
        sent = slice(result.noise_starts[user], result.noise_starts[user + 1])
        np.testing.assert_array_equal(result.noise[sent], result.gradients[mine][~is_rated])


def test_who_has_no_ratings_starts_and_stays_at_zero() -> None:
    users = initial_users(np.arange(3, dtype=np.int32), np.array([2, 0, 1]), 5, Draws(0))
    assert users.shape == (3, 6)
    assert not users[1].any()
    assert users[:, -1].tolist() == [0, 0, 0]
    assert (np.abs(users[[0, 2], :-1]) > 0).all()
    assert np.abs(users).max() <= 0.05


# --- The server --------------------------------------------------------------------------------------------


def summed(rows: dict[int, list[list[float]]], num_items: int) -> ExactSum:
    """Gradients that came, by item; each from another client."""
    items = np.array([item for item, came in rows.items() for _ in came], np.int32)
    values = np.array([row for came in rows.values() for row in came], np.float32)
    total = ExactSum.zeros((num_items, values.shape[1]), num_summands=10)
    starts = np.arange(len(items) + 1)
    total.add(np.arange(len(items), dtype=np.int32), ItemGradients(Ragged(starts, items), Ragged(starts, values)))
    return total


def test_hand_worked_step_of_items() -> None:
    """s = 2, rate 1/2. Item 0, with 2 raters, has V = 1 and a bias of 2; item 1, with 6, has 1 and 4; item 2 none.

    Of what was learned, 2/4 and 6/8 weigh: the level is (1/2 2 + 3/4 4) / (5/4) = 3.2. Item 0 gets (4, 2) in all:
    (4 + 2 1) / 4 = 3/2 and (2 + 2 (2 - 3.2)) / 4 = -0.1, so it moves to 1/4 and 2.05. Item 1 gets (6, 0):
    (6 + 2) / 8 = 1 and 2 (4 - 3.2) / 8 = 0.2, so 1/2 and 3.9. The level is now (2.05/2 + 3.9 3/4) / (5/4) = 3.16.
    """
    item_factors = np.array([[1, 2], [1, 4], [0, 0]], np.float32)
    total = summed({0: [[3, 2], [1, 0]], 1: [[1, 0]] * 6}, 3)
    moved = moved_items(item_factors, total, 0.5, 2.0, True)
    np.testing.assert_allclose(moved, [[0.25, 2.05], [0.5, 3.9], [0, 3.16]], rtol=1e-6)


def test_without_shrinkage_an_item_moves_by_the_mean() -> None:
    """And with it, but without biases, what is mixed in is zero: (4 + 2 1) / (2 + 2) = 3/2."""
    item_factors = np.array([[1], [5]], np.float32)
    total = summed({0: [[3], [1]]}, 2)
    assert moved_items(item_factors, total, 0.5, 0.0, False).ravel().tolist() == [0, 5]
    assert moved_items(item_factors, total, 0.5, 2.0, False).ravel().tolist() == [0.25, 5]


def test_an_item_that_was_rated_before_keeps_its_bias_in_a_round_without_its_raters() -> None:
    item_factors = np.array([[1, 2], [0.1, -3], [0, 7]], np.float32)
    moved = moved_items(item_factors, summed({0: [[0, 0]]}, 3), 0.5, 2.0, True)
    np.testing.assert_array_equal(moved[1], item_factors[1])
    np.testing.assert_array_equal(moved[2], [0, moved[0, 1]])


def test_a_round_without_anyone_changes_nothing() -> None:
    item_factors = np.array([[1, 2], [0, 3]], np.float32)
    nothing = ExactSum.zeros((2, 2), num_summands=1)
    np.testing.assert_array_equal(moved_items(item_factors, nothing, 0.5, 2.0, True), item_factors)


# --- The learned model -------------------------------------------------------------------------------------


def test_scales() -> None:
    assert scale_of((1.0, 5.0)) == Scale(3.0, 1.0)
    assert scale_of((-10.0, 10.0)) == Scale(0.0, 5.0)
    assert scale_of(None) == Scale(0.0, 1.0)
    assert scale_of((4.0, 4.0)) == Scale(4.0, 1.0)
    ratings = np.array([-10, 0, 2.5, 10], np.float32)
    units = scale_of((-10.0, 10.0)).to_units(ratings)
    assert units.tolist() == [-2, 0, 0.5, 2]
    assert scale_of((-10.0, 10.0)).to_ratings(units).tolist() == ratings.tolist()


def a_model(rating_range: tuple[float, float] | None = (1.0, 5.0), shrinkage: float = 2.0) -> FactorModel:
    """Of three users, the last without ratings, and four items, the last one rated by nobody: the level is 1/2."""
    users = np.array([[1, 0.5], [-1, -0.25], [0, 0]], np.float32)
    items = np.array([[1, 1], [0.5, 0], [-1, -1.5], [0, 0.5]], np.float32)
    return FactorModel(users, items, rating_range, np.array([4.0]), 0.1, has_biases=True, shrinkage=shrinkage)


def test_hand_worked_predictions() -> None:
    """On 1 to 5 units are 1 from 3 on. User 0 and item 0: 3 + 1/2 + 1 + 1 = 5.5, clipped. User 0 and item 3, which
    nobody rated: its own level, 3 + 1/2 + 1/2. User 2, without ratings: the items' levels.
    """
    model = a_model()
    users, items = np.array([0, 0, 1, 2, 2, 2], np.int32), np.array([0, 3, 1, 0, 2, 3], np.int32)
    assert model.predict(users, items).tolist() == [5, 4, 2.25, 4, 1.5, 3.5]
    scores = model.score(np.array([0, 1, 2], np.int32))
    np.testing.assert_allclose(scores[2], [4, 3, 1.5, 3.5])
    assert 4.9 < scores[0, 0] < 5
    assert a_model((-10.0, 10.0)).predict(users[1:2], items[1:2]).tolist() == [5]


def test_newcomers_are_at_the_minimum_of_the_clients_loss() -> None:
    """With one over the sum of the rates added to the weights of the factors, for n + s ratings."""
    draws = np.random.default_rng(2)
    every = draws.normal(0, 0.4, (9, NUM_FACTORS + 1)).astype(np.float32)
    nobody = np.zeros((1, NUM_FACTORS + 1), np.float32)
    model = FactorModel(nobody, every, (1.0, 5.0), np.full(10, 2.0), 0.05, has_biases=True, shrinkage=3.0)
    items, ratings = np.array([0, 3, 5], np.int32), np.array([2, 4, 3.5], np.float32)
    scores = model.fold_in(items, ratings)
    design = np.column_stack([every[:, :-1].astype(np.float64), np.ones(9)])
    vector = np.linalg.lstsq(design, scores - 3.0 - every[:, -1], rcond=None)[0]

    def loss(place: np.ndarray) -> complex:
        fitted = user_loss(place, every[items].astype(np.float64), ratings - 3.0)
        return fitted + place[:-1] @ place[:-1] / 20 / 2

    np.testing.assert_allclose(gradient(loss, vector), 0, atol=1e-5)
    np.testing.assert_allclose(model.fold_in(items[:0], ratings[:0]), 3 + every[:, -1], rtol=1e-6)


def test_scores_are_eased_onto_the_scale_in_the_same_order() -> None:
    scores = np.array([-40, 0.5, 1, 1.05, 1.2, 3, 4.8, 4.95, 5, 5.3, 40], np.float32)
    shown = eased(scores, (1.0, 5.0))
    assert (shown >= 1).all()
    assert (shown <= 5).all()
    assert (np.diff(shown) > 0).all()
    np.testing.assert_array_equal(shown[4:7], scores[4:7])
    np.testing.assert_array_equal(eased(scores, None), scores)
    np.testing.assert_array_equal(eased(scores, (4.0, 4.0)), scores)


@pytest.mark.parametrize("rating_range", [(1.0, 5.0), (-10.0, 10.0), (4.0, 4.0), None])
def test_scores_become_ratings_as_numpy_would_have_it(rating_range: tuple[float, float] | None) -> None:
    """To the last bit, whatever is in one pass; also what is infinite, or no number."""
    generator = np.random.default_rng(3)
    scores, own = generator.normal(0, 1.5, (6, 50)).astype(np.float32), generator.normal(0, 0.5, 6)
    scores[0, 0], scores[1, 1], scores[2, 2] = np.inf, -np.inf, np.nan
    own = own.astype(np.float32)
    expected = scale_of(rating_range).to_ratings(scores + own[:, None])
    if rating_range == (1.0, 5.0) or rating_range == (-10.0, 10.0):
        margin = (rating_range[1] - rating_range[0]) / 40
        low, high = rating_range[0] + margin, rating_range[1] - margin
        inside, far = np.clip(expected, low, high), expected != np.clip(expected, low, high)
        beyond = np.maximum(low - expected[far], 0) / margin, np.maximum(expected[far] - high, 0) / margin
        inside[far] += margin * (np.expm1(-beyond[0]) - np.expm1(-beyond[1]))
        assert far.sum() > 1
        expected = inside
    np.testing.assert_array_equal(as_ratings(scores, own, rating_range), expected)


def test_items_begin_at_zero() -> None:
    assert initial_items(3, 5).shape == (3, 6)
    assert not initial_items(3, 5).any()
