"""FCF: federated collaborative filtering of implicit feedback, solved on the clients, Adam on the server.

Ammad-ud-din, Ivannikova, Khan, Oyomno, Fu, Tan, Flanagan: Federated Collaborative Filtering for Privacy-Preserving
Personalized Recommendation System (Preprint 2019), arXiv 1901.09888.

The round:
1. The server deals the participating clients into groups of Theta and takes the groups one after the other.
2. It sends V to a group.
3. A client solves x_u = (V^T C_u V + lambda I)^-1 V^T C_u p_u from its own positives.
4. It uploads -2 c_ui (p_ui - x_u v_i) x_u for every item of the catalogue.
5. The server adds these up, adds 2 lambda v_i and takes a step of Adam with V.
After the last round all clients get the final V and solve once more, so that they can recommend.

Threat model: the server is honest but curious, and hardly anything is protected against it. Every row of an upload
is a multiple of x_u; that of another item is 2 x_u v_i, that of a positive is not. The server knows V, so one
upload tells it all positives of a client, and x_u. With `from_popularity` the uploads of round 1 are the positives
themselves, in the clear, so that they can be counted: no more than the others tell, and plainer.
With `secure_sums`, the server sees the sum over each group of Theta clients, and no client's own upload: see
`privacy.secure_sum`. A small group is little to hide in.

Symbols: X = user_factors, V = item_factors, alpha = confidence, lambda = regularization, Theta = clients_per_step,
beta_1 and beta_2 = first_decay and second_decay of Adam.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models.fcf import (
    Factors,
    PositiveClients,
    PositiveModel,
    Squares,
    Weights,
    initial_item_factors,
    item_gradients,
    own_rows,
    solve_users,
)
from hushrec.models.popularity import weighted_shares
from hushrec.privacy.dense_sum import DenseSum
from hushrec.privacy.robust_sum import RobustSums, add_up, check_robust, robust_fold, shortened
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.settings import SUMS_OF_FEW, SecureSums, hidden_in_sums
from hushrec.privacy.secure_sum.system import summed, with_secure_sums
from hushrec.privacy.secure_sum.together import fixed_groups, is_together
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
    RatingRange,
    Reply,
    Result,
    Role,
    Round,
    System,
    draw_participants,
    kept,
    ragged,
    shared,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting

_TINY = 1e-8  # Adam's epsilon


@dataclass(frozen=True, kw_only=True)
class Config(RobustSums, SecureSums):
    """Settings of FCF: those of the PTF-FedRec paper's comparison, as far as it gives them.

    The comparison has 32 factors, 20 rounds with all clients, and Adam with 0.001. It does not give alpha, lambda,
    Adam's decays and the start of V; these are chosen. The preset `tuned` has more and larger steps per round.
    """

    num_factors: int = setting(32, "length of the vectors", "[1, inf)", search=OneOf((8, 16, 32, 64)))
    num_rounds: int = setting(20, "rounds", "[1, inf)", search=Between(1, 100))
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    clients_per_step: int = setting(
        0, "clients whose gradients make one step of the server (Theta); 0: all", "[0, inf)"
    )
    confidence: float = setting(
        4.0,
        "how much more a positive counts than another item (alpha)",
        "[0, inf)",
        search=Between(0.5, 40.0, log=True),
    )
    learning_rate: float = setting(0.001, "of Adam", "(0, inf)", search=Between(1e-4, 0.1, log=True))
    first_decay: float = setting(0.1, "of Adam's mean of gradients (beta_1)", "[0, 1)", search=Between(0.0, 0.95))
    second_decay: float = setting(0.99, "of Adam's mean of squared gradients (beta_2)", "[0, 1)")
    regularization: float = setting(
        1.0, "weight of the vectors' squared norms (lambda)", "(0, inf)", search=Between(0.05, 50.0, log=True)
    )
    initial_scale: float = setting(
        0.1,
        "items' vectors start uniformly within plus and minus this",
        "(0, inf)",
        search=Between(0.01, 0.5, log=True),
    )
    from_popularity: bool = setting(
        False,
        "count in round 1 how many clients have each item, and start the first column of vectors there",
        search=OneOf((False, True)),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check_user_privacy(self)
        check_robust(self)
        check(
            self.robust != "krum",
            f"{option('robust', 'krum')} compares all pairs of clients for each item, of which each sends all; "
            f"use {option('robust', 'median')}",
        )
        check(
            self.robust != "held",
            f"{option('robust', 'held')} counts who has an item, and here each sends all; "
            f"use {option('robust', 'median')}",
        )

    def is_counting(self, round_number: int) -> bool:
        """Whether all clients are counted in this round, and nothing is learned."""
        return self.from_popularity and round_number == 1

    @property
    def weights(self) -> Weights:
        """How the loss weighs positives, and the vectors' norms."""
        return Weights(self.confidence, self.regularization)


@dataclass(frozen=True)
class ItemFactors(Message):
    """Reveals: the server's model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "seldom"  # the model moves within a round, from group to group of clients
    item_factors: Factors = shared(np.float32, 2)


@dataclass(frozen=True)
class ItemGradients(Message):
    """Reveals: which items are the client's positives, and its vector."""

    sender, receiver = Role.CLIENT, Role.SERVER
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Settle(Message):
    """Reveals: the server's final model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # V after the last round, which may end twice, without those who were lost
    item_factors: Factors = shared(np.float32, 2)


@dataclass(frozen=True)
class Settled(Message):
    """Reveals: nothing; the client has its final vector."""

    sender, receiver = Role.CLIENT, Role.SERVER


@dataclass(frozen=True)
class ServerState:
    """What the server knows between rounds."""

    item_factors: Factors = kept(result=True)
    means: Squares = kept()  # Adam's, of the gradients
    squares: Squares = kept()  # Adam's, of the squared gradients
    num_steps: NDArray[np.int64] = kept()  # a number: Adam's steps so far
    num_clients: NDArray[np.int64] = kept()  # a number


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    item_factors = initial_item_factors(num_items, config.num_factors, config.initial_scale, draws)
    nothing = np.zeros(item_factors.shape)
    return ServerState(item_factors, nothing, nothing.copy(), np.array(0), np.array(num_clients))


def enrol(numbers: Numbers, rows: UserRows, num_items: int, config: Config, _draws: Draws) -> PositiveClients:
    """The clients before the first round."""
    user_factors = np.zeros((len(numbers), config.num_factors), np.float32)
    item_factors = np.zeros((num_items, config.num_factors), np.float32)
    return PositiveClients(rows.starts, rows.items, num_items, user_factors, item_factors)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server: a step of Adam per group of clients."""
    num_clients = int(state.num_clients)
    if config.is_counting(round_number):
        state = yield from _counted(state, config)
    for group in [] if config.is_counting(round_number) else _groups(num_clients, round_number, config, draws):
        uploads = DenseSum.zeros(state.item_factors.shape, num_summands=len(group))
        fold = robust_fold(uploads, config)
        answer = yield Ask(group, ItemFactors(state.item_factors), fold)
        add_up(fold)
        if len(answer.came(group)):
            state = _step(state, uploads.to_float(), config)
    if round_number == config.num_rounds:
        yield Ask(np.arange(num_clients, dtype=np.int32), Settle(state.item_factors), Collect())
    return state


def _counted(state: ServerState, config: Config) -> Round[ServerState]:
    """V with the weighted share of clients who have each item in its first column."""
    everyone = np.arange(int(state.num_clients), dtype=np.int32)
    counts = DenseSum.zeros(state.item_factors.shape, num_summands=len(everyone))
    counts.limit = min(counts.limit, 1.0)  # nobody counts more than once
    answer = yield Ask(everyone, ItemFactors(state.item_factors), counts)
    num_counted = len(answer.came(everyone))
    if not num_counted:
        return state
    item_factors = state.item_factors.copy()
    item_factors[:, 0] = weighted_shares(counts.to_float()[:, 0], num_counted, 1 + config.confidence)
    return replace(state, item_factors=item_factors)


def _groups(num_clients: int, round_number: int, config: Config, draws: Draws) -> list[Numbers]:
    """The participants in groups of about Theta, each ascending; who is in which is drawn anew every round.

    Where participants stay together, groups are the same in all rounds, and some or all of them take part.
    """
    if is_together(config):
        size = config.clients_per_step or config.participation * num_clients
        fixed = fixed_groups(num_clients, max(round(num_clients / size), 1), config, draws)
        drawn = draws.generator("groups", round_number).permutation(len(fixed))
        return [fixed[place] for place in drawn[: max(round(config.participation * len(fixed)), 1)]]
    clients = draw_participants(num_clients, config.participation, round_number, draws)
    dealt = draws.generator("groups", round_number).permutation(clients)
    num_groups = ceil(len(clients) / (config.clients_per_step or len(clients)))
    bounds = np.linspace(0, len(clients), num_groups + 1).astype(np.int64)
    return [np.sort(dealt[first:last]) for first, last in pairwise(bounds)]


def _step(state: ServerState, total: Squares, config: Config) -> ServerState:
    """One step of Adam on the gradient of the loss."""
    gradient = total + 2.0 * config.regularization * state.item_factors
    num_steps = int(state.num_steps) + 1
    means = config.first_decay * state.means + (1.0 - config.first_decay) * gradient
    squares = config.second_decay * state.squares + (1.0 - config.second_decay) * gradient**2
    mean = means / (1.0 - config.first_decay**num_steps)
    size = np.sqrt(squares / (1.0 - config.second_decay**num_steps)) + _TINY
    item_factors = (state.item_factors - config.learning_rate * mean / size).astype(np.float32)
    return replace(state, item_factors=item_factors, means=means, squares=squares, num_steps=np.array(num_steps))


def client_update(cohort: Cohort[PositiveClients], request: ItemFactors, config: Config, _draws: Draws) -> Reply:
    """Solve for x_u and upload the gradients of all items."""
    clients, rows, item_factors = cohort.private, cohort.rows, request.item_factors
    starts = np.arange(len(rows) + 1, dtype=np.int64) * len(item_factors)
    if config.is_counting(cohort.round_number):
        return Reply(ItemGradients(Ragged(starts, own_rows(clients, rows, item_factors.shape))))
    user_factors = _solved(clients, rows, item_factors, config)
    gradients = item_gradients(clients.starts, clients.items, rows, user_factors, item_factors, config.weights)
    return Reply(ItemGradients(Ragged(starts, shortened(gradients, config.row_norm))))


def client_settle(cohort: Cohort[PositiveClients], request: Settle, config: Config, _draws: Draws) -> Reply:
    """Keep the final V, and solve for x_u with it."""
    _solved(cohort.private, cohort.rows, request.item_factors, config)
    cohort.private.item_factors[:] = request.item_factors
    return Reply(Settled())


def _solved(clients: PositiveClients, rows: NDArray[np.int64], item_factors: Factors, config: Config) -> Factors:
    """x_u of the clients, which they keep."""
    clients.check_fit(item_factors)
    common = clients.common_for(item_factors)
    user_factors = solve_users(clients.starts, clients.items, rows, item_factors, common, config.weights)
    clients.user_factors[rows] = user_factors
    return user_factors


def model(
    state: ServerState, clients: PositiveClients, config: Config, _rating_range: RatingRange
) -> PositiveModel:
    """V, and every client's x_u as it solved it last."""
    return PositiveModel(clients.user_factors, state.item_factors, lambda *_: config.weights)


def own_model(clients: PositiveClients, config: Config, _rating_range: RatingRange) -> PositiveModel:
    """What clients have after the last round: their own x_u, and V as it was sent to them."""
    return PositiveModel(clients.user_factors, clients.item_factors, lambda *_: config.weights)


def upload_bytes(clients: PositiveClients, config: Config) -> NDArray[np.int64]:
    """Size of each client's upload: a row for every item, whatever its positives."""
    return np.full(len(clients.user_factors), 4 * config.num_factors * clients.num_items, np.int64)


PAPER = Paper(
    title="Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation System",
    authors="Muhammad Ammad-ud-din, Elena Ivannikova, Suleiman A. Khan, Were Oyomno, Qiang Fu, Kuan Eeik Tan, "
    "Adrian Flanagan",
    venue="arXiv",
    year=2019,
)

# For files of no paper, chosen on validation parts of some of them. The rounds are the most that are tried.
GENERAL = {
    "clients_per_step": 100, "learning_rate": 0.003, "regularization": 10.0, "from_popularity": True,
    "initial_scale": 0.01, "num_rounds": 40,
}  # fmt: skip

_PLAIN = System(
    about=About(
        name="fcf",
        title="FCF: gradients of all items to the server, for implicit feedback",
        paper=PAPER,
        class_name="FCF",
        repairs=({"secure_sums": True},),
        protected=(
            *hidden_in_sums("the server sees sums", clients_per_step=0),
            *hidden_in_sums("the server sees sums of 100 people and more", clients_per_step="[100, inf)"),
        ),
        exposes=(SUMS_OF_FEW, Exposure("the server reads every item of a person out of one upload")),
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        presets={
            "paper": {},
            "tuned": {"clients_per_step": 100, "learning_rate": 0.01},
            "general": GENERAL,
        },
        small={"clients_per_step": 10},
        variants=(
            {"secure_sums": True},
            {"secure_sums": True, "secure_masks": "real"},
            {"secure_sums": True, "noise_multiplier": 1.0},
        ),
        learns_with={"learning_rate": 0.05},
    ),
    config=Config,
    feedback=IMPLICIT,
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
        lambda request, _config, clients: DenseSum.zeros(request.item_factors.shape, clients),
        lambda _config: Size(clip=10.0),
    )
}

SYSTEM = with_secure_sums(_PLAIN, UPLOADS, num_words=lambda clients: clients.item_factors.size)
