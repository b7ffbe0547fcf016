"""PMF: probabilistic matrix factorisation in one place, the baseline without any privacy.

Mnih, Salakhutdinov: Probabilistic Matrix Factorization (NIPS 2007), trained in batches as FedRec trains it, so
that its result is what FedRec without virtual items gives, to the last bit.

The round:
1. In round 1 the clients hand their ratings to the server.
2. The server updates every U_u (Eq. 7 of the FedRec++ paper) and every V_i (the mean gradient over its raters).

Threat model: none. The server knows all ratings.

Symbols: U = user_factors, V = item_factors, T = num_rounds, gamma = learning_rate, lambda = regularization. With
`biases`, the last columns of U and V are b_u and b_i: see `models.biases`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.biases import initial_items, initial_users, moved_items, scale_of
from hushrec.models.pmf import FactorModel, Step, train_clients
from hushrec.models.rating_clients import Factors, RatingClients, initial_factors
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.filling import list_items
from hushrec.protocol import (
    About,
    Ask,
    Cohort,
    Collect,
    Handler,
    Message,
    Numbers,
    Paper,
    Ragged,
    RatingRange,
    Reply,
    Role,
    Round,
    System,
    kept,
    of_server,
    ragged,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check_bounds, setting
from hushrec.systems.fedrec import GENERAL, ItemGradients

_BLOCK_USERS = 512


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of PMF, with the FedRec++ paper's values for ML-100K."""

    num_factors: int = setting(20, "length of the vectors", "[1, inf)", search=OneOf((5, 10, 20, 40)))
    num_rounds: int = setting(100, "rounds", "[1, inf)", search=Between(1, 200))
    learning_rate: float = setting(0.8, "of the first round", "(0, inf)", search=Between(0.05, 3.0, log=True))
    decay: float = setting(
        0.9, "what the learning rate is multiplied with after a round", "(0, 1]", search=Between(0.8, 1.0)
    )
    regularization: float = setting(
        0.001, "weight of the vectors' squared norms", "[0, inf)", search=Between(1e-5, 0.1, log=True)
    )
    biases: bool = setting(False, "learn a bias of each user and of each item", search=OneOf((False, True)))
    shrinkage: float = setting(
        0.0,
        "so many ratings' worth of what all have in common is mixed with what a user or an item has",
        "[0, inf)",
        search=Between(0.0, 20.0),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)

    def learning_rate_in(self, round_number: int) -> float:
        """The learning rate of a round (gamma)."""
        return self.learning_rate * self.decay ** (round_number - 1)


@dataclass(frozen=True)
class HandOver(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.CLIENT


@dataclass(frozen=True)
class Ratings(Message):
    """Reveals: everything, all items that the client rated and how."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    ratings: Ragged = ragged(np.float32)


class Taken(NamedTuple):
    """The ratings of all clients, a slice for each."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]


@dataclass(frozen=True)
class ServerState:
    """What the server knows: all there is."""

    item_factors: Factors = kept(result=True)
    user_factors: Factors = kept(result=True)
    starts: NDArray[np.int64] = kept()
    items: NDArray[np.int32] = kept()
    ratings: NDArray[np.float32] = kept()


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    users, items = np.arange(num_clients, dtype=np.int32), np.arange(num_items, dtype=np.int32)
    starts = np.zeros(num_clients + 1, np.int64)
    if config.biases:
        item_factors = initial_items(num_items, config.num_factors)
        user_factors = initial_users(users, np.diff(starts), config.num_factors, draws)
    else:
        item_factors = initial_factors("item-factors", items, config.num_factors, draws)
        user_factors = initial_factors("user-factors", users, config.num_factors, draws)
    return ServerState(
        item_factors,
        user_factors,
        starts,
        np.empty(0, np.int32),
        np.empty(0, np.float32),
    )


def enrol(_numbers: Numbers, rows: UserRows, _num_items: int, _config: object, _draws: Draws) -> UserRows:
    """The clients: they hold ratings and nothing else."""
    return rows


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server.

    DEVIATION: all ratings at once, with the mean gradient per user and per item, as FedRec trains; Mnih and
    Salakhutdinov take mini-batches, with momentum.
    """
    if round_number == 1:
        taken = yield from take_over(len(state.user_factors), len(state.item_factors))
        state = replace(state, starts=taken.starts, items=taken.items, ratings=taken.ratings)
        if config.biases:
            users = np.arange(len(state.user_factors), dtype=np.int32)
            user_factors = initial_users(users, np.diff(taken.starts), config.num_factors, draws)
            state = replace(state, user_factors=user_factors)
    return _trained(state, config, round_number, draws)


def _trained(state: ServerState, config: Config, round_number: int, draws: Draws) -> ServerState:
    """U and V after one step on all ratings."""
    learning_rate = config.learning_rate_in(round_number)
    step = Step(
        np.float32(learning_rate), np.float32(config.regularization), 0, False, False,
        shrinkage=np.float32(config.shrinkage), has_biases=config.biases,
    )  # fmt: skip
    user_factors = state.user_factors.copy()
    num_items = len(state.item_factors)
    users = RatingClients.at_start(state.starts, state.items, state.ratings, num_items, user_factors)
    total = ExactSum.zeros(state.item_factors.shape, num_summands=len(user_factors))
    for first in range(0, len(user_factors), _BLOCK_USERS):
        rows = np.arange(first, min(first + _BLOCK_USERS, len(user_factors)))
        numbers = rows.astype(np.int32)
        listing = list_items(users, rows, numbers, 0, draws.key("virtual-items"), 0)
        trained = train_clients(users, rows, state.item_factors, listing, step)
        gradients = Ragged(listing.starts, trained.gradients)
        total.add(numbers, ItemGradients(Ragged(listing.starts, listing.items), gradients))
    item_factors = moved_items(state.item_factors, total, learning_rate, config.shrinkage, config.biases)
    return replace(state, item_factors=item_factors, user_factors=user_factors)


def take_over(num_clients: int, num_items: int) -> Round[Taken]:
    """Ask all clients for their ratings; who is lost has none."""
    uploads = Collect()
    yield Ask(np.arange(num_clients, dtype=np.int32), HandOver(), uploads)
    if not any(message.items.values.size for _, message in uploads.batches):
        raise HushrecError("no client handed over its ratings; there is nothing to train on")
    came = np.concatenate([numbers for numbers, _ in uploads.batches])
    lengths = np.concatenate([message.items.lengths for _, message in uploads.batches])
    in_order, as_came = np.argsort(came), np.concatenate([[0], np.cumsum(lengths)])
    items = Ragged(as_came, np.concatenate([message.items.values for _, message in uploads.batches]))
    ratings = Ragged(as_came, np.concatenate([message.ratings.values for _, message in uploads.batches]))
    is_unknown = (items.values < 0) | (items.values >= num_items)
    if is_unknown.any():  # kernels do not look
        sender = came[np.searchsorted(as_came, np.flatnonzero(is_unknown)[0], side="right") - 1]
        raise HushrecError(f"client {sender} lists an item that is not in the catalogue; leave it out")
    num_ratings = np.zeros(num_clients, np.int64)
    num_ratings[came] = lengths
    starts = np.concatenate([[0], np.cumsum(num_ratings)])
    return Taken(starts, items.take(in_order).values, ratings.take(in_order).values)


def client_hand_over(cohort: Cohort[UserRows], _request: HandOver, _config: object, _draws: Draws) -> Reply:
    """Send the server all ratings of each client."""
    held = cohort.private
    assert held.ratings is not None, "explicit feedback only"
    lengths = held.starts[cohort.rows + 1] - held.starts[cohort.rows]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(starts[-1]) + np.repeat(held.starts[cohort.rows] - starts[:-1], lengths)
    return Reply(Ratings(Ragged(starts, held.items[places]), Ragged(starts, held.ratings[places])))


def client_hand_over_scaled(cohort: Cohort[UserRows], request: HandOver, config: Config, draws: Draws) -> Reply:
    """The same, with biases in units of the scale, which the server does not know."""
    held = cohort.private
    if config.biases and held.ratings is not None:
        ratings = scale_of(held.rating_range).to_units(held.ratings)
        cohort = replace(cohort, private=replace(held, ratings=ratings))
    return client_hand_over(cohort, request, config, draws)


def upload_bytes(rows: UserRows, _config: object) -> NDArray[np.int64]:
    """Size of each client's upload."""
    return 8 * np.diff(rows.starts)


def model(state: ServerState, config: Config, rating_range: RatingRange) -> FactorModel:
    """A scorer made of U and V."""
    rates = np.array([config.learning_rate_in(number) for number in range(1, config.num_rounds + 1)])
    return FactorModel(
        state.user_factors, state.item_factors, rating_range, rates, config.regularization,
        has_biases=config.biases, shrinkage=config.shrinkage,
    )  # fmt: skip


PAPER = Paper(
    title="Probabilistic Matrix Factorization",
    authors="Andriy Mnih, Ruslan Salakhutdinov",
    venue="NIPS",
    year=2007,
)

SYSTEM = System(
    about=About(
        name="pmf",
        title="PMF: all ratings in one place, the baseline",
        paper=PAPER,
        class_name="PMF",
        presets={"paper": {}, "general": GENERAL},
        variants=({"biases": True, "shrinkage": 2.0},),
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        hands_over_data=True,
        learns_with={"learning_rate": 0.3, "decay": 1.0},
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(HandOver, Ratings),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={HandOver: Handler(client_hand_over_scaled)},
    reply_bytes=upload_bytes,
    result=of_server(model),
)
