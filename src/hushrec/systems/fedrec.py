"""FedRec: federated matrix factorisation that hides rated items among virtual ones.

Lin, Liang, Pan, Ming: FedRec: Federated Recommendation with Explicit Feedback (IEEE Intelligent Systems 2020),
as described in Sec. 2.2 of the FedRec++ paper, whose equation numbers are used here.

The round:
1. The server sends V to the participating clients.
2. A client draws rho |I_u| unrated items (I'_u) and gives them virtual ratings (Eq. 1).
3. It updates U_u on rated and virtual items (or on rated ones only: `user_update`), and keeps it.
4. It uploads the gradient of V_i for every listed item (Eq. 3).
5. The server moves V_i by the mean of the gradients that came for it (Eq. 2).

Threat model: the server is honest but curious. A *list* of items hides which of them are rated; the gradients with
it do not: each is e_ui U_u + lambda V_i, so one upload gives all errors up to a common factor, and the factor that
makes ratings whole numbers gives them all, and those of virtual items stand out (measured on ML-100K with rho 3:
precision .999, recall .993, ratings exact .9999). With `resample every-round`, intersecting uploads does too.
With `biases`, the gradient of an item's bias is e_ui itself, so that the common factor need not be found.
With `secure_sums`, the server sees the sum of all gradients and counts of a round and no client's own, so that
virtual items have nothing left to hide (rho 0): see `privacy.secure_sum`, also for what the sum still tells.

Symbols: U = user_factors, V = item_factors, I_u = rated items, I'_u = virtual items, t = rounds done,
T = num_rounds, T_predict = predict_after, T_local = local_steps, gamma = learning_rate,
lambda = regularization. With `biases`, the last columns of U and V are b_u and b_i: see `models.biases`.
"""

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import option
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.biases import initial_items, moved_items
from hushrec.models.pmf import ClientGradients, FactorModel, Step, train_clients
from hushrec.models.rating_clients import Factors, RatingClients, initial_factors
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.filling import Listing, draw_ratings, list_items, num_virtual_items
from hushrec.privacy.held_items import held_items
from hushrec.privacy.robust_sum import RobustSums, RowNorm, add_up, check_robust, robust_fold, shortened
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.settings import SUMS_OF_FEW, SecureItemSums, hidden_in_sums
from hushrec.privacy.secure_sum.system import summed, with_secure_sums
from hushrec.privacy.secure_sum.together import draw_group
from hushrec.privacy.user_privacy import check_user_privacy
from hushrec.protocol import (
    About,
    Ask,
    Cohort,
    Collect,
    Exposure,
    Handler,
    Message,
    Numbers,
    Paper,
    Ragged,
    Reply,
    Result,
    Role,
    Round,
    System,
    each,
    kept,
    ragged,
    shared,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting

MOST_RHO = 10_000


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of FedRec, with the paper's values for ML-100K."""

    rho: int = setting(3, "virtual items per rated item", search=Between(0, 5, only_if_asked=True))
    # DEVIATION: `drawn` is not in the papers.
    filling: Literal["hybrid", "average", "drawn", "none"] = setting(
        "hybrid",
        "virtual ratings: predicted from some round on, the client's mean, drawn from its own ratings, or none",
    )
    resample: Literal["every-round", "once"] = setting("every-round", "when virtual items are drawn")
    predict_after: int = setting(
        5,
        "virtual ratings are predicted when more rounds are done (T_predict)",
        "[-1, inf)",
        search=Between(0, 30),
    )
    predict_after_counts: Literal["own", "all"] = setting(
        "own", "the rounds that are counted for it: those that the client took part in, or all of the run"
    )
    local_steps: int = setting(
        15, "gradient steps of the vector that predicts them (T_local)", "[1, inf)", search=Between(1, 30)
    )
    # DEVIATION: the paper does not say whether the participants of a round are drawn anew; here they are.
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    num_factors: int = setting(20, "length of the vectors", "[1, inf)", search=OneOf((5, 10, 20, 40)))
    num_rounds: int = setting(100, "rounds", "[1, inf)", search=Between(1, 200))
    learning_rate: float = setting(0.8, "of the first round", "(0, inf)", search=Between(0.05, 3.0, log=True))
    decay: float = setting(
        0.9, "what the learning rate is multiplied with after a round", "(0, 1]", search=Between(0.8, 1.0)
    )
    regularization: float = setting(
        0.001, "weight of the vectors' squared norms", "[0, inf)", search=Between(1e-5, 0.1, log=True)
    )
    update: Literal["simultaneous", "sequential"] = setting(
        "simultaneous", "whether gradients of items use the user's vector before or after its own update"
    )
    user_update: Literal["rated-and-virtual", "rated"] = setting(
        "rated-and-virtual", "the items that the user's vector learns from"
    )
    biases: bool = setting(
        False, "learn a bias of each user, which stays private, and of each item", search=OneOf((False, True))
    )
    shrinkage: float = setting(
        0.0,
        "so many ratings' worth of what all have in common is mixed with what a user or an item has",
        "[0, inf)",
        search=Between(0.0, 20.0),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check(
            0 <= self.rho <= MOST_RHO,
            f"{option('rho', self.rho)} is not within 0 to {MOST_RHO}; the paper uses 0 to 3",
        )
        check(
            self.filling != "none" or self.rho == 0,
            f"{option('filling', 'none')} lists no virtual items; add {option('rho', 0)}",
        )

    def step(self, round_number: int) -> Step:
        """How clients train in a round."""
        # DEVIATION: Eq. 1 predicts from t >= T_predict on; FedRec's published numbers come out with t > T_predict,
        # where t counts the rounds that are done.
        # DEVIATION: t of Eq. 1 counts the iterations of the training; here it counts those that the client took
        # part in, as the authors' code does. With all clients in every round it is the same; with few, vectors
        # that have hardly learned would predict (`predict_after_counts all`).
        counts_own = self.predict_after_counts == "own"
        is_predicted = self.filling == "hybrid" and (counts_own or round_number - 1 > self.predict_after)
        # DEVIATION: both gradients of a round use the U_u of its start, where lines 5 to 8 of Algorithm 2 update
        # U_u first (`update sequential`): in that order some runs on ML-100K diverge with the paper's rate.
        return Step(
            learning_rate=np.float32(self.learning_rate_in(round_number)),
            regularization=np.float32(self.regularization),
            local_steps=self.local_steps if is_predicted and self.rho > 0 else 0,
            learns_virtual=self.user_update == "rated-and-virtual" and self.rho > 0,
            is_sequential=self.update == "sequential",
            predict_after=self.predict_after if counts_own else -1,
            shrinkage=np.float32(self.shrinkage),
            has_biases=self.biases,
        )

    def learning_rate_in(self, round_number: int) -> float:
        """Gamma of a round (Algorithm 1, line 20)."""
        return self.learning_rate * self.decay ** (round_number - 1)


@dataclass(frozen=True, kw_only=True)
class SecureConfig(RobustSums, SecureItemSums, Config):
    """Settings of FedRec: these, which FedRec++ has too, and those of secure and robust sums, which it has not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_user_privacy(self)
        check_robust(self)


@dataclass(frozen=True)
class ItemFactors(Message):
    """Reveals: the server's model, and whether the client's last update counted."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Factors = shared(np.float32, 2)
    counted_round: Numbers = each(np.int32, low=0)


@dataclass(frozen=True)
class ItemGradients(Message):
    """Reveals: a list that holds the client's rated items, and of each the error times U_u, plus lambda V_i.

    With `biases`, the last number of a gradient is the error itself.
    """

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Settle(Message):
    """Reveals: the server's final model, and whether the client's last update counted."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # V after the last round, which may end twice, without those who were lost
    item_factors: Factors = shared(np.float32, 2)
    counted_round: Numbers = each(np.int32, low=0)


@dataclass(frozen=True)
class Settled(Message):
    """Reveals: nothing; the client has its final vector."""

    sender, receiver = Role.CLIENT, Role.SERVER


@dataclass(frozen=True)
class ServerState:
    """What the server knows between rounds."""

    item_factors: Factors = kept(result=True)
    counted_round: Numbers = kept()  # per client: the last round in which its update counted


class HasFactors(Protocol):
    """What the start of a run needs to know of a config."""

    @property
    def num_factors(self) -> int:
        """Length of the vectors."""
        ...

    @property
    def biases(self) -> bool:
        """Whether vectors have one more number, a bias."""
        ...


class Schedule(Protocol):
    """What a model for newcomers needs to know of a config."""

    @property
    def biases(self) -> bool:
        """Whether vectors have one more number, a bias."""
        ...

    @property
    def shrinkage(self) -> float:
        """How many ratings' worth of what all have in common is mixed in."""
        ...

    @property
    def num_rounds(self) -> int:
        """Rounds of the run."""
        ...

    @property
    def regularization(self) -> float:
        """Weight of the vectors' squared norms."""
        ...

    def learning_rate_in(self, round_number: int) -> float:
        """The learning rate of a round."""
        ...


def start(num_clients: int, num_items: int, config: HasFactors, draws: Draws) -> ServerState:
    """The server before the first round."""
    items = np.arange(num_items, dtype=np.int32)
    if config.biases:
        item_factors = initial_items(num_items, config.num_factors)
    else:
        item_factors = initial_factors("item-factors", items, config.num_factors, draws)
    return ServerState(item_factors, np.zeros(num_clients, np.int32))


def enrol(numbers: Numbers, rows: UserRows, num_items: int, config: HasFactors, draws: Draws) -> RatingClients:
    """The clients before the first round."""
    return RatingClients.enrol(numbers, rows, num_items, config.num_factors, draws, config.biases)


def server_round(state: ServerState, round_number: int, config: SecureConfig, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    clients = draw_group(len(state.counted_round), config.participation, round_number, config, draws)
    uploads = ExactSum.zeros(state.item_factors.shape, num_summands=len(clients))
    fold = robust_fold(uploads, config)
    request = ItemFactors(state.item_factors, state.counted_round[clients])
    answer = yield Ask(clients, request, fold)
    add_up(fold)
    item_factors = moved(state.item_factors, uploads, round_number, config)  # Eq. 2
    item_factors = held_items(item_factors, uploads.counts, config)
    counted_round = state.counted_round.copy()
    counted_round[answer.came(clients)] = round_number
    state = replace(state, item_factors=item_factors, counted_round=counted_round)
    if round_number == config.num_rounds:
        yield from settle(state.item_factors, state.counted_round)
    return state


def moved(item_factors: Factors, total: ExactSum, round_number: int, config: Config) -> Factors:
    """V after a round; where only some clients take part, what is mixed in counts for as many fewer, too."""
    shrinkage = config.shrinkage * config.participation
    return moved_items(item_factors, total, config.learning_rate_in(round_number), shrinkage, config.biases)


def settle(item_factors: Factors, counted_round: Numbers) -> Round[None]:
    """Send all clients the final V, and whether their last update counted: all they need to recommend."""
    clients = np.arange(len(counted_round), dtype=np.int32)
    yield Ask(clients, Settle(item_factors, counted_round), Collect())


def train(
    cohort: Cohort[RatingClients],
    item_factors: Factors,
    counted_round: Numbers,
    rho: int,
    step: Step,
    config: Config,
    draws: Draws,
) -> tuple[Listing, ClientGradients]:
    """List rated and virtual items, update U_u, return the gradients of V."""
    clients = cohort.private
    clients.settle(cohort.rows, counted_round)
    listing = listed(cohort, rho, config, draws)
    if rho and config.filling == "drawn":
        drawn = draw_ratings(clients, cohort.rows, cohort.numbers, listing, draws.key("virtual-ratings"))
        trained = train_clients(clients, cohort.rows, item_factors, listing, step, drawn)
    else:
        trained = train_clients(clients, cohort.rows, item_factors, listing, step)
    clients.updated(cohort.rows, cohort.round_number)
    return listing, trained


def listed(cohort: Cohort[RatingClients], rho: int, config: Config, draws: Draws) -> Listing:
    """Rated items, and virtual ones among them."""
    drawn_in = cohort.round_number if config.resample == "every-round" else 0
    return list_items(cohort.private, cohort.rows, cohort.numbers, rho, draws.key("virtual-items"), drawn_in)


def uploaded_items(cohort: Cohort[RatingClients], config: Config, draws: Draws) -> Ragged:
    """The items of which clients will upload gradients."""
    listing = listed(cohort, config.rho, config, draws)
    return Ragged(listing.starts, listing.items)


def client_update(
    cohort: Cohort[RatingClients], request: ItemFactors, config: SecureConfig, draws: Draws
) -> Reply:
    """Train on the client's ratings and upload gradients."""
    step = config.step(cohort.round_number)
    listing, trained = train(cohort, request.item_factors, request.counted_round, config.rho, step, config, draws)
    return Reply(upload(listing, trained, config))


def upload(listing: Listing, trained: ClientGradients, config: RowNorm) -> ItemGradients:
    """What a client shows the server."""
    rows = shortened(trained.gradients, config.row_norm)
    return ItemGradients(Ragged(listing.starts, listing.items), Ragged(listing.starts, rows))


def client_settle(cohort: Cohort[RatingClients], request: Settle, _config: object, _draws: Draws) -> Reply:
    """Keep or undo the last update, and keep the final V."""
    cohort.private.check_fit(request.item_factors)
    cohort.private.settle(cohort.rows, request.counted_round)
    cohort.private.item_factors[:] = request.item_factors
    return Reply(Settled())


def model(
    state: ServerState, clients: RatingClients, config: Schedule, rating_range: tuple[float, float] | None
) -> FactorModel:
    """V, and every client's U_u with the updates that counted."""
    user_factors = clients.settled_factors(state.counted_round)
    return _factor_model(user_factors, state.item_factors, config, rating_range)


def own_model(clients: RatingClients, config: Schedule, rating_range: tuple[float, float] | None) -> FactorModel:
    """What clients have after the last round: their own U_u, and V as it was sent to them."""
    return _factor_model(clients.user_factors, clients.item_factors, config, rating_range)


def _factor_model(
    user_factors: Factors, item_factors: Factors, config: Schedule, rating_range: tuple[float, float] | None
) -> FactorModel:
    rates = np.array([config.learning_rate_in(number) for number in range(1, config.num_rounds + 1)])
    return FactorModel(
        user_factors, item_factors, rating_range, rates, config.regularization,
        has_biases=config.biases, shrinkage=config.shrinkage,
    )  # fmt: skip


def upload_bytes(clients: RatingClients, config: Config) -> NDArray[np.int64]:
    """Size of each client's upload."""
    return 4 * (1 + config.num_factors + config.biases) * num_listed(clients, config)


def num_listed(clients: RatingClients, config: Config) -> NDArray[np.int64]:
    """How many items each client lists."""
    num_rated = clients.num_ratings()
    return num_rated + num_virtual_items(num_rated, config.rho, clients.num_items)


PAPER = Paper(
    title="FedRec: Federated Recommendation with Explicit Feedback",
    authors="Guanyu Lin, Feng Liang, Weike Pan, Zhong Ming",
    venue="IEEE Intelligent Systems",
    year=2020,
)

# Settings for files of no paper, chosen on validation ratings: see docs/fedrec.md.
GENERAL = {"biases": True, "shrinkage": 3.0, "regularization": 0.07, "decay": 1.0, "num_rounds": 150}

# For `epsilon_total`, which is for people to choose. Chosen on validation ratings: see docs/user-privacy.md.
PRIVATE = {
    **GENERAL, "user_update": "rated", "rho": 0, "num_factors": 1, "num_rounds": 6, "secure_sums": True,
}  # fmt: skip

_PLAIN = System(
    about=About(
        name="fedrec",
        title="FedRec: rated items hidden among virtual ones",
        paper=PAPER,
        class_name="FedRec",
        presets={"paper": {}, "general": {**GENERAL, "user_update": "rated"}, "private": PRIVATE},
        variants=(
            {"biases": True, "shrinkage": 2.0},
            {"robust": "trimmed", "row_norm": 2.0},
            {"robust": "held"},
            {"secure_sums": True},
            {"secure_sums": True, "secure_masks": "real"},
            {"secure_sums": True, "secure_masks": "real", "secure_least_raters": 2, "secure_together": 3},
            {"secure_sums": True, "secure_least_raters": 2},
            {"secure_sums": True, "noise_multiplier": 1.0},
        ),
        repairs=({"rho": 0, "secure_sums": True},),
        protected=hidden_in_sums("the server sees sums; a row of an item that one person rated is that person's"),
        exposes=(
            SUMS_OF_FEW,
            Exposure("the server reads every item and rating as it is", {"rho": 0}),
            Exposure("the server reads every item and rating out of one upload"),
        ),
        published_on=("ml-100k", "ml-1m", "nf5k5k"),
        small={"rho": 2, "predict_after": 1, "local_steps": 3},
        learns_with={"learning_rate": 0.3, "decay": 1.0, "rho": 1},
        builds_on=("hushrec.models.pmf", "hushrec.privacy.filling"),
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

UPLOADS = {
    ItemFactors: summed(
        ItemGradients,
        lambda request, _config, clients: ExactSum.zeros(request.item_factors.shape, clients),
        lambda _config: Size(clip=1.0, count_weight=0.5),
    )
}

SYSTEM = with_secure_sums(_PLAIN, UPLOADS, lambda clients: clients.item_factors.size, uploaded_items)
