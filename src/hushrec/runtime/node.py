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
from hushrec.protocol import AnySystem, Cohort, Fold, Message, Numbers
from hushrec.protocol.padding import padding_of
from hushrec.runtime.in_process import cohort_bounds
from hushrec.runtime.packets import Buffer, Contents, Kind, Mail, Packet, contents_of, writable
from hushrec.runtime.post import BadLetter, Post, numbers_within
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
    ) -> None:
        self.system, self.config, self.draws = system, system.in_full(config), draws
        self.private, self.post, self._padding = private, post, padding_of(config)
        self._order = np.argsort(numbers)
        self.numbers = numbers[self._order]
        self._reply_bytes = system.reply_bytes(private, config)

    def answer(self, packet: Packet) -> Packet:
        """The reply to an ask, or mail passed on."""
        if packet.kind == Kind.RELAY:
            _, letters = contents_of(packet)
            mixed = self.post.pass_on(letters, packet.round_number)
            return packet.reply(Contents(0, [mail for mail, _ in mixed]), tuple(letter for _, letter in mixed))
        return self._serve(packet)

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
        handler = self.system.handlers[type(request.message)]
        inboxes = self._open(letters, round_number, handler.reads, watch)
        frames: list[Buffer] = []
        sent: list[tuple[Mail, bytes]] = []
        for first, last in cohort_bounds(self._reply_bytes[rows]):
            numbers = request.numbers[first:last]
            cohort = Cohort(numbers, rows[first:last], self.private, round_number, inboxes)
            with watch.at("compute"), np.errstate(all="ignore"):
                reply = handler.answer(cohort, request.message.part(first, last), self.config, self.draws)
                check_own(numbers, reply.message)
            with watch.at("encode"):
                frames.append(encode(reply.message, round_number, numbers, self._padding))
            with watch.at("seal"):
                for sealed in reply.mail:
                    sent += self.post.write(sealed, round_number, packet.sequence)
        contents = Contents(len(frames), [mail for mail, _ in sent], dict(watch.seconds))
        return packet.reply(contents, (*frames, *(letter for _, letter in sent)))

    def _open(
        self,
        letters: list[tuple[Mail, Buffer]],
        round_number: int,
        mail_types: tuple[type[Message], ...],
        watch: Stopwatch,
    ) -> dict[type[Message], Fold]:
        inboxes: dict[type[Message], Fold] = {}
        with watch.at("seal"):
            for place, frame in self.post.read(letters, round_number, mail_types):
                numbers_within(np.unique(frame.numbers), self.numbers)
                kind = type(frame.message)
                if kind not in inboxes:
                    inboxes[kind] = self.system.inboxes[kind](self.private, self.config)
                try:
                    inboxes[kind].add(frame.numbers, frame.message)
                except HushrecError as error:
                    # Other words may quote the letter, which the server must not read.
                    reason = str(error) if isinstance(error, PublicError) else "cannot be used"
                    raise BadLetter(place, reason) from None
        return inboxes
