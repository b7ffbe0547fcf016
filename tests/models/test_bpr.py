"""The ranking kernels against brute force, finite differences and SciPy's minimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.models.bpr import (
    PairGradients,
    Pairing,
    RankingClients,
    RankingModel,
    initial_item_factors,
    keys_of,
    sizes_of,
    train_clients,
)


def clients_with(owned: list[list[int]], num_items: int, num_factors: int = 4) -> RankingClients:
    starts = np.cumsum([0, *(len(one) for one in owned)])
    items = np.array([item for one in owned for item in one], np.int32)
    return RankingClients.enrol(starts, items, num_items, num_factors)


def pairing(negatives: int = 1, rho: int = 0, looks: int = 1, steps: int = 10) -> Pairing:
    return Pairing(negatives, rho, looks, steps, np.float32(1.0))


def trained(
    clients: RankingClients, item_factors: np.ndarray, how: Pairing, round_number: int = 1
) -> PairGradients:
    rows = np.arange(len(clients.user_factors))
    return train_clients(clients, rows, rows.astype(np.int32), item_factors, how, keys_of(Draws(0)), round_number)


def random_factors(num_items: int, num_factors: int = 4) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 0.5, (num_items, num_factors + 1)).astype(np.float32)


# --- How much is listed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_positives", "negatives", "rho", "num_items", "expected"),
    [
        (5, 1, 3, 100, (5, 5, 15, 15)),
        (5, 2, 3, 100, (5, 10, 15, 30)),
        (5, 1, 0, 100, (5, 5, 0, 0)),
        (6, 1, 1, 10, (6, 2, 1, 1)),  # 4 unrated: 2 are negatives, 2 are left for virtual pairs
        (40, 1, 3, 100, (40, 30, 17, 13)),  # 60 unrated: 30 are left, 40 : 30 is 17 : 13
        (5, 2, 3, 40, (5, 10, 8, 16)),  # 25 are left, 1 : 2 is 8 : 17, and the last of these would be in no pair
        (9, 1, 3, 10, (9, 1, 0, 0)),
        (10, 1, 3, 10, (0, 0, 0, 0)),  # there is nothing to rank its items above
        (0, 1, 3, 10, (0, 0, 0, 0)),
    ],
)
def test_sizes(num_positives: int, negatives: int, rho: int, num_items: int, expected: tuple[int, ...]) -> None:
    sizes = sizes_of(np.array([num_positives]), negatives, rho, num_items)
    assert tuple(int(one[0]) for one in sizes) == expected
    assert int(sizes.total()[0]) == sum(expected)


@pytest.mark.parametrize("num_items", [9, 14, 60])
def test_every_item_has_one_part(num_items: int) -> None:
    """Rows of real pairs are those of rho 0; noise is the other rows, and no item is listed twice."""
    owned = [[0, 3, 4], [1], [], list(range(num_items)), [2, 5, 6, 7, 8]]
    item_factors = random_factors(num_items)
    bare = trained(clients_with(owned, num_items), item_factors, pairing(negatives=2))
    hidden = trained(clients_with(owned, num_items), item_factors, pairing(negatives=2, rho=3, looks=4))
    for client, own in enumerate(owned):
        real = slice(*bare.starts[client : client + 2])
        listed = slice(*hidden.starts[client : client + 2])
        noise = slice(*hidden.noise_starts[client : client + 2])
        items = hidden.items[listed]
        assert (np.diff(items) > 0).all()
        assert set(own) <= set(items) or len(own) == num_items
        assert sorted([*bare.items[real], *hidden.noise_items[noise]]) == items.tolist()
        is_noise = np.isin(items, hidden.noise_items[noise])
        np.testing.assert_array_equal(hidden.gradients[listed][is_noise], hidden.noise[noise])
        np.testing.assert_array_equal(hidden.gradients[listed][~is_noise], bare.gradients[real])
    assert len(hidden.noise) > 0


def test_negatives_are_drawn_anew_in_every_round() -> None:
    clients, item_factors = clients_with([[1, 2, 3]], 200), random_factors(200)
    first, again, second = (trained(clients, item_factors, pairing(), number).items for number in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()


# --- Gradients and the vector --------------------------------------------------------------------------------


def all_pairs(own: list[int], others: list[int]) -> list[tuple[int, int]]:
    return [(item, other) for item in own for other in others]


def loss(item_factors: np.ndarray, vector: np.ndarray, pairs: list[tuple[int, int]], share: float) -> float:
    margins = np.array([vector @ (item_factors[item] - item_factors[other]) for item, other in pairs])
    return float(share * np.logaddexp(0, -margins).sum())


def test_gradients_are_those_of_finite_differences() -> None:
    """Three items of seven with two negatives each, and only two there: every pair of them counts, by a half."""
    clients, item_factors = clients_with([[0, 2, 5]], 7), random_factors(7)
    got = trained(clients, item_factors, pairing(negatives=2))
    others = [int(item) for item in got.items if item not in (0, 2, 5)]
    assert len(others) == 2
    pairs, vector = all_pairs([0, 2, 5], others), clients.user_factors[0].astype(np.float64)
    assert vector[-1] == 1.0
    wide, tiny = item_factors.astype(np.float64), 1e-6
    for item, row in zip(got.items, got.gradients, strict=True):
        for factor in range(5):
            up, down = wide.copy(), wide.copy()
            up[item, factor] += tiny
            down[item, factor] -= tiny
            slope = (loss(up, vector, pairs, 0.5) - loss(down, vector, pairs, 0.5)) / (2 * tiny)
            assert row[factor] == pytest.approx(slope, abs=1e-5)


def test_the_vector_is_the_minimum_without_biases() -> None:
    clients, item_factors = clients_with([[0, 2, 5]], 7), random_factors(7)
    got = trained(clients, item_factors, pairing(negatives=2, steps=300))
    others = [int(item) for item in got.items if item not in (0, 2, 5)]

    def of_vector(free: np.ndarray) -> float:
        vector = np.append(free, 0.0)  # without the biases
        return loss(item_factors.astype(np.float64), vector, all_pairs([0, 2, 5], others), 0.5) + free @ free / 2

    best = minimize(of_vector, np.zeros(4), tol=1e-10).x
    np.testing.assert_allclose(clients.user_factors[0, :-1], best, atol=1e-4)


def test_who_has_much_is_held_back_more() -> None:
    """Six items of eight: r is 3, so lambda is 1 + 2 * 9 = 19 times as large; with one of eight, 1 + 2 / 49."""
    item_factors = random_factors(8)
    for own, times in (([0, 1, 2, 3, 4, 5], 19.0), ([3], 1 + 2 / 49)):
        clients = clients_with([own], 8)
        how = pairing(negatives=1, steps=300)._replace(crowding=np.float32(2.0))
        got = trained(clients, item_factors, how)
        others = [int(item) for item in got.items if item not in own]
        pairs = [(item, others[place % len(others)]) for place, item in enumerate(own)]

        def of_vector(free: np.ndarray, pairs: list[tuple[int, int]] = pairs, times: float = times) -> float:
            vector = np.append(free, 0.0)
            return loss(item_factors.astype(np.float64), vector, pairs, 1.0) + times * free @ free / 2

        best = minimize(of_vector, np.zeros(4), tol=1e-10).x
        np.testing.assert_allclose(clients.user_factors[0, :-1], best, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e9])
def test_steps_cannot_diverge(scale: float) -> None:
    """The loss at the vector is never above that at zero, however large V is."""
    item_factors = (scale * random_factors(30)).astype(np.float32)
    item_factors[:, -1] = 0.0
    for steps in (1, 2, 7, 50):
        clients = clients_with([[0, 2, 5, 9]], 30)
        got = trained(clients, item_factors, pairing(steps=steps))
        assert np.isfinite(clients.user_factors).all()
        assert np.isfinite(got.gradients).all()
        vector = clients.user_factors[0].astype(np.float64)
        own = [place for place, item in enumerate(got.items) if item in (0, 2, 5, 9)]
        assert (got.gradients[own, -1] <= 0).all()
        assert np.abs(vector[:-1]).max() * scale < 100


# --- Virtual positives ---------------------------------------------------------------------------------------


def test_virtual_positives_score_like_own_items() -> None:
    """Drawn blindly they are far off; the nearest of thirty is close."""
    rng = np.random.default_rng(0)
    owned = [sorted(rng.choice(400, 20, replace=False).tolist()) for _ in range(30)]
    item_factors = 3 * random_factors(400)

    def away(looks: int) -> float:
        clients = clients_with(owned, 400)
        got = trained(clients, item_factors, pairing(rho=1, looks=looks))
        gaps = []
        for client, own in enumerate(owned):
            noise = slice(*got.noise_starts[client : client + 2])
            is_up = got.noise[noise, -1] < 0
            scores = item_factors @ clients.user_factors[client]
            gaps.append(scores[own].mean() - scores[got.noise_items[noise][is_up]].mean())
        return float(np.mean(gaps))

    assert away(1) > 0.3
    assert abs(away(30)) < 0.1 * away(1)


# --- The model -----------------------------------------------------------------------------------------------


def test_a_newcomer_is_bounded_whatever_it_has() -> None:
    item_factors = random_factors(50)
    model = RankingModel(np.ones((2, 5), np.float32), item_factors, pairing(negatives=2))
    few, none, everything = (
        model.fold_in(np.array(items, np.int32), None) for items in ([3], [], list(range(50)))
    )
    assert (few - none)[3] > (few - none).max() / 2  # it moves what it has up, by its vector
    np.testing.assert_array_equal(none, item_factors[:, -1])  # nothing is known: the items' biases
    np.testing.assert_array_equal(everything, none)
    np.testing.assert_allclose(
        model.predict(np.array([0, 1]), np.array([4, 9])), model.score(np.array([0]))[0, [4, 9]], rtol=1e-5
    )


def test_start_and_fit() -> None:
    start = initial_item_factors(20, 3, 0.1, Draws(1))
    assert start.shape == (20, 4)
    assert np.abs(start[:, :-1]).max() < 0.1
    assert not start[:, -1].any()
    with pytest.raises(HushrecError, match=r"V has the shape \(20, 4\) and clients expect \(20, 5\); send that"):
        trained(clients_with([[1]], 20), start, pairing())
