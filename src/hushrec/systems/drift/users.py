"""The users' side of DRIFT: what it answers. Used by `drift`."""

import numpy as np

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Cohort, Collect, Ragged, Reply, Sealed
from hushrec.systems.drift.cipher import KEY_BYTES
from hushrec.systems.drift.keepers import kept_vectors
from hushrec.systems.drift.members import Gateway, Members
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
    gateway = cohort.private.only_gateway()
    if request.starts[-1] != len(request.owners) or (np.diff(request.starts) < 0).any():
        raise HushrecError("the table of who holds what is not whole")
    gateway.begin(cohort.round_number, request.starts, request.owners)
    first, last = _windows(gateway, cohort.round_number, config)
    if config.plan.users_keep_vectors:
        kept_vectors(cohort.private).begin(cohort.round_number)
    num_users = 0 if config.plan.users_keep_vectors else gateway.num_users
    return Reply(Began(np.array([last - first]), np.array([num_users])))


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
    plan = config.plan
    gateway = cohort.private.only_gateway()
    first, last = events_of_window(gateway, cohort.round_number, int(request.window), config)
    letters = gateway.window(int(request.window), first, last, _keys(cohort), plan.form, stopwatch)
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
    sent = SentInteractions(np.full(len(letters), request.window), *columns)
    return Reply(reply, (Sealed(sent, np.array(list(letters), np.int32)),))


def _keys(cohort: Cohort[Members]) -> dict[int, bytes]:
    inbox = cohort.inboxes.get(OwnerKey)
    keys: dict[int, bytes] = {}
    for _, message in inbox.batches if isinstance(inbox, Collect) else ():
        if (message.key.lengths != KEY_BYTES).any():
            raise HushrecError(f"an owner's key has not {KEY_BYTES} bytes")
        for owner, key in zip(message.owner.tolist(), message.key.values.reshape(-1, KEY_BYTES), strict=True):
            keys[owner] = key.tobytes()
    return keys


def users_show(cohort: Cohort[Members], request: Recommend, config: Planned, _draws: Draws) -> Reply:
    """Show recommended items to their users, but for those that a user knows."""
    gateway = cohort.private.only_gateway()
    if not gateway.seen:
        _note_seen(gateway, cohort.round_number, config)
    gateway.show(request.users.values, request.items.values, config.plan.recommended)
    return Reply(Recommended())
