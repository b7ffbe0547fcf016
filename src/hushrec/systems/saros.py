"""SAROS: learning to rank from blocks of one stream of interactions, in one place.

Burashnikova, Maximov, Clausel, Laclau, Iutzeler, Amini: Learning over no-Preferred and Preferred Sequence of
Items for Robust Recommendation (JAIR 2021). The counterpart of DRIFT without owners: one organisation holds
all items and learns from every block as it is completed. It is DRIFT with one owner, Theta = 1 and no
encryption, and that is how it is made here. The round: as in `drift`. Updates of users with fewer blocks than
b or more than B can be discarded, as the paper does against bots and against those who hardly do anything:
since one place has the whole stream, it leaves out the events of these users before it begins.

Threat model: none; one place has all interactions.

Symbols: as in `drift`; b = min_blocks, B = max_blocks.
"""

from dataclasses import dataclass, replace
from typing import Literal

from hushrec.data.holdings import SOLE_OWNER
from hushrec.errors import option
from hushrec.protocol import About, Handler, Paper
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems.drift import SYSTEM as DRIFT
from hushrec.systems.drift.blocks import Reading
from hushrec.systems.drift.cipher import Form
from hushrec.systems.drift.gradients import BlockLoss
from hushrec.systems.drift.kept_by_users import MESSAGES as KEPT_BY_USERS
from hushrec.systems.drift.messages import Begin, OwnerKey, SentInteractions
from hushrec.systems.drift.plan import Plan
from hushrec.systems.drift.system import GENERAL
from hushrec.systems.drift.users import users_begin


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of SAROS, chosen as DRIFT's; the paper's limits on the number of blocks per user are off."""

    num_factors: int = setting(16, "length of vectors", "[1, inf)", search=OneOf((4, 8, 16, 32)))
    epochs: int = setting(7, "how often the stream is learned from", "[1, inf)", search=Between(1, 15))
    learning_rate: float = setting(
        0.1, "step size of the gradient descent", "(0, inf)", search=Between(0.005, 1.0, log=True)
    )
    regularization: float = setting(
        0.001, "weight of the vectors' squared norms (ridge)", "[0, inf)", search=Between(1e-5, 0.1, log=True)
    )
    window: int = setting(256, "events that are sent at once; changes no more than roundings", "[1, inf)")
    blocks: Reading = setting(
        "pairs", "whether a positive without a negative before it is dropped, or kept: literal"
    )
    block_loss: BlockLoss = setting("mean", "how the losses of a block's pairs make up its loss")
    open_blocks: Literal["go-on", "end"] = setting("go-on", "what open blocks do between two epochs")
    parts: int = setting(8, "rounds that an epoch is cut into, to go on from after a stop", "[1, inf)")
    recommended: int = setting(0, "items recommended to each user of a window while learning", "[0, inf)")
    positive_from: float = setting(
        0.0, "rating from which on an event is good; 0: the middle of the range", "[0, inf)"
    )
    unseen: int = setting(
        0, "items that a user never met, drawn before each good event and taken for bad ones", "[0, 100]"
    )
    bias_pace: float = setting(
        0.0,
        "learn a bias of each item, so much faster than its vector; 0: none",
        "[0, inf)",
        search=OneOf((0.0, 1.0, 3.0, 10.0)),
    )
    min_blocks: int = setting(0, "completed blocks that a user must have to be learned from", "[0, inf)")
    max_blocks: int = setting(
        0, "completed blocks that a user may have to be learned from; 0: any number", "[0, inf)"
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check(
            not self.max_blocks or self.min_blocks <= self.max_blocks,
            f"{option('min_blocks', self.min_blocks)} is above {option('max_blocks', self.max_blocks)}; "
            f"nobody is left",
        )

    @property
    def num_rounds(self) -> int:
        """How many stretches of the stream are learned from, over all epochs."""
        return self.epochs * self.parts

    @property
    def plan(self) -> Plan:
        """DRIFT with Theta = 1 and no encryption."""
        return Plan(
            self.num_factors, self.learning_rate, self.regularization, self.window, self.parts, self.recommended,
            self.open_blocks == "end", theta=1, threshold="blocks", max_delay=0, form=Form(is_encrypted=False),
            blocks=self.blocks, block_loss=self.block_loss, has_owners=False,
            min_blocks=self.min_blocks, max_blocks=self.max_blocks, unseen=self.unseen,
            bias_pace=self.bias_pace,
        )  # fmt: skip


PAPER = Paper(
    title="Learning over no-Preferred and Preferred Sequence of Items for Robust Recommendation",
    authors=(
        "Aleksandra Burashnikova, Yury Maximov, Marianne Clausel, Charlotte Laclau, Franck Iutzeler, "
        "Massih-Reza Amini"
    ),
    venue="JAIR",
    year=2021,
)

SYSTEM = replace(
    DRIFT,
    about=About(
        name="saros",
        title="SAROS: learning from blocks in one place",
        paper=PAPER,
        class_name="SAROS",
        published_on=("ml-100k", "ml-1m", "gowalla-20", "steam-200k-hours"),
        hands_over_data=True,
        is_online=True,
        small={"window": 100, "recommended": 2, "learning_rate": 0.5, "epochs": 4, "parts": 1},
        learns_with={"window": 50, "learning_rate": 0.3, "epochs": 60, "parts": 1},
        presets={
            "usual": {},
            "original": {"num_factors": 4, "positive_from": 4.0},
            "general": GENERAL,
        },
        builds_on=("hushrec.systems.drift", "hushrec.evaluation.held_back"),
    ),
    config=Config,
    holders=SOLE_OWNER,
    messages=tuple(kind for kind in DRIFT.messages if kind not in (OwnerKey, *KEPT_BY_USERS)),  # in the clear
    handlers={
        kind: Handler(users_begin) if kind is Begin else handler
        for kind, handler in DRIFT.handlers.items()
        if kind not in KEPT_BY_USERS
    },
    inboxes={SentInteractions: DRIFT.inboxes[SentInteractions]},
)
