"""Mail between nodes: who hosts whom, and how letters are sealed, relayed and opened.

The server relays every letter and reads none. All letters of a node to one client in one ask go under one seal, so
the server does not see the size of any single client's mail. With an onion all letters have the same size, and go
through a third node, so that the server does not see which node wrote to whom. Else they are padded as frames are.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import PublicError
from hushrec.privacy.sealing import Binding, SealError, open_sealed, pad, peel, seal, unpad, wrap
from hushrec.protocol import Message, Numbers, Sealed
from hushrec.protocol.padding import Padding
from hushrec.runtime.packets import Buffer, Mail
from hushrec.runtime.wire import Frame, WireError, code_of, decode, encode


@dataclass(frozen=True)
class Host:
    """A node as others know it."""

    name: str
    public_key: bytes
    numbers: Numbers  # of its clients, ascending


class BadLetter(PublicError):
    """A letter that cannot be used, by its place in the packet. Its reason is told to the server."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(f"letter {place + 1}: {reason}")
        self.place = place


class Post:
    """One node's mail, in and out."""

    def __init__(
        self,
        run_id: bytes,
        hosts: Sequence[Host],
        own_name: str,
        private_key: bytes,
        choose: Callable[[int], int],  # a secret random number below n
        pad_bytes: int = 0,  # 0: no padding, no onion
        away: Collection[str] = (),  # hosts that cannot relay
        num_clients: int = 0,  # of the run, if there are more than the hosts have
        padding: Padding = "none",  # of frames
    ) -> None:
        self._run_id, self._hosts, self._private_key = run_id, hosts, private_key
        self._present = [place for place, host in enumerate(hosts) if host.name not in away]
        self._choose, self._pad_bytes = choose, pad_bytes
        self._padding: Padding = "none" if pad_bytes else padding
        self._own = [host.name for host in hosts].index(own_name)
        hosted = 1 + max(int(host.numbers[-1]) for host in hosts)
        self._host_of = np.full(max(hosted, num_clients), -1, np.int64)
        for place, host in enumerate(hosts):
            self._host_of[host.numbers] = place

    def write(self, sealed: Sealed, round_number: int, sequence: int) -> Iterator[tuple[Mail, bytes]]:
        """One letter per addressee."""
        code = code_of(type(sealed.message))
        for addressee in np.unique(sealed.addressees[sealed.addressees >= 0]).tolist():
            places = np.flatnonzero(sealed.addressees == addressee)
            is_all = len(places) == len(sealed.addressees)
            message = sealed.message if is_all else sealed.message.take(places)
            host = self._host(addressee)
            if host < 0:
                continue  # its node never took part; the server will do without it
            frame = encode(message, round_number, sealed.addressees[places], self._padding)
            content = pad(frame, self._pad_bytes) if self._pad_bytes else frame
            letter = seal(
                content, self._hosts[host].public_key, self._bound(round_number, sequence, code, addressee)
            )
            if not self._pad_bytes:
                yield Mail(addressee, code, sequence), letter
                continue
            relay = self._relay_for(host)
            bound = self._bound(round_number, sequence, code, relay)
            outer = wrap(letter, addressee, self._hosts[relay].public_key, bound)
            yield Mail(-1, code, sequence, self._hosts[relay].name), outer

    def pass_on(self, letters: list[tuple[Mail, Buffer]], round_number: int) -> list[tuple[Mail, bytes]]:
        """Take the outer layer off letters that come through this node, and mix them."""
        inner = []
        for mail, outer in letters:
            bound = self._bound(round_number, mail.sequence, mail.code, self._own)
            addressee, letter = peel(outer, self._private_key, bound)
            inner.append((Mail(addressee, mail.code, mail.sequence), letter))
        for place in range(len(inner) - 1, 0, -1):  # Fisher-Yates
            other = self._choose(place + 1)
            inner[place], inner[other] = inner[other], inner[place]
        return inner

    def read(
        self, letters: list[tuple[Mail, Buffer]], round_number: int, mail_types: Sequence[type[Message]]
    ) -> Iterator[tuple[int, Frame]]:
        """Open letters to clients of this node, each once, all of a type from the same ask; with their places."""
        types = {code_of(kind): kind for kind in mail_types}
        sequences: dict[int, int] = {}
        if len({bytes(letter[:32]) for _, letter in letters}) < len(letters):
            raise SealError("the same letter came twice")
        for place, (mail, letter) in enumerate(letters):
            if mail.code not in types or sequences.setdefault(mail.code, mail.sequence) != mail.sequence:
                raise SealError("mail of an unknown type, or of several asks at once")
            try:
                yield place, self._open(mail, letter, round_number, types[mail.code])
            except (SealError, WireError) as error:
                raise BadLetter(place, str(error)) from None

    def _open(self, mail: Mail, letter: Buffer, round_number: int, kind: type[Message]) -> Frame:
        bound = self._bound(round_number, mail.sequence, mail.code, mail.addressee)
        content = open_sealed(letter, self._private_key, bound)
        # As in `decode_packet`: views that can be written to.
        frame = decode(bytearray(unpad(content) if self._pad_bytes else content), (kind,), padding=self._padding)
        if frame.round_number != round_number or (frame.numbers != mail.addressee).any():
            raise WireError("the inside does not fit the outside")
        return frame

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
