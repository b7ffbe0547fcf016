"""Hostile but well-formed messages: honest ones of a small run, with other values, given to all who take them in.

An act is one round of a system. Beside what its parties send each other honestly, frames with altered values go to
the driving side in place of replies, to handlers in place of requests, and to inboxes in place of mail. Each is
taken in or refused: in one line, by a `HushrecError`. Anything else, be it a warning, is a fault.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hushrec.data import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import (
    Answer,
    AnySystem,
    Ask,
    Cohort,
    Fold,
    Message,
    Numbers,
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
from hushrec.testing.altered import Alter
from hushrec.testing.small_runs import settings_for

NUM_ROUNDS = 3
_MOST_TRIALS = 12  # of a message, beside the one that is put in its place

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
    asked: list[list[type[Message]]]  # in each, in order
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
    state, private, rounds, asked = start.state, start.private, list[Before](), list[list[type[Message]]]()
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
            asked.append([])
            runtime.inboxes.clear()

            def serve(ask: Ask, number: int = round_number) -> Answer:
                if len(ask.to):
                    asked[-1].append(type(ask.request))
                return runtime.serve(ask, number)

            state = drive_round(job.system, state, round_number, job.config, Draws(job.seed), serve)
    finally:
        runtime.close()
    sent: dict[type[Message], list[tuple[Message, int]]] = {}
    for one in transcript.recorded:
        names = one.numbers if one.addressees is None else one.addressees
        sent.setdefault(type(one.message), []).append((one.message, len(names)))
    return Scene(job.system, job.config, variant, rounds, asked, sent, again)


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
    # Of hostile letters that an inbox takes in. Few: readers refuse what several do not agree on.
    put_share: float = 0.1
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    ending: str = ""  # why the round ended, in one line, if it did

    def __post_init__(self) -> None:
        self._draws = np.random.default_rng([self.seed, self.round_number])
        self._alter = Alter(self._draws)
        self._share = float(self._draws.choice([0.05, 0.3, 1.0]))  # of messages that are altered
        # All asks of the round are disturbed, or one: what comes late in a round is seldom reached otherwise.
        is_one = self._draws.random() < 0.7
        self._disturbed = self._drawn_ask() if is_one else -1
        self._num_asks = 0
        self._inboxes: dict[type[Message], Fold] = {}
        self._keyed = Draws(0)

    def _drawn_ask(self) -> int:
        """Each type of request is as likely as any, however many of them a round has."""
        asked = self.scene.asked[self.round_number - 1]
        kinds = list(dict.fromkeys(asked))
        if not kinds:
            return -1
        kind = kinds[int(self._draws.integers(len(kinds)))]
        return int(self._draws.choice([place for place, one in enumerate(asked) if one is kind]))

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
            is_put = taken is not None and self._draws.random() < self.put_share
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
