"""NeuMF: neural collaborative filtering in one place, an upper bound without any privacy.

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering (WWW 2017), with the layers that PTF-FedRec's
authors chose: score = sigmoid(h . relu(W2 relu(W1 [u, v] + b1) + b2)).

The round:
1. In round 1 the clients hand their items to the server.
2. The server draws items that a client does not have, `num_negatives` for each that it has.
3. It trains one epoch on all of them: binary cross-entropy, Adam.

Threat model: none. The server knows all items of all clients.

Symbols: u, v = a row of `parameters` per user and per item, W, b, h = the rest of `parameters`.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models import server_model
from hushrec.models.popularity import sample_log_odds
from hushrec.models.server_model import Learned, ModelSettings, NetworkScorer, Pairs
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
from hushrec.settings import Between, OneOf, check, check_bounds, setting


class Centralised(Protocol):
    """What the round needs to know of a config."""

    @property
    def num_negatives(self) -> int:
        """Per item that a client has."""

    @property
    def from_popularity(self) -> bool:
        """Whether scores start at popularity."""

    def model_settings(self) -> ModelSettings:
        """The network, and how it is trained in a round."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of NeuMF, with the values of PTF-FedRec's paper."""

    num_factors: int = setting(32, "length of the vectors", "[1, inf)", search=OneOf((8, 16, 32, 64)))
    layers: tuple[int, ...] = setting((32, 16), "units of the dense layers behind a pair's vectors", "[1, inf)")
    start_scale: float = setting(
        1.0, "standard deviation of the vectors before training", "(0, inf)", search=Between(0.01, 1.0, log=True)
    )
    num_rounds: int = setting(
        50, "epochs; chosen on held-out training items of ML-100K", "[1, inf)", search=Between(1, 100)
    )
    learning_rate: float = setting(0.001, "of Adam", "(0, inf)", search=Between(1e-4, 0.02, log=True))
    batch_size: int = setting(1024, "samples per step of Adam", "[1, inf)", search=OneOf((256, 512, 1024, 2048)))
    num_negatives: int = setting(
        4, "items drawn in each round for each item of a client", "[0, inf)", search=Between(1, 8)
    )
    from_popularity: bool = setting(
        False, "start at how many people have each item, and learn who differs", search=OneOf((False, True))
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check(len(self.layers) > 0, f"{option('layers')} needs the width of one layer or more")

    def model_settings(self) -> ModelSettings:
        """The network, and how it is trained in a round."""
        return ModelSettings(
            model="neumf",
            num_factors=self.num_factors,
            start_scale=self.start_scale,
            layers=self.layers,
            epochs=1,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            loss="mean",
        )


@dataclass(frozen=True)
class HandOver(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.CLIENT


@dataclass(frozen=True)
class Interactions(Message):
    """Reveals: everything, all items of the client."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class ServerState:
    """What the server knows: all there is."""

    parameters: NDArray[np.float32] = kept(result=True)
    means: NDArray[np.float32] = kept()  # Adam's
    squares: NDArray[np.float32] = kept()  # Adam's
    num_steps: NDArray[np.int64] = kept()  # Adam's, 0-d
    num_items: NDArray[np.int64] = kept()  # 0-d
    starts: NDArray[np.int64] = kept()
    items: NDArray[np.int32] = kept()

    @property
    def sizes(self) -> tuple[int, int]:
        """How many users and items there are."""
        return len(self.starts) - 1, int(self.num_items)

    @property
    def learned(self) -> Learned:
        """The model and Adam's state."""
        return Learned(self.parameters, self.means, self.squares, self.num_steps)

    def positives(self) -> Pairs:
        """All (user, item) pairs that were handed over, labelled 1."""
        users = np.repeat(np.arange(self.sizes[0], dtype=np.int32), np.diff(self.starts))
        return Pairs(users, self.items, np.ones(len(users), np.float32))


def start(num_clients: int, num_items: int, config: Centralised, draws: Draws) -> ServerState:
    """The server before the first round."""
    learned = server_model.initial(config.model_settings(), num_clients, num_items, draws)
    starts, items = np.zeros(num_clients + 1, np.int64), np.empty(0, np.int32)
    arrays = (learned.parameters, learned.means, learned.squares, learned.num_steps)
    return ServerState(*arrays, np.array(num_items, np.int64), starts, items)


def enrol(_numbers: Numbers, rows: UserRows, _num_items: int, _config: Centralised, _draws: Draws) -> UserRows:
    """The clients: they hold items and nothing else."""
    return rows


def server_round(state: ServerState, round_number: int, config: Centralised, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    if round_number == 1:
        state = yield from _take_over(state)
    settings, graph = config.model_settings(), state.positives()
    samples = with_negatives(state, config.num_negatives, draws.generator("negatives", round_number))
    learned = server_model.train(
        state.learned, settings, state.sizes, samples, graph, round_number, draws, _offsets(state, config)
    )
    return replace(
        state,
        parameters=learned.parameters,
        means=learned.means,
        squares=learned.squares,
        num_steps=learned.num_steps,
    )


def _take_over(state: ServerState) -> Round[ServerState]:
    num_users, num_items = state.sizes
    uploads = Collect()
    yield Ask(np.arange(num_users, dtype=np.int32), HandOver(), uploads)
    if not uploads.batches:
        raise HushrecError("no client handed over its items; there is nothing to train on")
    came = np.concatenate([numbers for numbers, _ in uploads.batches])
    lengths = np.concatenate([message.items.lengths for _, message in uploads.batches])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    items = Ragged(starts, np.concatenate([message.items.values for _, message in uploads.batches]))
    num_positives = np.zeros(num_users, np.int64)
    num_positives[came] = lengths
    state = replace(
        state,
        starts=np.concatenate([[0], np.cumsum(num_positives)]),
        items=items.take(np.argsort(came)).values,
    )
    state.positives().check_fit((num_users, num_items))
    return state


def with_negatives(state: ServerState, num_negatives: int, generator: np.random.Generator) -> Pairs:
    """All positives and, for each, items that its user does not have: uniform among those, with repeats.

    A rank r among a user's other items is the item r + k, where k of the user's items come before it. Of the
    user's items p_0 < p_1 < ... that are those with p_j - j <= r.
    """
    positives, (_, num_items) = state.positives(), state.sizes
    owned = np.diff(state.starts)
    users = np.repeat(positives.users, num_negatives)
    users = users[owned[users] < num_items]
    ranks = (generator.random(len(users)) * (num_items - owned[users])).astype(np.int64)
    gaps = state.items - (np.arange(len(state.items)) - state.starts[positives.users])
    stride = num_items + 1
    before = np.searchsorted(positives.users * np.int64(stride) + gaps, users * np.int64(stride) + ranks, "right")
    items = (ranks + before - state.starts[users]).astype(np.int32)
    return Pairs(
        np.concatenate([positives.users, users]),
        np.concatenate([positives.items, items]),
        np.concatenate([positives.labels, np.zeros(len(users), np.float32)]),
    )


def client_hand_over(cohort: Cohort[UserRows], _request: HandOver, _config: Centralised, _draws: Draws) -> Reply:
    """Send the server all items of each client."""
    held = Ragged(cohort.private.starts, cohort.private.items)
    return Reply(Interactions(held.take(cohort.rows)))


def model(state: ServerState, config: Centralised, _rating_range: RatingRange) -> NetworkScorer:
    """A scorer made of the server's network."""
    settings, graph = config.model_settings(), state.positives()
    offsets = _offsets(state, config)
    return server_model.scorer(state.learned, settings, state.sizes, graph, config.num_negatives, offsets)


def _offsets(state: ServerState, config: Centralised) -> server_model.Offsets | None:
    """Where the logits of items start; the server has all that it takes."""
    if not config.from_popularity:
        return None
    num_users, num_items = state.sizes
    counts = np.bincount(state.items, minlength=num_items).astype(np.float64)
    return sample_log_odds(counts, num_users, odds=1 / max(config.num_negatives, 1))


def upload_bytes(rows: UserRows, _config: Centralised) -> NDArray[np.int64]:
    """Size of each client's upload: all its items."""
    return 4 * np.diff(rows.starts)


PAPER = Paper(
    title="Neural Collaborative Filtering",
    authors="Xiangnan He, Lizi Liao, Hanwang Zhang, Liqiang Nie, Xia Hu, Tat-Seng Chua",
    venue="WWW",
    year=2017,
)

# For files of no paper, chosen on a validation part of one of them. What few people have starts near zero, so that
# it is not ranked by chance. The rounds are the most that are tried.
GENERAL = {"from_popularity": True, "start_scale": 0.05, "learning_rate": 0.002, "num_rounds": 100}

SYSTEM = System(
    about=About(
        name="neumf",
        title="NeuMF: all items in one place, dense layers",
        paper=PAPER,
        class_name="NeuMF",
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        presets={"paper": {}, "general": GENERAL},
        hands_over_data=True,
        small={"layers": (4, 3), "batch_size": 64},
        learns_with={"layers": (8, 8), "num_negatives": 1, "batch_size": 128, "learning_rate": 0.01},
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(HandOver, Interactions),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={HandOver: Handler(client_hand_over)},
    reply_bytes=upload_bytes,
    result=of_server(model),
)
