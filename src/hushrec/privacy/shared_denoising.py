"""FedRec++'s denoising by shares: k denoisers per client hold shares of masks instead of noise (`shares`).

The round:
1. The server sends V to the clients, denoisers among them, and tells each of them k denoisers.
2. A client uploads masked numbers for all items that it lists, and sends each of its denoisers a share, sealed.
3. The server asks the denoisers for the sums of their shares. It takes them out, and has the real gradients' sum.

If a denoiser is lost, the round begins again without it and without the clients assigned to it; so it does if so
few letters came for one that their sum would hide nobody.

Threat model: server and denoisers are honest but curious, and up to k - 1 of a client's k denoisers may collude
with the server: together they see the client's list and uniform numbers. All k with the server see everything. A
denoiser's own update is protected as any client's: it is masked, with shares at k denoisers. If it is one of them
itself, it holds one of its own shares, which leaves it in a sum with those of two others at least; so all other
denoisers with the server do not see it. What a denoiser sends are sums of masks, and none of its own rows. Hence k
denoisers are enough. What is left to see:
- The list, for the server by name, for denoisers without it. It holds all real items among 1 + rho times as many;
  lists that are drawn anew in each round can be intersected. Its length tells how many are real.
- Sums and counts of items. Who alone lists an item with a count has it, and its row shows; who lists an item with
  count 0 has it not; where all who list an item are counted, all have it. Rounds that differ by one client differ
  by its rows, but for what the others learned in between.
- With more denoisers than k, sums and counts over fewer clients: the server gets them for groups that have no
  denoiser in common who does not collude. With exactly k all clients are one group, but a lost denoiser costs all
  of them the round.
- If a round begins again and a client was lost in between, sums differ by its shares, where nobody's cover them.
A server that is not only curious can name denoisers of its own, or give three clients denoisers that nobody else
has: denoisers check that nobody is alone in their sums (3 letters at least), not who the others are. Clients
refuse to answer in the clear. Where nodes share the run's seed with the server, it can draw all masks itself.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.privacy.denoising import Assigning, check_denoisers
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.shares import (
    LEAST_LETTERS,
    MOST_SUMMANDS,
    Hidden,
    Seeds,
    ShareSums,
    WordSum,
    check_range,
    draw_seeds,
    masked,
)
from hushrec.protocol import (
    NO_ONE,
    Ask,
    Cohort,
    Message,
    Numbers,
    Ragged,
    Reply,
    Role,
    Round,
    Sealed,
    draw_participants,
    each,
    ragged,
    shared,
)

SeedPart = NDArray[np.int64]


# --- Messages ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FactorsToShare(Message):
    """Reveals: the server's model, the client's denoisers, and whether the client's last update counted."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: NDArray[np.float32] = shared(np.float32, 2)
    num_summands: NDArray[np.int64] = shared(np.int64, 0, low=1, high=MOST_SUMMANDS)
    counted_round: Numbers = each(np.int32, low=0)
    denoisers: Ragged = ragged(np.int32, low=0)


@dataclass(frozen=True)
class MaskedGradients(Message):
    """Reveals: a list that holds the client's real items; the numbers tell nothing without all of its shares."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    words: Ragged = ragged(np.int64, 2)  # 64-bit fixed point modulo 2^64: the gradient, and a count


@dataclass(frozen=True)
class MaskShare(Message):
    """Reveals: the list of some client, without its name; the seed tells nothing without its other shares."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    items: Ragged = ragged(np.int32, low=0)
    seed_1: SeedPart = each(np.int64)  # 32 bytes in four numbers
    seed_2: SeedPart = each(np.int64)
    seed_3: SeedPart = each(np.int64)
    seed_4: SeedPart = each(np.int64)

    @classmethod
    def of(cls, items: Ragged, seeds: Seeds) -> "MaskShare":
        """A letter for each seed."""
        return cls(items, *np.ascontiguousarray(seeds).view(np.int64).T)

    @property
    def seeds(self) -> Seeds:
        """The seed of each letter."""
        parts = (self.seed_1, self.seed_2, self.seed_3, self.seed_4)
        return np.ascontiguousarray(np.stack(parts, axis=1)).view(np.uint32)


@dataclass(frozen=True)
class SendShareSums(Message):
    """Reveals: nothing."""

    sender, receiver = Role.SERVER, Role.DENOISER


@dataclass(frozen=True)
class SummedShares(Message):
    """Reveals: with what came from the clients, sums of real gradients and counts over all who share denoisers.

    An item that one client of such a group lists shows as it is. Two sums that hold the shares of different
    clients differ by what can tell these clients' rows.
    """

    sender, receiver = Role.DENOISER, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    words: Ragged = ragged(np.int64, 2)


MESSAGES = (FactorsToShare, MaskedGradients, MaskShare, SendShareSums, SummedShares)


# --- The server --------------------------------------------------------------------------------------------


class SharingConfig(Protocol):
    """What shares need to know of a config."""

    @property
    def denoisers(self) -> int:
        """How many denoising clients there are (eta)."""
        ...

    @property
    def shares(self) -> int:
        """How many denoisers each client has (k)."""
        ...

    @property
    def participation(self) -> float:
        """Share of clients that take part in a round."""
        ...

    @property
    def assignment(self) -> Assigning:
        """How clients get their denoisers."""
        ...


class SharingState(Protocol):
    """What shares need to know of the server's state."""

    @property
    def item_factors(self) -> NDArray[np.float32]:
        """V."""
        ...

    @property
    def counted_round(self) -> Numbers:
        """Per client, the last round in which its update counted."""
        ...

    @property
    def denoisers(self) -> Numbers:
        """Who denoises."""
        ...


def check_config(config: SharingConfig, num_clients: int) -> None:
    """Refuse numbers of denoisers that cannot hide, with shares or without."""
    if not config.shares:
        check_denoisers(config.denoisers, num_clients)
        return
    k, eta = config.shares, config.denoisers
    if not k <= eta <= num_clients:
        raise HushrecError(
            f"{option('shares', k)} gives each of {num_clients} clients {k} denoisers; "
            f"use {option('denoisers', k)} or more, up to the number of clients"
        )
    if (num_participants := min(num_clients, max(1, round(config.participation * num_clients)))) < LEAST_LETTERS:
        raise HushrecError(
            f"{option('shares', k)} hides nobody among {num_participants} clients in a round; "
            f"use {LEAST_LETTERS} or more"
        )
    if num_clients > MOST_SUMMANDS:
        raise HushrecError(
            f"{option('shares', k)} is for {MOST_SUMMANDS} clients at most; use {option('shares', 0)}"
        )


@dataclass(frozen=True)
class SharedAssignment:
    """Which k denoisers each client of a round sends its shares to."""

    clients: Numbers
    denoisers_of: Numbers  # (clients, k)

    @property
    def denoisers(self) -> Numbers:
        """Denoisers with at least one client, ascending."""
        return np.unique(self.denoisers_of)

    def without_clients(self, lost: Numbers) -> "SharedAssignment":
        """What is left when clients are lost as such."""
        return self._kept(~np.isin(self.clients, lost))

    def without(self, lost: Numbers) -> "SharedAssignment":
        """What is left when denoisers are lost, with all who are assigned to them."""
        return self._kept(~(np.isin(self.clients, lost) | np.isin(self.denoisers_of, lost).any(axis=1)))

    def lonely(self) -> Numbers:
        """Denoisers to whom so few write that the sum would hide nobody."""
        denoisers, letters = np.unique(self.denoisers_of, return_counts=True)
        return denoisers[letters < LEAST_LETTERS]

    def _kept(self, is_kept: NDArray[np.bool_]) -> "SharedAssignment":
        return SharedAssignment(self.clients[is_kept], self.denoisers_of[is_kept])


def assign_shares(
    clients: Numbers, denoisers: Numbers, num_shares: int, round_number: int, draws: Draws, how: Assigning
) -> SharedAssignment:
    """Assign k different denoisers to each client at random, anew in each round; nobody if there are too few.

    Dealt evenly, neighbours in a ring of denoisers have clients in common. Only as many of them denoise as get
    enough letters each. A denoiser's own shares are dealt like any other's, itself among its denoisers or not.
    """
    generator = draws.generator("assignment", round_number)
    most = max(num_shares, len(clients) // -(-LEAST_LETTERS // num_shares))
    active = generator.permutation(denoisers)[:most]
    if len(active) < num_shares:
        return SharedAssignment(NO_ONE, np.empty((0, num_shares), np.int32))
    if how == "random":
        places = generator.random((len(clients), len(active))).argsort(axis=1)[:, :num_shares]
    else:
        places = (generator.permutation(len(clients))[:, None] + np.arange(num_shares)) % len(active)
    return SharedAssignment(clients, active[places])


class SharedSum(NamedTuple):
    """What the server has when shares are taken out."""

    total: ExactSum  # gradients of real items only, counted by who has them
    counted: Numbers  # clients whose updates are in it
    lost_denoisers: Numbers


def shared_sum(state: SharingState, round_number: int, config: SharingConfig, draws: Draws) -> Round[SharedSum]:
    """Collect uploads and sums of shares, and take these out.

    Denoisers serve in every round, whether they take part as clients or not: so who takes part, and with it the
    model, are the same as in `fedrec` without virtual items.
    """
    num_clients, shape = len(state.counted_round), state.item_factors.shape
    participants = draw_participants(num_clients, config.participation, round_number, draws)
    how = config.shares, round_number, draws, config.assignment
    assignment, lost_denoisers = assign_shares(participants, state.denoisers, *how), NO_ONE
    while len(assignment.clients):
        uploads, shares, clients = WordSum.zeros(shape), WordSum.zeros(shape), assignment.clients
        request = _request(state, assignment, len(participants))
        came = assignment.without_clients((yield Ask(clients, request, uploads)).lost)
        if len(lonely := came.lonely()):
            assignment = came.without(lonely)
            continue
        lost = (yield Ask(came.denoisers, SendShareSums(), shares)).lost
        if not len(lost):
            return SharedSum(uploads.without(shares, len(participants)), came.clients, lost_denoisers)
        lost_denoisers, assignment = np.union1d(lost_denoisers, lost), came.without(lost)
    return SharedSum(ExactSum.zeros(shape, num_clients), NO_ONE, lost_denoisers)


def _request(state: SharingState, assignment: SharedAssignment, num_summands: int) -> FactorsToShare:
    num_clients, num_shares = assignment.denoisers_of.shape
    denoisers = Ragged(np.arange(num_clients + 1) * num_shares, assignment.denoisers_of.ravel())
    counted_round = state.counted_round[assignment.clients]
    return FactorsToShare(state.item_factors, np.array(num_summands), counted_round, denoisers)


# --- Clients and denoisers ---------------------------------------------------------------------------------


def check_unmasked(config: SharingConfig) -> None:
    """Refuse what is asked in the clear, where rows are to be masked: an honest server never does."""
    if config.shares:
        raise HushrecError("a client that masks its rows is asked for them in the clear; ask it for shares")


def shared_reply(
    cohort: Cohort[Any], request: FactorsToShare, hidden: Hidden, num_shares: int, draws: Draws
) -> Reply:
    """Upload masked numbers, and send a share to each denoiser."""
    denoisers = request.denoisers.values
    if (request.denoisers.lengths != num_shares).any():
        raise HushrecError(f"a client was told other than {num_shares} denoisers; ask it with as many")
    denoisers = denoisers.reshape(-1, num_shares)
    if (np.diff(np.sort(denoisers, axis=1), axis=1) == 0).any():
        raise HushrecError("a client was told the same denoiser twice, who would hold two shares; tell it others")
    check_range(cohort.numbers, hidden, int(request.num_summands))
    seeds = draw_seeds(draws.key("shares"), cohort.numbers, cohort.round_number, hidden, denoisers)
    items = Ragged(hidden.starts, hidden.items)
    mail = tuple(
        Sealed(MaskShare.of(items, seeds[:, share]), denoisers[:, share].copy()) for share in range(num_shares)
    )
    return Reply(MaskedGradients(items, Ragged(hidden.starts, masked(hidden, seeds))), mail)


def denoiser_sums(cohort: Cohort[Any], _request: SendShareSums, _config: object, _draws: Draws) -> Reply:
    """A denoiser: send the sums of shares, unless they are of nearly nobody."""
    inbox = cohort.inboxes.get(MaskShare)
    if not isinstance(inbox, ShareSums) or not inbox.has_enough(cohort.numbers):
        raise HushrecError(
            f"a denoiser got shares of fewer than {LEAST_LETTERS} clients, whose rows would show; "
            "ask it after its clients"
        )
    return Reply(SummedShares(*inbox.release(cohort.numbers)))
