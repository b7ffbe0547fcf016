"""NeuCF: neural collaborative filtering of ratings in one place, the baseline without any privacy.

Li, Wu, Pan, Ding, Wu, Tan, Xu, Yang, Ming: FedCORE: Federated Learning for Cross-Organization Recommendation
Ecosystem (TKDE 2024), whose NeuCF this is, trained on all ratings as FedCORE trains it: squared error and plain
gradient descent in batches. The network is that of He et al.: Neural Collaborative Filtering (WWW 2017).

The round:
1. In round 1 the clients hand their ratings to the server.
2. The server goes over all ratings once, in batches in a new order. A step moves what a batch touches by the
   gradient of the batch's mean squared error.

Threat model: none. The server knows all ratings.

Symbols: u = user_vectors, v = item_vectors, W, c, o = layers (see `hushrec.models.neucf`), d = num_factors.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.draws import Draws
from hushrec.errors import DivergedError
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.neucf import Activation, Layers, Vectors, initial_layers, initial_vectors, train_epoch
from hushrec.models.neucf_scoring import NeuCFModel
from hushrec.protocol import About, Handler, RatingRange, Round, System, kept, of_server
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check_bounds, setting
from hushrec.systems.fedcore.system import PAPER
from hushrec.systems.pmf import HandOver, Ratings, client_hand_over, enrol, take_over, upload_bytes


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of NeuCF, with the FedCORE paper's values for ML-100K."""

    num_factors: int = setting(
        16, "length of a vector in each of the two branches", "[1, inf)", search=OneOf((4, 8, 16, 32))
    )
    num_rounds: int = setting(50, "epochs", "[1, inf)", search=Between(1, 100))
    # DEVIATION: the paper has batches of 256 and rates from .1 to .6, without decay. These are of the authors'
    # code, and of validation data; see docs/fedcore.md.
    learning_rate: float = setting(
        0.15, "of the first round; plain gradient descent", "(0, inf)", search=Between(0.01, 0.6, log=True)
    )
    decay: float = setting(
        0.9, "what the learning rate is multiplied with after a round", "(0, 1]", search=Between(0.8, 1.0)
    )
    batch_size: int = setting(128, "ratings per step", "[1, inf)", search=OneOf((32, 64, 128, 256)))
    activation: Activation = setting("relu", "of the hidden layer; quadratic can be computed under encryption")
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)

    def learning_rate_in(self, round_number: int) -> float:
        """The learning rate of a round."""
        return self.learning_rate * self.decay ** (round_number - 1)


@dataclass(frozen=True)
class ServerState:
    """What the server knows: all there is."""

    user_vectors: Vectors = kept(result=True)
    item_vectors: Vectors = kept(result=True)
    layers: Layers = kept(result=True)
    starts: NDArray[np.int64] = kept()
    items: NDArray[np.int32] = kept()
    ratings: NDArray[np.float32] = kept()


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    users, items = np.arange(num_clients, dtype=np.int32), np.arange(num_items, dtype=np.int32)
    return ServerState(
        initial_vectors("user-vectors", users, config.num_factors, num_clients, draws),
        initial_vectors("item-vectors", items, config.num_factors, num_items, draws),
        initial_layers(config.num_factors, draws.generator("layers")),
        np.zeros(num_clients + 1, np.int64),
        np.empty(0, np.int32),
        np.empty(0, np.float32),
    )


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    num_users = len(state.user_vectors)
    if round_number == 1:
        taken = yield from take_over(num_users, len(state.item_vectors))
        state = replace(state, starts=taken.starts, items=taken.items, ratings=taken.ratings)
    users = np.repeat(np.arange(num_users, dtype=np.int32), np.diff(state.starts))
    order = draws.generator("batches", round_number).permutation(len(users))
    batch_size = min(config.batch_size, len(users))
    tables = state.user_vectors.copy(), state.item_vectors.copy(), state.layers.copy()
    rated = users, state.items, state.ratings
    train_epoch(tables, rated, order, batch_size, config.learning_rate_in(round_number), config.activation)
    if not all(np.isfinite(table).all() for table in tables):
        raise DivergedError("the model is not finite")
    user_vectors, item_vectors, layers = tables
    return replace(state, user_vectors=user_vectors, item_vectors=item_vectors, layers=layers)


def model(state: ServerState, config: Config, rating_range: RatingRange) -> NeuCFModel:
    """A scorer made of the server's vectors and layers."""
    return NeuCFModel(state.user_vectors, state.item_vectors, state.layers, config.activation, rating_range)


SYSTEM = System(
    about=About(
        name="neucf",
        title="NeuCF: all ratings in one place, a product and a dense branch",
        paper=PAPER,
        class_name="NeuCF",
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        hands_over_data=True,
        small={"batch_size": 16},
        learns_with={"batch_size": 16, "learning_rate": 0.05, "decay": 1.0},
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(HandOver, Ratings),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={HandOver: Handler(client_hand_over)},
    reply_bytes=upload_bytes,
    result=of_server(model),
)
