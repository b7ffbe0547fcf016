"""FedRec-BPR, FedRec++ with a pairwise ranking loss: lists worth showing, and denoisers who take noise out again.

Liang, Pan, Ming: FedRec++ (AAAI 2021) names other losses, pairwise ones among them, as future work; this is that
system. The loss is BPR's: Rendle, Freudenthaler, Gantner, Schmidt-Thieme: BPR: Bayesian Personalized Ranking from
Implicit Feedback (UAI 2009). Neither paper has the combination, so all choices here are our own.

The round:
1. The server sends V to the ordinary clients, and tells each of them a denoiser.
2. An ordinary client draws items that it does not have, `negatives` for each of its items, pairs them up and
   solves for the U_u that ranks its own above the drawn ones.
3. It makes up rho virtual pairs per real one: of drawn items it takes those that U_u scores like real ones and
   that would add up to U_u as real pairs do (`models.bpr_virtual`). It uploads the gradients of all listed items,
   and sends those of virtual pairs, its noise, sealed to its denoiser.
4. The server sends V to the denoisers. A denoiser solves for its own U_u and sends the sum of the noise that it
   got, less its own gradients, with the counts.
5. The server subtracts the denoisers' sums. What is left is the gradient of real pairs, to the last bit that of
   rho 0. It adds lambda V_i and takes a step of Adam with V.
With `from_popularity` round 1 only counts: rows are 1 in the bias's place for items that a client claims to like,
and the counts without noise start the biases. Such a row tells less than one of a later round.
After the last round all clients get the final V and solve once more, so that they can recommend. An item is real,
virtual or not listed, never two of these, so each row is kept or taken out as a whole. What happens when a
denoiser is lost is as in `fedrec_plus_plus`; clients have nothing to undo, since each V makes a U_u of its own.

Threat model: the server is honest but curious; denoisers too, and they do not collude with it. Every row of an
upload is a multiple of U_u, below zero for positives and above it for negatives. So one upload gives the server
U_u, what the client claims to like and, by the rows' sizes, which negative is paired with what; only virtual pairs
hide the real ones among these. One upload hides little, and least of who has few items. U_u is a sum over real
pairs, so the server can ask which pairs add up to it, and own items score higher than others. Virtual pairs are
chosen against both, but a server that weighs all that it could know still orders an own item and a virtual one
rightly in .7 to .8 of cases (ML-100K, rho 3; docs/fedrec-bpr.md). And many uploads hide nothing: virtual pairs
change, own items stay, and whoever intersects uploads finds them. A denoiser's counts below zero name items that
it lists itself, its own and its negatives; where no noise covers one, its row gives the denoiser's U_u and which
of the two it is. With `shares` k > 0 the server sees masked rows, alone and with k - 1 of a client's k denoisers:
lists, and sums over clients, are what is left (`privacy.shared_denoising`). With `secure_sums` it sees the sum of
all gradients and counts of a round and no client's own, so that there is nothing to hide (rho 0) and nothing for
denoisers to take out: see `privacy.secure_sum`, also for what the sum still tells.

Symbols: U = user_factors, V = item_factors with the items' bias as the last column, eta = denoisers,
lambda = regularization.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models.bpr import (
    Factors,
    PairGradients,
    Pairing,
    RankingClients,
    RankingModel,
    adam_step,
    counted,
    initial_item_factors,
    keys_of,
    sizes_of,
    train_clients,
)
from hushrec.models.popularity import log_odds
from hushrec.privacy import shared_denoising as sharing
from hushrec.privacy.denoising import Assigning, NoiseSums, draw_denoisers
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.settings import SUMS_OF_FEW, SecureSums, hidden_in_sums
from hushrec.privacy.secure_sum.system import summed, with_secure_sums
from hushrec.privacy.secure_sum.together import draw_group
from hushrec.privacy.shares import Hidden, ShareSums
from hushrec.privacy.user_privacy import check_user_privacy
from hushrec.protocol import (
    NO_ONE,
    About,
    Ask,
    Cohort,
    Exposure,
    Handler,
    Message,
    Numbers,
    Ragged,
    RatingRange,
    Reply,
    Result,
    Role,
    Round,
    System,
    kept,
    ragged,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems import fedrec
from hushrec.systems import fedrec_plus_plus as plus_plus
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, DenoisingSums, ItemFactors, Noise

_SETTLED = 0  # the round whose draws clients use for the final V; those of training begin with 1


@dataclass(frozen=True, kw_only=True)
class Config(SecureSums):
    """Settings of FedRec++ with a ranking loss, chosen on validation data: no paper has any."""

    rho: int = setting(3, "virtual pairs per real pair", search=Between(0, 5, only_if_asked=True))
    denoisers: int = setting(
        1,
        "clients that collect noise (eta); 0 leaves the noise in",
        "[0, inf)",
        search=Between(0, 8, only_if_asked=True),
    )
    assignment: Assigning = setting("dealt", "how clients get their denoisers: dealt evenly, or each at random")
    shares: int = setting(
        0,
        "denoisers of each client, whose shares of masks tell nothing but all together (k); 0: one, with noise",
        "[0, 64]",
    )
    negatives: int = setting(
        2, "items that each item of a client is ranked above", "[1, 1000]", search=Between(1, 8)
    )
    looks: int = setting(
        30,
        "unrated items looked at for each virtual item, to find one that can stand for a real one",
        "[1, 1000]",
        search=Between(1, 100, only_if_asked=True),
    )
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    num_factors: int = setting(32, "length of the vectors", "[1, inf)", search=OneOf((8, 16, 32, 64)))
    num_rounds: int = setting(100, "rounds", "[1, inf)", search=Between(1, 200))
    learning_rate: float = setting(0.02, "of the server's Adam", "(0, inf)", search=Between(0.002, 0.2, log=True))
    bias_pace: float = setting(
        10.0,
        "how much faster the items' biases go: they have a longer way",
        "(0, inf)",
        search=Between(1.0, 30.0, log=True),
    )
    from_popularity: bool = setting(
        False,
        "count in round 1 how many clients have each item, and start the biases there",
        search=OneOf((False, True)),
    )
    user_steps: int = setting(10, "steps by which a client solves for its vector", "[1, inf)")
    regularization: float = setting(
        1.0,
        "weight of the vectors' squared norms; biases are free",
        "(0, inf)",
        search=Between(0.05, 10.0, log=True),
    )
    crowding: float = setting(
        0.0,
        "how much more a client's vector is held back, the more of all items it has",
        "[0, inf)",
        search=OneOf((0.0, 30.0, 100.0, 300.0)),
    )
    initial_scale: float = setting(
        0.1,
        "items' vectors start uniformly within plus and minus this",
        "(0, inf)",
        search=Between(0.01, 0.5, log=True),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check_user_privacy(self)
        most = fedrec.MOST_RHO
        check(0 <= self.rho <= most, f"{option('rho', self.rho)} is not within 0 to {most}; the paper uses 0 to 3")
        check(
            self.rho == self.denoisers == 0 or not self.secure_sums,
            f"{option('secure_sums', True)} leaves nothing to hide or to take out; add {option('rho', 0)} and "
            f"{option('denoisers', 0)}",
        )

    def is_counting(self, round_number: int) -> bool:
        """Whether clients are counted in this round, and nothing is learned."""
        return self.from_popularity and round_number == 1

    def pairing(self, rho: int) -> Pairing:
        """How clients make up their pairs, with so many virtual ones."""
        strength = np.float32(self.regularization)
        crowding = np.float32(self.crowding)
        return Pairing(self.negatives, rho, self.looks, self.user_steps, strength, crowding)


@dataclass(frozen=True)
class PairRows(Message):
    """Reveals: the client's vector U_u, what it claims to like, and which items it claims to rank that above.

    A row divided by its last number is U_u; the sign of that number tells what is pulled up, its size the pairs.
    """

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class ServerState(plus_plus.ServerState):
    """What the server knows between rounds."""

    means: Factors = kept()  # Adam's, of the gradients
    squares: Factors = kept()  # Adam's, of the squared gradients
    num_steps: NDArray[np.int64] = kept()  # a number: Adam's steps so far


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    sharing.check_config(config, num_clients)
    denoisers = draw_denoisers(config.denoisers, num_clients, draws)
    item_factors = initial_item_factors(num_items, config.num_factors, config.initial_scale, draws)
    nothing = np.zeros_like(item_factors)
    counted_round = np.zeros(num_clients, np.int32)
    return ServerState(item_factors, counted_round, denoisers, nothing, nothing.copy(), np.array(0))


def enrol(numbers: Numbers, rows: UserRows, num_items: int, config: Config, _draws: Draws) -> RankingClients:
    """The clients before the first round."""
    return RankingClients.enrol(rows.starts, rows.items, num_items, config.num_factors)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    collected = _secure_sum if config.secure_sums else plus_plus.denoised_or_shared_sum
    outcome = yield from collected(state, round_number, config, draws)
    if len(outcome.counted):
        state = _learned(state, outcome, round_number, config)
    settled = outcome.settled(state, state.item_factors, round_number, draws)
    state = replace(state, counted_round=settled.counted_round, denoisers=settled.denoisers)
    if round_number == config.num_rounds:
        yield from fedrec.settle(state.item_factors, state.counted_round)
    return state


def _secure_sum(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[plus_plus.Outcome]:
    """The sum of everybody's gradients: nobody is a denoiser."""
    clients = draw_group(len(state.counted_round), config.participation, round_number, config, draws)
    total = ExactSum.zeros(state.item_factors.shape, num_summands=len(clients))
    no_denoiser = np.full(len(clients), -1, np.int32)
    request = ItemFactors(state.item_factors, state.counted_round[clients], no_denoiser)
    answer = yield Ask(clients, request, total)
    return plus_plus.Outcome(total, answer.came(clients), NO_ONE)


def _learned(state: ServerState, outcome: plus_plus.Outcome, round_number: int, config: Config) -> ServerState:
    """What the server makes of the sums without noise: the start of the biases, or a step."""
    sums = outcome.total.to_float()
    if not config.is_counting(round_number):
        return _step(state, sums, config)
    item_factors = state.item_factors.copy()
    item_factors[:, -1] = log_odds(-sums[:, -1], len(outcome.counted))
    return replace(state, item_factors=item_factors)


def _step(state: ServerState, gradient: NDArray[np.float64], config: Config) -> ServerState:
    """One step of Adam on the gradient of real pairs and, for those who take part, of lambda / 2 |V_i|^2."""
    gradient[:, :-1] += config.participation * config.regularization * state.item_factors[:, :-1]
    num_steps = int(state.num_steps) + 1
    before = state.item_factors, state.means, state.squares
    item_factors, means, squares = adam_step(*before, gradient, config.learning_rate, config.bias_pace, num_steps)
    return replace(state, item_factors=item_factors, means=means, squares=squares, num_steps=np.array(num_steps))


def train(
    cohort: Cohort[RankingClients],
    item_factors: Factors,
    rho: int,
    round_number: int,
    config: Config,
    draws: Draws,
) -> PairGradients:
    """Draw pairs, solve for U_u, return the gradients of V. Nothing of a round is needed in the next."""
    clients, keys = cohort.private, keys_of(draws)
    pairing = config.pairing(rho)
    trained = train_clients(clients, cohort.rows, cohort.numbers, item_factors, pairing, keys, round_number)
    return counted(trained) if config.is_counting(round_number) else trained


def _upload(trained: PairGradients) -> PairRows:
    return PairRows(Ragged(trained.starts, trained.items), Ragged(trained.starts, trained.gradients))


def client_update(cohort: Cohort[RankingClients], request: ItemFactors, config: Config, draws: Draws) -> Reply:
    """An ordinary client: solve, upload gradients, send noise."""
    sharing.check_unmasked(config)
    trained = train(cohort, request.item_factors, config.rho, cohort.round_number, config, draws)
    noise = Noise(Ragged(trained.noise_starts, trained.noise_items), Ragged(trained.noise_starts, trained.noise))
    return plus_plus.reply(_upload(trained), noise, request.denoiser, config)


def client_share(
    cohort: Cohort[RankingClients], request: sharing.FactorsToShare, config: Config, draws: Draws
) -> Reply:
    """A client with k denoisers: solve, upload masked numbers, send shares."""
    trained = train(cohort, request.item_factors, config.rho, cohort.round_number, config, draws)
    is_real = trained.is_real(cohort.private.num_items)
    hidden = Hidden.of(trained.starts, trained.items, is_real, trained.gradients[is_real])
    return sharing.shared_reply(cohort, request, hidden, config.shares, draws)


def denoiser_update(
    cohort: Cohort[RankingClients], request: DenoiserFactors, config: Config, draws: Draws
) -> Reply:
    """A denoiser: solve, then send the sum of noise less its own gradients."""
    own = train(cohort, request.item_factors, 0, cohort.round_number, config, draws)
    return plus_plus.released(cohort, _upload(own))


def client_settle(cohort: Cohort[RankingClients], request: fedrec.Settle, config: Config, draws: Draws) -> Reply:
    """Keep the final V, and solve for U_u with it."""
    train(cohort, request.item_factors, 0, _SETTLED, config, draws)
    cohort.private.item_factors[:] = request.item_factors
    return Reply(fedrec.Settled())


def open_inbox(clients: RankingClients, config: Config) -> NoiseSums:
    """Where noise is added up as it arrives."""
    return NoiseSums(clients.num_items, config.num_factors + 1, config.denoisers)


def open_share_inbox(clients: RankingClients, config: Config) -> ShareSums:
    """Where shares are added up as they arrive."""
    return ShareSums(clients.num_items, config.num_factors + 2, config.denoisers)


def model(state: ServerState, clients: RankingClients, config: Config, _rating_range: RatingRange) -> RankingModel:
    """V, and every client's U_u as it solved it last."""
    return RankingModel(clients.user_factors, state.item_factors, config.pairing(0))


def own_model(clients: RankingClients, config: Config, _rating_range: RatingRange) -> RankingModel:
    """What clients have after the last round: their own U_u, and V as it was sent to them."""
    return RankingModel(clients.user_factors, clients.item_factors, config.pairing(0))


def upload_bytes(clients: RankingClients, config: Config) -> NDArray[np.int64]:
    """Size of each client's upload."""
    sizes = sizes_of(clients.num_positives(), config.negatives, config.rho, clients.num_items)
    row_bytes = 4 + 8 * (2 + config.num_factors) if config.shares else 4 * (2 + config.num_factors)
    return row_bytes * sizes.total()


# For files of no paper, chosen on validation parts of some of them. It starts as popularity, where biases need no
# haste and vectors are near zero, so that what few people have wins no list by chance.
GENERAL = {"crowding": 100.0, "from_popularity": True, "bias_pace": 1.0, "initial_scale": 0.01}

_PLAIN: System[Config, UserRows, ServerState, RankingClients] = System(
    about=About(
        name="fedrec-bpr",
        title="FedRec-BPR: FedRec++ that ranks, with virtual pairs, and denoisers who take their noise out again",
        paper=plus_plus.PAPER,
        class_name="FedRecBPR",
        presets={"usual": {}, "general": GENERAL},
        repairs=({"rho": 0, "denoisers": 0, "secure_sums": True}, {"shares": 2, "denoisers": 2}),
        protected=hidden_in_sums("the server sees sums; a row of an item that one person lists is that person's"),
        exposes=(
            SUMS_OF_FEW,
            Exposure("the server tells most items of a person, by how often they are listed"),
        ),
        published_on=("ml-100k",),
        small={"rho": 2, "denoisers": 3, "looks": 3},
        variants=(
            {"shares": 2},
            {"rho": 0, "denoisers": 0, "secure_sums": True},
            {"rho": 0, "denoisers": 0, "secure_sums": True, "secure_masks": "real"},
            {"rho": 0, "denoisers": 0, "secure_sums": True, "noise_multiplier": 1.0},
        ),
        learns_with={"denoisers": 3, "rho": 1, "learning_rate": 0.05},
        builds_on=("hushrec.systems.fedrec_plus_plus", "hushrec.privacy.denoising"),
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(
        ItemFactors,
        PairRows,
        Noise,
        DenoiserFactors,
        DenoisingSums,
        *sharing.MESSAGES,
        fedrec.Settle,
        fedrec.Settled,
    ),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={
        ItemFactors: Handler(client_update),
        DenoiserFactors: Handler(denoiser_update, reads=(Noise,)),
        sharing.FactorsToShare: Handler(client_share),
        sharing.SendShareSums: Handler(sharing.denoiser_sums, reads=(sharing.MaskShare,)),
        fedrec.Settle: Handler(client_settle),
    },
    reply_bytes=upload_bytes,
    result=Result(model, party=own_model),
    inboxes={Noise: open_inbox, sharing.MaskShare: open_share_inbox},
    appoints=plus_plus.appointed,
)

UPLOADS = {
    ItemFactors: summed(
        PairRows,
        lambda request, _config, clients: ExactSum.zeros(request.item_factors.shape, clients),
        lambda _config: Size(clip=1.0, count_weight=0.5),
    )
}

SYSTEM = with_secure_sums(_PLAIN, UPLOADS, num_words=lambda clients: clients.item_factors.size)
