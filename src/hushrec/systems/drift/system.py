"""DRIFT: data owners learn from encrypted interactions, orchestrated by a server that sees none of them.

Nommay: DRIFT: A Federated Recommender System with Implicit Feedback (Grenoble 2022). Organisations (data owners)
hold items; an item may have several owners. Users interact with items in a stream of events, positive or negative.
The orchestrator holds the vectors of users and items, recommends, and moves vectors by gradients.

The round is a stretch of an epoch; the stream goes in windows of events. At the beginning of a round
1. owners register their items; the orchestrator notes who holds what (Algorithm 1). Each owner sends its key to
   the users' side, sealed, and signs for it and for its items.
Then, window by window:
2. users send their interactions, encrypted, to all owners of the item (Fig. 3.1, step 1);
3. owners put them into blocks (Algorithm 2); for every `theta` completed blocks they ask for the vectors of the
   users and items in them, and only those (steps 2 and 3);
4. the orchestrator sends the vectors; owners return gradients (Algorithm 3);
5. the orchestrator moves the vectors (Algorithm 4) and, if it was asked to, recommends.
An owner learns from its groups of blocks one after the other, each with the vectors as those before it left them.

DEVIATION: what others learn in the same window an owner sees in the next one, since a message per event and
owner would take all the time there is. The delay of Sec. 5.1 is at most one window; with `window 1` this is
the report's sequence.

Threat model: parties are honest but curious, unless it says otherwise. An owner learns the interactions with its
own items, and the vectors that it asks for. The orchestrator sees which users and items an owner asks for
together, and the gradients of each: a gradient of an item is a combination of the vectors of the users who
interacted with it, and its sign says whether they liked it. `theta` does not hide this: see `hushrec audit drift`.
With `user_vectors users` it sees no user, but sums that are parallel for items of one user; with an owner it knows
that owner's users in them. It may lie about who holds what: owners sign for their keys and items, and the users'
side takes nothing else (`deeds.py`). All users share an owner's key. Who watches the wire sees numbers and sizes
of messages, when they are sent, and flags that are outside (`--flag inside` hides them). Not protected: against
owners who claim items of others from the start, which is told with the run, or lie about what they learn; against
an orchestrator that leaves parties out or breaks a run off; that a user is active.

Symbols: v = user_factors, psi = item_factors, alpha = learning_rate, Theta = theta, C = an interaction,
B = a block, DO = owner, COS = orchestrator.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.data import OwnerRows
from hushrec.data.holdings import OWNERS
from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.evaluation.feedback import SIGNED
from hushrec.limits import MOST_NUMBERS
from hushrec.protocol import (
    About,
    Answer,
    AnySystem,
    Ask,
    Collect,
    Exposure,
    Handler,
    Numbers,
    Paper,
    Pledges,
    Ragged,
    RatingRange,
    Result,
    Round,
    Scorer,
    System,
    kept,
)
from hushrec.protocol.padding import PADDING_HELP, Padding
from hushrec.settings import Between, OneOf, check, check_bounds, setting
from hushrec.systems.drift import kept_by_users
from hushrec.systems.drift.blocks import Reading, Threshold
from hushrec.systems.drift.cipher import Form
from hushrec.systems.drift.gradients import BlockLoss, block_loss
from hushrec.systems.drift.keepers import Keepers, vectors_of_users
from hushrec.systems.drift.kept_by_users import learn_without_users, open_inbox
from hushrec.systems.drift.members import Members
from hushrec.systems.drift.messages import (
    Began,
    Begin,
    BlockGradients,
    Holdings,
    NextWindow,
    OwnerKey,
    Recommend,
    Recommended,
    Register,
    SentInteractions,
    TakeIn,
    Vectors,
    Wanted,
    WindowSent,
)
from hushrec.systems.drift.owners import owner_learn, owner_register, owner_take_in
from hushrec.systems.drift.plan import Plan, Planned
from hushrec.systems.drift.prepared_rows import with_unseen, within_limits
from hushrec.systems.drift.ranking_factors import RankingFactors
from hushrec.systems.drift.replies import (
    ActiveUsers,
    Beginnings,
    Claims,
    Held,
    Moves,
    Requests,
    ReturnedGradients,
    in_order,
    owners_of_items,
)
from hushrec.systems.drift.stopwatch import Stopwatch, untimed
from hushrec.systems.drift.told import facts, holds
from hushrec.systems.drift.users import users_begin, users_send, users_show
from hushrec.systems.drift.vectors import best_held, grown_items, grown_users, move_items, move_users, summed_rows


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of DRIFT. The report gives Theta only; the others were chosen on a part of ML-1M's training."""

    num_factors: int = setting(16, "length of vectors", "[1, inf)", search=OneOf((4, 8, 16, 32)))
    epochs: int = setting(3, "how often the stream is learned from", "[1, inf)", search=Between(1, 10))
    theta: int = setting(
        2,
        "completed blocks of an owner for which it asks for vectors",
        "[1, inf)",
        search=Between(1, 20, only_if_asked=True),
    )
    # DEVIATION: Sec. 4.1 counts completed blocks; Algorithm 2 tests the size of a table by user: it counts users.
    threshold: Threshold = setting("blocks", "what theta counts: blocks, or users with a block each")
    blocks: Reading = setting(
        "pairs", "whether a positive without a negative before it is dropped, or kept: literal"
    )
    block_loss: BlockLoss = setting("mean", "how the losses of a block's pairs make up its loss")
    learning_rate: float = setting(
        0.1, "step size of the gradient descent", "(0, inf)", search=Between(0.005, 1.0, log=True)
    )
    regularization: float = setting(
        0.001, "weight of the vectors' squared norms (ridge)", "[0, inf)", search=Between(1e-5, 0.1, log=True)
    )
    window: int = setting(256, "events after which owners see what others learned", "[1, inf)")
    open_blocks: Literal["go-on", "end"] = setting("go-on", "what open blocks do between two epochs")
    max_delay: int = setting(0, "windows that gradients may be late, at random; 0: in fixed order", "[0, inf)")
    encryption: Literal["aes-gcm", "none"] = setting("aes-gcm", "of interactions on their way to owners")
    flag: Literal["outside", "inside"] = setting("outside", "where it says whether an interaction is positive")
    batch: int = setting(1, "interactions that are encrypted together", "[1, 1000]")
    user_vectors: Literal["orchestrator", "users"] = setting(
        "orchestrator", "who holds the vectors of users; the users' side hands them to owners alone, sealed"
    )
    recommended: int = setting(0, "items recommended to each user of a window while learning", "[0, inf)")
    parts: int = setting(8, "rounds that an epoch is cut into, to go on from after a stop", "[1, inf)")
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
    padding: Padding = setting("none", PADDING_HELP)

    def __post_init__(self) -> None:
        check_bounds(self)
        check(
            self.user_vectors == "orchestrator" or not self.max_delay,
            f"{option('user_vectors', 'users')} moves users' vectors at once; leave {option('max_delay')} out",
        )

    @property
    def num_rounds(self) -> int:
        """How many stretches of the stream are learned from, over all epochs."""
        return self.epochs * self.parts

    @property
    def plan(self) -> Plan:
        """What the parties agree on."""
        return Plan(
            self.num_factors, self.learning_rate, self.regularization, self.window, self.parts, self.recommended,
            self.open_blocks == "end", self.theta, self.threshold, self.max_delay,
            Form(self.batch, self.flag == "inside", self.encryption == "aes-gcm"), self.blocks, self.block_loss,
            unseen=self.unseen, bias_pace=self.bias_pace, users_keep_vectors=self.user_vectors == "users",
        )  # fmt: skip


# --- The orchestrator ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrchestratorState:
    """What the orchestrator knows."""

    user_factors: NDArray[np.float32] = kept(result=True)
    item_factors: NDArray[np.float32] = kept(result=True)
    is_held: NDArray[np.bool_] = kept()  # whether some owner holds the item
    num_owners: NDArray[np.int64] = kept()
    counted_round: Numbers = kept()  # of each owner: the last round that it was there for


def start(num_parties: int, num_items: int, config: Planned, draws: Draws) -> OrchestratorState:
    """Before the first round: vectors at random (Sec. 3.1). Users come with the first round."""
    plan = config.plan
    none = OrchestratorState(
        np.empty((0, plan.num_columns), np.float32), np.empty((0, plan.num_columns), np.float32),
        np.zeros(0, np.bool_), np.array(num_parties - 1), np.zeros(num_parties - 1, np.int32),
    )  # fmt: skip
    return _grown(none, 0, num_items, plan, draws)


def _grown(
    state: OrchestratorState, num_users: int, num_items: int, plan: Plan, draws: Draws
) -> OrchestratorState:
    """The state with vectors for newcomers."""
    return replace(
        state,
        user_factors=grown_users(state.user_factors, num_users, plan, draws),
        item_factors=grown_items(state.item_factors, num_items, plan, draws),
    )


def orchestrator_round(
    state: OrchestratorState, round_number: int, config: Planned, draws: Draws, *, stopwatch: Stopwatch = untimed
) -> Round[OrchestratorState]:
    """One stretch of the stream."""
    plan = config.plan
    owners, users_side = np.arange(int(state.num_owners), dtype=np.int32), np.array([state.num_owners], np.int32)
    counted_round, num_known = np.zeros(len(owners), np.int32), len(state.counted_round)
    counted_round[:num_known] = state.counted_round
    holdings = Claims(num_items=len(state.item_factors))
    answer = yield Ask(owners, Register(users_side[0], counted_round), holdings)
    owners = answer.came(owners)
    counted_round = counted_round.copy()
    counted_round[owners] = round_number
    starts, held_by = owners_of_items(holdings, len(state.item_factors))
    began = Beginnings(window=plan.window, num_columns=plan.num_columns)
    answer = yield Ask(users_side, Begin(starts, held_by), began)
    if len(answer.lost):
        raise HushrecError("the users' side is lost: no event comes; bring it back and use --resume")
    state = _grown(state, int(began.batches[0][1].num_users[0]), len(starts) - 1, plan, draws)
    num_holders, held = np.diff(starts), Held.of(starts, held_by)
    state = replace(state, is_held=num_holders > 0, counted_round=counted_round)
    delays, late = draws.generator("delays", round_number), list[tuple[int, Moves]]()
    for window in range(int(began.batches[0][1].num_windows[0])):
        sent = ActiveUsers.of(len(state.user_factors), plan)
        yield Ask(users_side, NextWindow(np.array(window)), sent)
        if plan.users_keep_vectors:
            yield from learn_without_users(state.item_factors, owners, users_side, window, (starts, held_by), plan)
            continue
        moves = yield from _learn(state, owners, window, held)
        late += [(window + int(delays.integers(plan.max_delay + 1)), part) for part in _by_owner(moves, config)]
        with stopwatch("update"):
            state = _moved(state, [part for due, part in late if due <= window], num_holders, plan)
        late = [entry for entry in late if entry[0] > window]
        if sent.batches and sent.batches[0][1].num_rows:
            yield Ask(users_side, _recommendation(state, sent.batches[0][1].users, config), Collect())
    with stopwatch("update"):
        return _moved(state, [part for _, part in late], num_holders, plan)


def _learn(
    state: OrchestratorState, owners: Numbers, window: int, held: Held
) -> Generator[Ask, Answer, "Moves | None"]:
    """Bring a window's mail to the owners, and the vectors that they want; returns their gradients."""
    most = MOST_NUMBERS // (state.item_factors.shape[1] * max(len(owners), 1))
    wanted = Requests(num_users=len(state.user_factors), held=held, most=most)
    yield Ask(owners, TakeIn(np.array(window)), wanted)
    asking, rows = in_order([(numbers, said) for numbers, said in wanted.batches if said.num_rows], Wanted)
    if not len(asking):
        return None
    is_item, numbers = rows.is_item.values.astype(np.bool_), rows.numbers.values
    vectors = np.empty((len(numbers), state.item_factors.shape[1]), np.float32)
    vectors[is_item] = state.item_factors[numbers[is_item]]
    vectors[~is_item] = state.user_factors[numbers[~is_item]]
    num_rows = np.zeros(int(state.num_owners), np.int64)
    num_rows[asking] = rows.numbers.lengths
    gradients = ReturnedGradients(num_rows=num_rows, num_factors=vectors.shape[1])
    yield Ask(asking, Vectors(Ragged(rows.numbers.starts, vectors)), gradients)
    answered, moved = in_order(gradients.batches, BlockGradients)
    if not len(answered):
        return None
    owner_of_row = np.repeat(asking, rows.numbers.lengths)
    has_come = np.isin(owner_of_row, answered)
    return Moves(owner_of_row[has_come], is_item[has_come], numbers[has_come], moved.gradients.values)


def _by_owner(moves: Moves | None, config: Planned) -> list[Moves]:
    """What may be late is late by owner."""
    if moves is None or not config.plan.max_delay:
        return [] if moves is None else [moves]
    return [moves.of(moves.owners == owner) for owner in np.unique(moves.owners)]


def _moved(
    state: OrchestratorState, parts: list[Moves], num_holders: NDArray[np.int64], plan: Plan
) -> OrchestratorState:
    """Move vectors by the sums of their gradients (Algorithm 4); sums are exact, so no order matters."""
    if not parts:
        return state
    is_item, numbers, gradients, owners = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("is_item", "numbers", "gradients", "owners")
    )
    items = summed_rows(numbers[is_item], gradients[is_item], owners[is_item])
    move_items(state.item_factors, *items, num_holders, plan)
    move_users(state.user_factors, *summed_rows(numbers[~is_item], gradients[~is_item], owners[~is_item]), plan)
    return state


def _recommendation(state: OrchestratorState, users: Ragged, config: Planned) -> Recommend:
    """The best items of all that are held; the users' side leaves out what a user knows already."""
    of_users = state.user_factors[users.values]
    items = best_held(of_users, state.item_factors, state.is_held, config.plan.recommended)
    return Recommend(users, Ragged(users.starts, items))


# --- The other parties, and results ------------------------------------------------------------------------


def enrol(numbers: Numbers, rows: OwnerRows, num_items: int, config: Planned, draws: Draws) -> Members:
    """Owners with their items, the users' side with its events."""
    plan = config.plan
    rows = within_limits(with_unseen(rows, plan.unseen, num_items, draws), plan.min_blocks, plan.max_blocks)
    members = Members.enrol(numbers, rows, plan.parts if plan.ends_blocks else 0, draws, plan.blocks)
    return Keepers.of(members, plan, draws) if plan.users_keep_vectors else members


def model(state: OrchestratorState, config: Planned, _rating_range: RatingRange) -> Scorer:
    """A scorer made of the orchestrator's vectors."""
    plan = config.plan
    if plan.users_keep_vectors:
        raise HushrecError("the users' side holds the users' vectors; recommend there, by --recommended")
    return RankingFactors(state.user_factors, state.item_factors, plan.regularization, plan.bias_pace > 0)


def whole_model(state: OrchestratorState, private: Members, config: Planned, _range: RatingRange) -> Scorer:
    """A scorer made of all vectors, whoever holds them."""
    users, plan = vectors_of_users(private, state.user_factors), config.plan
    return RankingFactors(users, state.item_factors, plan.regularization, plan.bias_pace > 0)


def mean_loss(state: OrchestratorState, private: Members, rows: OwnerRows) -> float:
    """The mean loss of the blocks of a stream, all owners' items together."""
    users = vectors_of_users(private, state.user_factors)
    return block_loss(users, state.item_factors, rows.users, rows.items, rows.is_positive)


def window_bytes(private: Members, config: Planned) -> NDArray[np.int64]:
    """What a party sends in a window, roughly."""
    return np.full(len(private.numbers), 64 * config.plan.window)


def has_drift_rounds(system: AnySystem) -> bool:
    """Whether a system is a form of DRIFT, as SAROS is: it has this round, and so its plan, state and members."""
    return system.round is orchestrator_round


PAPER = Paper(
    title="DRIFT: A Federated Recommender System with Implicit Feedback",
    authors="Theo Nommay",
    venue="Master thesis, Grenoble",
    year=2022,
)

# For files of no paper, of DRIFT and of SAROS, chosen on validation parts of some with SAROS. The epochs are the
# most that are tried.
GENERAL = {"unseen": 3, "bias_pace": 1.0, "learning_rate": 0.03, "epochs": 15}

_RESULT: Result[Any, OwnerRows, OrchestratorState, Members] = Result(
    whole_model,
    server=model,
    facts=facts,
    losses={"loss": mean_loss},
    measured_every=lambda config: config.plan.parts,
    num_users=lambda state: len(state.user_factors),
    holds=holds,
)

# Any config with these settings: SAROS has one of its own. The store on disk comes to it in `__init__.py`: nothing
# here touches a file.
PROTOCOL: System[Any, OwnerRows, OrchestratorState, Members] = System(
    about=About(
        name="drift",
        title="DRIFT: data owners learn from encrypted interactions, online",
        paper=PAPER,
        class_name="DRIFT",
        presets={"usual": {}, "general": GENERAL},
        audited_rounds=8,
        repairs=({"user_vectors": "users", "flag": "inside"},),
        exposes=(
            Exposure("whoever carries the packets reads every interaction", {"encryption": "none"}),
            Exposure(
                "the server links the items of each user, whom it cannot name",
                {"user_vectors": "users", "flag": "inside"},
            ),
            Exposure("the server reads most interactions of every user"),
        ),
        published_on=("ml-100k", "ml-1m", "gowalla-20", "steam-200k-hours"),
        is_online=True,
        builds_on=("hushrec.evaluation.held_back",),
        small={
            "window": 100, "theta": 2, "batch": 3, "flag": "inside", "recommended": 2, "learning_rate": 0.5,
            "epochs": 4, "parts": 1,
        },
        variants=({"batch": 1, "flag": "outside"}, {"encryption": "none"}, {"user_vectors": "users"}),
        learns_with={"window": 50, "learning_rate": 0.3, "epochs": 60, "parts": 1},
    ),
    config=Config,
    feedback=SIGNED,
    holders=OWNERS,
    messages=(
        Register, OwnerKey, Holdings, Begin, Began, NextWindow, SentInteractions, WindowSent, TakeIn, Wanted,
        Vectors, BlockGradients, Recommend, Recommended, *kept_by_users.MESSAGES,
    ),
    start=start,
    enrol=enrol,
    round=orchestrator_round,
    handlers={
        Register: Handler(owner_register),
        Begin: Handler(users_begin, reads=(OwnerKey,)),
        NextWindow: Handler(users_send),
        TakeIn: Handler(owner_take_in, reads=(SentInteractions,)),
        Vectors: Handler(owner_learn),
        Recommend: Handler(users_show),
        **kept_by_users.HANDLERS,
    },
    reply_bytes=window_bytes,
    result=_RESULT,
    inboxes={OwnerKey: open_inbox, SentInteractions: open_inbox, **kept_by_users.INBOXES},
    pledges=Pledges(Members.pledges, Members.hold),
)  # fmt: skip
