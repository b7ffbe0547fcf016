"""A node: some of the parties of a system, behind packets. The same handlers as in one process."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hushrec.draws import Draws
from hushrec.errors import HushrecError, PublicError
from hushrec.privacy.exact_sum import check_own
from hushrec.protocol import AnySystem, Cohort, Fold, Message, Numbers, Role, Sealed
from hushrec.protocol.padding import padding_of
from hushrec.runtime.guard import Guard, Slices, TooLongError
from hushrec.runtime.in_process import cohort_bounds
from hushrec.runtime.packets import Buffer, Contents, Kind, Mail, Packet, contents_of, writable
from hushrec.runtime.post import BadLetter, Post, numbers_within
from hushrec.runtime.rounds import diverged
from hushrec.runtime.wire import WireError, decode, encode


class Stopwatch:
    """Where the time of one packet goes."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Time a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - start


class Node:
    """Serves asks to its clients. An ask may come again: handlers give the same reply again."""

    def __init__(
        self,
        system: AnySystem,
        config: Any,
        draws: Draws,
        numbers: Numbers,  # of its clients, in the order of the rows of `private`
        private: Any,
        post: Post,
        guard: Guard | None = None,  # None: whatever a handler answers is answered
    ) -> None:
        self.guard = guard
        self.system, self.config, self.draws = system, system.in_full(config), draws
        self.private, self.post, self._padding = private, post, padding_of(config)
        self._order = np.argsort(numbers)
        self.numbers = numbers[self._order]
        self._reply_bytes = system.reply_bytes(private, config)

    def answer(self, packet: Packet) -> Packet:
        """The reply to an ask, or mail passed on."""
        return self._pass_on(packet) if packet.kind == Kind.RELAY else self._serve(packet)

    def _pass_on(self, packet: Packet) -> Packet:
        _, letters = contents_of(packet)
        if self.guard:
            batch = [(f"{mail.sequence} {mail.code}", bytes(letter)) for mail, letter in letters]
            self.guard.memory = self.guard.admit_relay(packet.round_number, batch)
        mixed = self.post.pass_on(letters, packet.round_number)
        return packet.reply(Contents(0, [mail for mail, _ in mixed]), tuple(letter for _, letter in mixed))

    def _serve(self, packet: Packet) -> Packet:
        watch, round_number = Stopwatch(), packet.round_number
        requests, letters = contents_of(packet)
        if len(requests) != 1:
            raise WireError("an ask has one frame")
        with watch.at("decode"):
            request = decode(writable(requests[0]), tuple(self.system.handlers), padding=self._padding)
            if request.round_number != round_number:
                raise WireError("a frame of another round than its packet")
            rows = self._order[numbers_within(request.numbers, self.numbers)]
        message, numbers, guard = request.message, request.numbers, self.guard
        try:
            memory = guard.admit(round_number, message, numbers) if guard else None
        except TooLongError as error:
            raise TooLongError(str(diverged(self.config, round_number, str(error)))) from None
        handler = self.system.handlers[type(message)]
        inboxes, came = self._open(letters, round_number, handler.reads, watch)
        if guard and memory:  # from here on it counts as asked, whether it can be answered or not
            guard.memory = guard.admit_mail(memory, message, numbers, came)
        frames: list[Buffer] = []
        mail: list[Sealed] = []
        for first, last in cohort_bounds(self._reply_bytes[rows]):
            cohort = Cohort(numbers[first:last], rows[first:last], self.private, round_number, inboxes)
            with watch.at("compute"), np.errstate(all="ignore"):
                reply = handler.answer(cohort, message.part(first, last), self.config, self.draws)
                check_own(cohort.numbers, reply.message)
            with watch.at("encode"):
                frames.append(encode(reply.message, round_number, cohort.numbers, self._padding))
            mail += reply.mail
        with watch.at("seal"):
            if guard:
                for sealed in mail:
                    guard.check_mail_out(sealed.message, sealed.addressees)
            sent = list(self.post.write(mail, round_number, packet.sequence))
        contents = Contents(len(frames), [outside for outside, _ in sent], dict(watch.seconds))
        return packet.reply(contents, (*frames, *(letter for _, letter in sent)))

    def _open(
        self,
        letters: list[tuple[Mail, Buffer]],
        round_number: int,
        mail_types: tuple[type[Message], ...],
        watch: Stopwatch,
    ) -> tuple[dict[type[Message], Fold], dict[int, Slices]]:
        """Inboxes with all that came, and of each addressee which parts came for it."""
        inboxes: dict[type[Message], Fold] = {}
        came: dict[int, Slices] = {}
        with watch.at("seal"):
            for letter in self.post.read(letters, round_number, mail_types):
                frame = letter.frame
                addressees = np.unique(frame.numbers)
                numbers_within(addressees, self.numbers)
                kind = type(frame.message)
                if kind not in inboxes:
                    inboxes[kind] = self.system.inboxes[kind](self.private, self.config)
                try:
                    if self.guard:
                        self.guard.check_counts(frame.message)
                    inboxes[kind].add(frame.numbers, frame.message)
                except HushrecError as error:
                    # Other words may quote the letter, which the server must not read.
                    reason = str(error) if isinstance(error, PublicError) else "cannot be used"
                    raise BadLetter(letter.place, reason) from None
                if self.guard and kind.receiver == Role.DENOISER:
                    for number in addressees.tolist():
                        places = np.flatnonzero(frame.numbers == number)
                        came[number] = came.get(number, Slices()).with_message(frame.message, places)
        return inboxes, came
