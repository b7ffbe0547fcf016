"""Mail between nodes: who hosts whom, and how letters are sealed, signed, relayed and opened.

The server relays every letter and reads none. All letters of a cohort to one client in one ask go under one seal,
so the server does not see the size of any single client's mail. Each is signed by its node, and numbered among
those to the same client, so that none is missing, there twice or somebody else's. With an onion all letters have
the same size, and go through a third node, and the signature is inside, so that the server does not see which node
wrote to whom. Else they are padded as frames are, and signed on the outside, where the server checks it, too.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import PublicError
from hushrec.privacy.sealing import (
    INSIDE_BYTES,
    Binding,
    ForgedError,
    Keys,
    PublicKeys,
    SealError,
    Written,
    check_letter,
    open_letter,
    open_sealed,
    opened_inside,
    pad,
    peel,
    seal,
    signed_inside,
    unpad,
    wrap,
    write_letter,
)
from hushrec.protocol import Message, Numbers, Sealed
from hushrec.protocol.padding import Padding
from hushrec.runtime.packets import Buffer, Mail
from hushrec.runtime.wire import Frame, WireError, code_of, decode, encode


@dataclass(frozen=True)
class Host:
    """A node as others know it."""

    name: str
    keys: PublicKeys
    numbers: Numbers  # of its clients, ascending


class BadLetter(PublicError):
    """A letter that cannot be used, by its place in the packet. Its reason is told to the server."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(f"letter {place + 1}: {reason}")
        self.place = place


@dataclass(frozen=True)
class Opened:
    """A letter that came: its place in the packet, who wrote it, and what is in it."""

    place: int
    writer: str
    frame: Frame


def check_writer(mail: Mail, letter: Buffer, run_id: bytes, round_number: int, name: str, key: bytes) -> None:
    """Refuse a letter on its way that is not signed by the node that sent it, if it shows who wrote it."""
    if mail.relay:
        return  # the signature is inside
    if mail.writer != name:
        raise ForgedError("sent mail in another's name")
    check_letter(letter, Binding(run_id, round_number, mail.sequence, mail.code, mail.addressee), name, key)


class Post:
    """One node's mail, in and out."""

    def __init__(
        self,
        run_id: bytes,
        hosts: Sequence[Host],
        own_name: str,
        keys: Keys,
        choose: Callable[[int], int],  # a secret random number below n
        pad_bytes: int = 0,  # 0: no padding, no onion
        away: Collection[str] = (),  # hosts that cannot relay
        num_clients: int = 0,  # of the run, if there are more than the hosts have
        padding: Padding = "none",  # of frames
    ) -> None:
        self._run_id, self._hosts, self._keys = run_id, hosts, keys
        self._writers = [(host.name, host.keys.signing) for host in hosts]
        self._present = [place for place, host in enumerate(hosts) if host.name not in away]
        self._choose, self._pad_bytes = choose, pad_bytes
        self._padding: Padding = "none" if pad_bytes else padding
        self._own = [host.name for host in hosts].index(own_name)
        hosted = 1 + max(int(host.numbers[-1]) for host in hosts)
        self._host_of = np.full(max(hosted, num_clients), -1, np.int64)
        for place, host in enumerate(hosts):
            self._host_of[host.numbers] = place

    def write(self, mail: Sequence[Sealed], round_number: int, sequence: int) -> Iterator[tuple[Mail, bytes]]:
        """One letter per cohort and addressee; those of all cohorts of an ask are written in one go."""
        parts: dict[tuple[int, int], list[tuple[Sealed, NDArray[np.int64]]]] = defaultdict(list)
        for sealed in mail:
            code = code_of(type(sealed.message))
            for addressee in np.unique(sealed.addressees[sealed.addressees >= 0]).tolist():
                parts[code, addressee].append((sealed, np.flatnonzero(sealed.addressees == addressee)))
        for (code, addressee), of_cohorts in parts.items():
            host = self._host(addressee)
            if host < 0:
                continue  # its node never took part; the server will do without it
            bound = self._bound(round_number, sequence, code, addressee)
            for part, (sealed, places) in enumerate(of_cohorts):
                is_all = len(places) == len(sealed.addressees)
                message = sealed.message if is_all else sealed.message.take(places)
                frame = encode(message, round_number, sealed.addressees[places], self._padding)
                written = Written(self._hosts[self._own].name, part, len(of_cohorts))
                yield self._letter(frame, host, bound, written)

    def _letter(self, frame: bytes, host: int, bound: Binding, written: Written) -> tuple[Mail, bytes]:
        addressee, key, code = bound.addressee, self._hosts[host].keys.mail, bound.message_code
        if not self._pad_bytes:
            letter = write_letter(frame, key, bound, written, self._keys.signing)
            return Mail(addressee, code, bound.sequence, writer=written.writer), letter
        inside = signed_inside(frame, self._own, bound, written, self._keys.signing)
        sealed = seal(pad(inside, self._pad_bytes + INSIDE_BYTES), key, bound)
        relay = self._relay_for(host)
        outside = self._bound(bound.round_number, bound.sequence, code, relay)
        outer = wrap(sealed, addressee, self._hosts[relay].keys.mail, outside)
        return Mail(-1, code, bound.sequence, self._hosts[relay].name), outer

    def pass_on(self, letters: list[tuple[Mail, Buffer]], round_number: int) -> list[tuple[Mail, bytes]]:
        """Take the outer layer off letters that come through this node, and mix them."""
        inner = []
        for mail, outer in letters:
            bound = self._bound(round_number, mail.sequence, mail.code, self._own)
            addressee, letter = peel(outer, self._keys.mail, bound)
            inner.append((Mail(addressee, mail.code, mail.sequence), letter))
        for place in range(len(inner) - 1, 0, -1):  # Fisher-Yates
            other = self._choose(place + 1)
            inner[place], inner[other] = inner[other], inner[place]
        return inner

    def read(
        self, letters: list[tuple[Mail, Buffer]], round_number: int, mail_types: Sequence[type[Message]]
    ) -> Iterator[Opened]:
        """Open letters to clients of this node, each once, all of a type from the same ask.

        Every letter is signed by its writer, a host of the run, and all are there that it wrote to a client.
        """
        types = {code_of(kind): kind for kind in mail_types}
        sequences: dict[int, int] = {}
        came: dict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)  # of a writer: parts, and how many
        for place, (mail, letter) in enumerate(letters):
            if mail.code not in types or sequences.setdefault(mail.code, mail.sequence) != mail.sequence:
                raise SealError("mail of an unknown type, or of several asks at once")
            try:
                written, frame = self._open(mail, letter, round_number, types[mail.code])
            except (SealError, WireError) as error:
                raise BadLetter(place, str(error)) from None
            parts = came[written.writer, mail.code, mail.addressee]
            if written.part in parts:
                raise SealError("the same letter came twice")
            parts[written.part] = written.num_parts
            yield Opened(place, written.writer, frame)
        if any(set(parts.values()) != {len(parts)} for parts in came.values()):
            raise SealError("a letter is missing of those that its writer has numbered; deliver all of them")

    def _open(self, mail: Mail, letter: Buffer, round_number: int, kind: type[Message]) -> tuple[Written, Frame]:
        bound = self._bound(round_number, mail.sequence, mail.code, mail.addressee)
        if self._pad_bytes:
            content = unpad(open_sealed(letter, self._keys.mail, bound))
            written, inside = opened_inside(content, bound, self._writers)
        else:
            key = dict(self._writers).get(mail.writer)
            if key is None:
                raise ForgedError("a letter of a writer that is no host of this run; drop it")
            written, inside = open_letter(letter, self._keys.mail, bound, mail.writer, key)
        # As in `decode_packet`: views that can be written to.
        frame = decode(bytearray(inside), (kind,), padding=self._padding)
        if frame.round_number != round_number or (frame.numbers != mail.addressee).any():
            raise WireError("the inside does not fit the outside")
        self._check_names(frame.message, written.writer)
        return written, frame

    def _check_names(self, message: Message, writer: str) -> None:
        """What says which party wrote it names parties of the node that signed it, not another's."""
        place = [host.name for host in self._hosts].index(writer)
        for kind in message.kinds():
            if kind.names_writer:
                numbers = getattr(message, kind.name)
                is_known = numbers.max(initial=0) < len(self._host_of)
                if not is_known or (self._host_of[numbers] != place).any():
                    raise ForgedError("a letter in the name of a party that its writer does not host; drop it")

    def _bound(self, round_number: int, sequence: int, code: int, addressee: int) -> Binding:
        return Binding(self._run_id, round_number, sequence, code, addressee)

    def _host(self, addressee: int) -> int:
        if addressee >= len(self._host_of):
            raise SealError("mail to a client that does not exist")
        return int(self._host_of[addressee])

    def _relay_for(self, host: int) -> int:
        """Any node but the writer's and the addressee's, if there is one."""
        others = [place for place in self._present if place not in (self._own, host)]
        others = others or [place for place in self._present if place != self._own] or [self._own]
        return others[self._choose(len(others))]


def numbers_within(numbers: Numbers, members: Numbers) -> NDArray[np.int64]:
    """Places of `numbers` in `members`, both ascending; a stranger is refused."""
    places = np.searchsorted(members, numbers)
    is_known = len(numbers) == 0 or (places[-1] < len(members) and bool((members[places] == numbers).all()))
    if not is_known or (np.diff(numbers) <= 0).any():
        raise WireError("a frame for clients that are not of this node, or not in order")
    return places
