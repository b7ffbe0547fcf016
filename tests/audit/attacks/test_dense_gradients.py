from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from audit.conftest import Bare, Scored
from hushrec.audit.attacks.dense_gradients import Guesses, distances, guess_positives, is_dense, judge
from hushrec.audit.scoreboard import Truth
from hushrec.audit.uploads import clients_of, items_of
from hushrec.errors import HushrecError
from hushrec.models.fcf import Weights, item_gradients, solve_users, square
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged, shared


@dataclass(frozen=True)
class Vectors(Message):
    """Reveals: V."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: np.ndarray = shared(np.float32, 2)


@dataclass(frozen=True)
class Dense(Message):
    """Reveals: a gradient of each row of V."""

    sender, receiver = Role.CLIENT, Role.SERVER
    gradients: Ragged = ragged(np.float32, 2)


def asked(clients: Sequence[int], item_factors: np.ndarray) -> Recorded:
    return Recorded(1, np.array(clients, np.int32), Vectors(item_factors.astype(np.float32)))


def uploaded(clients: Sequence[int], gradients: np.ndarray) -> Recorded:
    """Of each client a row of gradients per item."""
    starts = np.arange(len(clients) + 1) * gradients.shape[1]
    rows = gradients.reshape(-1, gradients.shape[2]).astype(np.float32)
    return Recorded(1, np.array(clients, np.int32), Dense(Ragged(starts, rows)))


def of_clients(owned: list[list[int]], item_factors: np.ndarray, weights: Weights) -> np.ndarray:
    """What clients of FCF upload."""
    starts = np.cumsum([0, *(len(own) for own in owned)])
    items, rows = np.array([item for own in owned for item in own], np.int32), np.arange(len(owned))
    common = square(item_factors)
    users = solve_users(starts, items, rows, item_factors, common, weights)
    return item_gradients(starts, items, rows, users, item_factors, weights).reshape(
        len(owned), *item_factors.shape
    )


def by_client(guesses: Guesses) -> dict[int, list[int]]:
    pairs = guesses.pairs
    return {int(one): items_of(pairs[clients_of(pairs) == one]).tolist() for one in guesses.clients}


def drawn(num_items: int, num_factors: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.3, 0.3, (num_items, num_factors)).astype(np.float32)


def test_distances_by_hand() -> None:
    """One factor, x = 0.5, alpha = 4. Another item's row is 2 (x v) x = v / 2; the positive's, with v = 1, is
    -2 * 5 * (1 - 0.5) * 0.5 = -2.5 instead of 0.5: away by 3, in units of 2 |x| = 1.
    """
    item_vectors = np.array([[1.0], [2.0], [-1.0], [4.0]])
    rows = np.array([[[-2.5], [1.0], [-0.5], [2.0]]])
    np.testing.assert_allclose(distances(rows, item_vectors), [[3, 0, 0, 0]], atol=1e-12)


@pytest.mark.parametrize("num_owned", [1, 20, 60])
@pytest.mark.parametrize("confidence", [0.5, 4.0, 40.0])
def test_one_upload_of_fcf_tells_all(num_owned: int, confidence: float) -> None:
    """Whatever alpha is, and also if most items are the client's."""
    generator, item_factors = np.random.default_rng(1), drawn(80)
    owned = [sorted(generator.choice(80, num_owned, replace=False).tolist()) for _ in range(5)]
    gradients = of_clients(owned, item_factors, Weights(confidence, 1.0))
    guesses = guess_positives([asked(range(5), item_factors), uploaded(range(5), gradients)])
    assert by_client(guesses) == dict(enumerate(owned))


def test_each_upload_is_held_against_what_its_client_was_sent() -> None:
    """Groups get another V each, and replies come in other batches and in any order."""
    first, second = drawn(40), drawn(40, seed=1)
    owned = [[1, 5], [2], [0, 39]]
    one, other = (of_clients(owned, vectors, Weights(4.0, 1.0)) for vectors in (first, second))
    seen = [
        asked([0, 1], first), asked([2], second),
        uploaded([2, 0], np.stack([other[2], one[0]])), uploaded([1], one[[1]]), uploaded([7], one[[1]]),
    ]  # fmt: skip
    assert by_client(guess_positives(seen)) == dict(enumerate(owned))


def test_a_client_with_nothing_to_say(owning: Callable[..., Truth]) -> None:
    guesses = guess_positives([asked([0, 1], drawn(10)), uploaded([0, 1], np.zeros((2, 10, 6)))])
    assert by_client(guesses) == {0: [], 1: []}
    outcome = judge(guesses, owning([[3], []], 10))
    assert outcome.victims.tolist() == [0]
    assert outcome.scores.tolist() == [0]


def test_f1_by_hand(owning: Callable[..., Truth]) -> None:
    """Guessed 1 and 5, owned 1, 2, 3 of 10: F1 = 2 * 1 / 5; blindly 2 * 3 / 10 hits."""
    guesses = guess_positives(
        [asked([0], drawn(10)), uploaded([0], of_clients([[1, 5]], drawn(10), Weights(4, 1)))]
    )
    outcome = judge(guesses, owning([[1, 2, 3]], 10))
    np.testing.assert_allclose((*outcome.scores, *outcome.chances), (0.4, 2 * 0.6 / 5))


def test_an_upload_that_does_not_fit_is_refused() -> None:
    with pytest.raises(HushrecError, match="not one gradient for each item vector"):
        guess_positives([asked([0], drawn(10)), uploaded([0], np.zeros((1, 9, 6)))])


def test_it_reads_uploads_without_a_list_only() -> None:
    assert [is_dense(kind) for kind in (Dense, Vectors, Scored, Bare)] == [True, False, False, False]
    assert by_client(guess_positives([])) == {}
