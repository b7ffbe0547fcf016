"""FedRec++ as Algorithms 1 and 2 of its paper say it, in plain NumPy: one loop iteration per client.

What the compiled engine is measured against, for speed in the benchmarks and for equality in the tests. It shares
with the library only what is drawn at random: initial vectors, participants, denoisers and virtual items. All
arithmetic is in float64.

Symbols: as in `hushrec.systems.fedrec_plus_plus`; e_ui has the sign of the gradient.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.models.pmf import initial_factors
from hushrec.privacy.denoising import assign, draw_denoisers, draw_participants
from hushrec.privacy.filling import list_items
from hushrec.systems.fedrec_plus_plus import Config

Vector = NDArray[np.float64]
Gradients = dict[int, Vector]  # by item


@dataclass
class Catalogue:
    """One client's rated items, as `list_items` wants them."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    num_items: int


@dataclass
class Client:
    """What one client holds."""

    number: int
    items: NDArray[np.int32]
    ratings: Vector
    user_factors: Vector

    def virtual_items(self, num_items: int, rho: int, draws: Draws, drawn_in: int) -> list[int]:
        """I'_u (Algorithm 2, line 2)."""
        catalogue = Catalogue(np.array([0, len(self.items)]), self.items, num_items)
        number = np.array([self.number], np.int32)
        listing = list_items(catalogue, np.zeros(1, np.int64), number, rho, draws.key("virtual-items"), drawn_in)
        return [int(item) for item in listing.items[listing.rated_place < 0]]


@dataclass(frozen=True)
class Training:
    """How clients train in one round."""

    learning_rate: float
    regularization: float
    local_steps: int  # 0: virtual ratings are the mean rating
    learns_virtual: bool = False  # FedRec's update of U_u
    is_sequential: bool = False


def user_gradient(user: Vector, items: Vector, ratings: Vector, regularization: float) -> Vector:
    """Eq. 7: the mean of e_ui V_i + lambda U_u over the items."""
    total = np.zeros_like(user)
    for item, rating in zip(items, ratings, strict=True):
        total += (user @ item - rating) * item + regularization * user
    return total / len(ratings)


def item_gradient(user: Vector, item: Vector, rating: float, regularization: float) -> Vector:
    """Eq. 3, for a true or a virtual rating."""
    gradient: Vector = (user @ item - rating) * user + regularization * item
    return gradient


def virtual_ratings(client: Client, item_factors: Vector, virtual: list[int], training: Training) -> list[float]:
    """Eq. 1: the client's mean rating, or predictions of U'_u (Algorithm 2, lines 3-4)."""
    if training.local_steps == 0:
        return [float(client.ratings.mean())] * len(virtual)
    local = client.user_factors.copy()
    for _ in range(training.local_steps):
        gradient = user_gradient(local, item_factors[client.items], client.ratings, training.regularization)
        local = local - training.learning_rate * gradient
    return [float(local @ item_factors[item]) for item in virtual]


def train_client(
    client: Client, item_factors: Vector, virtual: list[int], training: Training
) -> tuple[Gradients, Gradients]:
    """Algorithm 2, lines 3-12: update U_u; return the gradients of rated and of virtual items."""
    if not len(client.items):
        return {}, {}
    regularization, before = training.regularization, client.user_factors
    guessed = virtual_ratings(client, item_factors, virtual, training)
    learned, targets = client.items, client.ratings
    if training.learns_virtual:
        learned, targets = np.append(learned, virtual).astype(np.int32), np.append(targets, guessed)
    gradient = user_gradient(before, item_factors[learned], targets, regularization)
    client.user_factors = before - training.learning_rate * gradient
    user = client.user_factors if training.is_sequential else before
    rated = {
        int(item): item_gradient(user, item_factors[item], rating, regularization)
        for item, rating in zip(client.items, client.ratings, strict=True)
    }
    noise = {
        item: item_gradient(user, item_factors[item], rating, regularization)
        for item, rating in zip(virtual, guessed, strict=True)
    }
    return rated, noise


def reference_run(
    rows: UserRows, num_users: int, num_items: int, config: Config, draws: Draws
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """User factors and item factors after all rounds."""
    clients = enrol(rows, num_users, config.num_factors, draws)
    numbers = np.arange(num_items, dtype=np.int32)
    item_factors = initial_factors("item-factors", numbers, config.num_factors, draws).astype(np.float64)
    denoisers = draw_denoisers(config.denoisers, num_users, draws)  # Alg. 1, line 1
    learning_rate = config.learning_rate
    for round_number in range(1, config.num_rounds + 1):
        # The library's reading of Eq. 1: predicted when more than T_predict rounds are done.
        is_predicted = config.filling == "hybrid" and round_number - 1 > config.predict_after
        training = Training(
            learning_rate,
            config.regularization,
            config.local_steps if is_predicted else 0,
            is_sequential=config.update == "sequential",
        )
        item_factors = server_round(clients, item_factors, denoisers, round_number, config, training, draws)
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
) -> Vector:
    """Algorithm 1, lines 4-19; V afterwards."""
    participants = draw_participants(len(clients), config.participation, denoisers, round_number, draws)
    assignment = assign(participants, denoisers, round_number, draws)
    total, counts = np.zeros_like(item_factors), np.zeros(len(item_factors))
    collected = {int(number): (np.zeros_like(total), np.zeros_like(counts)) for number in assignment.denoisers}
    drawn_in = round_number if config.resample == "every-round" else 0
    for number, denoiser in zip(assignment.ordinary, assignment.denoiser_of, strict=True):  # lines 4-10, Eq. 4
        virtual = clients[number].virtual_items(len(item_factors), config.rho, draws, drawn_in)
        rated, noise = train_client(clients[number], item_factors, virtual, training)
        add(total, counts, {**rated, **noise}, 1)
        if denoiser >= 0:
            add(*collected[int(denoiser)], noise, 1)  # Eq. 8
    for number, (noise_total, noise_counts) in collected.items():  # lines 11-14
        own, _ = train_client(clients[number], item_factors, [], training)
        add(noise_total, noise_counts, own, -1)  # Eq. 9
        total -= noise_total  # Eq. 5
        counts -= noise_counts  # line 17
    is_rated = counts > 0
    moved = item_factors.copy()
    moved[is_rated] -= training.learning_rate * total[is_rated] / counts[is_rated, None]  # Eq. 6
    return moved


def add(total: Vector, counts: Vector, gradients: Gradients, sign: int) -> None:
    """Add or take out one client's gradients."""
    for item, gradient in gradients.items():
        total[item] += sign * gradient
        counts[item] += sign
