"""Hostile but well-formed messages: honest ones of a small run, with other values, given to all who take them in.

An act is one round of a system. Beside what its parties send each other honestly, frames with altered values go to
the driving side in place of replies, to handlers in place of requests, and to inboxes in place of mail. Each is
taken in or refused: in one line, by a `HushrecError`. Anything else, be it a warning, is a fault.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.data import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import (
    Answer,
    AnySystem,
    Ask,
    Cohort,
    FieldKind,
    Fold,
    Message,
    Numbers,
    Ragged,
    Reply,
    Transcript,
    is_finite,
    kept_arrays,
    restore,
)
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.rounds import drive_round
from hushrec.runtime.training import Job, prepared
from hushrec.runtime.wire import WireError, decode, encode
from hushrec.testing.small_runs import settings_for

NUM_ROUNDS = 3
_MOST_TRIALS = 12  # of a message, beside the one that is put in its place
_MOST_ROWS = 2000  # of an altered slice
_INTS = (0, 1, -1, 2, 7, 29, 30, 31, 23, 24, 25, 127, -128, 255, 1000, 10**6, 2**31 - 1, -(2**31), 2**62, -(2**63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-30, 0.5, 2048.0, -2048.0, 1e6, -1e10, 1e18, 3e38, -3e38, 1e300)
_NOT_FINITE = (np.nan, np.inf, -np.inf)


# --- Altered messages ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alter:
    """Alters messages in ways that their declared columns allow, and sometimes in ways that they do not."""

    draws: np.random.Generator

    def message(self, honest: Message, num_parties: int) -> Message:
        """The same type with one to three changes."""
        message = honest
        for _ in range(int(self.draws.choice([1, 1, 1, 2, 3]))):
            message = self._once(message, num_parties)
        return message

    def _once(self, message: Message, num_parties: int) -> Message:
        kinds = message.kinds()
        if not kinds:
            return message
        has_rows = any(kind.layout == "ragged" for kind in kinds)
        if has_rows and self.draws.random() < 0.3:
            return self._other_rows(message, num_parties)
        kind = kinds[int(self.draws.integers(len(kinds)))]
        column = getattr(message, kind.name)
        values = np.array(column.values if kind.layout == "ragged" else column)
        if kind.layout != "each" and kind.num_dims and self.draws.random() < 0.15:
            values = self._other_shape(values, kind)
        else:
            values = self._other_values(values, kind)
        new = Ragged(column.starts, values) if kind.layout == "ragged" else values
        return replace(message, **{kind.name: new})

    def _other_rows(self, message: Message, num_parties: int) -> Message:
        """Slices that are empty, cut, repeated, shuffled or long; the same way in all ragged columns."""
        starts, lengths = _ragged_of(message).starts, message.lengths
        way = self.draws.choice(["empty", "cut", "repeat", "shuffle", "reverse", "one", "long"])
        chosen = self.draws.random(num_parties) < self.draws.choice([0.2, 1.0])
        places = []
        for party, (first, length) in enumerate(zip(starts[:-1].tolist(), lengths.tolist(), strict=True)):
            own = first + np.arange(length)
            if chosen[party]:
                own = self._rearranged(own, str(way))
            places.append(own)
        new_starts = np.concatenate([[0], np.cumsum([len(own) for own in places])]).astype(np.int64)
        taken = np.concatenate(places).astype(np.int64) if places else np.empty(0, np.int64)
        columns = {
            kind.name: Ragged(new_starts, getattr(message, kind.name).values[taken])
            for kind in message.kinds()
            if kind.layout == "ragged"
        }
        return replace(message, **columns)

    def _rearranged(self, own: NDArray[np.int64], way: str) -> NDArray[np.int64]:
        if way == "empty" or not len(own):
            return own[:0]
        if way == "cut":
            return own[: int(self.draws.integers(len(own) + 1))]
        if way == "repeat":
            return np.tile(own, int(self.draws.integers(2, 4)))
        if way == "shuffle":
            return self.draws.permutation(own)
        if way == "reverse":
            return own[::-1]
        if way == "one":
            return np.repeat(own[:1], int(self.draws.integers(1, 4)))
        return np.resize(own, int(self.draws.integers(1, _MOST_ROWS)))

    def _other_shape(self, values: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
        """A shared array of any shape; rows of parties that are wider or narrower."""
        shape = list(values.shape)
        first = 1 if kind.layout == "ragged" else 0
        if len(shape) <= first:
            return self._other_values(values, kind)
        axis = int(self.draws.integers(first, len(shape)))
        shape[axis] = int(self.draws.choice([0, 1, shape[axis] + 1, max(shape[axis] - 1, 0), 2 * shape[axis], 64]))
        if values.size and np.prod(shape) < 1 << 20:
            return np.resize(values, shape)
        return np.zeros([min(size, 1000) for size in shape] if first == 0 else shape, values.dtype)

    def _other_values(self, values: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
        """Some numbers, or all, at or beyond the ends of what can be said; mostly within the declared bounds."""
        if not values.size:
            return values
        flat = values.reshape(-1).copy()
        share = self.draws.choice(["one", "some", "all"])
        places = {
            "one": self.draws.integers(flat.size, size=1),
            "some": np.flatnonzero(self.draws.random(flat.size) < 0.3),
            "all": np.arange(flat.size),
        }[str(share)]
        flat[places] = self._values(len(places), flat, kind)
        return flat.reshape(values.shape)

    def _values(self, count: int, flat: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
        dtype = flat.dtype
        if not count:
            return flat[:0]
        if dtype.kind == "b":
            return self.draws.random(count) < 0.5
        if dtype.kind == "f":
            pool = _NOT_FINITE if self.draws.random() < 0.05 else _FLOATS
            with np.errstate(over="ignore"):
                drawn = np.array(pool, dtype)[self._indices(len(pool), count)]
            is_alright = np.isfinite(drawn) | (pool is _NOT_FINITE)
            drawn = np.where(is_alright, drawn, np.finfo(dtype).max).astype(dtype)
        else:
            drawn = self._integers(count, flat, dtype)
        if self.draws.random() < 0.95 and pool_is_bounded(kind):
            low = drawn.min() if kind.low is None else kind.low
            high = drawn.max() if kind.high is None else kind.high
            drawn = np.clip(drawn, low, high).astype(dtype)
        return drawn

    def _integers(self, count: int, flat: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        bounds = np.iinfo(dtype)
        way = self.draws.choice(["known", "near", "random", "other"])
        if way == "near":
            near = flat[self._indices(flat.size, count)].astype(np.float64) + self.draws.integers(-2, 3)
            return np.clip(near, bounds.min, float(bounds.max) / 2 if bounds.bits == 64 else bounds.max).astype(
                dtype
            )
        if way == "random":
            return self.draws.integers(bounds.min, bounds.max, count, dtype, endpoint=True)
        if way == "other":
            return flat[self._indices(flat.size, count)]
        pool = np.array(
            [one for one in (*_INTS, bounds.min, bounds.max) if bounds.min <= one <= bounds.max], dtype
        )
        return pool[self._indices(len(pool), count)]

    def _indices(self, size: int, count: int) -> NDArray[np.int64]:
        """The same for all, or one for each."""
        if self.draws.random() < 0.5:
            return np.full(count, self.draws.integers(size))
        return self.draws.integers(size, size=count)


def pool_is_bounded(kind: FieldKind) -> bool:
    """Whether a column declares bounds."""
    return kind.low is not None or kind.high is not None


def _ragged_of(message: Message) -> Ragged:
    return message.column(next(kind.name for kind in message.kinds() if kind.layout == "ragged"))


# --- A run to disturb ----------------------------------------------------------------------------------------


class Before(NamedTuple):
    """What both sides hold before a round."""

    state: Any
    private: Any


@dataclass(frozen=True)
class Scene:
    """A small honest run, as it was before each of its rounds, and some messages of each type that was sent."""

    system: AnySystem
    config: Any
    variant: Mapping[str, Any]
    rounds: list[Before]  # of round k + 1
    num_asks: list[int]  # in each
    sent: dict[type[Message], list[tuple[Message, int]]]  # with the number of parties
    again: Callable[[], Any] | None = None  # for private states that cannot be copied

    def begin(self, round_number: int) -> Before:
        """Both sides before a round, to do with as one likes."""
        state, private = self.rounds[round_number - 1]
        if self.again is None:
            return Before(deepcopy(state), deepcopy(private))
        fresh = self.again()
        restore(fresh, private)
        return Before(deepcopy(state), fresh)


def scenes(system: AnySystem) -> Iterator[Scene]:
    """A run with the system's small settings, and one with each variant; nothing that is sent is a stand-in."""
    for variant in ({}, *system.about.variants):
        values = settings_for(system, NUM_ROUNDS, {**system.about.small, **variant})
        config = system.in_full(system.configure(values))
        train = prepared(system, system.holders.sample(synthetic(24, 30, 288), 0))
        yield _scene(Job(system, config, 0, train), variant)


def _scene(job: Job, variant: Mapping[str, Any]) -> Scene:
    start, transcript = job.start(), Transcript(keep_payloads=True)
    state, private, rounds, num_asks = start.state, start.private, list[Before](), list[int]()
    try:
        deepcopy(private)
        again = None
    except TypeError:  # libraries' own objects
        again = lambda: job.start().private  # noqa: E731
    runtime = InProcess(job.system, job.config, Draws(job.seed), private, transcript, RuntimeOptions(threads=1))
    try:
        for round_number in range(1, job.config.num_rounds + 1):
            held = deepcopy(private) if again is None else deepcopy(kept_arrays(private))
            rounds.append(Before(deepcopy(state), held))
            state = runtime.run_round(state, round_number)
            num_asks.append(max(runtime.num_asks, 1))
    finally:
        runtime.close()
    sent: dict[type[Message], list[tuple[Message, int]]] = {}
    for one in transcript.recorded:
        names = one.numbers if one.addressees is None else one.addressees
        sent.setdefault(type(one.message), []).append((one.message, len(names)))
    return Scene(job.system, job.config, variant, rounds, num_asks, sent, again)


# --- An act --------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What was neither taken in nor refused."""

    where: str  # driver, node or mail, and the message
    error: BaseException


@dataclass
class Act:
    """One round of a scene with hostile frames in it; what became of each is counted by message and outcome."""

    scene: Scene
    round_number: int
    seed: int
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    ending: str = ""  # why the round ended, in one line, if it did

    def __post_init__(self) -> None:
        self._draws = np.random.default_rng([self.seed, self.round_number])
        self._alter = Alter(self._draws)
        self._share = float(self._draws.choice([0.05, 0.3, 1.0]))  # of messages that are altered
        # All asks of the round are disturbed, or one: what comes late in a round is seldom reached otherwise.
        is_one = self._draws.random() < 0.7
        self._disturbed = int(self._draws.integers(self.scene.num_asks[self.round_number - 1])) if is_one else -1
        self._num_asks = 0
        self._inboxes: dict[type[Message], Fold] = {}
        self._keyed = Draws(0)

    def play(self) -> None:
        """The whole round; a fault ends it."""
        state, self._private = self.scene.begin(self.round_number)
        where = "driver"
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("error")
                system, config = self.scene.system, self.scene.config
                after = drive_round(system, state, self.round_number, config, self._keyed, self._serve)
                if not is_finite(after):
                    raise HushrecError("the model is not finite")
            self.counts["round", "went on"] += 1
        except HushrecError as error:
            self.counts["round", "ended"] += 1
            self.ending = str(error)
        except _Faulty as fault:
            self.faults.append(Fault(fault.where, fault.error))
        except Exception as error:
            self.faults.append(Fault(where, error))

    def _serve(self, ask: Ask) -> Answer:
        if not len(ask.to):
            return Answer()
        share, self._share = self._share, self._share if self._disturbed in (-1, self._num_asks) else 0.0
        self._num_asks += 1
        try:
            return self._serve_disturbed(ask)
        finally:
            self._share = share

    def _serve_disturbed(self, ask: Ask) -> Answer:
        if self._share:
            self._ask_falsely(ask)
        reply = self._handled("node", ask.to, ask.request, self._private, refuses=False)
        if reply is None:  # what hostile mail has made impossible
            raise HushrecError("nobody answers")
        post: dict[type[Message], Fold] = {}  # in place of what came with an ask before
        for sealed in reply.mail:
            self._post(post, sealed.message, sealed.addressees)
        self._inboxes.update(post)
        first = 0
        while first < len(ask.to):
            last = min(len(ask.to), first + int(self._draws.choice([1, 1, 2, 5])))
            numbers, honest = ask.to[first:last], reply.message.part(first, last)
            if self._draws.random() >= self._share or not self._takes(ask.replies, numbers, honest):
                ask.replies.add(numbers, honest)
            first = last
        return Answer()

    def _takes(self, replies: Fold, numbers: Numbers, honest: Message) -> bool:
        """Whether a hostile reply is taken in place of an honest one; others are tried before it."""
        for _ in range(int(self._draws.integers(_MOST_TRIALS))):
            self._taken_apart(replies, numbers, honest)
        fork = self._taken_apart(replies, numbers, honest)
        if fork is None:
            return False
        return self._tried("driver", type(honest), lambda: replies.merge(fork), is_counted=False)

    def _taken_apart(self, replies: Fold, numbers: Numbers, honest: Message) -> Fold | None:
        """An empty fold of the same kind with a hostile reply in it; None: it was refused."""
        hostile, to = self._hostile(honest, numbers)
        kind = type(hostile)
        kinds = tuple(one for one in self.scene.system.messages if one not in self.scene.system.handlers)
        decoded = self._through_wire(hostile, to, kinds)
        if decoded is None:
            return None
        fork = replies.fork()
        return fork if self._tried("driver", kind, lambda: fork.add(to, decoded)) else None

    def _hostile(self, honest: Message, numbers: Numbers) -> tuple[Message, Numbers]:
        """Other values, sometimes another type, and now and then nobody at all."""
        chance = self._draws.random()
        if chance < 0.03:
            return honest.part(0, 0), numbers[:0]
        if chance < 0.08:
            kinds = list(self.scene.sent)
            known, size = self.scene.sent[kinds[int(self._draws.integers(len(kinds)))]][0]
            return known.part(0, min(size, len(numbers))), numbers[: min(size, len(numbers))]
        return self._alter.message(honest, len(numbers)), numbers

    def _ask_falsely(self, ask: Ask) -> None:
        """Hostile requests to copies of the parties, one after the other, and then the honest one."""
        if self._draws.random() > 0.5 or self.scene.again is not None:
            return
        private = deepcopy(self._private)
        kinds = tuple(self.scene.system.handlers)
        for _ in range(int(self._draws.integers(1, 4 * _MOST_TRIALS))):
            first = int(self._draws.integers(len(ask.to)))
            last = min(len(ask.to), first + int(self._draws.choice([1, 1, 3, 30])))
            numbers = ask.to[first:last]
            hostile = self._alter.message(ask.request.part(first, last), len(numbers))
            decoded = self._through_wire(hostile, numbers, kinds)
            if decoded is not None:
                self._handled("node", numbers, decoded, private)
        self._handled("node", ask.to, ask.request, private, is_counted=False)

    def _post(self, post: dict[type[Message], Fold], honest: Message, addressees: Numbers) -> None:
        """Mail, some of it altered, to its addressees' inboxes."""
        kind = type(honest)
        if kind not in post:
            post[kind] = self.scene.system.inboxes[kind](self._private, self.scene.config)
        for addressee in np.unique(addressees[addressees >= 0]):
            places = np.flatnonzero(addressees == addressee)
            letter, numbers = honest.take(places), addressees[places]
            taken = None
            if self._draws.random() < self._share:
                for _ in range(int(self._draws.integers(1, _MOST_TRIALS))):
                    taken = self._posted_apart(letter, numbers) or taken
            # One of many: readers refuse what several letters do not agree on, and would not get further.
            is_put = taken is not None and self._draws.random() < 0.1
            post[kind].add(*(taken if is_put and taken else (numbers, letter)))

    def _posted_apart(self, letter: Message, numbers: Numbers) -> tuple[Numbers, Message] | None:
        """A hostile letter that an empty inbox takes in; None: it does not."""
        kind, (hostile, to) = type(letter), self._hostile(letter, numbers)
        decoded = self._through_wire(hostile, to, (kind,))
        spare = self.scene.system.inboxes[kind](self._private, self.scene.config)
        if decoded is None or not self._tried("mail", kind, lambda: spare.add(to, decoded)):
            return None
        return to, decoded

    def _through_wire(
        self, hostile: Message, numbers: Numbers, kinds: tuple[type[Message], ...]
    ) -> Message | None:
        """As it comes out of a frame; None: it does not."""
        try:
            frame = encode(hostile, self.round_number, numbers)
            return decode(bytearray(frame), kinds).message
        except WireError:
            self.counts[type(hostile).__name__, "refused by the wire"] += 1
            return None
        except Exception as error:
            raise _Faulty(f"wire, {type(hostile).__name__}", error) from error

    def _handled(
        self, where: str, numbers: Numbers, request: Message, private: Any, *, is_counted: bool = True,
        refuses: bool = True,
    ) -> Reply | None:  # fmt: skip
        """A handler's answer, in frames that can be sent; None: it refused."""
        system, answers = self.scene.system, list[Reply]()
        handler = system.handlers[type(request)]
        mail = {kind: self._inboxes[kind] for kind in handler.reads if kind in self._inboxes}
        rows = numbers.astype(np.int64)
        cohort = Cohort(numbers, rows, private, self.round_number, mail)

        def answer() -> None:
            reply = handler.answer(cohort, request, self.scene.config, self._keyed)
            encode(reply.message, self.round_number, numbers)
            for sealed in reply.mail:
                encode(sealed.message, self.round_number, sealed.addressees)
            answers.append(reply)

        self._tried(where, type(request), answer, is_counted=is_counted and refuses)
        return answers[0] if answers else None

    def _tried(
        self, where: str, kind: type[Message], take_in: Callable[[], None], *, is_counted: bool = True
    ) -> bool:
        """Whether something is taken in; a refusal is fine, and nothing else is."""
        try:
            take_in()
        except HushrecError:
            outcome = f"refused by the {where}"
        except Exception as error:
            raise _Faulty(f"{where}, {kind.__name__}", error) from error
        else:
            outcome = f"taken in by the {where}"
        if is_counted:
            self.counts[kind.__name__, outcome] += 1
        return outcome.startswith("taken")


class _Faulty(Exception):
    """A fault on its way out of a round."""

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__(where)
        self.where, self.error = where, error
