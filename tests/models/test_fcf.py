import numpy as np

from hushrec.models.fcf import PositiveModel, Weights, item_gradients, solve_users, square

STARTS = np.array([0, 2, 5, 5])
ITEMS = np.array([0, 3, 1, 2, 6], np.int32)
ROWS = np.arange(3)
WEIGHTS = Weights(4.0, 0.5)


def confidences() -> tuple[np.ndarray, np.ndarray]:
    wanted = np.zeros((3, 7))
    for user in range(3):
        wanted[user, ITEMS[STARTS[user] : STARTS[user + 1]]] = 1
    return wanted, 1 + WEIGHTS.confidence * wanted


def some_factors(num_factors: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(7, num_factors)).astype(np.float32)


def loss(users: np.ndarray, items: np.ndarray) -> float:
    wanted, confidence = confidences()
    sizes = WEIGHTS.regularization * ((users**2).sum() + (items**2).sum())
    return float((confidence * (wanted - users @ items.T) ** 2).sum() + sizes)


def test_solution_is_numpys() -> None:
    wanted, confidence = confidences()
    for num_factors in (1, 5, 32):
        factors = some_factors(num_factors)
        solved = solve_users(STARTS, ITEMS, ROWS, factors, square(factors), WEIGHTS)
        for user in range(3):
            matrix = factors.T @ (confidence[user][:, None] * factors).astype(np.float64)
            matrix += WEIGHTS.regularization * np.eye(num_factors)
            vector = factors.T @ (confidence[user] * wanted[user])
            np.testing.assert_allclose(solved[user], np.linalg.solve(matrix, vector), rtol=1e-4, atol=1e-6)
    assert not solved[2].any()


def test_no_other_vector_has_less_loss() -> None:
    factors = some_factors()
    solved = solve_users(STARTS, ITEMS, ROWS, factors, square(factors), WEIGHTS).astype(np.float64)
    least, draws = loss(solved, factors), np.random.default_rng(1)
    for _ in range(20):
        assert loss(solved + draws.normal(scale=0.01, size=solved.shape), factors) > least


def test_gradients_are_those_of_the_loss() -> None:
    """Against central differences of the loss in double precision."""
    factors = some_factors()
    users = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
    tables = item_gradients(STARTS, ITEMS, ROWS, users, factors, WEIGHTS).reshape(3, 7, 5)
    gradient = tables.sum(axis=0) + 2 * WEIGHTS.regularization * factors
    exact, step = factors.astype(np.float64), 1e-5
    for item in range(7):
        for factor in range(5):
            moved = np.zeros_like(exact)
            moved[item, factor] = step
            slope = (loss(users, exact + moved) - loss(users, exact - moved)) / (2 * step)
            np.testing.assert_allclose(gradient[item, factor], slope, rtol=1e-4, atol=1e-4)


def test_a_user_does_not_depend_on_the_cohort() -> None:
    factors = some_factors(32)
    together = solve_users(STARTS, ITEMS, ROWS, factors, square(factors), WEIGHTS)
    tables = item_gradients(STARTS, ITEMS, ROWS, together, factors, WEIGHTS).reshape(3, 7, 32)
    for user in range(3):
        row = np.array([user])
        alone = solve_users(STARTS, ITEMS, row, factors, square(factors), WEIGHTS)
        np.testing.assert_array_equal(alone[0], together[user])
        np.testing.assert_array_equal(item_gradients(STARTS, ITEMS, row, alone, factors, WEIGHTS), tables[user])


def test_a_newcomer_is_solved_for() -> None:
    factors = some_factors()
    solved = solve_users(STARTS, ITEMS, ROWS, factors, square(factors), WEIGHTS)
    model = PositiveModel(solved, factors, lambda *_: WEIGHTS)
    for user in range(2):
        scores = model.fold_in(ITEMS[STARTS[user] : STARTS[user + 1]], np.ones(2, np.float32))
        np.testing.assert_allclose(scores, model.score(np.array([user], np.int32))[0], rtol=1e-6)
