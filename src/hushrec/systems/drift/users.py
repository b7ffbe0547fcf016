"""The users' side of DRIFT: what it answers. Used by `drift`."""

import numpy as np

from hushrec.draws import Draws
from hushrec.errors import PublicError
from hushrec.protocol import Cohort, Collect, Ragged, Reply, Sealed
from hushrec.systems.drift.cipher import Form, salt_numbers
from hushrec.systems.drift.deeds import Deed
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.keepers import kept_vectors
from hushrec.systems.drift.members import Members
from hushrec.systems.drift.messages import (
    Began,
    Begin,
    NextWindow,
    OwnerKey,
    Recommend,
    Recommended,
    SentInteractions,
    WindowSent,
)
from hushrec.systems.drift.owners import slices
from hushrec.systems.drift.plan import Planned
from hushrec.systems.drift.stopwatch import Stopwatch, untimed


def users_begin(cohort: Cohort[Members], request: Begin, config: Planned, _draws: Draws) -> Reply:
    """Learn who holds what; tell how much is to come.

    DEVIATION: the users' side gets the whole table of who holds what. In the report the orchestrator looks up
    the owners of an item (Sec. 3.3), to which it must be told with which item a user interacts.
    """
    gateway, plan = cohort.private.only_gateway(), config.plan
    gateway.check_table(request.starts, request.owners)
    if plan.has_owners:
        gateway.book.admit(request.starts, request.owners, _deeds(cohort, plan.form), gateway.number)
    gateway.begin(cohort.round_number, request.starts, request.owners)
    if plan.users_keep_vectors:
        kept_vectors(cohort.private).begin(cohort.round_number)
    num_users = 0 if plan.users_keep_vectors else gateway.num_users
    return Reply(Began(np.array([_num_windows(gateway, cohort.round_number, config)]), np.array([num_users])))


def _deeds(cohort: Cohort[Members], form: Form) -> dict[int, Deed]:
    """What owners signed, by owner."""
    inbox = cohort.inboxes.get(OwnerKey)
    deeds: dict[int, Deed] = {}
    for _, message in inbox.batches if isinstance(inbox, Collect) else ():
        columns = [message.column(name) for name in ("key", "signing_key", "signature")]
        if (columns[0].lengths != 1).any() or columns[0].values.shape[1] != form.key_bytes:
            raise PublicError(f"an owner's key has not {form.key_bytes} bytes; use the same settings")
        for owner, *parts in zip(message.owner.tolist(), *(column.values for column in columns), strict=True):
            if owner in deeds:
                raise PublicError(f"owner {owner} wrote twice; begin the round again")
            deeds[owner] = Deed(*(part.tobytes() for part in parts))
    return deeds


def _num_windows(gateway: Gateway, round_number: int, config: Planned) -> int:
    first, last = _windows(gateway, round_number, config)
    return last - first


def _windows(gateway: Gateway, round_number: int, config: Planned) -> tuple[int, int]:
    """The first window of a round in the stream, and the one behind its last."""
    plan = config.plan
    num_windows, part = -(-len(gateway.users) // plan.window), (round_number - 1) % plan.parts
    return num_windows * part // plan.parts, num_windows * (part + 1) // plan.parts


def events_of_window(gateway: Gateway, round_number: int, window: int, config: Planned) -> tuple[int, int]:
    """The first event of a window of a round, and the one behind its last."""
    first = (_windows(gateway, round_number, config)[0] + window) * config.plan.window
    return first, first + config.plan.window


def _note_seen(gateway: Gateway, round_number: int, config: Planned) -> None:
    """Note what users know by the end of the window that runs."""
    first, last = events_of_window(gateway, round_number, int(gateway.clock[1]), config)
    if not gateway.seen:  # a new process: the stream tells what was before
        gateway.note_seen(0, first if round_number <= config.plan.parts else len(gateway.users))
    gateway.note_seen(first, last)


def users_send(
    cohort: Cohort[Members], request: NextWindow, config: Planned, _draws: Draws, *, stopwatch: Stopwatch = untimed
) -> Reply:
    """Send the interactions of a window to the owners of their items."""
    plan, window = config.plan, int(request.window)
    gateway = cohort.private.only_gateway()
    gateway.check_round(cohort.round_number)
    if window >= _num_windows(gateway, cohort.round_number, config):
        raise PublicError(f"there is no window {window} in round {cohort.round_number}; ask for one that there is")
    first, last = events_of_window(gateway, cohort.round_number, window, config)
    letters = gateway.window(window, first, last, gateway.book.keys(), plan.form, stopwatch)
    active = np.empty(0, np.int32)
    if plan.recommended:
        if not plan.users_keep_vectors:  # else they recommend by themselves
            active = np.unique(gateway.users[first:last])
        _note_seen(gateway, cohort.round_number, config)
    reply = WindowSent(Ragged.one(active))
    if not letters:
        return Reply(reply)
    columns = [
        slices([getattr(part, name) for part in letters.values()], dtype)
        for name, dtype in (("sequences", np.int64), ("flags", np.uint8), ("contents", np.uint8))
    ]
    salts = np.array([salt_numbers(part.salt) for part in letters.values()], np.uint64).T
    sent = SentInteractions(np.full(len(letters), window), *salts, *columns)
    return Reply(reply, (Sealed(sent, np.array(list(letters), np.int32)),))


def users_show(cohort: Cohort[Members], request: Recommend, config: Planned, _draws: Draws) -> Reply:
    """Show recommended items to their users, but for those that a user knows."""
    gateway = cohort.private.only_gateway()
    gateway.check_round(cohort.round_number)
    users, items = request.users.values, request.items.values
    first, last = events_of_window(gateway, cohort.round_number, int(gateway.clock[1]), config)
    if gateway.clock[1] < 0 or not np.array_equal(users, np.unique(gateway.users[first:last])):
        raise PublicError("recommendations for others than the users of the window; recommend to these")
    if items.max(initial=-1) >= len(gateway.table_starts) - 1:
        raise PublicError("recommendations of an item that there is not; recommend those of the table")
    if not gateway.seen:
        _note_seen(gateway, cohort.round_number, config)
    gateway.show(users, items, config.plan.recommended)
    return Reply(Recommended())
