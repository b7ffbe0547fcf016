import numpy as np
import pytest
from scipy import stats

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.models.pmf import ClientGradients
from hushrec.models.rating_clients import RatingClients
from hushrec.models.sgld import LangevinStep, train_clients
from hushrec.privacy.filling import Listing

NUM_FACTORS, NUM_ITEMS = 3, 6
PRECISIONS = np.array([[0.5, 1.0, 2.0]], np.float32)


def step(learning_rate: float = 0.1, deviation: float = 0.0, round_number: int = 1) -> LangevinStep:
    key = Draws(0).key("langevin")
    return LangevinStep(np.float32(learning_rate), np.float32(deviation), PRECISIONS, key, round_number)


def clients_who_rate(rated: list[list[int]], ratings: list[float]) -> RatingClients:
    starts = np.concatenate([[0], np.cumsum([len(items) for items in rated])]).astype(np.int64)
    items = np.array([item for items in rated for item in items], np.int32)
    rows = UserRows(starts, items, np.array(ratings, np.float32))
    numbers = np.arange(len(rated), dtype=np.int32)
    clients = RatingClients.enrol(numbers, rows, NUM_ITEMS, NUM_FACTORS, Draws(0))
    clients.user_factors[:] = np.random.default_rng(1).normal(size=clients.user_factors.shape)
    return clients


def listing_of(*slices: list[tuple[int, int]]) -> Listing:
    """Per client the (item, place among its rated items or -1)."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in slices])]).astype(np.int64)
    items, places = zip(*[entry for one in slices for entry in one], strict=True)
    return Listing(starts, np.array(items, np.int32), np.array(places, np.int32))


def item_factors() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(NUM_ITEMS, NUM_FACTORS)).astype(np.float32)


def trained(clients: RatingClients, listing: Listing, langevin: LangevinStep) -> ClientGradients:
    rows = np.arange(len(listing.starts) - 1)
    return train_clients(clients, rows, rows.astype(np.int32), item_factors(), listing, langevin)


def test_equation_10_without_noise() -> None:
    """Temperature 0. Client 0 rated items 1 and 4 and lists 1 and, unrated, 2. With e = U V_i - r of its own:

    upload of item 1: gamma (e_1 U + Lambda V_1); of item 2: the same with e_1 or e_4, whichever was drawn;
    new U: U - gamma (e_1 V_1 + e_4 V_4 + Lambda U).
    """
    clients = clients_who_rate([[1, 4]], [5.0, 2.0])
    before, every = clients.user_factors[0].astype(np.float64), item_factors().astype(np.float64)
    result = trained(clients, listing_of([(1, 0), (2, -1)]), step())
    errors = [before @ every[1] - 5.0, before @ every[4] - 2.0]
    gradient = errors[0] * every[1] + errors[1] * every[4] + PRECISIONS[0] * before
    np.testing.assert_allclose(clients.user_factors[0], before - 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(
        result.gradients[0], 0.1 * (errors[0] * before + PRECISIONS[0] * every[1]), rtol=1e-5
    )
    candidates = [0.1 * (error * before + PRECISIONS[0] * every[2]) for error in errors]
    assert any(np.allclose(result.gradients[1], candidate, rtol=1e-5) for candidate in candidates)
    assert (result.noise_starts.tolist(), result.noise_items.tolist()) == ([0, 1], [2])
    np.testing.assert_array_equal(result.noise[0], result.gradients[1])
    np.testing.assert_array_equal(clients.previous_user_factors[0], before.astype(np.float32))


def test_errors_of_unrated_items_are_drawn_from_the_clients_own() -> None:
    """Two rated items with different errors; over 2000 rounds each is drawn half of the time, for both unrated
    items independently. Binomial |z| < 5, fixed seed: false-alarm rate 6e-7 each.
    """
    every, picks = item_factors().astype(np.float64), []
    for round_number in range(1, 2001):
        clients = clients_who_rate([[1, 4]], [5.0, 2.0])
        before = clients.user_factors[0].astype(np.float64)
        result = trained(clients, listing_of([(2, -1), (3, -1)]), step(round_number=round_number))
        drawn = (result.gradients / 0.1 - PRECISIONS * every[[2, 3]])[:, 0] / before[0]
        errors = np.array([before @ every[1] - 5.0, before @ every[4] - 2.0])
        distances = np.abs(drawn[:, None] - errors)
        assert (distances.min(axis=1) < 1e-3).all()
        picks.append(distances.argmin(axis=1))
    first, second = np.array(picks).T
    for successes in (first, second, first == second):
        assert abs(successes.sum() - 1000) < 5 * np.sqrt(500)


def test_langevin_noise_has_the_stated_variance() -> None:
    """Uploads of a run with noise less those of one without are -N(0, deviation^2), also in U, independently.

    500 clients, 4 listed items, 3 factors. Chi-square of the variance and Kolmogorov-Smirnov, false-alarm rate
    2e-6 and 1e-6; correlations |z| < 5, false-alarm rate 6e-7 each. Fixed seed.
    """
    deviation, num_clients = 0.7, 500
    listing = listing_of(*[[(0, 0), (1, -1), (2, 1), (5, -1)]] * num_clients)

    def run(noise: float) -> tuple[np.ndarray, np.ndarray, ClientGradients]:
        clients = clients_who_rate([[0, 2]] * num_clients, [4.0, 1.0] * num_clients)
        result = trained(clients, listing, step(deviation=noise))
        return clients.user_factors, result.gradients.reshape(num_clients, 4, NUM_FACTORS), result

    quiet_users, quiet, _ = run(0.0)
    users, noisy, result = run(deviation)
    noise = np.concatenate([(quiet - noisy).reshape(num_clients, -1), users - quiet_users], axis=1) / deviation
    chance = stats.chi2.cdf((noise**2).sum(), noise.size)
    assert 1e-6 < chance < 1 - 1e-6
    assert stats.kstest(noise.ravel(), stats.norm.cdf).pvalue > 1e-6
    correlations = np.corrcoef(noise.T)[np.triu_indices(noise.shape[1], 1)]
    assert np.abs(correlations).max() * np.sqrt(num_clients) < 5
    np.testing.assert_array_equal(result.noise, noisy[:, [1, 3]].reshape(-1, NUM_FACTORS))


def test_noise_differs_by_round_and_repeats_by_key() -> None:
    def upload(round_number: int) -> np.ndarray:
        clients = clients_who_rate([[0]], [3.0])
        return trained(clients, listing_of([(0, 0)]), step(deviation=1.0, round_number=round_number)).gradients

    np.testing.assert_array_equal(upload(1), upload(1))
    assert (upload(1) != upload(2)).all()


def test_a_cohort_of_all_equals_cohorts_of_one() -> None:
    slices = [[(0, 0), (3, -1)], [(1, -1), (2, 0), (4, 1)], [(5, -1)], [(2, -1), (3, -1)]]
    rated, ratings = [[0], [2, 4], [1], []], [4.0, 1.0, 5.0, 3.0]
    together, apart = clients_who_rate(rated, ratings), clients_who_rate(rated, ratings)
    result = trained(together, listing_of(*slices), step(deviation=0.5))
    alone = [
        train_clients(
            apart, np.array([row]), np.array([row], np.int32), item_factors(), listing_of(one), step(deviation=0.5)
        )
        for row, one in enumerate(slices)
    ]
    np.testing.assert_array_equal(together.user_factors, apart.user_factors)
    np.testing.assert_array_equal(result.gradients, np.concatenate([one.gradients for one in alone]))
    np.testing.assert_array_equal(result.noise, np.concatenate([one.noise for one in alone]))
    assert result.noise_starts.tolist() == [0, 1, 2, 3, 5]


def test_a_client_without_ratings_has_no_errors_to_draw() -> None:
    """Its vector stays; what it uploads is the prior alone: gamma Lambda V_i."""
    clients = clients_who_rate([[]], [])
    before = clients.user_factors.copy()
    result = trained(clients, listing_of([(2, -1)]), step())
    np.testing.assert_array_equal(clients.user_factors, before)
    assert result.gradients[0] == pytest.approx(0.1 * PRECISIONS[0] * item_factors()[2], rel=1e-6)
