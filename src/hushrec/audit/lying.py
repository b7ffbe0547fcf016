"""Lies of an active server, told to copies of the parties after an honest round, so that the training goes on.

A lie is a generator like a round: it yields asks, which the parties' own handlers answer. What they refuse is
said, and what they answered until then is seen. Each lie is told twice: to the bare handlers, and to parties on a
node with a guard (`runtime/guard.py`), as deployed ones are. That guard has seen the honest round.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import numpy as np

from hushrec.audit.asking import ForgedAsk
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Answer, Ask, Message, Numbers, Recorded, Role, Round, Transcript, View
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.guard import Guard, Limits, Memory, Slices, check_catalogue, longest_vector
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.training import Job

_GUARDED = " (deployed)"


def with_guarded(attacks: Iterable[Attack[Any]]) -> list[Attack[Any]]:
    """Each of these attacks, and behind those that lie the same one on nodes with a guard."""
    found: list[Attack[Any]] = []
    for attack in attacks:
        found.append(attack)
        if attack.lie is not None:
            lie, sentence = attack.lie._replace(is_guarded=True), f"On a deployed node: {attack.sentence}"
            found.append(replace(attack, name=attack.name + _GUARDED, sentence=sentence, lie=lie))
    return found


def bare_name(name: str) -> str:
    """The name of an attack, on nodes with a guard or not."""
    return name.removesuffix(_GUARDED)


class Liar:
    """An active server beside the honest one of a run."""

    def __init__(self, job: Job) -> None:
        self._job = replace(job, config=job.system.in_full(job.config))
        self._state = replace(self._job, party="server").start().state
        self.refusals: dict[Lie, str] = {}  # of the last round
        self._at_start: dict[Lie, tuple[Transcript, str]] = {}  # lies that are told once, and what was refused

    def begin(self, progress: Progress) -> None:
        """Take up where an honest round has ended."""
        self._state_before, self._state = self._state, deepcopy(progress.state)
        self._progress = progress
        self._memory = self._remembered(progress)
        self.refusals.clear()

    def _guard(self, memory: Memory | None) -> Guard:
        """A node's that hosts everybody."""
        job, system = self._job, self._job.system
        num_parties = system.holders.num_parties(job.train)
        appointed = {} if system.appoints is None else system.appoints(num_parties, job.config, Draws(job.seed))
        by_role = {role.value: numbers for role, numbers in appointed.items()}
        return Guard(Limits(job.config.num_rounds, by_role, longest_vector(job.train.rating_range)), memory)

    def _remembered(self, progress: Progress) -> Memory:
        """What a guard knows after the honest round."""
        guard, sent = self._guard(None), progress.transcript.recorded
        for one in sent:
            handler = self._job.system.handlers.get(type(one.message))
            if handler is not None and one.addressees is None:
                memory = guard.admit(one.round_number, one.message, one.numbers)
                came = _came([mail for mail in sent if type(mail.message) in handler.reads])
                guard.memory = guard.admit_mail(memory, one.message, one.numbers, came)
        return guard.memory

    def told(self, lie: Lie, view: View, own: Own) -> Transcript:
        """All messages of a lie, told to parties as they are after the round; they are not changed by it.

        A lie about the catalogue is told to others like them, enrolled with that catalogue.
        """
        if lie.num_invented:
            if lie not in self._at_start:
                state, private = self._stuffed(lie.num_invented)
                self._at_start[lie] = self._told(lie, private, state, range(1, 2), view, own)
            transcript, refusal = self._at_start[lie]
        else:
            last, private = self._progress.round_number, deepcopy(self._progress.private)
            if lie.is_beyond:
                last = self._job.config.num_rounds
            rounds: Sequence[int] = range(last + 1, last + 1 + lie.num_rounds) if lie.num_rounds else [last]
            if lie.is_one_round:
                rounds = [last + 1] * lie.num_rounds
            state = self._state if lie.num_rounds else self._state_before
            transcript, refusal = self._told(lie, private, state, rounds, view, own)
        if refusal:
            self.refusals[lie] = refusal
        return transcript

    def _stuffed(self, num_invented: int) -> tuple[Any, Any]:
        """Server and parties of a run before its first round whose catalogue goes on behind the real items."""
        job, draws = self._job, Draws(self._job.seed)
        system, num_items = job.system, job.train.num_items + num_invented
        numbers = np.arange(system.holders.num_parties(job.train), dtype=np.int32)
        state = system.start(len(numbers), num_items, job.config, draws)
        private = system.enrol(numbers, system.holders.rows(job.train), num_items, job.config, draws)
        return state, private

    def _told(
        self, lie: Lie, private: Any, state: Any, rounds: Sequence[int], view: View, own: Own
    ) -> tuple[Transcript, str]:
        """All messages of a lie to these parties, and what they said who refused to answer."""
        job, transcript = self._job, Transcript(keep_payloads=True)
        runtime = InProcess(job.system, job.config, Draws(job.seed), private, transcript, RuntimeOptions(1))
        guard = self._guard(None if lie.num_invented else self._memory) if lie.is_guarded else None
        node = _Parties(runtime, guard, job.train.num_items + lie.num_invented, len(np.unique(job.train.items)))
        try:
            # What overflows is what some lies are made for.
            with np.errstate(all="ignore"):
                for turn, round_number in enumerate(rounds):
                    made_as = rounds[0] if lie.is_repeated else round_number
                    honest = self._honest(lie, deepcopy(state), made_as)
                    steps = lie.tell(Stage(honest, view, job.system.messages, turn), own)
                    if refusal := _tell(steps, node, round_number):
                        return transcript, refusal
        finally:
            runtime.close()
        return transcript, ""

    def _honest(self, lie: Lie, state: Any, round_number: int) -> Round[Any]:
        """A round as the honest server drives it, but for the settings that this one drops."""
        system, config = self._job.system, self._job.config
        dropped = [entry for entry in fields(config) if entry.name in lie.drops]
        config = replace(config, **{entry.name: entry.default for entry in dropped})
        return system.round(state, round_number, config, Draws(self._job.seed))


def _tell(steps: Round[None], node: "_Parties", round_number: int) -> str:
    """Bring the asks of a lie to the parties; what they say if they refuse to answer one."""
    node.begin()
    try:
        ask = next(steps)
        while True:
            try:
                _check_once(ask.to)
                answer = node.serve(ask, round_number)
            except HushrecError as error:
                return str(error)
            ask = steps.send(answer)
    except StopIteration:
        return ""
    except HushrecError:  # the honest half does not know what to do with the answers: they were seen
        return ""


class _Parties:
    """The parties, as the bare handlers are, or behind a node's guard."""

    def __init__(self, runtime: InProcess, guard: Guard | None, num_items: int, num_rated: int) -> None:
        self._runtime, self._guard, self._num_items, self._num_rated = runtime, guard, num_items, num_rated
        self._mail: dict[type[Message], list[Recorded]] = {}  # the last of each type

    def begin(self) -> None:
        """A round: no mail of another one is there."""
        self._runtime.inboxes.clear()
        self._mail.clear()

    def serve(self, ask: Ask, round_number: int) -> Answer:
        """Answer an ask, or refuse to; then nothing was seen but that it was asked."""
        transcript = self._runtime.transcript
        start = len(transcript.recorded)
        try:
            return self._serve(ask, round_number)
        except HushrecError:
            if self._guard is not None:
                del transcript.recorded[start:]
                transcript.record(Recorded(round_number, ask.to, ask.request), 0)
            raise

    def _serve(self, ask: Ask, round_number: int) -> Answer:
        runtime, guard = self._runtime, self._guard
        if isinstance(ask, ForgedAsk):
            if guard is not None:
                raise HushrecError("a letter is not signed by who is said to have written it")
            self._put(ask)
        if guard is None:
            return runtime.serve(ask, round_number)
        if self._runtime.system.holders.knows_all_items:
            check_catalogue(self._num_items, self._num_rated)
        reads = runtime.system.handlers[type(ask.request)].reads
        memory = guard.admit(round_number, ask.request, ask.to)
        came = _came([one for kind in reads for one in self._mail.get(kind, [])])
        memory = guard.admit_mail(memory, ask.request, ask.to, came)
        start = len(runtime.transcript.recorded)
        answer = runtime.serve(ask, round_number)
        mail = [one for one in runtime.transcript.recorded[start:] if one.addressees is not None]
        for one in mail:
            assert one.addressees is not None
            guard.check_mail_out(one.message, one.addressees)
        for kind in {type(one.message) for one in mail}:
            self._mail[kind] = [one for one in mail if type(one.message) is kind]
        guard.memory = memory
        return answer

    def _put(self, ask: ForgedAsk) -> None:
        runtime, forged = self._runtime, ask.forged
        kind = type(forged.message)
        if kind not in runtime.inboxes:
            runtime.inboxes[kind] = runtime.system.inboxes[kind](runtime.private, runtime.config)
        runtime.inboxes[kind].add(forged.addressees, forged.message)


def _came(mail: Iterable[Recorded]) -> dict[int, Slices]:
    """What came for each denoiser."""
    came: dict[int, Slices] = {}
    for one in mail:
        if one.addressees is None or type(one.message).receiver != Role.DENOISER:
            continue
        for number in np.unique(one.addressees[one.addressees >= 0]).tolist():
            places = np.flatnonzero(one.addressees == number)
            came[number] = came.get(number, Slices()).with_message(one.message, places)
    return came


def _check_once(to: Numbers) -> None:
    """As nodes do, which serve each of their parties once for a request."""
    if (np.diff(to) <= 0).any():
        raise HushrecError("a request names a party twice, or not in ascending order; ask each once")
