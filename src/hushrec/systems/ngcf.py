"""NGCF: messages over the graph of users and items, in one place, an upper bound without any privacy.

Wang, He, Wang, Feng, Chua: Neural Graph Collaborative Filtering (SIGIR 2019), with the loss and the layers that
PTF-FedRec's authors chose.

The round: as NeuMF's, with this network. E_0 = vectors of all users and items. In each graph layer S = A E and
E = dropout(leaky_relu(S W1 + b1 + (E * S) W2 + b2)), where A is the graph of what clients have, normalised. A
pair's score is the sigmoid of the inner products, summed over E_0 and the layers' rows of length 1.

Threat model: none. The server knows all items of all clients.

Symbols: E_0, W, b = parts of `parameters`.
"""

# DEVIATION: binary cross-entropy over drawn items, as PTF-FedRec trains it; NGCF's paper has a pairwise loss.

from dataclasses import dataclass

from hushrec.data.holdings import USERS
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models.server_model import ModelSettings
from hushrec.protocol import About, Handler, Paper, System, of_server
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check_bounds, setting
from hushrec.systems import neumf
from hushrec.systems.neumf import HandOver, Interactions


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of NGCF, with the values of PTF-FedRec's paper."""

    num_factors: int = setting(
        32, "length of the vectors, in every layer", "[1, inf)", search=OneOf((16, 32, 64, 128))
    )
    num_graph_layers: int = setting(3, "how far messages go", "[1, inf)", search=Between(1, 4))
    message_dropout: float = setting(
        0.1, "share of a message's numbers that are left out in training", "[0, 1)", search=Between(0.0, 0.4)
    )
    num_rounds: int = setting(
        30, "epochs; chosen on held-out training items of ML-100K", "[1, inf)", search=Between(1, 100)
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

    def model_settings(self) -> ModelSettings:
        """The network, and how it is trained in a round."""
        return ModelSettings(
            model="ngcf",
            num_factors=self.num_factors,
            num_graph_layers=self.num_graph_layers,
            message_dropout=self.message_dropout,
            epochs=1,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            loss="mean",
        )


PAPER = Paper(
    title="Neural Graph Collaborative Filtering",
    authors="Xiang Wang, Xiangnan He, Meng Wang, Fuli Feng, Tat-Seng Chua",
    venue="SIGIR",
    year=2019,
)

# For files of no paper, chosen on validation parts of some of them. The rounds are the most that are tried.
GENERAL = {"from_popularity": True, "batch_size": 8192, "learning_rate": 0.002, "num_rounds": 60}

SYSTEM = System(
    about=About(
        name="ngcf",
        title="NGCF: all items in one place, messages over their graph",
        paper=PAPER,
        class_name="NGCF",
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        presets={"paper": {}, "general": GENERAL},
        hands_over_data=True,
        small={"num_graph_layers": 2, "batch_size": 64},
        learns_with={"num_negatives": 1, "learning_rate": 0.01},
        builds_on=("hushrec.models.networks",),
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(HandOver, Interactions),
    start=neumf.start,
    enrol=neumf.enrol,
    round=neumf.server_round,
    handlers={HandOver: Handler(neumf.client_hand_over)},
    reply_bytes=neumf.upload_bytes,
    result=of_server(neumf.model),
)
