"""FedRec++ as Algorithms 1 and 2 of its paper say it, in plain NumPy: one loop iteration per client.

What the compiled engine is measured against, for speed in the benchmarks and for equality in the tests. It shares
with the library only what decides the result and is drawn at random: initial vectors, participants, denoisers.
Clients compute in float64 and send float32; sums are exact, in 64-bit fixed point.

Symbols: as in `hushrec.systems.fedrec_plus_plus`; e_ui has the sign of the gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.models.rating_clients import initial_factors
from hushrec.privacy.denoising import assign, draw_denoisers
from hushrec.protocol import draw_participants
from hushrec.systems.fedrec_plus_plus import Config

Vector = NDArray[np.float64]


@dataclass
class Client:
    """What one client holds."""

    number: int
    items: NDArray[np.int32]
    ratings: Vector
    user_factors: Vector
    num_updates: int = 0


DrawItems = Callable[[Client, int, int, Draws, int], NDArray[np.int32]]


def draw_virtual_items(client: Client, num_items: int, rho: int, draws: Draws, drawn_in: int) -> NDArray[np.int32]:
    """I'_u (Algorithm 2, line 2)."""
    unrated = np.setdiff1d(np.arange(num_items, dtype=np.int32), client.items)
    generator = draws.generator(f"virtual-items-of-{client.number}", drawn_in)
    return generator.choice(unrated, min(rho * len(client.items), len(unrated)), replace=False)


@dataclass(frozen=True)
class Training:
    """How clients train in one round."""

    learning_rate: float
    regularization: float
    local_steps: int  # 0: virtual ratings are the mean rating
    learns_virtual: bool = False  # FedRec's update of U_u
    is_sequential: bool = False
    predict_after: int = -1  # of a client's own rounds


def user_gradient(user: Vector, items: Vector, ratings: Vector, regularization: float) -> Vector:
    """Eq. 7: the mean of e_ui V_i + lambda U_u over the items."""
    errors = items @ user - ratings
    gradient: Vector = errors @ items / len(ratings) + regularization * user
    return gradient


@dataclass
class Gradients:
    """Gradients of V of one client: a row per item."""

    items: NDArray[np.int32]
    rows: Vector


def item_gradients(
    user: Vector, item_factors: Vector, items: NDArray[np.int32], ratings: Vector, regularization: float
) -> Gradients:
    """Eq. 3, for true or virtual ratings."""
    mine = item_factors[items]
    return Gradients(items, np.outer(mine @ user - ratings, user) + regularization * mine)


def virtual_ratings(
    client: Client, item_factors: Vector, virtual: NDArray[np.int32], training: Training
) -> Vector:
    """Eq. 1: the client's mean rating, or predictions of U'_u (Algorithm 2, lines 3-4)."""
    if training.local_steps == 0 or client.num_updates <= training.predict_after:
        return np.full(len(virtual), client.ratings.mean())
    local, mine = client.user_factors, item_factors[client.items]
    for _ in range(training.local_steps):
        gradient = user_gradient(local, mine, client.ratings, training.regularization)
        local = local - training.learning_rate * gradient
    guessed: Vector = item_factors[virtual] @ local
    return guessed


def train_client(
    client: Client, item_factors: Vector, virtual: NDArray[np.int32], training: Training
) -> tuple[Gradients, Gradients]:
    """Algorithm 2, lines 3-12: update U_u; return the gradients of rated and of virtual items."""
    if not len(client.items):
        nothing = Gradients(client.items, np.empty((0, item_factors.shape[1])))
        return nothing, nothing
    regularization, before = training.regularization, client.user_factors
    guessed = virtual_ratings(client, item_factors, virtual, training)
    learned, targets = client.items, client.ratings
    if training.learns_virtual:
        learned, targets = np.append(learned, virtual), np.append(targets, guessed)
    gradient = user_gradient(before, item_factors[learned], targets, regularization)
    client.user_factors = before - training.learning_rate * gradient
    client.num_updates += 1
    user = client.user_factors if training.is_sequential else before
    rated = item_gradients(user, item_factors, client.items, client.ratings, regularization)
    return rated, item_gradients(user, item_factors, virtual, guessed, regularization)


def reference_run(
    rows: UserRows,
    num_users: int,
    num_items: int,
    config: Config,
    draws: Draws,
    draw_items: DrawItems = draw_virtual_items,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """User factors and item factors after all rounds."""
    clients = enrol(rows, num_users, config.num_factors, draws)
    numbers = np.arange(num_items, dtype=np.int32)
    item_factors = initial_factors("item-factors", numbers, config.num_factors, draws).astype(np.float64)
    denoisers = draw_denoisers(config.denoisers, num_users, draws)  # Alg. 1, line 1
    learning_rate = config.learning_rate
    for round_number in range(1, config.num_rounds + 1):
        # The library's reading of Eq. 1: predicted when more than T_predict rounds are done.
        counts_own = config.predict_after_counts == "own"
        is_predicted = config.filling == "hybrid" and (counts_own or round_number - 1 > config.predict_after)
        training = Training(
            learning_rate,
            config.regularization,
            config.local_steps if is_predicted else 0,
            learns_virtual=config.user_update == "rated-and-virtual",
            is_sequential=config.update == "sequential",
            predict_after=config.predict_after if counts_own else -1,
        )
        item_factors = server_round(
            clients, item_factors, denoisers, round_number, config, training, draws, draw_items
        )
        learning_rate *= config.decay  # line 20
    return np.array([client.user_factors for client in clients]), item_factors


def enrol(rows: UserRows, num_users: int, num_factors: int, draws: Draws) -> list[Client]:
    """All clients before the first round."""
    assert rows.ratings is not None, "explicit feedback only"
    user_factors = initial_factors("user-factors", np.arange(num_users, dtype=np.int32), num_factors, draws)
    clients = []
    for user in range(num_users):
        mine = slice(rows.starts[user], rows.starts[user + 1])
        ratings = rows.ratings[mine].astype(np.float64)
        clients.append(Client(user, rows.items[mine], ratings, user_factors[user].astype(np.float64)))
    return clients


def server_round(
    clients: list[Client],
    item_factors: Vector,
    denoisers: NDArray[np.int32],
    round_number: int,
    config: Config,
    training: Training,
    draws: Draws,
    draw_items: DrawItems,
) -> Vector:
    """Algorithm 1, lines 4-19; V afterwards."""
    participants = draw_participants(len(clients), config.participation, round_number, draws, denoisers)
    assignment = assign(participants, denoisers, round_number, draws, config.assignment)
    total, counts = np.zeros(item_factors.shape, np.int64), np.zeros(len(item_factors), np.int64)
    collected = {int(number): (np.zeros_like(total), np.zeros_like(counts)) for number in assignment.denoisers}
    drawn_in = round_number if config.resample == "every-round" else 0
    for number, denoiser in zip(assignment.ordinary, assignment.denoiser_of, strict=True):  # lines 4-10, Eq. 4
        virtual = draw_items(clients[number], len(item_factors), config.rho, draws, drawn_in)
        rated, noise = train_client(clients[number], item_factors, virtual, training)
        add(total, counts, rated, 1)
        add(total, counts, noise, 1)
        if denoiser >= 0:
            add(*collected[int(denoiser)], noise, 1)  # Eq. 8
    for number, (noise_total, noise_counts) in collected.items():  # lines 11-14
        own, _ = train_client(clients[number], item_factors, np.empty(0, np.int32), training)
        add(noise_total, noise_counts, own, -1)  # Eq. 9
        total -= noise_total  # Eq. 5
        counts -= noise_counts  # line 17
    is_rated = counts > 0
    moved = item_factors.copy()
    mean = total[is_rated] * 2.0**-40 / counts[is_rated, None]
    moved[is_rated] -= training.learning_rate * mean  # Eq. 6
    return moved


def add(total: NDArray[np.int64], counts: NDArray[np.int64], gradients: Gradients, sign: int) -> None:
    """Add or take out one client's gradients; it lists an item once."""
    sent = gradients.rows.astype(np.float32).astype(np.float64)
    total[gradients.items] += sign * np.rint(sent * 2.0**40).astype(np.int64)
    counts[gradients.items] += sign
