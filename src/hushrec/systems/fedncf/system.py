"""FedNCF: neural collaborative filtering whose item vectors and layers are averaged, each by what trained it.

Perifanis, Efraimidis: Federated Neural Collaborative Filtering, Knowledge-Based Systems 242 (2022),
arXiv 2106.04405, with the aggregation that its authors call MF-FedAvg.

The round:
1. The server sends V and the layers to the participating clients.
2. A client draws num_negatives unseen items per positive and trains u_u, the vectors of these items and the layers
   on them: binary cross-entropy, `epochs` passes with Adam. It keeps u_u.
3. It uploads how far the vectors of the listed items have come. The server moves each vector by the mean over the
   clients that have listed it, not over all: a client that has not trained a vector has nothing to say about it.
   With `shrinkage`, so many clients are counted beside them who would leave it where it is. Else one client that
   has an item moves it as far as hundreds who agree: with few clients per item, the rare ones come out on top.
4. It uploads how far the layers have come. The server moves them by the mean, weighted by the number of samples.
After the last round all clients get the final model, so that they can recommend.

With `denoisers`, after FedRec++ (Liang, Pan, Ming, AAAI 2021), what single clients learned is hidden, and the
model has the same bits:
1. Some participants of a round are its denoisers; the others are dealt to them. A client plays `rho` virtual
   clients beside itself (`clients.py`), uploads the steps of real and virtual items in one list, and seals those
   of the virtual ones, its noise, to its denoiser.
2. It uploads the steps of the layers behind a mask, and seals the mask to its denoiser (`privacy/masking.py`).
3. A denoiser trains on its own samples. It sends the sum of noise less its own steps, with the counts, and the sum
   of masks less its own layers.
4. The server subtracts both. If a denoiser is lost, the round begins again without it and without its clients;
   what they learned for themselves in it they keep.

Threat model: the server is honest but curious, and without denoisers hardly anything is protected against it. An
upload lists the items that a client has trained, and its own move the other way than those that it has drawn: with
products the first principal direction of the steps tells all of them apart, with dense layers alone most, and with
biases their sign. Other clients see means, and with biases which items are popular. With `from_popularity` the
uploads of round 1 mark a client's own items, in the clear but for virtual ones, so that they can be counted.
With `secure_sums` instead of denoisers, the server sees the sums of a round and no client's own steps: see
`privacy.secure_sum`.
With denoisers, who are honest but curious too and do not collude with the server, layers are
hidden, but for their sum over a denoiser and its clients. One upload leaves 1 + rho times as many items as the
client has, where the catalogue has room for so many; who has more lists fewer, and is hidden less. They are not
all equally likely: on ML-100K with rho 3, among clients with 10 to 80 items, who have that room, a server that
weighs all it knows orders a real and a virtual positive rightly in .69 to .85 of cases. And virtual items are
drawn anew in each round, so a client that takes part often can be read, as what moved its way every time is its
own: F1 .47 after one round, .75 after two uploads of each client, .99 without denoisers. A denoiser sees noise
without names. Its sums show what it listed itself (a count below zero) and, if it has one client, that client's
noise. If a round begins again and a client was lost in between, two sums of its denoiser differ by what it sent,
its mask included.
A server that does not follow the protocol is not protected against. It gains nothing by asking
a client twice in a round, with another model: other numbers have another mask. But it delivers the mail, so it can
withhold a letter from a denoiser, or ask for sums once with it and once without; their difference is that client's
mask or noise. And a client that lies can move the layers at will, as nobody sees how large a number behind a mask
is. Whoever knows a client's seed knows its masks and virtual items.

Symbols: u = a row of user_factors, V = item_factors; the network is that of `network.py`.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models.popularity import sample_log_odds
from hushrec.privacy.denoising import check_denoisers
from hushrec.privacy.dense_sum import DenseSum
from hushrec.privacy.exact_sum import STEADYING, ExactSum
from hushrec.privacy.filling import num_virtual_items
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
from hushrec.systems.fedncf import denoised
from hushrec.systems.fedncf.clients import Sent, drawn_samples, learn, weighted_layers
from hushrec.systems.fedncf.denoised import Totals, denoised_totals
from hushrec.systems.fedncf.network import (
    Floats,
    NcfClients,
    NcfModel,
    Shape,
    Training,
    initial_factors,
    initial_layers,
)


@dataclass(frozen=True, kw_only=True)
class Config(SecureItemSums):
    """Settings of FedNCF with the paper's values, as far as they are known; the size of a batch is chosen.

    The preset `tuned` has a learning rate that suits all three variants on held-out training items of ML-100K;
    `general` is for files of no paper.
    """

    # DEVIATION: the paper hides single uploads behind secure aggregation (MF-SecAvg); the means are the same.
    variant: Literal["gmf", "mlp", "neumf"] = setting("neumf", "products of vectors, dense layers, or both")
    num_factors: int = setting(
        12, "length of the vectors that are multiplied", "[1, inf)", search=OneOf((6, 12, 24, 48))
    )
    layers: tuple[int, ...] = setting(
        (48, 24, 12, 6), "inputs of the dense layers, half of them an item's vector, and their outputs", "[1, inf)"
    )
    num_rounds: int = setting(400, "rounds", "[1, inf)", search=Between(1, 800))
    participation: float = setting(
        0.02, "share of clients that take part in a round; the paper has 20 of 943 and 120 of 6,040", "(0, 1]"
    )
    epochs: int = setting(
        2, "times that a client goes through its samples in a round", "[1, inf)", search=Between(1, 5)
    )
    batch_size: int = setting(8, "samples per step of Adam", "[1, inf)", search=OneOf((4, 8, 16, 32)))
    num_negatives: int = setting(
        4, "negatives per positive, drawn anew every round", "[1, inf)", search=Between(1, 8)
    )
    learning_rate: float = setting(
        0.001, "of Adam, which starts anew in each round", "(0, inf)", search=Between(1e-4, 0.02, log=True)
    )
    biases: bool = setting(
        False, "learn a bias of each item, a number more of its vector", search=OneOf((False, True))
    )
    shrinkage: float = setting(
        0.0,
        "so many clients who would not move an item count in its mean, beside those who listed it",
        "[0, inf)",
        search=OneOf((0.0, 10.0, 30.0, 100.0)),
    )
    from_popularity: bool = setting(
        False, "count in round 1 how many clients have each item, and start the biases there"
    )
    rho: int = setting(0, "virtual samples per sample of a client, among which denoisers hide it", "[0, 100]")
    denoisers: int = setting(0, "clients of a round that collect the noise of others; 0 hides nothing", "[0, inf)")
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check_user_privacy(self)
        is_taken_out = self.rho == 0 or self.denoisers > 0
        check(
            is_taken_out,
            f"{option('rho', self.rho)} adds noise that only denoisers take out again; add "
            f"{option('denoisers', 1)}",
        )
        check(
            self.denoisers == 0 or not self.secure_sums,
            f"{option('secure_sums', True)} leaves nothing to denoisers; add {option('denoisers', 0)} and "
            f"{option('rho', 0)}",
        )
        has_place = self.biases or not self.from_popularity
        check(has_place, f"{option('from_popularity', True)} starts biases; add {option('biases', True)}")
        is_right = len(self.layers) >= 2 and self.layers[0] % 2 == 0
        check(is_right, f"{option('layers')} needs an even number of inputs and the outputs of one layer or more")

    @property
    def shape(self) -> Shape:
        """Which layers the network has, and how wide they are."""
        return Shape(self.variant, self.num_factors, self.layers, self.biases)

    def is_counting(self, round_number: int) -> bool:
        """Whether all clients are counted in this round, and nothing is learned."""
        return self.from_popularity and round_number == 1

    def training(self, round_number: int) -> Training:
        """What clients train, and how."""
        epochs = 0 if self.is_counting(round_number) else self.epochs
        return Training(self.shape, epochs, self.batch_size, self.learning_rate)


@dataclass(frozen=True)
class Model(Message):
    """Reveals: the server's model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Floats = shared(np.float32, 2)
    layers: Floats = shared(np.float32)


@dataclass(frozen=True)
class ItemSteps(Message):
    """Reveals: which items the client has, which it has drawn, and roughly the direction of its vector."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)  # the vectors after training less those before


@dataclass(frozen=True)
class SendLayers(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.CLIENT


@dataclass(frozen=True)
class LayerSteps(Message):
    """Reveals: how many samples the client has, and where they would move the layers."""

    sender, receiver = Role.CLIENT, Role.SERVER
    gradients: Ragged = ragged(np.float32, 2)  # the client's weight, and it times each step


@dataclass(frozen=True)
class Settle(Message):
    """Reveals: the server's final model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # V after the last round, which may end twice, without those who were lost
    item_factors: Floats = shared(np.float32, 2)
    layers: Floats = shared(np.float32)


@dataclass(frozen=True)
class Settled(Message):
    """Reveals: nothing; the client has the final model."""

    sender, receiver = Role.CLIENT, Role.SERVER


@dataclass(frozen=True)
class ServerState:
    """What the server knows between rounds."""

    item_factors: Floats = kept(result=True)
    layers: Floats = kept(result=True)
    num_clients: NDArray[np.int64] = kept()  # a number


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    participants = draw_participants(num_clients, config.participation, 1, draws)
    check_denoisers(config.denoisers, len(participants))
    items, shape = np.arange(num_items, dtype=np.int32), config.shape
    item_factors = initial_factors("item-factors", items, num_items, shape, draws)
    return ServerState(item_factors, initial_layers(shape, draws), np.array(num_clients))


def enrol(numbers: Numbers, rows: UserRows, num_items: int, config: Config, draws: Draws) -> NcfClients:
    """The clients before the first round."""
    shape = config.shape
    # DEVIATION: a client does not know how many others there are; its vector starts as that of one more item.
    user_factors = initial_factors("user-factors", numbers, num_items, shape, draws)
    never, layer_steps = np.zeros(len(numbers), np.int32), np.zeros((len(numbers), shape.num_weights), np.float32)
    final = np.zeros((num_items, shape.num_columns), np.float32), np.zeros(shape.num_weights, np.float32)
    held = rows.starts, rows.items, num_items
    return NcfClients(*held, user_factors, user_factors.copy(), never, layer_steps, *final)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    num_clients, is_counting = int(state.num_clients), config.is_counting(round_number)
    participation = 1.0 if is_counting else config.participation
    clients = draw_group(num_clients, participation, round_number, config, draws)
    if config.denoisers:
        sent = Sent(state.item_factors, state.layers)
        totals = yield from denoised_totals(sent, clients, round_number, config.denoisers, draws)
    else:
        totals = yield from plain_totals(state, clients)
    items, (weight, *steps) = totals.items, totals.layers
    if totals.deviation:  # else what noise makes of a small weight would move layers far
        weight = max(weight, 0.0) + STEADYING * totals.deviation
    state = replace(
        state,
        item_factors=(_counted if is_counting else _moved)(state.item_factors, items, num_clients, config),
        layers=(state.layers + np.array(steps) / (weight or 1.0)).astype(np.float32),
    )
    if round_number == config.num_rounds:
        everyone = np.arange(num_clients, dtype=np.int32)
        yield Ask(everyone, Settle(state.item_factors, state.layers), Collect())
    return state


def _moved(item_factors: Floats, steps: ExactSum, _num_clients: int, config: Config) -> Floats:
    """V after the mean of the clients' steps."""
    return (item_factors + steps.mean(config.shrinkage)).astype(np.float32)


def _counted(item_factors: Floats, counts: ExactSum, num_clients: int, config: Config) -> Floats:
    """V with the log odds of having each item as its bias."""
    place, started = config.shape.num_products - 1, item_factors.copy()
    started[:, place] = sample_log_odds(counts.to_float()[:, place], num_clients, odds=1 / config.num_negatives)
    return started


def plain_totals(state: ServerState, clients: Numbers) -> Round[Totals]:
    """The sums of all steps, as clients upload them."""
    items = ExactSum.zeros(state.item_factors.shape, num_summands=len(clients))
    answer = yield Ask(clients, Model(state.item_factors, state.layers), items)
    layers = DenseSum.zeros((len(state.layers) + 1, 1), num_summands=len(clients))
    yield Ask(answer.came(clients), SendLayers(), layers)
    return Totals(items, layers.to_float().ravel(), layers.deviation)


def client_update(cohort: Cohort[NcfClients], request: Model, config: Config, draws: Draws) -> Reply:
    """Train on positives and drawn negatives; upload the steps of the items, keep those of the layers."""
    training = config.training(cohort.round_number)
    learned = learn(cohort, Sent(request.item_factors, request.layers), config.num_negatives, training, draws)
    return Reply(ItemSteps(learned.items, learned.gradients))


def uploaded_items(cohort: Cohort[NcfClients], config: Config, draws: Draws) -> Ragged:
    """The items of which clients will upload steps."""
    listing = drawn_samples(cohort, config.num_negatives, draws)
    return Ragged(listing.starts, listing.items)


def client_layers(cohort: Cohort[NcfClients], _request: SendLayers, config: Config, _draws: Draws) -> Reply:
    """Upload the steps of the layers, weighted."""
    table = weighted_layers(cohort.private, cohort.rows, config.num_negatives)
    starts = np.arange(len(table) + 1, dtype=np.int64) * table.shape[1]
    return Reply(LayerSteps(Ragged(starts, table.reshape(-1, 1))))


def client_settle(cohort: Cohort[NcfClients], request: Settle, _config: Config, _draws: Draws) -> Reply:
    """Keep the server's final model."""
    cohort.private.check_fit(request.item_factors, request.layers)
    cohort.private.item_factors[:], cohort.private.layers[:] = request.item_factors, request.layers
    return Reply(Settled())


def model(state: ServerState, clients: NcfClients, config: Config, _rating_range: RatingRange) -> NcfModel:
    """The server's model, and every client's vector as it trained it last."""
    return NcfModel(clients.user_factors, state.item_factors, state.layers, config.shape)


def own_model(clients: NcfClients, config: Config, _rating_range: RatingRange) -> NcfModel:
    """What clients have after the last round: their own vector, and the model as it was sent to them."""
    return NcfModel(clients.user_factors, clients.item_factors, clients.layers, config.shape)


def upload_bytes(clients: NcfClients, config: Config) -> NDArray[np.int64]:
    """Size of each client's largest upload: that of items, or that of layers, which masks make twice as long."""
    num_samples = clients.num_samples(config.num_negatives)
    num_listed = num_samples + num_virtual_items(num_samples, config.rho, clients.num_items)
    of_layers = (8 if config.denoisers else 4) * (1 + config.shape.num_weights)
    largest: NDArray[np.int64] = np.maximum(4 * (1 + config.shape.num_columns) * num_listed, of_layers)
    return largest


PAPER = Paper(
    title="Federated Neural Collaborative Filtering",
    authors="Vasileios Perifanis, Pavlos S. Efraimidis",
    venue="Knowledge-Based Systems",
    year=2022,
)

# For files of no paper, chosen on validation parts of some of them; the rounds are the most that are tried.
GENERAL = {
    "biases": True, "from_popularity": True, "shrinkage": 30.0, "learning_rate": 0.003, "participation": 0.1,
    "num_rounds": 100,
}  # fmt: skip

_PLAIN = System(
    about=About(
        name="fedncf",
        title="FedNCF: item vectors and layers averaged, each by what trained it",
        paper=PAPER,
        class_name="FedNCF",
        repairs=({"secure_sums": True, "participation": 0.1},),  # of 943 clients the default asks one
        protected=hidden_in_sums(
            "the server sees sums; a row of an item that one person trained is that person's"
        ),
        exposes=(SUMS_OF_FEW, Exposure("the server reads every item of a person out of a few uploads")),
        published_on=("ml-100k", "ml-1m"),
        presets={"paper": {}, "tuned": {"learning_rate": 0.003}, "general": GENERAL},
        small={"layers": (6, 5, 3), "participation": 1.0, "batch_size": 16, "rho": 1, "denoisers": 3},
        variants=(
            {"rho": 0, "denoisers": 0},
            {"biases": True, "shrinkage": 2.0},
            {"rho": 0, "denoisers": 0, "secure_sums": True},
            {"rho": 0, "denoisers": 0, "secure_sums": True, "secure_masks": "real"},
            {"rho": 0, "denoisers": 0, "secure_sums": True, "secure_least_raters": 2},
            {"rho": 0, "denoisers": 0, "secure_sums": True, "noise_multiplier": 1.0},
        ),
        builds_on=("hushrec.privacy.denoising", "hushrec.privacy.filling"),
        learns_with={
            "num_factors": 8,
            "layers": (16, 8, 8),
            "participation": 1.0,
            "num_negatives": 1,
            "batch_size": 16,
            "learning_rate": 0.01,
        },
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(Model, ItemSteps, SendLayers, LayerSteps, *denoised.MESSAGES, Settle, Settled),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={
        Model: Handler(client_update),
        SendLayers: Handler(client_layers),
        denoised.ModelToHide: Handler(denoised.client_update),
        denoised.SendMaskedLayers: Handler(denoised.client_layers),
        denoised.DenoiserModel: Handler(denoised.denoiser_update, reads=(denoised.Noise,)),
        denoised.SendMaskSums: Handler(denoised.denoiser_layers, reads=(denoised.LayerMasks,)),
        Settle: Handler(client_settle),
    },
    reply_bytes=upload_bytes,
    result=Result(model, party=own_model),
    inboxes={denoised.Noise: denoised.noise_inbox, denoised.LayerMasks: denoised.mask_inbox},
)

STEPS = {
    Model: summed(
        ItemSteps,
        lambda request, _config, clients: ExactSum.zeros(request.item_factors.shape, clients),
        lambda config: Size(config.learning_rate, count_weight=config.learning_rate),
    ),
    SendLayers: summed(
        LayerSteps,
        lambda _request, config, clients: DenseSum.zeros((1 + config.shape.num_weights, 1), clients),
        lambda config: Size(clip=0.1),
    ),
}

SYSTEM = with_secure_sums(_PLAIN, STEPS, lambda clients: clients.item_factors.size, uploaded_items)
