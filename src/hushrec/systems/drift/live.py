"""Learning and recommending at once from events that come while it runs, with owners that come and go.

The same protocol as in a run over a dataset: those events that wait are the stream of one round of `system.round`,
driven in this process; owners keep their blocks from round to round. What is learned and recommended depends on
the order of events and changes only, not on how many of them waited.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.data.holdings.owners import rows_of_owners
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import (
    AnySystem,
    Arrays,
    Numbers,
    Tally,
    Transcript,
    is_finite,
    kept_arrays,
    restore,
    restored,
)
from hushrec.runtime.checkpoint import from_file, in_file
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.lines import Place
from hushrec.runtime.rounds import diverged
from hushrec.runtime.training import prepared
from hushrec.systems.drift.blocks import Blocks
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.live_lines import Change, Event
from hushrec.systems.drift.members import Members, Owner, owner_key, owner_signing_seed

EVERYTHING = "all"  # the owner of what nobody else holds, where no owner was named before the first event
# Numbers of messages that are left out at a restart: more than were sent since the state was kept.
_LEFT_OUT = 1 << 32

Tell = Callable[[str, list[str]], None]  # a user, and the items recommended to it
Clock = Callable[[], float]  # seconds of CPU time so far


def _stands_still() -> float:
    return 0.0


@dataclass
class _UsersSide(Gateway):
    """The users' side with the events of now; it shows what is recommended at once."""

    window_size: int = 1
    on_shown: Callable[[Numbers], None] | None = None

    def show(self, users: Numbers, items: NDArray[np.int32], most: int) -> None:
        """Show users the first of these items that they do not know."""
        super().show(users, items, most)
        first = int(self.clock[1]) * self.window_size
        if self.on_shown is not None:
            self.on_shown(self.users[first : first + self.window_size])


@dataclass
class History:
    """The events that were learned from, in order."""

    users: Numbers = field(default_factory=lambda: np.empty(0, np.int32))
    items: Numbers = field(default_factory=lambda: np.empty(0, np.int32))
    is_positive: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    size: int = 0

    def add(self, users: Numbers, items: Numbers, is_positive: NDArray[np.bool_]) -> None:
        """Append events, one entry of each column per event."""
        last = self.size + len(users)
        for name, more in (("users", users), ("items", items), ("is_positive", is_positive)):
            column = getattr(self, name)
            if last > len(column):
                column = np.concatenate([column[: self.size], np.empty(last, column.dtype)])
                setattr(self, name, column)
            column[self.size : last] = more
        self.size = last

    def columns(self) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """Users, items, whether it was positive."""
        return self.users[: self.size], self.items[: self.size], self.is_positive[: self.size]


@dataclass
class Ids:
    """Texts, numbered as they come."""

    texts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Its number, a new one if it is new."""
        number = self.numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def number_all(self, texts: Iterable[str]) -> Numbers:
        """The numbers of these texts, new ones for new texts."""
        return np.array([self.number(text) for text in texts], np.int32)


def _digest(holdings: Mapping[str, Sequence[str]], titles: Mapping[str, str]) -> bytes:
    """A digest of what is there before the first event, whatever its order; empty if there is nothing."""
    if not holdings and not titles:
        return b""
    held = sorted((owner, sorted(set(items))) for owner, items in holdings.items())
    return sha256(msgspec.json.encode((held, sorted(titles.items())))).digest()


class Live:
    """A system that learns from a live source: DRIFT, or SAROS with one owner of everything."""

    def __init__(
        self,
        system: AnySystem,
        config: Any,
        seed: int,
        holdings: Mapping[str, Sequence[str]] | None = None,
        titles: Mapping[str, str] | None = None,
        clock: Clock = _stands_still,
    ) -> None:
        """`holdings`: the items of owners before the first event; `titles`: also of items without an owner."""
        if config.plan.max_delay or config.plan.parts != 1:
            raise HushrecError("live learning has no delays and no parts; leave --max-delay and --parts out")
        if config.plan.min_blocks or config.plan.max_blocks:
            raise HushrecError(
                "live learning cannot know how many blocks a user will have; leave --min-blocks and --max-blocks "
                "out"
            )
        if config.plan.users_keep_vectors:
            raise HushrecError("live learning has the vectors of users in one place; leave --user-vectors out")
        if config.plan.unseen:
            raise HushrecError("live learning takes events as they come and draws none; leave --unseen out")
        self.system, self.config, self.draws = system, config, Draws(seed)
        self.users, self.items, self.owners = Ids(), Ids(), Ids()
        self.titles = dict(titles or {})
        self.items.number_all(self.titles)
        self.history, self.place, self.round_number = History(), Place(), 0
        self.transcript, self.cpu_seconds, self._clock = Transcript(), 0.0, clock
        self.num_unheld = 0  # events about items that nobody held: nobody learned from them
        nothing = np.empty(0, np.int32)
        self.gateway = _UsersSide(0, nothing, nothing, np.empty(0, np.bool_), 0, window_size=config.plan.window)
        self.members = Members(np.zeros(1, np.int32), [], self.gateway)
        self.state = system.start(1, len(self.titles), config, self.draws)
        self.given = _digest(holdings or {}, self.titles)
        self._num_owners_of: dict[int, int] = {}
        self._runtime = self._new_runtime()
        for owner, held in (holdings or {}).items():
            self._take(self._owner(owner), self.items.number_all(held))

    @classmethod
    def of(
        cls, system: AnySystem, config: Any, seed: int, data: Interactions, clock: Clock = _stands_still
    ) -> "Live":
        """A live system with the items, titles and owners of a dataset, without its events."""
        data = prepared(system, data, config)
        rows, ids = rows_of_owners(data), [str(item) for item in data.item_ids.tolist()]
        titles = [""] * len(ids) if data.titles is None else data.titles.tolist()
        held = [[ids[item] for item in part.tolist()] for part in np.split(rows.held, rows.held_starts[1:-1])]
        holdings = dict(zip(rows.names, held, strict=True))
        return cls(system, config, seed, holdings, dict(zip(ids, titles, strict=True)), clock)

    # --- Events ---

    def learn(self, events: Sequence[Event], tell: Tell) -> None:
        """Learn from events, in windows, and tell after each window what is recommended to its users."""
        if not self.owners.texts:
            self._owner(EVERYTHING)
        first = 0
        if EVERYTHING in self.owners.numbers:
            for place, event in enumerate(events):
                if not self._num_owners_of.get(self.items.numbers.get(event.item, -1)):
                    # Nobody may be shown an item before the window of its first event.
                    begin = place - place % self.config.plan.window
                    self._learn(events[first:begin], tell)
                    self._take(self._owner(EVERYTHING), self.items.number_all([event.item]))
                    first = begin
        self._learn(events[first:], tell)

    def _learn(self, events: Sequence[Event], tell: Tell) -> None:
        if not events:
            return
        users = self.users.number_all(event.user for event in events)
        items = self.items.number_all(event.item for event in events)
        is_positive = np.array([event.is_positive for event in events], np.bool_)
        gateway, start = self.gateway, self._clock()
        gateway.users, gateway.items, gateway.is_positive = users, items, is_positive
        gateway.num_users = len(self.users.texts)
        if self._num_owners_of:
            self._run_round(tell)
            self._check_finite(users, items)
        elif self.config.plan.recommended:  # nobody holds anything: there is nothing to learn or to recommend
            gateway.note_seen(0, len(users))
            for event in events:
                tell(event.user, [])
        self.num_unheld += sum(item not in self._num_owners_of for item in items.tolist())
        self.history.add(users, items, is_positive)
        self._sum_tallies()
        self.cpu_seconds += self._clock() - start

    def _run_round(self, tell: Tell) -> None:
        """A round over the events that the users' side has now."""
        gateway, ids, item_ids = self.gateway, self.users.texts, self.items.texts

        def on_shown(users: Numbers) -> None:
            for user in users.tolist():
                tell(ids[user], [item_ids[item] for item in gateway.shown[user].tolist()])

        gateway.on_shown = on_shown
        self.round_number += 1
        lost: list[str] = []  # overflows
        try:
            with np.errstate(all="ignore", over="call", invalid="call", call=lambda kind, _: lost.append(kind)):
                self.state = self._runtime.run_round(self.state, self.round_number)
        except DivergedError:
            raise
        except HushrecError as error:
            if lost or not self._is_finite():  # scores overflow before vectors do
                raise diverged(self.config, self.round_number, str(error)) from None
            raise

    def _is_finite(self) -> bool:
        return is_finite(self.state)

    def _check_finite(self, users: Numbers, items: Numbers) -> None:
        for factors, numbers in ((self.state.user_factors, users), (self.state.item_factors, items)):
            if not np.isfinite(factors[numbers[numbers < len(factors)]]).all():
                raise diverged(self.config, self.round_number, "the model is not finite")

    def _sum_tallies(self) -> None:
        """Keep one sum per type of message, so that the transcript does not grow with rounds."""
        tallies = self.transcript.tallies
        for number, kind in [key for key in tallies if key[0]]:
            self.transcript.count(0, kind, tallies.pop((number, kind)))

    # --- Owners ---

    @property
    def held(self) -> Numbers:
        """Items that somebody holds, ascending."""
        return np.array(sorted(self._num_owners_of), np.int32)

    @property
    def num_owners(self) -> int:
        """Owners that hold something."""
        return sum(len(owner.held) > 0 for owner in self.members.owners)

    def change(self, change: Change) -> None:
        """An owner joins, takes items in, gives items up, or leaves; refused as a whole or done as a whole."""
        if not self.config.plan.has_owners:
            raise HushrecError(f"{self.system.name} has one owner of everything; leave lines of owners out")
        if change.owner == EVERYTHING:
            raise HushrecError(
                f"{EVERYTHING!r} is the owner of what nobody else holds; give the owner another name"
            )
        number = self.owners.numbers.get(change.owner)
        if number is None and not change.adds:
            raise HushrecError("an owner drops items or leaves that never had any; let it add items first")
        held = self.members.owners[number].held if number is not None else np.empty(0, np.int32)
        dropped = np.array([self.items.numbers.get(item, -1) for item in change.drops], np.int32)
        if not np.isin(dropped, held).all():
            raise HushrecError("an owner drops an item that it does not hold; let it drop its own items only")
        owner = self._owner(change.owner)
        added = self.items.number_all(change.adds)
        self._take(owner, added)
        if EVERYTHING in self.owners.numbers:
            everything = self._owner(EVERYTHING)
            self._give_up(everything, np.intersect1d(everything.held, added))
        self._give_up(owner, held if change.leaves else dropped)
        if change.leaves:
            owner.blocks = Blocks(reading=self.config.plan.blocks)  # an owner takes along what it knows

    def _owner(self, name: str) -> Owner:
        number = self.owners.number(name)
        if number == len(self.members.owners):
            # The users' side is the last party: it moves up.
            blocks = Blocks(reading=self.config.plan.blocks)
            self.members.owners.append(
                Owner(
                    number, np.empty(0, np.int32), owner_key(self.draws, number), blocks=blocks,
                    signing_seed=owner_signing_seed(self.draws, number),
                )
            )  # fmt: skip
            for owner in self.members.owners:
                owner.users_side = -1
            self.members.numbers = np.arange(number + 2, dtype=np.int32)
            self.gateway.number = number + 1
            self.state = replace(self.state, num_owners=np.array(number + 1))
            self._runtime = self._new_runtime()
        return self.members.owners[number]

    def _new_runtime(self) -> InProcess:
        options = RuntimeOptions(threads=1)
        return InProcess(self.system, self.config, self.draws, self.members, self.transcript, options)

    def _take(self, owner: Owner, items: Numbers) -> None:
        for item in np.setdiff1d(items, owner.held).tolist():
            self._num_owners_of[item] = self._num_owners_of.get(item, 0) + 1
        owner.held = np.union1d(owner.held, items).astype(np.int32)
        self.gateway.book.agree(owner.number, items)  # who gives the lines of owners decides about them

    def _give_up(self, owner: Owner, items: Numbers) -> None:
        """An owner forgets what it has not learned yet about items that it no longer holds."""
        if not len(items):
            return
        owner.held = np.setdiff1d(owner.held, items).astype(np.int32)
        for item in items.tolist():
            self._num_owners_of[item] -= 1
            if not self._num_owners_of[item]:
                del self._num_owners_of[item]
        entries = owner.blocks.kept()
        left = entries.take(~np.isin(entries.items, items))
        num_users = 1 + int(left.users.max(initial=-1))
        owner.blocks, owner.groups = Blocks.restored(left, num_users, owner.blocks.reading), None

    # --- What is kept ---

    def arrays(self) -> Arrays:
        """All that is needed to go on, as arrays by name."""
        owners = self.members.owners
        users, items, is_positive = self.history.columns()
        arrays = in_file("server", kept_arrays(self.state)) | in_file("private", kept_arrays(self.members))
        arrays |= {"history.users": users, "history.items": items, "history.is_positive": is_positive}
        arrays |= {"place": np.array(self.place), "round_number": np.array(self.round_number)}
        arrays["num_unheld"], arrays["given"] = np.array(self.num_unheld), np.frombuffer(self.given, np.uint8)
        arrays["seconds"] = np.array(self.cpu_seconds)
        arrays["held"] = np.concatenate([np.empty(0, np.int32), *(owner.held for owner in owners)])
        arrays["num_held"] = np.array([len(owner.held) for owner in owners], np.int64)
        for name, ids in (("users", self.users), ("items", self.items), ("owners", self.owners)):
            arrays[f"ids.{name}"] = np.frombuffer(msgspec.json.encode(ids.texts), np.uint8)
        arrays["titles"] = np.frombuffer(msgspec.json.encode(self.titles), np.uint8)
        tallies = [
            (self.system.messages.index(kind), tally.messages, tally.rows, tally.payload_bytes)
            for (_, kind), tally in self.transcript.tallies.items()
        ]
        arrays["tallies"] = np.array(tallies, np.int64).reshape(-1, 4)
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Go on from what `arrays` gave; this one is new, with the same settings."""
        users, items, owners = (
            msgspec.json.decode(arrays[f"ids.{name}"].tobytes(), type=list[str])
            for name in ("users", "items", "owners")
        )
        self.users, self.items, self.owners = Ids(), Ids(), Ids()
        self.users.number_all(users)
        self.items.number_all(items)
        self.members.owners, self._num_owners_of = [], {}
        ends = np.cumsum(arrays["num_held"])
        for owner, end, num_held in zip(owners, ends.tolist(), arrays["num_held"].tolist(), strict=True):
            self._take(self._owner(owner), arrays["held"][end - num_held : end])
        restore(self.members, from_file("private", arrays))
        self.gateway.sent = self.gateway.sent + _LEFT_OUT
        self.state = restored(self.state, from_file("server", arrays))
        self.history.add(*(arrays[f"history.{name}"] for name in ("users", "items", "is_positive")))
        self.gateway.users, self.gateway.items, self.gateway.is_positive = self.history.columns()
        if self.config.plan.recommended:
            self.gateway.note_seen(0, self.history.size)
        self.place, self.round_number = Place(*arrays["place"].tolist()), int(arrays["round_number"])
        self.cpu_seconds, self.num_unheld = float(arrays["seconds"]), int(arrays["num_unheld"])
        self.titles = msgspec.json.decode(arrays["titles"].tobytes(), type=dict[str, str])
        self.given = arrays["given"].tobytes()
        for kind, *counts in arrays["tallies"].tolist():
            self.transcript.tallies[0, self.system.messages[kind]] = Tally(*counts)
