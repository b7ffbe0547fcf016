"""SDCF: secure distributed collaborative filtering. Randomised response hides items, SGLD noise hides values.

Jiang, Li, Lin: Towards a more reliable privacy-preserving recommender system (Information Sciences 2019),
vol. 482, as described in the FedRec++ paper, whose Eq. 10 is used here.

The round:
1. The server sends V to the participating clients.
2. A client reports items by two-stage randomised response; the unrated ones among them are I''_u.
3. It updates U_u by SGLD on its rated items.
4. It uploads Eq. 10 for the reported items; errors of I''_u are drawn from its errors on rated items.
5. The server subtracts the sum of the uploads from V; the learning rate is inside them.

Threat model: the server is honest but curious. Randomised response gives deniability of each single item, for
all rounds together (see `privacy.randomized_response`); the ratings are hidden by the Langevin noise only.
With `secure_sums`, the server sees the sum of the uploads and no client's own: see `privacy.secure_sum`.

Symbols: U = user_factors, V = item_factors, f = flip, q = report_if_set, p = report_if_unset,
Lambda = precisions, drawn from Gamma(prior_shape, prior_scale), gamma = learning_rate.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.draws import Draws
from hushrec.errors import option
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.pmf import ClientGradients, FactorModel
from hushrec.models.rating_clients import Factors, RatingClients
from hushrec.models.sgld import LangevinStep, train_clients
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.filling import Listing, list_items
from hushrec.privacy.randomized_response import Response, report_items
from hushrec.privacy.robust_sum import RobustSums, add_up, check_robust, robust_fold
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.settings import SUMS_OF_FEW, SecureItemSums, hidden_in_sums
from hushrec.privacy.secure_sum.system import with_secure_sums
from hushrec.privacy.secure_sum.together import draw_group
from hushrec.privacy.user_privacy import check_user_privacy
from hushrec.protocol import (
    About,
    Ask,
    Cohort,
    Exposure,
    Handler,
    Numbers,
    Paper,
    Ragged,
    Reply,
    Result,
    Round,
    System,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems import fedrec
from hushrec.systems.fedrec import (
    UPLOADS,
    ItemFactors,
    ItemGradients,
    ServerState,
    Settle,
    Settled,
    client_settle,
    enrol,
    settle,
    start,
    upload,
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of SDCF.

    DEVIATION: the FedRec++ paper, after which this is built, gives none; these learn ML-100K.
    """

    flip: float = setting(
        0.1,
        "chance that an item's permanent bit is a fair coin (f)",
        "[0, 1]",
        search=Between(0.0, 0.9, only_if_asked=True),
    )
    report_if_set: float = setting(
        0.75,
        "chance to report an item whose permanent bit is set (q)",
        "[0, 1]",
        search=Between(0.5, 1.0, only_if_asked=True),
    )
    report_if_unset: float = setting(
        0.02,
        "chance to report an item whose permanent bit is not set (p)",
        "[0, 1]",
        search=Between(0.0, 0.3, only_if_asked=True),
    )
    temperature: float = setting(
        0.1,
        "factor on the deviation of the Langevin noise; 1 as published",
        "[0, inf)",
        search=Between(0.0, 1.0, only_if_asked=True),
    )
    prior_shape: float = setting(2.0, "shape of the Gamma prior of Lambda", "(0, inf)", search=Between(0.5, 5.0))
    prior_scale: float = setting(
        0.05, "scale of the Gamma prior of Lambda", "(0, inf)", search=Between(0.005, 0.5, log=True)
    )
    prior_seed: int = setting(0, "of Lambda, which server and clients all know")
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    num_factors: int = setting(20, "length of the vectors", "[1, inf)", search=OneOf((5, 10, 20, 40)))
    num_rounds: int = setting(100, "rounds", "[1, inf)", search=Between(1, 200))
    learning_rate: float = setting(0.0015, "of the first round", "(0, inf)", search=Between(1e-4, 0.02, log=True))
    decay: float = setting(
        0.99, "what the learning rate is multiplied with after a round", "(0, 1]", search=Between(0.9, 1.0)
    )
    regularization: float = setting(0.001, "for newcomers whose vector is folded in", "[0, inf)")
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def biases(self) -> bool:
        """SDCF has none: the paper's Langevin noise is for vectors alone."""
        return False

    @property
    def shrinkage(self) -> float:
        """None: its steps are sums, so what few ratings say moves little anyway."""
        return 0.0

    def learning_rate_in(self, round_number: int) -> float:
        """The learning rate of a round (gamma)."""
        return self.learning_rate * self.decay ** (round_number - 1)

    def step(self, round_number: int, draws: Draws) -> LangevinStep:
        """How clients train in a round."""
        learning_rate = self.learning_rate_in(round_number)
        # DEVIATION: Lambda is drawn once from its prior, not sampled along with the factors.
        public = Draws(self.prior_seed).generator("precisions")
        prior = public.gamma(self.prior_shape, self.prior_scale, (1, self.num_factors))
        # DEVIATION: the published deviation sqrt(gamma) is scaled by `temperature`; at 1 the noise drowns
        # what ML-100K teaches (MAE 1.1).
        deviation = self.temperature * learning_rate**0.5
        key = draws.key("langevin")
        return LangevinStep(
            np.float32(learning_rate), np.float32(deviation), prior.astype(np.float32), key, round_number
        )


@dataclass(frozen=True, kw_only=True)
class SecureConfig(RobustSums, SecureItemSums, Config):
    """Settings of SDCF: these, which it has denoised too, and those of secure and robust sums."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_user_privacy(self)
        check_robust(self)
        check(
            self.robust != "held",
            f"{option('robust', 'held')} counts who has an item, and reports here are of many who have it not; "
            f"use {option('robust', 'median')}",
        )


def server_round(state: ServerState, round_number: int, config: SecureConfig, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    clients = draw_group(len(state.counted_round), config.participation, round_number, config, draws)
    uploads = ExactSum.zeros(state.item_factors.shape, num_summands=len(clients))
    fold = robust_fold(uploads, config)
    request = ItemFactors(state.item_factors, state.counted_round[clients])
    answer = yield Ask(clients, request, fold)
    add_up(fold)
    item_factors = (state.item_factors - uploads.to_float()).astype(np.float32)
    counted_round = state.counted_round.copy()
    counted_round[answer.came(clients)] = round_number
    state = replace(state, item_factors=item_factors, counted_round=counted_round)
    if round_number == config.num_rounds:
        yield from settle(state.item_factors, state.counted_round)
    return state


def train(
    cohort: Cohort[RatingClients],
    item_factors: Factors,
    counted_round: Numbers,
    is_reporting: bool,
    config: Config,
    draws: Draws,
) -> tuple[Listing, ClientGradients]:
    """Choose items, all rated ones or by randomised response, update U_u, return Eq. 10 for each of them."""
    clients, rows, numbers = cohort.private, cohort.rows, cohort.numbers
    clients.settle(rows, counted_round)
    if is_reporting:
        listing = _reported(cohort, config, draws)
    else:
        listing = list_items(clients, rows, numbers, 0, draws.key("virtual-items"), 0)
    step = config.step(cohort.round_number, draws)
    trained = train_clients(clients, rows, numbers, item_factors, listing, step)
    clients.updated(rows, cohort.round_number)
    return listing, trained


def _reported(cohort: Cohort[RatingClients], config: Config, draws: Draws) -> Listing:
    """Items by randomised response."""
    response = Response(config.flip, config.report_if_set, config.report_if_unset)
    key = draws.key("randomized-response")
    return report_items(cohort.private, cohort.rows, cohort.numbers, response, key, cohort.round_number)


def uploaded_items(cohort: Cohort[RatingClients], config: Config, draws: Draws) -> Ragged:
    """The items of which clients will upload gradients."""
    listing = _reported(cohort, config, draws)
    return Ragged(listing.starts, listing.items)


def client_update(
    cohort: Cohort[RatingClients], request: ItemFactors, config: SecureConfig, draws: Draws
) -> Reply:
    """Report items and upload their gradients."""
    trained = train(cohort, request.item_factors, request.counted_round, True, config, draws)
    return Reply(upload(*trained, config))


def model(
    state: ServerState, clients: RatingClients, config: Config, rating_range: tuple[float, float] | None
) -> FactorModel:
    """V, and every client's U_u with the updates that counted."""
    return replace(fedrec.model(state, clients, config, rating_range), sums_gradients=True)


def own_model(clients: RatingClients, config: Config, rating_range: tuple[float, float] | None) -> FactorModel:
    """What clients have after the last round: their own U_u, and V as it was sent to them."""
    return replace(fedrec.own_model(clients, config, rating_range), sums_gradients=True)


def upload_bytes(clients: RatingClients, config: Config) -> NDArray[np.int64]:
    """Expected size of each client's upload."""
    share_set = config.flip / 2 + (1 - config.flip) * clients.num_ratings() / clients.num_items
    share = share_set * config.report_if_set + (1 - share_set) * config.report_if_unset
    return (4 * (1 + config.num_factors) * clients.num_items * share).astype(np.int64)


PAPER = Paper(
    title="Towards a more reliable privacy-preserving recommender system",
    authors="Jyun-Yu Jiang, Cheng-Te Li, Shou-De Lin",
    venue="Information Sciences",
    year=2019,
)

_PLAIN = System(
    about=About(
        name="sdcf",
        title="SDCF: randomised response and Langevin noise",
        paper=PAPER,
        class_name="SDCF",
        repairs=({"secure_sums": True},),
        protected=hidden_in_sums("the server sees sums"),
        exposes=(SUMS_OF_FEW, Exposure("the server tells most items of a person, by how often they are listed")),
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        small={"temperature": 0.1},
        variants=(
            {"robust": "median"},
            {"secure_sums": True},
            {"secure_sums": True, "secure_masks": "real"},
            {"secure_sums": True, "secure_least_raters": 2},
            {"secure_sums": True, "noise_multiplier": 1.0},
        ),
        learns_with={"learning_rate": 0.01, "decay": 1.0},
    ),
    config=SecureConfig,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(ItemFactors, ItemGradients, Settle, Settled),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={ItemFactors: Handler(client_update), Settle: Handler(client_settle)},
    reply_bytes=upload_bytes,
    result=Result(model, party=own_model),
)

# The server needs no counts.
SUMS = {kind: replace(one, size=lambda config: Size(10 * config.learning_rate)) for kind, one in UPLOADS.items()}

SYSTEM = with_secure_sums(_PLAIN, SUMS, lambda clients: clients.item_factors.size, uploaded_items)
