"""Learning with users' vectors that stay with the users' side. Used by `drift`: `--user-vectors users`.

As published, the orchestrator holds the vectors of all users. So whatever it is sent of an item, it can tell by
whose vectors it is made of. Here it holds items' vectors alone, and no message to it names a user. In a window
1. owners take in their mail, and name the users of completed blocks to the users' side, sealed;
2. the users' side writes each owner the vectors of these users, sealed;
3. the orchestrator sends each owner the vectors of all items that it holds, whether it needs them or not; the
   owner learns as it does else, and returns a sum for each item; those for users go to the users' side, sealed;
4. the users' side moves its vectors and, if it was asked to, recommends by itself.
Sums are exact, as all are here: vectors end with the bits that they have with an orchestrator who holds them.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError, MadeUpError, PublicError
from hushrec.privacy.exact_sum import ExactSum, sender_of
from hushrec.protocol import Answer, Ask, Cohort, Collect, Handler, Message, Numbers, Reply, Sealed
from hushrec.systems.drift.blocks import Groups
from hushrec.systems.drift.gradients import group_gradients
from hushrec.systems.drift.keepers import KeptVectors, kept_vectors
from hushrec.systems.drift.members import Members, Owner
from hushrec.systems.drift.messages import (
    HandedUsers,
    HandUsers,
    HeldVectors,
    ItemSums,
    MovedUsers,
    MoveUsers,
    NamedUsers,
    NameUsers,
    SentInteractions,
    UserSums,
    UserVectors,
    WantedUsers,
)
from hushrec.systems.drift.owners import letters_by_owner, owners_in, slices
from hushrec.systems.drift.plan import Plan, Planned
from hushrec.systems.drift.replies import Held
from hushrec.systems.drift.users import events_of_window
from hushrec.systems.drift.vectors import Factors, best_held, move_items, summed_rows

_SUM_LIMIT = 2**62  # of all owners' sums together, in fixed point
_MANY_OWNERS = 256  # whose limits are the same, however many they are


def _limit_of(num_owners: int) -> int:
    """How large a number of one owner's sums may be."""
    return _SUM_LIMIT // max(num_owners, _MANY_OWNERS)


def _beyond(sums: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Which rows have a number that is too large."""
    is_within: NDArray[np.bool_] = np.all((sums <= limit) & (sums >= -limit), axis=1)
    return ~is_within


# --- The orchestrator -------------------------------------------------------------------------------------


@dataclass
class SummedItems:
    """Owners' sums of items' gradients, added up; what cannot be is refused as it comes, with its sender named."""

    total: ExactSum
    limit: int  # of one number
    held: Held  # by owners

    @classmethod
    def zeros(cls, shape: tuple[int, ...], num_owners: int, held: Held) -> "SummedItems":
        """An empty one for so many owners."""
        return cls(ExactSum.zeros(shape, 1), _limit_of(num_owners), held)

    def fork(self) -> "SummedItems":
        """An empty one of the same shape."""
        return SummedItems(self.total.fork(), self.limit, self.held)

    def merge(self, other: "SummedItems") -> None:
        """Take in what a fork took in."""
        self.total.merge(other.total)

    def add(self, numbers: Numbers, message: ItemSums) -> None:
        """Add the sums of some owners."""
        items, sums = message.items.values, message.sums.values
        if sums.shape[1] != self.total.totals.shape[1] or message.items.not_ascending().any():
            raise PublicError("sums came of an item twice, or that do not fit the vectors")
        if not self.held.by(np.repeat(numbers, message.items.lengths), items).all():
            raise PublicError("sums came of an item that the owner does not hold")
        is_bad = _beyond(sums, self.limit)
        if is_bad.any():
            sender = sender_of(numbers, message.items, is_bad)
            raise MadeUpError(f"a sum of owner {sender} is too large; leave it out")
        np.add.at(self.total.totals, items, sums)
        np.add.at(self.total.counts, items, 1)


def learn_without_users(
    item_factors: Factors,
    owners: Numbers,
    users_side: Numbers,
    window: int,
    held_by: tuple[NDArray[np.int64], Numbers],
    plan: Plan,
) -> Generator[Ask, Answer, None]:
    """A window's mail to the owners, and what they learn of it; moves items' vectors. Nothing names a user."""
    to, now = users_side[0], np.array(window)
    owners = (yield Ask(owners, NameUsers(to, now), Collect())).came(owners)
    _check_there((yield Ask(users_side, HandUsers(now), Collect())))
    starts, holders = held_by
    items = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((items, holders))
    of_owner = [items[order[slice(*np.searchsorted(holders[order], (one, one + 1)))]] for one in owners.tolist()]
    sums = SummedItems.zeros(item_factors.shape, len(owners), Held.of(starts, holders))
    if len(owners):
        vectors = slices([item_factors[rows] for rows in of_owner], np.float32)
        yield Ask(owners, HeldVectors(to, now, vectors), sums)
    touched = np.flatnonzero(sums.total.counts).astype(np.int32)
    total = ExactSum(sums.total.totals[touched], sums.total.counts[touched], 0.0)
    move_items(item_factors, touched, total, np.diff(starts), plan)
    shown = item_factors if plan.recommended else item_factors[:0]
    _check_there((yield Ask(users_side, MoveUsers(now, shown), Collect())))


def _check_there(answer: Answer) -> None:
    if len(answer.lost):
        raise HushrecError("the users' side is lost, and users' vectors with it; bring it back and use --resume")


# --- The owners -------------------------------------------------------------------------------------------


def owner_name_users(cohort: Cohort[Members], request: NameUsers, config: Planned, _draws: Draws) -> Reply:
    """Put the window's interactions into blocks; name the users of completed ones to the users' side."""
    plan, window = config.plan, int(request.window)
    mail, owners = letters_by_owner(cohort, window), owners_in(cohort)
    for owner in owners:
        owner.check_users_side(int(request.users_side))
    users = [
        _users_of(owner.take_in(window, mail.get(owner.number, ()), plan.form, plan.theta, plan.threshold))
        for owner in owners
    ]
    wanted = WantedUsers(cohort.numbers, np.full(len(owners), window), slices(users, np.int32))
    return Reply(NamedUsers(), (Sealed(wanted, np.full(len(owners), request.users_side)),))


def _users_of(groups: Groups) -> Numbers:
    return np.unique(groups.numbers[groups.is_item == 0])


def owner_learn_held(cohort: Cohort[Members], request: HeldVectors, config: Planned, _draws: Draws) -> Reply:
    """The gradients of the window's groups (Algorithm 3), summed; the orchestrator gets those of items."""
    sent = _by_receiver(cohort.inboxes.get(UserVectors), int(request.window), "vectors")
    parts = []
    for place, owner in enumerate(owners_in(cohort)):
        owner.check_users_side(int(request.users_side))
        if request.window != owner.clock[1]:
            raise PublicError(f"window {request.window} is not the one that was taken in; ask in order")
        rows = slice(*request.vectors.starts[place : place + 2].tolist())
        groups, held = owner.wanted(config.plan.theta), request.vectors.values[rows]
        parts.append(_sums_of(owner, groups, held, sent.get(owner.number), config.plan))
    of_items, of_users = ([part[kind] for part in parts] for kind in (0, 1))
    items = ItemSums(
        slices([one for one, _ in of_items], np.int32), slices([one for _, one in of_items], np.int64)
    )
    users = UserSums(
        cohort.numbers, np.full(len(parts), request.window),
        slices([one for one, _ in of_users], np.int32), slices([one for _, one in of_users], np.int64),
    )  # fmt: skip
    return Reply(items, (Sealed(users, np.full(len(parts), request.users_side)),))


Sums = tuple[Numbers, NDArray[np.int64]]


def _sums_of(
    owner: Owner, groups: Groups, held: Factors, of_users: Factors | None, plan: Plan
) -> tuple[Sums, Sums]:
    """Numbers and sums of the items, then of the users, of an owner's groups."""
    is_item, users, items = groups.is_item.astype(np.bool_), _users_of(groups), np.sort(owner.held)
    if len(held) != len(items) or held.shape[1] != plan.num_columns:
        raise HushrecError("vectors came that are not those of the items that the owner holds")
    if of_users is None:
        of_users = np.empty((0, plan.num_columns), np.float32)
    if of_users.shape != (len(users), plan.num_columns):
        raise HushrecError("the vectors of the users that the owner named have not come; begin the round again")
    vectors = np.empty((len(is_item), plan.num_columns), np.float32)
    vectors[is_item] = held[np.searchsorted(items, groups.numbers[is_item])]
    vectors[~is_item] = of_users[np.searchsorted(users, groups.numbers[~is_item])]
    gradients = group_gradients(
        groups, vectors, plan.learning_rate, plan.regularization, plan.block_loss, plan.bias_pace
    )
    sender = np.full(len(is_item), owner.number, np.int32)
    both = [summed_rows(groups.numbers[rows], gradients[rows], sender[rows]) for rows in (is_item, ~is_item)]
    if any(_beyond(total.totals, _limit_of(1)).any() for _, total in both):
        raise DivergedError(f"a sum of owner {owner.number} is too large")  # if it is sent, it passes for a lie
    return (both[0][0], both[0][1].totals), (both[1][0], both[1][1].totals)


def _by_receiver(inbox: Any, window: int, name: str) -> dict[int, NDArray[Any]]:
    """A column of the window's mail, by who got it."""
    found = {}
    for addressees, said in inbox.batches if isinstance(inbox, Collect) else ():
        for place, receiver in enumerate(addressees.tolist()):
            if said.window[place] == window:
                column = said.column(name)
                found[receiver] = column.values[slice(*column.starts[place : place + 2].tolist())]
    return found


# --- The users' side --------------------------------------------------------------------------------------


def users_hand(cohort: Cohort[Members], request: HandUsers, _config: Planned, _draws: Draws) -> Reply:
    """Write owners the vectors of the users that they named."""
    kept, window = kept_vectors(cohort.private), int(request.window)
    gateway = cohort.private.only_gateway()
    gateway.check_round(cohort.round_number)
    wanted = dict(_written(cohort, WantedUsers, window, "users"))
    if not wanted:
        return Reply(HandedUsers())
    for users in wanted.values():
        _check_known(users, kept)
    vectors = slices([kept.now[users] for users in wanted.values()], np.float32)
    mail = UserVectors(np.full(len(wanted), window), vectors)
    return Reply(HandedUsers(), (Sealed(mail, np.array(list(wanted), np.int32)),))


def users_move(cohort: Cohort[Members], request: MoveUsers, config: Planned, _draws: Draws) -> Reply:
    """Move vectors by the owners' sums (Algorithm 4), and recommend to the users of the window."""
    plan, window = config.plan, int(request.window)
    kept, gateway = kept_vectors(cohort.private), cohort.private.only_gateway()
    gateway.check_round(cohort.round_number)
    if window != gateway.clock[1]:
        raise PublicError(f"window {window} is not the one that was sent; ask in order")
    listed = _written(cohort, UserSums, window, "users")
    summed = _written(cohort, UserSums, window, "sums")
    for (owner, rows), (_, numbers) in zip(listed, summed, strict=True):
        _check_known(rows, kept)
        if numbers.shape[1] != plan.num_columns:
            raise PublicError(f"sums of owner {owner} do not fit the vectors; use the same settings")
    users = np.concatenate([np.empty(0, np.int32), *(rows for _, rows in listed)])
    sums = np.concatenate([np.empty((0, plan.num_columns), np.int64), *(rows for _, rows in summed)])
    touched, places = np.unique(users, return_inverse=True)
    total = ExactSum.zeros((len(touched), plan.num_columns), 1)
    np.add.at(total.totals, places, sums)
    kept.move(window, touched, total, plan)
    if plan.recommended:
        first, last = events_of_window(gateway, cohort.round_number, window, config)
        active = np.unique(gateway.users[first:last])
        is_held = np.diff(gateway.table_starts) > 0
        if request.item_factors.shape != (len(is_held), plan.num_columns):
            raise PublicError("vectors came that are not those of the items of the table; send these")
        items = best_held(kept.now[active], request.item_factors, is_held, plan.recommended)
        gateway.show(active, items, plan.recommended)
    return Reply(MovedUsers())


def _written(
    cohort: Cohort[Members], kind: type[Message], window: int, name: str
) -> list[tuple[int, NDArray[Any]]]:
    """A column of the window's mail, with the owner who wrote it, in the order of owners, each once."""
    found: dict[int, NDArray[Any]] = {}
    inbox, known = cohort.inboxes.get(kind), cohort.private.only_gateway().table_owners
    for _, said in inbox.batches if isinstance(inbox, Collect) else ():
        column = said.column(name)
        for place, owner in enumerate(said.owner.tolist()):
            if said.window[place] == window:
                if owner in found or owner not in known:
                    raise PublicError(f"owner {owner} wrote twice, or is not in the table; begin the round again")
                found[owner] = column.values[slice(*column.starts[place : place + 2].tolist())]
    return sorted(found.items())


def _check_known(users: Numbers, kept: KeptVectors) -> None:
    if len(users) and (users[-1] >= len(kept.now) or (np.diff(users) <= 0).any()):
        raise PublicError("an owner names a user that there is not, or one twice")


# --- What it adds to the system ----------------------------------------------------------------------------


@dataclass
class WrittenSums(Collect):
    """Owners' sums of users' gradients; what cannot be added up is refused as it comes, with its letter."""

    limit: int = 0  # of one number

    def fork(self) -> "WrittenSums":
        """An empty one with the same limit."""
        return WrittenSums(limit=self.limit)

    def add(self, numbers: Numbers, message: UserSums) -> None:
        """Keep one batch."""
        is_bad = _beyond(message.sums.values, self.limit)
        if is_bad.any():
            writer = sender_of(message.owner, message.sums, is_bad)
            raise MadeUpError(f"a sum of owner {writer} is too large; leave it out")
        super().add(numbers, message)


def open_inbox(_private: Members, _config: Planned) -> Collect:
    """Mail is kept as it comes."""
    return Collect()


def open_sums(private: Members, _config: Planned) -> WrittenSums:
    """Mail of as many owners as the table has."""
    return WrittenSums(limit=_limit_of(len(np.unique(private.only_gateway().table_owners))))


MESSAGES: tuple[type[Message], ...] = (
    NameUsers, NamedUsers, WantedUsers, HandUsers, HandedUsers, UserVectors, HeldVectors, ItemSums, UserSums,
    MoveUsers, MovedUsers,
)  # fmt: skip
HANDLERS: dict[type[Message], Handler[Any, Members]] = {
    NameUsers: Handler(owner_name_users, reads=(SentInteractions,)),
    HandUsers: Handler(users_hand, reads=(WantedUsers,)),
    HeldVectors: Handler(owner_learn_held, reads=(UserVectors,)),
    MoveUsers: Handler(users_move, reads=(UserSums,)),
}
INBOXES = {WantedUsers: open_inbox, UserVectors: open_inbox, UserSums: open_sums}
