"""MetaMF: a network on the server generates every user's private recommender.

Lin, Ren, Chen, Ren, Yu, Ma, de Rijke, Cheng: Meta Matrix Factorization for Federated Rating Predictions
(SIGIR 2020), as a baseline of PTF-FedRec: binary cross-entropy on implicit feedback instead of squared errors.

The round, for one group of clients after the other:
1. The server's collaborative memory and meta network generate each client's item vectors and prediction layers.
2. Each client gets its own and computes the gradient of its loss on its items and drawn ones, for all of them.
3. It uploads the gradient. The server goes on backwards through its network and takes a step of Adam.

Threat model: the server is honest but curious, and learns a lot. Only items that the client trained on have a
gradient that is not zero, and its sign tells the client's items from drawn ones. All models are on the server.
With `from_popularity` the uploads of round 1 say in the clear which items a client has: they are to be counted.

Symbols: U_u = the user's vector in `parameters`, k = num_factors, s = item_memory, all three hidden layers have
hidden_size units.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError, OutOfRangeError
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.kernels.adam import adam
from hushrec.models.popularity import sample_log_odds
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
    Role,
    Round,
    System,
    draw_participants,
    kept,
    of_server,
    ragged,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check_bounds, setting
from hushrec.systems.metamf.network import (
    Floats,
    MetaModel,
    Positives,
    Sizes,
    client_gradients,
    generate,
    initial_parameters,
    own_items,
    parts_of,
    uploads_of,
)

_GRADIENT_LIMIT = 1e15  # sums of squares of 64 are still numbers
# Of all recommenders that are under way at a time.
_GROUP_BYTES = 512 << 20


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of MetaMF, with the paper's sizes."""

    # DEVIATION: the authors' code takes one step per 64 ratings of anybody, in 100 passes, and clips gradients.
    # Clients that upload once a round leave one step per group of clients; rate and weight decay are that code's.
    num_factors: int = setting(
        32, "length of item vectors and of users' vectors", "[1, inf)", search=OneOf((8, 16, 32, 64))
    )
    item_memory: int = setting(
        8,
        "item vectors are products of a matrix with this many columns and one with rows",
        "[1, inf)",
        search=Between(4, 32, log=True),
    )
    memory_size: int = setting(
        128, "columns of the collaborative memory", "[1, inf)", search=OneOf((32, 64, 128, 256))
    )
    hidden_size: int = setting(
        512, "units of the meta network's hidden layers", "[1, inf)", search=OneOf((128, 256, 512))
    )
    num_negatives: int = setting(4, "drawn items per item of the client", "[0, inf)", search=Between(1, 8))
    batch_size: int = setting(
        64, "clients whose gradients make one step of the server", "[1, inf)", search=OneOf((16, 32, 64, 128))
    )
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    num_rounds: int = setting(
        20, "rounds; in each, every participant uploads once", "[1, inf)", search=Between(1, 100)
    )
    learning_rate: float = setting(
        0.0001, "of the server's Adam", "(0, inf)", search=Between(1e-5, 0.01, log=True)
    )
    regularization: float = setting(
        0.001, "weight of the parameters' squared norm, halved", "[0, inf)", search=Between(1e-5, 0.1, log=True)
    )
    from_popularity: bool = setting(
        False,
        "count in round 1 how many clients have each item, and learn who differs",
        search=OneOf((False, True)),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)

    def is_counting(self, round_number: int) -> bool:
        """Whether all clients are counted in this round, and nothing is learned."""
        return self.from_popularity and round_number == 1

    def sizes(self, num_users: int, num_items: int) -> Sizes:
        """The shapes of both halves."""
        lengths = self.num_factors, self.item_memory, self.memory_size, self.hidden_size
        return Sizes(num_users, num_items, *lengths, self.from_popularity)


@dataclass(frozen=True)
class Recommenders(Message):
    """Reveals: to each client its own recommender, item vectors and layers; nothing of others'."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "seldom"  # the model moves within a round, from group to group of clients
    recommender: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class Gradients(Message):
    """Reveals: the client's items (negative slope), drawn ones (positive), and that all others are not its own."""

    sender, receiver = Role.CLIENT, Role.SERVER
    gradient: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class ServerState:
    """What the server knows between rounds."""

    parameters: Floats = kept(result=True)  # of the generating network, flat
    means: Floats = kept()  # Adam's
    squares: Floats = kept()
    num_steps: NDArray[np.int64] = kept()  # one number
    num_users: NDArray[np.int64] = kept()  # one number
    num_items: NDArray[np.int64] = kept()  # one number


@dataclass(frozen=True)
class Clients:
    """What never leaves the clients: their items."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    num_items: int


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    parameters = initial_parameters(config.sizes(num_clients, num_items), draws)
    counts = (np.array(number, np.int64) for number in (0, num_clients, num_items))
    return ServerState(parameters, np.zeros_like(parameters), np.zeros_like(parameters), *counts)


def enrol(_numbers: Numbers, rows: UserRows, num_items: int, _config: Config, _draws: Draws) -> Clients:
    """The clients: they hold their items and nothing else."""
    return Clients(rows.starts, rows.items, num_items)


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server: a step for each group of clients."""
    sizes = config.sizes(int(state.num_users), int(state.num_items))
    parameters, means, squares = state.parameters.copy(), state.means.copy(), state.squares.copy()
    num_steps, gradient = int(state.num_steps), np.empty_like(parameters)
    is_counting, counts = config.is_counting(round_number), np.zeros(sizes.num_items)
    participation = 1.0 if is_counting else config.participation
    clients = draw_participants(sizes.num_users, participation, round_number, draws)
    for group in groups_of(clients, sizes, config.batch_size, draws.generator("groups", round_number)):
        generated = generate(parameters, sizes, group)
        rows, replies = generated.recommenders(), Collect(check=partial(check_upload, sizes, is_counting))
        starts = sizes.num_generated * np.arange(len(group) + 1, dtype=np.int64)
        yield Ask(group, Recommenders(Ragged(starts, rows.ravel())), replies)
        if replies.batches:
            uploads = [(numbers, _rows(numbers, reply, sizes)) for numbers, reply in replies.batches]
            if is_counting:
                counts += sum(rows[:, sizes.num_trained :].sum(axis=0, dtype=np.float64) for _, rows in uploads)
                continue
            batches = [(np.searchsorted(group, numbers), rows) for numbers, rows in uploads]
            num_steps += 1
            scale = np.float32(1 / sum(len(places) for places, _ in batches))
            generated.gradient(uploads_of(batches, len(group), sizes), out=gradient)
            gradient *= scale
            gradient += np.float32(config.regularization) * parameters
            parts_of(gradient, sizes).get("offsets", gradient[:0]).fill(0)
            adam(parameters, gradient, means, squares, config.learning_rate, num_steps)
    if is_counting:
        odds = 1 / max(config.num_negatives, 1)
        parts_of(parameters, sizes)["offsets"][:] = sample_log_odds(counts, len(clients), odds)
    return replace(
        state, parameters=parameters, means=means, squares=squares, num_steps=np.array(num_steps, np.int64)
    )


def groups_of(clients: Numbers, sizes: Sizes, batch_size: int, generator: np.random.Generator) -> list[Numbers]:
    """Participants in random groups, each ascending."""
    size = max(1, min(batch_size, _GROUP_BYTES // (4 * sizes.num_generated)))
    shuffled = generator.permutation(clients)
    return [np.sort(shuffled[first : first + size]) for first in range(0, len(shuffled), size)]


def check_upload(sizes: Sizes, is_counting: bool, numbers: Numbers, reply: Gradients) -> None:
    """Refuse numbers that are not those of one gradient or, while clients are counted, not 0 or 1."""
    is_short = reply.gradient.lengths != sizes.num_generated
    if is_short.any():
        sender = numbers[is_short.argmax()]
        raise HushrecError(
            f"the gradient of client {sender} has not {sizes.num_generated:,} numbers; leave it out"
        )
    rows, limit = _rows(numbers, reply, sizes), 1.0 if is_counting else _GRADIENT_LIMIT
    if not max(-rows.min(initial=0), rows.max(initial=0)) <= limit:  # also if it is not a number
        sender = numbers[(np.abs(rows) <= limit).all(axis=1).argmin()]
        raise OutOfRangeError(f"the update of client {sender} is not finite or not within ±{limit:g}")


def _rows(numbers: Numbers, reply: Gradients, sizes: Sizes) -> Floats:
    return reply.gradient.values.reshape(len(numbers), sizes.num_generated)


def client_update(cohort: Cohort[Clients], request: Recommenders, config: Config, draws: Draws) -> Reply:
    """The gradient of the client's loss for all that it got; the same again, if asked again."""
    held, sizes = cohort.private, config.sizes(0, cohort.private.num_items)
    if (request.recommender.lengths != sizes.num_generated).any():
        raise HushrecError(f"a recommender has not {sizes.num_generated:,} numbers; use the server's settings")
    positives = Positives(held.starts, held.items)
    if config.is_counting(cohort.round_number):
        return Reply(
            Gradients(Ragged(request.recommender.starts, own_items(positives, cohort.rows, sizes).ravel()))
        )
    gradients = client_gradients(
        positives,
        cohort.rows,
        cohort.numbers,
        request.recommender.values.reshape(len(cohort.rows), sizes.num_generated),
        sizes,
        config.num_negatives,
        draws.key("negatives"),
        cohort.round_number,
    )
    is_bad = ~(np.abs(gradients) <= _GRADIENT_LIMIT).all(axis=1)
    if is_bad.any():  # it would be refused as a lie
        sender = cohort.numbers[is_bad.argmax()]
        raise DivergedError(f"the update of client {sender} is not finite or not within ±{_GRADIENT_LIMIT:g}")
    return Reply(Gradients(Ragged(request.recommender.starts, gradients.ravel())))


def upload_bytes(clients: Clients, config: Config) -> NDArray[np.int64]:
    """As many numbers as each client was sent."""
    return np.full(len(clients.starts) - 1, 4 * config.sizes(0, clients.num_items).num_generated)


def model(state: ServerState, config: Config, rating_range: RatingRange) -> MetaModel:
    """The generating network; the server has it all."""
    assert rating_range is None, "implicit feedback only"
    return MetaModel(state.parameters, config.sizes(int(state.num_users), int(state.num_items)))


PAPER = Paper(
    title="Meta Matrix Factorization for Federated Rating Predictions",
    authors="Yujie Lin, Pengjie Ren, Zhumin Chen, Zhaochun Ren, Dongxiao Yu, Jun Ma, Maarten de Rijke, X. Cheng",
    venue="SIGIR",
    year=2020,
)

SYSTEM = System(
    about=About(
        name="metamf",
        title="MetaMF: the server generates every user's recommender",
        paper=PAPER,
        class_name="MetaMF",
        exposes=(Exposure("the server reads every item of a person out of one upload"),),
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        presets={"paper": {}, "general": {"from_popularity": True, "num_rounds": 30}},  # the most that are tried
        small={"item_memory": 3, "memory_size": 4, "hidden_size": 6, "batch_size": 10},
        learns_with={
            "item_memory": 4,
            "memory_size": 8,
            "hidden_size": 16,
            "num_negatives": 1,
            "batch_size": 10,
            "learning_rate": 0.01,
        },
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(Recommenders, Gradients),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={Recommenders: Handler(client_update)},
    reply_bytes=upload_bytes,
    result=of_server(model),
)
