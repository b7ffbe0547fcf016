"""Toy: item vectors are learned together, a user's vector is solved for whenever it is needed.

After Koren, Bell, Volinsky: Matrix Factorization Techniques for Recommender Systems (Computer 2009).

The round:
1. The server sends V to all clients.
2. A client solves for the u that explains its ratings best, and uploads the gradients of V_i of its items.
3. The server moves each V_i by the mean of the gradients that came for it.

Threat model: the server is honest but curious, and learns which items each client rated. Ratings are not hidden.

Symbols: V = item_factors, u = a user's vector.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.pmf import Factors
from hushrec.privacy.exact_sum import ExactSum
from hushrec.protocol import (
    About,
    Ask,
    Cohort,
    Handler,
    Message,
    Numbers,
    Paper,
    Ragged,
    RatingRange,
    Reply,
    Result,
    Role,
    Round,
    System,
    kept,
    ragged,
    shared,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import check_bounds, setting


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the toy."""

    num_factors: int = setting(8, "length of the vectors", "[1, inf)")
    num_rounds: int = setting(20, "rounds", "[1, inf)")
    learning_rate: float = setting(0.1, "of the item vectors", "(0, inf)")
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class ItemFactors(Message):
    """Reveals: the server's model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Factors = shared(np.float32, 2)


@dataclass(frozen=True)
class ItemGradients(Message):
    """Reveals: which items the client rated, and by their gradients how."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Server:
    """What the server knows."""

    item_factors: Factors = kept(result=True)
    clients: Numbers = kept()


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> Server:
    """Random vectors."""
    factors = draws.generator("toy").uniform(0, 1, (num_items, config.num_factors)).astype(np.float32)
    return Server(factors, np.arange(num_clients, dtype=np.int32))


def server_round(state: Server, _round_number: int, config: Config, _draws: Draws) -> Round[Server]:
    """One round of the server."""
    uploads = ExactSum.zeros(state.item_factors.shape, num_summands=len(state.clients))
    yield Ask(state.clients, ItemFactors(state.item_factors), uploads)
    step = config.learning_rate * uploads.mean()
    return Server((state.item_factors - step).astype(np.float32), state.clients)


def client_update(cohort: Cohort[UserRows], request: ItemFactors, _config: Config, _draws: Draws) -> Reply:
    """Gradients of the items that each client rated."""
    items = Ragged(cohort.private.starts, cohort.private.items).take(cohort.rows)
    ratings = Ragged(cohort.private.starts, cohort.private.ratings).take(cohort.rows)
    rows = request.item_factors[items.values]
    gradients = np.empty_like(rows)
    for first, last in pairwise(items.starts):
        own, wanted = rows[first:last], ratings.values[first:last]
        user = solved(own, wanted)
        gradients[first:last] = np.outer(own @ user - wanted, user)
    return Reply(ItemGradients(items, Ragged(items.starts, gradients)))


def solved(rows: Factors, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector that explains ratings of these items best; a little ridge keeps it small."""
    return np.linalg.solve(rows.T @ rows + 0.1 * np.eye(rows.shape[1], dtype=np.float32), rows.T @ ratings)


@dataclass(frozen=True)
class Model:
    """Products of vectors."""

    user_factors: Factors
    item_factors: Factors
    rating_range: RatingRange

    def predict(self, users: Numbers, items: Numbers) -> NDArray[np.float32]:
        """Ratings, within their range."""
        return np.clip(
            (self.user_factors[users] * self.item_factors[items]).sum(1), *self.rating_range or (None, None)
        )

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """Scores of all items."""
        return self.user_factors[users] @ self.item_factors.T

    def fold_in(self, items: Numbers, ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores for a newcomer."""
        return self.item_factors @ solved(self.item_factors[items], ratings)


def model(state: Server, rows: UserRows, _config: Config, rating_range: RatingRange) -> Model:
    """V, and what every client would solve for."""
    bounds, factors = pairwise(rows.starts), state.item_factors
    users = [solved(factors[rows.items[first:last]], rows.ratings[first:last]) for first, last in bounds]
    return Model(np.array(users), factors, rating_range)


PAPER = Paper("Matrix Factorization Techniques", "Koren, Bell, Volinsky", "Computer", 2009)

SYSTEM = System(
    about=About(
        name="toy",
        title="Toy: as small as a system can be",
        paper=PAPER,
        class_name="Toy",
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(ItemFactors, ItemGradients),
    start=start,
    enrol=lambda _numbers, rows, _num_items, _config, _draws: rows,
    round=server_round,
    handlers={ItemFactors: Handler(client_update)},
    reply_bytes=lambda rows, config: 4 * (1 + config.num_factors) * np.diff(rows.starts),
    result=Result(model),
)
