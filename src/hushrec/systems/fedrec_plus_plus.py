"""FedRec++: FedRec without its loss. Denoising clients take the noise of virtual items out again.

Liang, Pan, Ming: FedRec++: Lossless Federated Recommendation with Explicit Feedback (AAAI 2021).

The round (Algorithms 1 and 2):
1. The server sends V to the ordinary clients, and tells each of them a denoiser.
2. An ordinary client draws rho |I_u| unrated items (I'_u), gives them virtual ratings (Eq. 1), updates U_u on its
   rated items only (Eq. 7), uploads the gradients of all listed items (Eq. 3) and sends those of I'_u, its noise,
   sealed to its denoiser (Eq. 8).
3. The server sends V to the denoisers. A denoiser updates its own U_u and sends the sum of the noise it got, less
   its own gradients (Eq. 9), with the counts.
4. The server subtracts the denoisers' sums (Eq. 5), divides by |U_i| and moves V_i (Eq. 6).

If a denoiser is lost, the server begins the round again without it and without the clients assigned to it: what
they did in this round does not count, so no noise stays in V. The others answer with the same numbers again.

With `shares` k > 0 each client, denoisers too, has k denoisers, and they hold shares of masks instead of noise
(`privacy.shared_denoising` has the round, `privacy.shares` the arithmetic). The result is the same.

Threat model: the server is honest but curious; denoisers too, and they do not collude with it. What FedRec's
uploads give away (see `fedrec`) these give away too. A denoiser's sums hide its own gradients only among much
noise: a count below zero names an item that it rated, and with one client per denoiser (eta = n/2) the counts give
that client's rated items as well; use few denoisers. Server and denoiser together know a client's virtual items.
If a round begins again and a client was lost in between, the two sums of its denoiser differ by its noise.
With `shares`, up to k - 1 of a client's k denoisers may collude with the server: they see the client's list, sums
and counts of items over many clients, and uniform numbers. All k together with the server see everything. A
denoiser's own update is protected like any other. What lists and sums tell: see `privacy.shared_denoising`.

Symbols: U = user_factors, V = item_factors, I_u = rated items, I'_u = virtual items, eta = denoisers,
c = participation times the number of clients, t = rounds done, T = num_rounds,
T_predict = predict_after, T_local = local_steps, gamma = learning_rate, lambda = regularization.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import FaultyPartyError, HushrecError, option
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.models.pmf import ClientGradients
from hushrec.models.rating_clients import Factors, RatingClients
from hushrec.privacy import shared_denoising as sharing
from hushrec.privacy.denoising import (
    AssignedSum,
    Assigning,
    DenoiserTotal,
    NoiseSums,
    NoiseWithin,
    assign,
    draw_denoisers,
)
from hushrec.privacy.exact_sum import ExactSum, Gradients
from hushrec.privacy.held_items import held_items
from hushrec.privacy.robust_sum import BoundedSum, HeldSums, RowNorm, longest, shortened
from hushrec.privacy.shares import Hidden, ShareSums
from hushrec.protocol import (
    NO_ONE,
    About,
    Ask,
    Cohort,
    Exposure,
    Fold,
    Handler,
    Message,
    Numbers,
    Paper,
    Ragged,
    Reply,
    Result,
    Role,
    Round,
    Sealed,
    System,
    draw_participants,
    each,
    kept,
    ragged,
    shared,
)
from hushrec.settings import Between, check, setting
from hushrec.systems import fedrec
from hushrec.systems.fedrec import (
    ItemGradients,
    Settle,
    Settled,
    client_settle,
    enrol,
    listed,
    model,
    moved,
    num_listed,
    own_model,
    settle,
    train,
    upload,
)

# Clients may be lost with their nodes many at a time; these are beside two for each denoiser.
_MORE_SUCCESSORS = 10

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Config(HeldSums, fedrec.Config):
    """Settings of FedRec++, with the paper's values for ML-100K."""

    user_update: Literal["rated-and-virtual", "rated"] = setting(
        "rated", "the items that the user's vector learns from; without loss it learns from rated ones only"
    )
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            not self.shares or self.user_update == "rated",
            f"{option('shares', self.shares)} needs no virtual ratings; add {option('user_update', 'rated')}",
        )


class DenoisedConfig(Protocol):
    """What denoising needs to know of a config."""

    @property
    def denoisers(self) -> int:
        """How many denoising clients there are (eta)."""
        ...

    @property
    def participation(self) -> float:
        """Share of clients that take part in a round."""
        ...

    @property
    def assignment(self) -> Assigning:
        """How ordinary clients get their denoisers."""
        ...


class StartConfig(DenoisedConfig, fedrec.HasFactors, Protocol):
    """What the start of a run needs to know of a config."""


@dataclass(frozen=True)
class ItemFactors(Message):
    """Reveals: the server's model, the client's denoiser, and whether the client's last update counted."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Factors = shared(np.float32, 2)
    counted_round: Numbers = each(np.int32, low=0)
    denoiser: Numbers = each(np.int32, low=-1)


@dataclass(frozen=True)
class Noise(Message):
    """Reveals: virtual items of some client and their gradients, without its name."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class DenoiserFactors(Message):
    """Reveals: the server's model, and whether the denoiser's last update counted."""

    sender, receiver = Role.SERVER, Role.DENOISER
    item_factors: Factors = shared(np.float32, 2)
    counted_round: Numbers = each(np.int32, low=0)


@dataclass(frozen=True)
class DenoisingSums(Message):
    """Reveals: sums of noise less the denoiser's own gradients, and counts; one below zero is an item it listed.

    Where no noise covers such an item, the denoiser's own gradient shows as it is.
    """

    sender, receiver = Role.DENOISER, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    sums: Ragged = ragged(np.int64, 2)  # 64-bit fixed point
    counts: Ragged = ragged(np.int32)


DENOISING_MESSAGES = (ItemFactors, ItemGradients, Noise, DenoiserFactors, DenoisingSums)


@dataclass(frozen=True)
class ServerState(fedrec.ServerState):
    """What the server knows between rounds."""

    denoisers: Numbers = kept()


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    sharing.check_config(config, num_clients)
    return start_denoised(num_clients, num_items, config, draws)


def successors(num_denoisers: int, num_clients: int, draws: Draws) -> Numbers:
    """Those from whom others are drawn for denoisers that were lost: twice as many as denoisers, and some."""
    order = draws.generator("new-denoisers").permutation(num_clients).astype(np.int32)
    return order[: 2 * num_denoisers + _MORE_SUCCESSORS]


def appointed(num_clients: int, config: DenoisedConfig, draws: Draws) -> dict[Role, Numbers]:
    """All who may ever be asked as denoisers: those at the start, and those who may succeed them."""
    first = draw_denoisers(config.denoisers, num_clients, draws)
    if not len(first):
        return {Role.DENOISER: first}
    others = np.setdiff1d(np.arange(num_clients, dtype=np.int32), first)
    order = successors(num_clients, num_clients, draws)
    later = order[np.isin(order, others)][: 2 * len(first) + _MORE_SUCCESSORS]
    return {Role.DENOISER: np.union1d(first, later).astype(np.int32)}


def start_denoised(num_clients: int, num_items: int, config: StartConfig, draws: Draws) -> ServerState:
    """The server, and its denoisers."""
    plain = fedrec.start(num_clients, num_items, config, draws)
    denoisers = draw_denoisers(config.denoisers, num_clients, draws)  # Alg. 1, line 1
    return ServerState(plain.item_factors, plain.counted_round, denoisers)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server (Algorithm 1)."""
    noise_within = partial(virtual_items_of, config.rho, len(state.item_factors))
    outcome = yield from denoised_or_shared_sum(state, round_number, config, draws, noise_within)
    item_factors = moved(state.item_factors, outcome.total, round_number, config)  # Eq. 6
    item_factors = held_items(item_factors, outcome.total.counts, config)
    state = outcome.settled(state, item_factors, round_number, draws)
    if round_number == config.num_rounds:
        yield from settle(state.item_factors, state.counted_round)
    return state


@dataclass(frozen=True)
class Outcome:
    """What the server has when noise is eliminated."""

    total: ExactSum  # gradients of rated items only, counted by |U_i|
    counted: Numbers  # clients whose updates are in it
    lost_denoisers: Numbers

    def settled(
        self, state: ServerState, item_factors: FloatArray, round_number: int, draws: Draws
    ) -> ServerState:
        """The state after the round; others are drawn for denoisers that were lost."""
        counted_round = state.counted_round.copy()
        counted_round[self.counted] = round_number
        denoisers = state.denoisers
        if len(self.lost_denoisers):
            free = np.setdiff1d(successors(len(denoisers), len(counted_round), draws), denoisers)
            num_new = min(len(self.lost_denoisers), len(free))
            new = draws.generator("new-denoisers", round_number).choice(free, num_new, replace=False)
            kept = np.setdiff1d(denoisers, self.lost_denoisers)
            denoisers = np.union1d(kept, new).astype(np.int32)
        return ServerState(item_factors.astype(np.float32), counted_round, denoisers)


def denoised_or_shared_sum(
    state: ServerState,
    round_number: int,
    config: sharing.SharingConfig,
    draws: Draws,
    noise_within: NoiseWithin | None = None,
) -> Round[Outcome]:
    """Sums without noise, or without masks."""
    if config.shares:
        return Outcome(*(yield from sharing.shared_sum(state, round_number, config, draws)))
    return (yield from denoised_sum(state, round_number, config, draws, noise_within))


def virtual_items_of(
    rho: int, num_items: int, listed: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least and most virtual items that lists of so many items can have: rho per rated one, or all others."""
    usual = rho * listed // (1 + rho)
    return np.where(listed < num_items, usual, 0), usual


def denoised_sum(
    state: ServerState,
    round_number: int,
    config: DenoisedConfig,
    draws: Draws,
    noise_within: NoiseWithin | None = None,
) -> Round[Outcome]:
    """Collect uploads and noise, and take the noise out (Algorithm 1, lines 4-17).

    `noise_within`: how many items of a list can be virtual, where that is known.

    DEVIATION: where only some clients take part (c < n), one denoiser always does; the paper does not say what
    happens to the noise if none is among them.
    """
    num_clients = len(state.counted_round)
    participants = draw_participants(num_clients, config.participation, round_number, draws, state.denoisers)
    assignment = assign(participants, state.denoisers, round_number, draws, config.assignment)
    lost_denoisers = NO_ONE
    while True:
        # Each client's rows may be in both: in the uploads, and in what is taken out.
        total = ExactSum.zeros(state.item_factors.shape, num_summands=2 * num_clients)
        uploads: AssignedSum = AssignedSum(total, assignment, noise_within)
        fold: Fold = uploads
        if isinstance(config, RowNorm) and config.row_norm:
            fold, total.limit = BoundedSum(uploads, config.row_norm), min(total.limit, longest(config.row_norm))
        noise = DenoiserTotal.of(uploads)
        ordinary = assignment.ordinary
        request = ItemFactors(state.item_factors, state.counted_round[ordinary], assignment.denoiser_of)
        answer = yield Ask(ordinary, request, fold)  # lines 4-10, Eq. 4
        denoisers = assignment.without(answer.lost).denoisers
        collect = DenoiserFactors(state.item_factors, state.counted_round[denoisers])
        lost = (yield Ask(denoisers, collect, noise)).lost  # lines 11-14
        if not len(lost):
            break
        lost_denoisers = np.union1d(lost_denoisers, lost)
        assignment = assignment.without(np.union1d(lost, answer.lost))
    total.subtract(noise.total)  # Eq. 5; |U_i| = |U_i ∪ U'_i| - sum of |U'_i| of the denoisers
    if total.counts.min() < 0:
        told = "these denoisers together take out more than came in; leave them out"
        raise FaultyPartyError(f"round {round_number}: {told}", denoisers.tolist())
    return Outcome(total, np.concatenate([answer.came(ordinary), denoisers]), lost_denoisers)


def client_update(cohort: Cohort[RatingClients], request: ItemFactors, config: Config, draws: Draws) -> Reply:
    """An ordinary client: train, upload gradients, send noise (Algorithm 2, lines 1-12)."""
    sharing.check_unmasked(config)
    step = config.step(cohort.round_number)
    listing, trained = train(cohort, request.item_factors, request.counted_round, config.rho, step, config, draws)
    return reply(upload(listing, trained, config), noise_of(trained, config), request.denoiser, config)


def client_share(
    cohort: Cohort[RatingClients], request: sharing.FactorsToShare, config: Config, draws: Draws
) -> Reply:
    """A client with k denoisers: train, upload masked numbers, send shares. Virtual items need no ratings."""
    step = config.step(cohort.round_number)._replace(local_steps=0)
    _, trained = train(cohort, request.item_factors, request.counted_round, 0, step, config, draws)
    listing = listed(cohort, config.rho, config, draws)
    rows = shortened(trained.gradients, config.row_norm)
    hidden = Hidden.of(listing.starts, listing.items, listing.rated_place >= 0, rows)
    return sharing.shared_reply(cohort, request, hidden, config.shares, draws)


def noise_of(trained: ClientGradients, config: RowNorm) -> Noise:
    """What a client sends its denoiser: rows of its upload, shortened as these are."""
    rows = shortened(trained.noise, config.row_norm)
    return Noise(Ragged(trained.noise_starts, trained.noise_items), Ragged(trained.noise_starts, rows))


def reply(gradients: Message, noise: Noise, denoiser: Numbers, config: DenoisedConfig) -> Reply:
    """The upload to the server and, if there are denoisers, the noise sealed to them."""
    return Reply(gradients, (Sealed(noise, denoiser),) if config.denoisers else ())


def denoiser_update(
    cohort: Cohort[RatingClients], request: DenoiserFactors, config: Config, draws: Draws
) -> Reply:
    """A denoiser: train, then send the sum of noise less its own gradients (Algorithm 2, lines 13-19).

    DEVIATION: a denoiser trains when it is asked to collect, not before, so that it is sent V only once.
    DEVIATION: line 10 lets denoisers upload their gradients as well; the text has them in Eq. 9 only, and so here.
    """
    step = config.step(cohort.round_number)
    own = train(cohort, request.item_factors, request.counted_round, 0, step, config, draws)
    return released(cohort, upload(*own, config))


def released(cohort: Cohort[Any], own: Gradients) -> Reply:
    """Eq. 9, refused by a denoiser to whom no client sent anything.

    DEVIATION: the counts are those of virtual raters less the items that the denoiser rated, so that |U_i| of
    Algorithm 1, line 17, counts the denoiser, whose gradients are in the sum.
    """
    inbox = cohort.inboxes.get(Noise)
    if not isinstance(inbox, NoiseSums) or not inbox.has_mail(cohort.numbers).all():
        raise HushrecError("a denoiser got no noise and would show its own gradients; ask it after its clients")
    items, sums, counts = inbox.release(cohort.numbers, own)
    return Reply(DenoisingSums(items, sums, counts))


def open_inbox(clients: RatingClients, config: DenoisedConfig) -> NoiseSums:
    """Where noise is added up as it arrives."""
    return NoiseSums(clients.num_items, clients.user_factors.shape[1], config.denoisers)


def open_share_inbox(clients: RatingClients, config: Config) -> ShareSums:
    """Where shares are added up as they arrive."""
    return ShareSums(clients.num_items, clients.user_factors.shape[1] + 1, config.denoisers)


def upload_bytes(clients: RatingClients, config: Config) -> NDArray[np.int64]:
    """Size of each client's upload."""
    if not config.shares:
        return fedrec.upload_bytes(clients, config)
    return (4 + 8 * (1 + config.num_factors + config.biases)) * num_listed(clients, config)


PAPER = Paper(
    title="FedRec++: Lossless Federated Recommendation with Explicit Feedback",
    authors="Feng Liang, Weike Pan, Zhong Ming",
    venue="AAAI",
    year=2021,
)

SYSTEM: System[Config, UserRows, ServerState, RatingClients] = System(
    about=About(
        name="fedrec++",
        title="FedRec++: virtual items, and denoisers who take their noise out again",
        paper=PAPER,
        class_name="FedRecPlusPlus",
        presets={"paper": {}, "general": fedrec.GENERAL},
        repairs=({"shares": 2, "denoisers": 2, "resample": "once"},),
        protected=(
            Exposure(
                "the server sees lists of items; of those that a person lists, one in 1 + rho was rated",
                {"shares": "[2, inf)", "resample": "once", "rho": "[3, inf)", "participation": 1.0},
            ),
        ),
        exposes=(
            Exposure("the server reads every item as it is, and ratings where one person rated", {"rho": 0}),
            Exposure(
                "the server tells most items of a person, by what the lists of all rounds share",
                {"shares": "[2, inf)"},
            ),
            Exposure("the server reads every item and rating out of one upload"),
        ),
        published_on=fedrec.SYSTEM.about.published_on,
        small={**fedrec.SYSTEM.about.small, "denoisers": 3, "biases": True, "shrinkage": 2.0},
        variants=({"biases": False, "shrinkage": 0.0}, {"shares": 2}, {"robust": "held"}),
        learns_with={"learning_rate": 0.3, "decay": 1.0, "rho": 1, "denoisers": 3},
        builds_on=(
            "hushrec.systems.fedrec",
            "hushrec.models.pmf",
            "hushrec.privacy.denoising",
            "hushrec.privacy.filling",
        ),
    ),
    config=Config,
    feedback=EXPLICIT,
    holders=USERS,
    messages=(*DENOISING_MESSAGES, *sharing.MESSAGES, Settle, Settled),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={
        ItemFactors: Handler(client_update),
        DenoiserFactors: Handler(denoiser_update, reads=(Noise,)),
        sharing.FactorsToShare: Handler(client_share),
        sharing.SendShareSums: Handler(sharing.denoiser_sums, reads=(sharing.MaskShare,)),
        Settle: Handler(client_settle),
    },
    reply_bytes=upload_bytes,
    result=Result(model, party=own_model),
    inboxes={Noise: open_inbox, sharing.MaskShare: open_share_inbox},
    appoints=appointed,
)
