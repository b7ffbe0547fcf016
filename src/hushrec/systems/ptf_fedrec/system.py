"""PTF-FedRec: server and clients exchange predictions only, so that the server's model stays hidden too.

Yuan, Yang, Qu, Nguyen, Li, Yin: Hide Your Model: A Parameter Transmission-free Federated Recommender System
(ICDE 2024). Equation and line numbers are the paper's.

The round (Algorithm 1):
1. The server sends each client scored items that it chose for it (Eqs. 6, 9; from the second round on).
2. A client trains its own model on its positives, its negatives and what it was sent (Eq. 3).
3. It shows the scores of a sample of the items that it trained (Eqs. 4, 7), some of them swapped (Eq. 8).
4. The server trains its model on what was shown in this round (Eq. 5); a graph model takes the shown scores as
   weights of its edges.

Threat model: the server is honest but curious; it gets lists of items with scores. The highest scores of a list
are positives more often than not (top guess attack), and over the rounds positives are shown more often than
negatives: a server that counts finds them. Swapping disturbs the scores, not the lists. `uploads once` and
`balanced` leave nothing to count; scores still tell, and the more the longer the clients train. Clients see the
server's scores of a few items: nothing travels of its parameters, gradients or architecture, but whoever asks
often enough, as many clients, can train a copy on its answers.

Symbols: alpha = num_told, mu = confident_share, beta = least_beta to most_beta, gamma = least_gamma to most_gamma,
lambda = swap_share, T = num_rounds, L = local_epochs, F_c = client_model, F_s = server_model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models import server_model
from hushrec.models.popularity import sample_log_odds
from hushrec.models.server_model import ModelSettings
from hushrec.protocol import (
    About,
    Ask,
    Cohort,
    Exposure,
    Handler,
    Numbers,
    Paper,
    Ragged,
    RatingRange,
    Reply,
    Result,
    Round,
    Scorer,
    System,
    draw_participants,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems.ptf_fedrec import clients as local
from hushrec.systems.ptf_fedrec.client_slots import by_item, own_slots, table_bytes, trained_slots
from hushrec.systems.ptf_fedrec.clients import LocalClients, LocalModel, LocalSettings
from hushrec.systems.ptf_fedrec.defenses import (
    Sampling,
    Swapping,
    TrainedItems,
    add_laplace,
    rounded,
    sample,
    sample_alike,
    swap,
)
from hushrec.systems.ptf_fedrec.dispersal import Dispersal, Strategy, disperse
from hushrec.systems.ptf_fedrec.ensemble import Ensemble
from hushrec.systems.ptf_fedrec.holds import holds_of
from hushrec.systems.ptf_fedrec.messages import Predictions, Told
from hushrec.systems.ptf_fedrec.server_state import ServerState
from hushrec.systems.ptf_fedrec.uploads import Shown, Uploads

ModelName = Literal["neumf", "ngcf", "lightgcn"]

_LEAST_LEVELS = 2  # one level would say nothing


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of PTF-FedRec, as the paper gives them; the preset `released` has those of the authors' code.

    The preset `fitted` was chosen after the fact, because its results are close to the published ones: the paper's
    algorithm with the vectors, rate and batch of the clients in the authors' code.
    """

    client_model: ModelName = setting("neumf", "the clients' model (F_c)")
    server_model: ModelName = setting(
        "ngcf", "the server's model (F_s), which clients never learn", is_secret=True
    )
    defense: Literal["sampling+swapping", "sampling", "ldp", "none"] = setting(
        "sampling+swapping", "what is done to an upload"
    )
    least_beta: float = setting(0.1, "least share of its positives that a client shows", "(0, 1]")
    most_beta: float = setting(1.0, "largest share of its positives that a client shows", "(0, 1]")
    least_gamma: float = setting(1.0, "least number of negatives shown per positive", "(0, inf)")
    most_gamma: float = setting(4.0, "largest number of negatives shown per positive", "(0, inf)")
    swap_share: float = setting(0.1, "share of the shown positives whose scores are swapped (lambda)", "[0, 1]")
    swap_rounding: Literal["chance", "down"] = setting(
        "chance", "of the number of swapped pairs; down, but to no less than one, as the authors' code does"
    )
    # DEVIATION: the paper uploads "the whole trained items" without a defence, and says that a fifth of them are
    # positives. Only `own` has both; the authors' code does as `trained`, which Table V is run with.
    unsampled: Literal["own", "trained"] = setting(
        "own",
        "with the defense none or ldp: show own samples, or draw the negatives from all trained, told ones too",
    )
    uploads: Literal["rounds", "once", "balanced"] = setting(
        "rounds",
        "how a client draws what it shows: anew in each round; of its own samples once for the run; or of these "
        "anew, each equally often",
    )
    score_levels: int = setting(0, "shown scores are rounded to so many levels from 0 to 1; 0: as they are")
    laplace_scale: float = setting(
        0.6,
        "of the noise on scores, for the defense ldp",
        "(0, inf)",
        search=Between(0.05, 2.0, log=True, only_if_asked=True),
    )
    num_told: int = setting(30, "items that the server tells a client (alpha)", "[0, inf)")
    confident_share: float = setting(
        0.5, "share of these that are the most updated items (mu)", "[0, 1]", is_secret=True
    )
    dispersal: Strategy = setting(
        "confidence+hard", "how the server chooses; what is left out is drawn at random", is_secret=True
    )
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    num_rounds: int = setting(20, "rounds", "[1, inf)", search=Between(1, 50))
    num_negatives: int = setting(
        4, "negatives per positive that a client trains on", "[1, inf)", search=Between(1, 8)
    )
    # DEVIATION: the paper draws negatives "during the training process", which may mean `rounds`; the default is
    # that of the authors' code, with which models are better.
    negatives: Literal["once", "rounds"] = setting(
        "once", "when a client draws its negatives: for the whole run, or anew in each round"
    )
    repeats: Literal["no", "yes"] = setting("no", "whether a client's negatives may repeat, drawn and shown")
    memory: Literal["replace", "accumulate"] = setting("replace", "what becomes of what the server told before")
    told_limit: Literal["none", "positives"] = setting(
        "none", "whether a client drops what exceeds the number of its positives"
    )
    client_factors: int = setting(
        32, "length of the vectors of the clients' models", "[1, inf)", search=OneOf((8, 16, 32, 64))
    )
    # DEVIATION: the paper has "three feedforward layers with dimensions 64, 32, and 16". Here 64 is what goes into
    # the first of two, both vectors side by side, as in the authors' code; 64,32,16 has three.
    client_layers: tuple[int, ...] = setting((32, 16), "widths of the clients' dense layers", "[1, inf)")
    client_graph_layers: int = setting(3, "graph layers of a client's NGCF or LightGCN", "[1, inf)")
    client_learning_rate: float = setting(
        0.001, "of the clients' Adam", "(0, inf)", search=Between(1e-4, 0.02, log=True)
    )
    client_batch: int = setting(64, "batch size of the clients", "[1, inf)")
    local_epochs: int = setting(5, "epochs of a client in a round", "[1, inf)", search=Between(1, 8))
    server_factors: int = setting(
        32,
        "length of the vectors of the server's model",
        "[1, inf)",
        is_secret=True,
        search=OneOf((8, 16, 32, 64)),
    )
    server_layers: tuple[int, ...] = setting(
        (32, 16), "widths of the server's dense layers", "[1, inf)", is_secret=True
    )
    server_graph_layers: int = setting(
        3, "graph layers of the server's NGCF or LightGCN", "[1, inf)", is_secret=True
    )
    server_head: Literal["product", "mlp"] = setting("product", "how a LightGCN server scores", is_secret=True)
    # DEVIATION: the paper speaks neither of dropped messages nor of NGCF's rows of length 1; the authors' code has
    # both.
    message_dropout: float = setting(
        0.1, "share of messages that NGCF drops in training", "[0, 1)", is_secret=True
    )
    server_learning_rate: float = setting(
        0.001, "of the server's Adam", "(0, inf)", is_secret=True, search=Between(1e-4, 0.02, log=True)
    )
    server_batch: int = setting(1024, "batch size of the server", "[1, inf)", is_secret=True)
    server_epochs: int = setting(
        2, "epochs of the server in a round", "[1, inf)", is_secret=True, search=Between(1, 5)
    )
    from_popularity: bool = setting(
        False,
        "the server's model starts at how much was shown of each item, and learns who differs",
        is_secret=True,
        search=OneOf((False, True)),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check(self.least_beta <= self.most_beta, f"{option('least_beta')} must be at most {option('most_beta')}")
        check(
            self.least_gamma <= self.most_gamma, f"{option('least_gamma')} must be at most {option('most_gamma')}"
        )
        check(
            self.score_levels == 0 or self.score_levels >= _LEAST_LEVELS,
            f"{option('score_levels', self.score_levels)} are no levels; use 0, or {_LEAST_LEVELS} and more",
        )
        is_kept = self.uploads == "rounds" or (self.negatives == "once" and self.defense.startswith("sampling"))
        check(
            is_kept,
            f"{option('uploads', self.uploads)} draws from samples that stay; add {option('negatives', 'once')} "
            f"and {option('defense', 'sampling')} or {option('defense', 'sampling+swapping')}",
        )
        check(len(self.client_layers) > 0, f"{option('client_layers')} needs the width of one layer or more")
        check(len(self.server_layers) > 0, f"{option('server_layers')} needs the width of one layer or more")

    def most_shown(self, num_items: int) -> int:
        """How many rows an upload has at most: as if all items were positives."""
        return int(num_items * (1 + max(self.most_gamma, self.num_negatives)))

    def local_settings(self) -> LocalSettings:
        """The settings that the clients' training reads."""
        # DEVIATION: no paper gives details of NGCF and LightGCN on a client. There NGCF drops no messages, and
        # LightGCN scores by dense layers, like NeuMF, with any preset.
        return LocalSettings(
            model=self.client_model,
            num_factors=self.client_factors,
            layers=self.client_layers,
            num_graph_layers=self.client_graph_layers,
            epochs=self.local_epochs,
            batch_size=self.client_batch,
            learning_rate=self.client_learning_rate,
        )

    def server_settings(self) -> ModelSettings:
        """The settings that the server's training reads."""
        return ModelSettings(
            model=self.server_model,
            num_factors=self.server_factors,
            layers=self.server_layers,
            num_graph_layers=self.server_graph_layers,
            message_dropout=self.message_dropout,
            head=self.server_head,
            epochs=self.server_epochs,
            batch_size=self.server_batch,
            learning_rate=self.server_learning_rate,
            # DEVIATION: Eqs. 3 and 5 sum over a batch; clients average, as in the authors' code. Adam's steps do
            # not depend on it, but for its epsilon.
            loss="sum",
        )


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    learned = server_model.initial(config.server_settings(), num_clients, num_items, draws)
    return ServerState.of(learned, np.zeros(num_items, np.int64), Shown.nothing(num_clients))


def enrol(numbers: Numbers, rows: UserRows, num_items: int, config: Config, draws: Draws) -> LocalClients:
    """The clients before the first round: their negatives are drawn."""
    num_positives = np.diff(rows.starts)
    num_told = min(config.num_told, num_items)
    most_told = np.minimum(num_told, num_positives) if config.told_limit == "positives" else num_told
    most = np.broadcast_to(most_told * (config.num_rounds - 1), num_positives.shape).astype(np.int64)
    num_redraws = config.num_rounds - 1 if config.negatives == "rounds" else 0
    drawn = config.local_settings(), config.num_negatives, config.repeats == "yes"
    return local.enrol(numbers, rows, num_items, *drawn, most, num_redraws, draws)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    num_clients, num_items = state.sizes
    clients = draw_participants(num_clients, config.participation, round_number, draws)
    uploads = Uploads(num_items, config.most_shown(num_items), config.repeats == "yes")
    yield Ask(clients, _scored_items_for(state, clients, round_number, config, draws), uploads)  # lines 5-8
    if not uploads.batches:
        return state
    samples = uploads.pairs()
    # DEVIATION: the paper does not say what the server's graph is. As in the authors' code, all that was shown is
    # an edge, negatives too, weighted by its score.
    # DEVIATION: a client that sat out a round keeps the edges of its last upload; the paper's rounds have all.
    shown = state.last_uploads.updated(samples, np.concatenate(uploads.numbers))
    learned = server_model.train(
        state.learned,
        config.server_settings(),
        state.sizes,
        samples,
        shown.pairs(),
        round_number,
        draws,
        _offsets(shown, state.sizes, config),
    )  # line 11, Eq. 5
    num_updates = state.num_updates + np.bincount(samples.items, minlength=num_items)
    return ServerState.of(learned, num_updates, shown)


def _scored_items_for(
    state: ServerState, clients: Numbers, round_number: int, config: Config, draws: Draws
) -> Told:
    """Line 12 of the round before: what each client is sent; nothing, if it has not uploaded yet."""
    num_told = min(config.num_told, len(state.num_updates))
    if not len(state.shown_items) or num_told == 0:
        nothing = Shown.nothing(len(clients))
        return Told(nothing.items, nothing.scores)
    uploaded = state.last_uploads.items.take(clients.astype(np.int64))
    how = Dispersal(num_told, config.confident_share, config.dispersal)
    # DEVIATION: a client that sat out a round is told by the newest model, not by that of its last round.
    scorer = model(state, config)
    items, scores = disperse(scorer, clients, uploaded, state.num_updates, how, round_number, draws)
    most = np.where(uploaded.lengths > 0, num_told, 0)
    return Told(items.at_most(most), scores.at_most(most))


def client_update(cohort: Cohort[LocalClients], request: Told, config: Config, draws: Draws) -> Reply:
    """Lines 14-17: train, then show the scores of some items."""
    clients, rows, numbers = cohort.private, cohort.rows, cohort.numbers
    settings, round_number = config.local_settings(), cohort.round_number
    is_new = clients.trained_round[rows] < round_number  # else the same ask came again
    if is_new.any():
        told = request.take(np.flatnonzero(is_new))
        items, scores = told.items, told.scores
        if config.told_limit == "positives":
            # DEVIATION: in the authors' code the server cuts, and so must know how many positives a client has.
            most = clients.num_positives[rows[is_new]]
            items, scores = items.at_most(most), scores.at_most(most)
        if config.negatives == "rounds" and round_number > 1:
            has_repeats = config.repeats == "yes"
            local.redraw(clients, rows[is_new], numbers[is_new], round_number, has_repeats, settings, draws)
        keeps = config.memory == "accumulate"
        local.receive(clients, rows[is_new], items, scores, keeps, settings, numbers[is_new], draws)
        local.train(clients, rows[is_new], numbers[is_new], round_number, settings, draws)
    num_positives = clients.num_positives[rows]
    slots = _shown_slots(clients, rows, numbers, round_number, config, draws)
    found = local.predict_slots(clients, rows, slots, settings)
    if config.defense == "sampling+swapping":
        # DEVIATION: the paper picks at random among high positives; here the highest, as in the authors' code.
        swapping = Swapping(config.swap_share, config.swap_rounding == "down")
        found = swap(slots, found, num_positives, numbers, round_number, swapping, draws)
    elif config.defense == "ldp":
        # DEVIATION: the paper gives no scale of its noise, and the authors' code has no noise. 0.6 gives about the
        # published F1 of the attack on ML-100K; no scale does on all datasets. Scores stay within [0, 1] here.
        found = add_laplace(slots, found, numbers, round_number, config.laplace_scale, draws)
    if config.score_levels:
        found = rounded(found, config.score_levels)
    return Reply(Predictions(*by_item(clients, rows, slots, found)))


def _shown_slots(
    clients: LocalClients,
    rows: NDArray[np.int64],
    numbers: Numbers,
    round_number: int,
    config: Config,
    draws: Draws,
) -> Ragged:
    """All own samples, or a sample of the distinct items that were trained this round."""
    # DEVIATION: samples are taken from what the server told, too, as in the authors' code. The paper says so (what
    # is shown was trained), and also that a fifth of what is trained are positives, which is true without it.
    if config.defense in ("none", "ldp"):
        if config.unsampled == "own":
            return own_slots(clients, rows)
        limits = 1.0, 1.0, float(config.num_negatives), float(config.num_negatives)
    else:
        limits = config.least_beta, config.most_beta, config.least_gamma, config.most_gamma
    sampling = Sampling(*limits, config.repeats == "yes")
    # What the server told is new in each round: only what stays can be shown for good, or equally often.
    slots = trained_slots(clients, rows, own_only=config.uploads != "rounds")
    if config.uploads == "balanced":
        return sample_alike(slots, numbers, round_number, sampling, draws)
    drawn_in = 0 if config.uploads == "once" else round_number
    return sample(TrainedItems(slots, clients.num_positives[rows]), numbers, drawn_in, sampling, draws)


def model(state: ServerState, config: Config, _rating_range: RatingRange = None) -> Scorer:
    """A scorer made of the server's model."""
    settings, graph = config.server_settings(), state.last_uploads.pairs()
    offsets = _offsets(state.last_uploads, state.sizes, config)
    return server_model.scorer(state.learned, settings, state.sizes, graph, config.num_negatives, offsets)


def _offsets(shown: Shown, sizes: tuple[int, int], config: Config) -> server_model.Offsets | None:
    """Where the logits of items start: by the sum of what was shown of each."""
    scores, (num_clients, num_items) = shown.scores.values.astype(np.float64), sizes
    if not config.from_popularity or not len(scores):
        return None
    sums = np.minimum(np.bincount(shown.items.values, scores, num_items), num_clients)
    odds = (scores.sum() + 1) / ((1 - scores).sum() + 1)
    return sample_log_odds(sums, num_clients, float(odds))


def own_model(clients: LocalClients, config: Config, _rating_range: RatingRange = None) -> LocalModel:
    """What each client can use alone."""
    return LocalModel(clients, config.local_settings())


def whole_model(state: ServerState, _clients: LocalClients, config: Config, _rating_range: RatingRange) -> Scorer:
    """The scorer that a run is measured by: the server's."""
    return model(state, config)


# What the authors' code measures as well.
ALSO: Mapping[str, Callable[[ServerState, LocalClients, Config], Scorer]] = {
    "client": lambda _state, clients, config: own_model(clients, config),
    "ensemble": lambda state, clients, config: Ensemble(model(state, config), own_model(clients, config)),
}


def touched_bytes(clients: LocalClients, _config: Config) -> NDArray[np.int64]:
    """What a client's training touches, which is more than it sends."""
    return table_bytes(clients)


PAPER = Paper(
    title="Hide Your Model: A Parameter Transmission-free Federated Recommender System",
    authors="Wei Yuan, Chaoqun Yang, Liang Qu, Quoc Viet Hung Nguyen, Jianxin Li, Hongzhi Yin",
    venue="ICDE",
    year=2024,
)

# Where the authors' code differs from their paper.
RELEASED = {
    "client_factors": 16,
    "client_learning_rate": 0.01,
    "client_batch": 256,
    "swap_rounding": "down",
    "repeats": "yes",
    "memory": "accumulate",
    "told_limit": "positives",
    "server_head": "mlp",
    "unsampled": "trained",
}

# Chosen after the fact, with a look at the published numbers: of the settings above those of clients alone.
FITTED = {name: RELEASED[name] for name in ("client_factors", "client_learning_rate", "client_batch")}

# For files of no paper, chosen on validation parts of some of them.
GENERAL = {**FITTED, "from_popularity": True}

SYSTEM = System(
    about=About(
        name="ptf-fedrec",
        title="PTF-FedRec: predictions instead of parameters, the server's model stays hidden",
        paper=PAPER,
        class_name="PTFFedRec",
        repairs=({"uploads": "balanced"},),
        exposes=(Exposure("the server reads every item of a person, by the scores of some rounds"),),
        audited_rounds=20,
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        presets={"paper": {}, "released": RELEASED, "fitted": FITTED, "general": GENERAL},
        small={
            "client_factors": 4, "client_layers": (4, 3), "server_factors": 4, "server_layers": (4, 3),
            "local_epochs": 2, "num_told": 6, "client_learning_rate": 0.01, "server_learning_rate": 0.01,
        },
        # Of the 11 items that a client does not have it trains 9 as negatives: hardly any are shown.
        learns_with={
            "client_factors": 8, "client_layers": (8, 8), "client_learning_rate": 0.01, "num_negatives": 1,
            "server_factors": 8, "server_layers": (8, 8), "server_learning_rate": 0.01, "server_batch": 64,
            "defense": "sampling", "least_beta": 1.0, "least_gamma": 0.1, "most_gamma": 0.2, "num_told": 3,
            "num_rounds": 20,
        },
        builds_on=("hushrec.models.networks",),
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(Told, Predictions),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={Told: Handler(client_update)},
    reply_bytes=touched_bytes,
    result=Result(whole_model, server=model, party=own_model, also=ALSO, holds=holds_of),
)  # fmt: skip
