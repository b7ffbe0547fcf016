"""FedMF: matrix factorisation whose item vectors the server keeps, and adds to, under homomorphic encryption.

Chai, Wang, Chen, Yang: Secure Federated Matrix Factorization (IEEE Intelligent Systems 2020), for implicit
feedback: positives count 1, drawn negatives 0.

The round:
1. The server sends its ciphertexts of V to the participating clients, who decrypt them.
2. A client draws num_negatives unseen items per positive and goes through all of these `epochs` times:
   U_u <- U_u + 2 gamma (e_ui V_i - lambda U_u).
3. In the last of these it notes 2 gamma (e_ui U_u - lambda V_i), the step of V_i, rounds it to fixed point and
   encrypts it: of all items, zero for those that it has not listed (`full`), or only the ciphertexts that hold an
   item of the list (`part`).
4. The server adds the uploads to its ciphertexts. It reads neither V nor a step.
After the last round all clients get the final ciphertexts of V. Deployed, they tell the server the digest of what
is in them, which names the model in reports: equal models have equal digests, equal ciphertexts do not exist.

Keys: clients share one secret key; the server never has it, and encrypts nothing. One client that works together
with the server opens everything. Here the key follows from the seed of the clients' draws: in one process it is
in the clients' private state; deployed, all nodes need the same key, so only runs with --seeds shared work, and
there the server, who knows that seed, could derive the key: for tests. To keep the key from the server, one client
has to make it and give it to the others on a way around the server.

Threat model: the server is honest but curious and works with no client. `full` hides from it all but sizes and
times; `part` tells which blocks of the catalogue hold a listed item (BFV: 4096 / num_factors items per block, so
nearly all of a small catalogue's; Paillier: two or three items). The start of V is no secret: the server draws it
and sends it in the clear. Against other clients nothing is protected: they see V, and so the sum of all steps of a
round. `encryption none` is a stand-in for large simulations: the same numbers in the clear, with BFV's bytes
counted; an audit of such a run sees what the server of a real one does not. With `secure_sums` beside it, there is
no ciphertext: the server knows V and the sum of a round's steps, and no client's own: see `privacy.secure_sum`.

Symbols: U = user_factors, V = item_factors, gamma = learning_rate, lambda = regularization.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings import USERS
from hushrec.data.interactions import UserRows
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError, option
from hushrec.evaluation.feedback import IMPLICIT
from hushrec.models.fcf import PositiveModel
from hushrec.privacy.filling import Listing, list_items, num_virtual_items
from hushrec.privacy.homomorphic import (
    MOST_ADDITIONS,
    SUM_LIMIT,
    Adder,
    BfvAdder,
    Bytes,
    EncryptedSum,
    Integers,
    SecretKey,
    adder_for,
    check_range,
    num_blocks,
    secret_key,
    to_blocks,
)
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.settings import SUMS_OF_FEW, SecureSums, hidden_in_sums
from hushrec.privacy.secure_sum.system import summed, with_secure_sums
from hushrec.privacy.secure_sum.together import draw_group
from hushrec.privacy.user_privacy import check_user_privacy, is_private
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
    kept,
    missing_bytes,
    ragged,
    shared,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems.fedmf.clients import (
    FACTOR_LIMIT,
    Factors,
    Fixed,
    KeyHolders,
    Training,
    initial_factors,
    newcomer_weights,
    offsets_of,
    own_steps,
    to_fixed,
    train_clients,
)
from hushrec.systems.fedmf.fixed_sum import FixedSum, num_touched


@dataclass(frozen=True, kw_only=True)
class Config(SecureSums):
    """Settings of FedMF; those that its authors' code does not give are of the PTF-FedRec paper's comparison."""

    # DEVIATION: the paper encrypts each number by itself, with Paillier; BFV packs 4,096 into a ciphertext.
    encryption: Literal["bfv", "paillier", "none"] = setting(
        "bfv", "of V and its steps; paillier as in the paper, for a few clients; none only counts BFV's bytes"
    )
    variant: Literal["full", "part"] = setting("full", "upload steps of all items, or only what holds listed ones")
    num_factors: int = setting(32, "length of the vectors", "[1, inf)", search=OneOf((8, 16, 32, 64)))
    num_rounds: int = setting(20, "rounds", "[1, inf)", search=Between(1, 100))
    num_negatives: int = setting(
        4, "negatives per positive, drawn anew every round", "[1, inf)", search=Between(1, 8)
    )
    epochs: int = setting(
        1, "times that a client goes through its items in a round", "[1, inf)", search=Between(1, 5)
    )
    participation: float = setting(1.0, "share of clients that take part in a round", "(0, 1]")
    learning_rate: float = setting(
        0.001, "of the vectors of users and items", "(0, inf)", search=Between(1e-4, 0.1, log=True)
    )
    regularization: float = setting(
        0.0001, "weight of the vectors' squared norms", "[0, inf)", search=Between(1e-6, 0.01, log=True)
    )
    # DEVIATION: the authors' code starts with normal numbers of variance 1, from which 20 rounds learn no ranking.
    initial_scale: float = setting(
        0.1, "vectors start uniformly within plus and minus this", "(0, 16]", search=Between(0.01, 1.0, log=True)
    )
    from_popularity: bool = setting(
        False,
        "count in round 1, encrypted, how many clients have each item, and learn who differs",
        search=OneOf((False, True)),
    )
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check_user_privacy(self)
        check(
            self.encryption == "none" or not self.secure_sums,
            f"{option('secure_sums', True)} hides steps behind masks, not ciphertexts; add "
            f"{option('encryption', 'none')}",
        )

    @property
    def num_columns(self) -> int:
        """Of V: its last one counts, if it is asked to."""
        return self.num_factors + self.from_popularity

    def is_counting(self, round_number: int) -> bool:
        """Whether all clients are counted in this round, and nothing is learned."""
        return self.from_popularity and round_number == 1

    def split(self, item_factors: Factors) -> tuple[Factors, Factors | None]:
        """V without its counts, and where the scores of items start by them."""
        if not self.from_popularity:
            return item_factors, None
        return np.ascontiguousarray(item_factors[:, :-1]), offsets_of(item_factors[:, -1], self.num_negatives)

    @property
    def training(self) -> Training:
        """The settings that clients train with."""
        return Training(np.float32(self.learning_rate), np.float32(self.regularization), self.epochs)


@dataclass(frozen=True)
class EncryptedFactors(Message):
    """Reveals: to clients the model, for they have the key; how many updates are in it."""

    sender, receiver = Role.SERVER, Role.CLIENT
    blocks: Bytes = shared(np.uint8, 2)
    num_additions: Integers = shared(np.int64, low=0)  # per block; 0: as drawn, in the clear
    step_limit: Integers = shared(np.int64, 0, low=0)  # of one number of a step, so that no sum wraps
    absent: Integers = missing_bytes("shared")  # that a ciphertext would have more; 0 where it is one


@dataclass(frozen=True)
class EncryptedSteps(Message):
    """Reveals: which blocks are sent (of variant `part`: those that hold a listed item); the rest is encrypted."""

    sender, receiver = Role.CLIENT, Role.SERVER
    places: Ragged = ragged(np.int32, low=0)
    blocks: Ragged = ragged(np.uint8, 2)
    absent: Integers = missing_bytes("each")  # as above, of each client


@dataclass(frozen=True)
class Settle(Message):
    """Reveals: to clients the final model, for they have the key."""

    sender, receiver = Role.SERVER, Role.CLIENT
    varies = "freely"  # V after the last round, which may end twice, without those who were lost
    blocks: Bytes = shared(np.uint8, 2)
    num_additions: Integers = shared(np.int64, low=0)
    absent: Integers = missing_bytes("shared")


@dataclass(frozen=True)
class Settled(Message):
    """Reveals: nothing; the client has the final V."""

    sender, receiver = Role.CLIENT, Role.SERVER


@dataclass(frozen=True)
class ServerState:
    """What the server knows between rounds: ciphertexts, and how many were added up in each."""

    item_factors: Bytes = kept(
        result=True, alike=True
    )  # a row per block; not encrypted, or not yet: V in fixed point
    num_additions: Integers = kept()  # per block
    num_clients: Integers = kept()  # a number


def _adder(config: Config, draws: Draws) -> Adder | None:
    return None if config.encryption == "none" else adder_for(config.encryption, draws.key("fedmf-key"))


def start(num_clients: int, num_items: int, config: Config, draws: Draws) -> ServerState:
    """The server before the first round."""
    most = int(num_clients * config.num_rounds * config.participation) + config.num_rounds
    if config.encryption == "bfv" and most > MOST_ADDITIONS:
        raise HushrecError(
            f"{most} updates are more noise than a BFV ciphertext bears, {MOST_ADDITIONS}; use fewer "
            f"{option('num_rounds')}"
        )
    items = np.arange(num_items, dtype=np.int32)
    drawn = initial_factors("item-factors", items, config.num_factors, config.initial_scale, draws)
    drawn = np.pad(drawn, ((0, 0), (0, config.num_columns - config.num_factors)))
    adder = _adder(config, draws)
    # DEVIATION: the paper's server encrypts the start of V with the public key; here it is sent in the clear, for
    # the server drew it.
    slots, size = (config.num_columns, 4 * config.num_columns) if adder is None else (adder.slots, adder.sum_bytes)
    blocks = _in_the_clear(to_blocks(to_fixed(drawn).astype(np.int64), slots), size)
    return ServerState(blocks, np.zeros(len(blocks), np.int64), np.array(num_clients))


def _in_the_clear(numbers: Integers, size: int) -> Bytes:
    """Blocks of numbers as rows of bytes, as long as ciphertexts."""
    blocks = np.zeros((len(numbers), size), np.uint8)
    blocks[:, : 4 * numbers.shape[1]] = numbers.astype("<i4").view(np.uint8)
    return blocks


def enrol(numbers: Numbers, rows: UserRows, num_items: int, config: Config, draws: Draws) -> KeyHolders:
    """The clients before the first round."""
    user_factors = initial_factors("user-factors", numbers, config.num_factors, config.initial_scale, draws)
    item_factors = np.zeros((num_items, config.num_columns), np.float32)
    key = None if config.encryption == "none" else secret_key(config.encryption, draws.key("fedmf-key"))
    never = np.zeros(len(numbers), np.int32)
    return KeyHolders(
        rows.starts, rows.items, num_items, user_factors, user_factors.copy(), never, item_factors, key
    )


def server_round(state: ServerState, round_number: int, config: Config, draws: Draws) -> Round[ServerState]:
    """One round of the server."""
    num_clients, adder = int(state.num_clients), _adder(config, draws)
    participation = 1.0 if config.is_counting(round_number) else config.participation
    clients = draw_group(num_clients, participation, round_number, config, draws)
    absent = np.array(0 if adder or config.secure_sums else _absent_of_factors(state, config))
    step_limit = np.array((SUM_LIMIT - FACTOR_LIMIT) // len(clients))
    request = EncryptedFactors(state.item_factors, state.num_additions, step_limit, absent)
    if adder is None:
        plain = FixedSum(np.zeros((len(state.item_factors), config.num_columns), np.int64))
        yield Ask(clients, request, plain)
        numbers = state.item_factors.view("<i4") + plain.totals
        check_range(numbers)
        state = replace(state, item_factors=_in_the_clear(numbers, 4 * config.num_columns))
    else:
        uploads = EncryptedSum(adder, len(state.item_factors))
        yield Ask(clients, request, uploads)
        state = _added(state, uploads)
    if round_number == config.num_rounds:
        everyone = np.arange(num_clients, dtype=np.int32)
        yield Ask(everyone, Settle(state.item_factors, state.num_additions, absent), Collect())
    return state


def _added(state: ServerState, uploads: EncryptedSum) -> ServerState:
    """V with the steps of a round."""
    adder, blocks, num_additions = uploads.adder, state.item_factors.copy(), state.num_additions.copy()
    for place, ciphertext in uploads.sums.items():
        if num_additions[place]:
            total = adder.add(ciphertext, adder.load(blocks[place]))
        else:
            total = adder.add_plain(ciphertext, blocks[place, : 4 * adder.slots].view("<i4").astype(np.int64))
        blocks[place] = adder.save(total)
        num_additions[place] += uploads.counts[place]
    return replace(state, item_factors=blocks, num_additions=num_additions)


def _absent_of_factors(state: ServerState, config: Config) -> int:
    """How many bytes BFV's ciphertexts of V have more than V in the clear."""
    encrypted = num_blocks(len(state.item_factors) * config.num_columns, BfvAdder.slots) * (BfvAdder.sum_bytes + 8)
    return encrypted - state.item_factors.nbytes - state.num_additions.nbytes


def client_update(cohort: Cohort[KeyHolders], request: EncryptedFactors, config: Config, draws: Draws) -> Reply:
    """Decrypt V, train on positives and drawn negatives, upload the steps of V."""
    clients, rows = cohort.private, cohort.rows
    item_factors = clients.open(request.blocks, request.num_additions)
    key = draws.key("negatives")
    listing = list_items(clients, rows, cohort.numbers, config.num_negatives, key, cohort.round_number)
    clients.begin(rows, cohort.round_number)
    if config.is_counting(cohort.round_number):
        steps = own_steps(listing, config.num_columns)
    else:
        steps = _trained(cohort, item_factors, listing, int(request.step_limit), config)
    if clients.key is None:
        return Reply(_stand_in(listing, steps, config, clients.num_items))
    return Reply(_encrypted(clients.key, listing, steps, config, clients.num_items))


def _trained(
    cohort: Cohort[KeyHolders], item_factors: Factors, listing: Listing, limit: int, config: Config
) -> Fixed:
    """The steps of V; none of its counts."""
    rows, users, (vectors, offsets) = cohort.rows, cohort.private.user_factors, config.split(item_factors)
    steps, beyond = train_clients(rows, users, vectors, listing, config.training, limit, offsets)
    if beyond >= 0 and not is_private(config):  # which clips it, and names nobody
        raise DivergedError(f"a step of client {cohort.numbers[beyond]} is too large to be added up")
    return np.pad(steps, ((0, 0), (0, config.num_columns - config.num_factors)))


def _encrypted(key: SecretKey, listing: Listing, steps: Fixed, config: Config, num_items: int) -> EncryptedSteps:
    """Each client's steps as ciphertexts: of all items, or of the blocks with its own only."""
    slots, places, blocks = key.adder.slots, [], []
    for first, last in zip(listing.starts[:-1], listing.starts[1:], strict=True):
        table = np.zeros((num_items, config.num_columns), np.int64)
        table[listing.items[first:last]] = steps[first:last]
        numbers = to_blocks(table, slots)
        sent = np.arange(len(numbers))
        if config.variant == "part":
            cells = listing.items[first:last, None].astype(np.int64) * config.num_columns
            sent = np.unique((cells + np.arange(config.num_columns)) // slots)
        places.append(sent.astype(np.int32))
        blocks += [key.encrypt(numbers[place]) for place in sent.tolist()]
    starts = np.concatenate([[0], np.cumsum([len(sent) for sent in places])]).astype(np.int64)
    rows = np.array(blocks, np.uint8).reshape(len(blocks), key.adder.fresh_bytes)
    absent = np.zeros(len(places), np.int64)
    return EncryptedSteps(Ragged(starts, np.concatenate(places)), Ragged(starts, rows), absent)


def _stand_in(listing: Listing, steps: Fixed, config: Config, num_items: int) -> EncryptedSteps:
    """The steps of listed items in the clear, with the bytes that BFV's ciphertexts would have more."""
    num_factors, slots = config.num_columns, BfvAdder.slots
    sent = np.full(len(listing.starts) - 1, num_blocks(num_items * num_factors, slots), np.int64)
    if config.variant == "part":
        sent = num_touched(listing, num_factors, slots)
    absent = sent * (4 + BfvAdder.fresh_bytes) - np.diff(listing.starts) * (4 + 4 * num_factors)
    rows = steps.astype("<i4", copy=False).view(np.uint8)
    return EncryptedSteps(Ragged(listing.starts, listing.items), Ragged(listing.starts, rows), absent)


def client_settle(cohort: Cohort[KeyHolders], request: Settle, _config: Config, _draws: Draws) -> Reply:
    """Decrypt the final V and keep it."""
    cohort.private.item_factors[:] = cohort.private.open(request.blocks, request.num_additions)
    return Reply(Settled())


def model(state: ServerState, clients: KeyHolders, config: Config, _rating_range: RatingRange) -> PositiveModel:
    """Every client's U_u, and V as the clients decrypt it."""
    return _model(clients, clients.open(state.item_factors, state.num_additions), config)


def own_model(clients: KeyHolders, config: Config, _rating_range: RatingRange) -> PositiveModel:
    """What clients have after the last round: their own U_u, and V as they decrypted it."""
    return _model(clients, clients.item_factors, config)


def _model(clients: KeyHolders, item_factors: Factors, config: Config) -> PositiveModel:
    vectors, offsets = config.split(item_factors)
    weights = newcomer_weights(config.num_negatives, config.regularization)
    return PositiveModel(clients.user_factors, vectors, weights, offsets)


def upload_bytes(clients: KeyHolders, config: Config) -> NDArray[np.int64]:
    """Size of each client's upload in memory."""
    num_positives = np.diff(clients.starts)
    if clients.key is None:
        num_negatives = num_virtual_items(num_positives, config.num_negatives, clients.num_items)
        return 4 * (1 + config.num_columns) * (num_positives + num_negatives)
    adder = clients.key.adder
    blocks = num_blocks(clients.num_items * config.num_columns, adder.slots)
    return np.full(len(num_positives), blocks * adder.fresh_bytes, np.int64)


PAPER = Paper(
    title="Secure Federated Matrix Factorization",
    authors="Di Chai, Leye Wang, Kai Chen, Qiang Yang",
    venue="IEEE Intelligent Systems",
    year=2020,
)

# For files of no paper, chosen on validation parts of some of them. The rounds are the most that are tried.
GENERAL = {"learning_rate": 0.005, "num_rounds": 60, "from_popularity": True, "initial_scale": 0.01}

FULL = {"variant": "full"}  # every upload is of all items

_PLAIN = System(
    about=About(
        name="fedmf",
        title="FedMF: item vectors under homomorphic encryption",
        paper=PAPER,
        class_name="FedMF",
        repairs=({"encryption": "none", "secure_sums": True},),
        protected=(
            *(
                Exposure("a client that helps the server can open all uploads", {**FULL, "encryption": way})
                for way in ("bfv", "paillier")
            ),
            *hidden_in_sums("the server sees sums", **FULL),
        ),
        exposes=(
            SUMS_OF_FEW,
            Exposure("the server reads every item of a person out of one upload", {"encryption": "none"}),
            Exposure("the server sees in which blocks of the catalogue a person's items are"),
        ),
        stand_in={"encryption": "none"},
        published_on=("ml-100k", "steam-200k", "gowalla-20"),
        presets={
            "paper": {},
            "tuned": {"learning_rate": 0.005},
            "general": GENERAL,
        },
        small={"encryption": "none"},
        variants=(
            {"variant": "part"},
            {"encryption": "bfv"},
            {"secure_sums": True},
            {"secure_sums": True, "secure_masks": "real"},
            {"secure_sums": True, "noise_multiplier": 1.0},
        ),
        learns_with={
            "encryption": "none",
            "learning_rate": 0.05,
            "num_negatives": 1,
            "regularization": 0.01,
            "num_rounds": 100,
        },
    ),
    config=Config,
    feedback=IMPLICIT,
    holders=USERS,
    messages=(EncryptedFactors, EncryptedSteps, Settle, Settled),
    start=start,
    enrol=enrol,
    round=server_round,
    handlers={EncryptedFactors: Handler(client_update), Settle: Handler(client_settle)},
    reply_bytes=upload_bytes,
    result=Result(model, party=own_model),
)

STEPS = {
    EncryptedFactors: summed(
        EncryptedSteps,
        lambda request, config, _clients: FixedSum(np.zeros((len(request.blocks), config.num_columns), np.int64)),
        lambda config: Size(10 * config.learning_rate),
    )
}

SYSTEM = with_secure_sums(_PLAIN, STEPS, num_words=lambda clients: clients.item_factors.size)
