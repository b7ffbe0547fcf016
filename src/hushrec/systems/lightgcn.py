"""LightGCN: the mean over neighbours' vectors, in one place, an upper bound without any privacy.

He, Deng, Wang, Li, Zhang, Wang: LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation
(SIGIR 2020), with the loss that PTF-FedRec's authors chose.

The round: as NeuMF's, with this network. Outputs are the mean of E, A E, A^2 E, ..., where E = vectors of all
users and items and A is the graph of what clients have, normalised. A pair's score is the sigmoid of the inner
product of its outputs (head `product`, the paper), or of dense layers over both (head `mlp`, the code of
PTF-FedRec's authors).

Threat model: none. The server knows all items of all clients.

Symbols: E = a part of `parameters`.
"""

# DEVIATION: binary cross-entropy over drawn items, as PTF-FedRec trains it; LightGCN's paper has a pairwise loss.

from dataclasses import dataclass
from typing import Literal

from hushrec.data.holdings import USERS
from hushrec.errors import option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models.server_model import ModelSettings
from hushrec.protocol import About, Handler, Paper, System, of_server
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems import neumf
from hushrec.systems.neumf import HandOver, Interactions


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of LightGCN, with the values of PTF-FedRec's paper."""

    num_factors: int = setting(32, "length of the vectors", "[1, inf)", search=OneOf((16, 32, 64, 128)))
    num_graph_layers: int = setting(3, "how far messages go", "[1, inf)", search=Between(1, 4))
    head: Literal["mlp", "product"] = setting("product", "how a pair is scored: dense layers or inner product")
    layers: tuple[int, ...] = setting((32, 16), "units of the dense layers, for the head mlp", "[1, inf)")
    num_rounds: int = setting(
        100, "epochs; chosen on held-out training items of ML-100K", "[1, inf)", search=Between(1, 200)
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
            model="lightgcn",
            num_factors=self.num_factors,
            layers=self.layers,
            num_graph_layers=self.num_graph_layers,
            head=self.head,
            epochs=1,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            loss="mean",
        )


# For files of no paper. On held-out training items of ML-100K these batches and steps are as good as the paper's,
# in an eighth of the time; the rest was chosen on validation parts of other files.
GENERAL = {"from_popularity": True, "batch_size": 8192, "learning_rate": 0.006, "num_rounds": 60}

PAPER = Paper(
    title="LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation",
    authors="Xiangnan He, Kuan Deng, Xiang Wang, Yan Li, Yongdong Zhang, Meng Wang",
    venue="SIGIR",
    year=2020,
)

SYSTEM = System(
    about=About(
        name="lightgcn",
        title="LightGCN: all items in one place, means over their graph",
        paper=PAPER,
        class_name="LightGCN",
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        hands_over_data=True,
        presets={"paper": {}, "general": GENERAL},
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
