"""Lies of an active server, told to copies of the parties after an honest round, so that the training goes on.

A lie is a generator like a round: it yields asks, which the parties' own handlers answer. What they refuse is
said, and what they answered until then is seen.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from hushrec.audit.scoreboard import Lie, Own, Stage
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Numbers, Transcript, View
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.training import Job


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
        self.refusals.clear()

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
            rounds = range(last + 1, last + 1 + lie.num_rounds) if lie.num_rounds else range(last, last + 1)
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
        self, lie: Lie, private: Any, state: Any, rounds: range, view: View, own: Own
    ) -> tuple[Transcript, str]:
        """All messages of a lie to these parties, and what they said who refused to answer."""
        job, transcript = self._job, Transcript(keep_payloads=True)
        runtime = InProcess(job.system, job.config, Draws(job.seed), private, transcript, RuntimeOptions(1))
        try:
            # What overflows is what some lies are made for.
            with np.errstate(all="ignore"):
                for round_number in rounds:
                    if refusal := self._tell(lie, runtime, deepcopy(state), round_number, view, own):
                        return transcript, refusal
        finally:
            runtime.close()
        return transcript, ""

    def _tell(self, lie: Lie, runtime: InProcess, state: Any, round_number: int, view: View, own: Own) -> str:
        """Bring the asks of a lie to the parties; what they say if they refuse to answer one."""
        system = self._job.system
        honest = system.round(state, round_number, self._job.config, Draws(self._job.seed))
        steps = lie.tell(Stage(honest, view, system.messages), own)
        runtime.inboxes.clear()
        try:
            ask = next(steps)
            while True:
                try:
                    _check_once(ask.to)
                    answer = runtime.serve(ask, round_number)
                except HushrecError as error:
                    return str(error)
                ask = steps.send(answer)
        except StopIteration:
            return ""
        except HushrecError:  # the honest half does not know what to do with the answers: they were seen
            return ""


def _check_once(to: Numbers) -> None:
    """As nodes do, which serve each of their parties once for a request."""
    if (np.diff(to) <= 0).any():
        raise HushrecError("a request names a party twice, or not in ascending order; ask each once")
