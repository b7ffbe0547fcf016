"""AvgFilling: every rating is predicted as the mean of all ratings, the baseline that any model must beat.

Li, Wu, Pan, Ding, Wu, Tan, Xu, Yang, Ming: FedCORE: Federated Learning for Cross-Organization Recommendation
Ecosystem (TKDE 2024), which compares with it.

The round (there is one; later ones change nothing):
1. The clients send the sum and the number of their ratings.
2. The server divides the sum of all by the number of all.

Threat model: the server is honest but curious and learns each client's mean rating and how many it gave. Not
protected: that mean, nor a rating of who has rated only one item.

Symbols: totals = the sum and the number of all ratings.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.protocol import (
    About,
    Ask,
    Cohort,
    Collect,
    Handler,
    Message,
    Numbers,
    Ragged,
    RatingRange,
    Reply,
    Role,
    Round,
    System,
    each,
    kept,
    of_server,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import check_bounds, setting
from hushrec.systems.fedcore.system import PAPER
from hushrec.systems.pmf import enrol


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of AvgFilling: none that matters."""

    num_rounds: int = setting(1, "rounds; after the first nothing changes", "[1, inf)")
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class AddUp(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.CLIENT


@dataclass(frozen=True)
class Total(Message):
    """Reveals: how many items the client rated and its mean rating; of a client with one rating, that rating."""

    sender, receiver = Role.CLIENT, Role.SERVER
    sums: NDArray[np.float64] = each(np.float64)
    counts: NDArray[np.int64] = each(np.int64, low=0)


@dataclass(frozen=True)
class ServerState:
    """What the server knows."""

    num_items: NDArray[np.int64] = kept()  # 0-d
    num_clients: NDArray[np.int64] = kept()  # 0-d
    totals: NDArray[np.float64] = kept(result=True)  # sum and number of all ratings


def start(num_clients: int, num_items: int, _config: Config, _draws: Draws) -> ServerState:
    """The server before the first round."""
    return ServerState(np.array(num_items, np.int64), np.array(num_clients, np.int64), np.zeros(2))


def server_round(state: ServerState, round_number: int, _config: Config, _draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    if round_number > 1:
        return state
    uploads = Collect()
    yield Ask(np.arange(int(state.num_clients), dtype=np.int32), AddUp(), uploads)
    # In the order of the clients, so that the sum does not depend on cohorts or threads.
    sums = np.concatenate([np.empty(0), *(message.sums for _, message in uploads.batches)])
    counts = np.concatenate([np.empty(0, np.int64), *(message.counts for _, message in uploads.batches)])
    if not counts.sum():
        raise HushrecError("no client handed over its ratings; there is nothing to train on")
    return ServerState(state.num_items, state.num_clients, np.array([sums.sum(), counts.sum()]))


def client_add_up(cohort: Cohort[UserRows], _request: AddUp, _config: Config, _draws: Draws) -> Reply:
    """Send the sum and the number of ratings."""
    held = cohort.private
    assert held.ratings is not None, "explicit feedback only"
    ratings = Ragged(held.starts, held.ratings).take(cohort.rows)
    clients = np.repeat(np.arange(len(ratings)), ratings.lengths)
    sums = np.bincount(clients, ratings.values, len(ratings)).astype(np.float64)  # integers if there is none
    return Reply(Total(sums, ratings.lengths))


@dataclass(frozen=True)
class MeanModel:
    """Predicts the mean rating, whoever the user and whatever the item."""

    mean: float
    num_items: int

    def predict(self, users: Numbers, _items: Numbers) -> NDArray[np.float32]:
        """The mean for each pair; it is within the range of ratings."""
        return np.full(len(users), self.mean, np.float32)

    def score(self, users: Numbers) -> NDArray[np.float32]:
        """The same for all items: no item is ranked before another."""
        return np.full((len(users), self.num_items), self.mean, np.float32)

    def fold_in(self, _items: Numbers, _ratings: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean for all items: a newcomer's ratings do not matter."""
        return np.full(self.num_items, self.mean, np.float32)


def model(state: ServerState, _config: Config, _rating_range: RatingRange) -> MeanModel:
    """A scorer made of the server's sum and count."""
    total, count = state.totals
    return MeanModel(float(total / count) if count else 0.0, int(state.num_items))


def upload_bytes(rows: UserRows, _config: Config) -> NDArray[np.int64]:
    """Size of each client's upload: its sum and its count."""
    return np.full(len(rows.starts) - 1, 16)


SYSTEM = System(
    about=About(
        name="average",
        title="AvgFilling: the mean of all ratings, the baseline",
        paper=PAPER,
        class_name="Average",
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        learns_with=None,
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(AddUp, Total),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={AddUp: Handler(client_add_up)},
    reply_bytes=upload_bytes,
    result=of_server(model),
)
