"""Mail between nodes arrives at its addressee and nowhere else, once, in its own round and ask."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.privacy.sealing import (
    INSIDE_BYTES,
    Binding,
    ForgedError,
    PublicKeys,
    SealError,
    Written,
    new_keys,
    pad,
    write_letter,
)
from hushrec.protocol import Message, Numbers, Ragged, Role, Sealed, ragged, writer_number
from hushrec.runtime.packets import Mail
from hushrec.runtime.post import BadLetter, Host, Post, check_writer, numbers_within
from hushrec.runtime.wire import Frame, WireError, code_of, encode

RUN = b"r" * 16
WRITTEN = Written("node-0")
KEYS = [new_keys() for _ in range(4)]
MEMBERS = ([0, 5], [1, 2], [3], [4, 6, 7])
HOSTS = [
    Host(f"node-{place}", KEYS[place].public, np.array(numbers, np.int32)) for place, numbers in enumerate(MEMBERS)
]


@dataclass(frozen=True, eq=False)
class Letter(Message):
    """Reveals: words."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    words: Any = ragged(np.int32)


@dataclass(frozen=True, eq=False)
class Other(Message):
    """Reveals: words."""

    sender, receiver = Role.CLIENT, Role.DENOISER
    words: Any = ragged(np.int32)


@dataclass(frozen=True, eq=False)
class Named(Message):
    """Reveals: who wrote."""

    sender, receiver = Role.CLIENT, Role.CLIENT
    number: Numbers = writer_number()


def choose_last(below: int) -> int:
    return below - 1


def post(
    place: int, pad_bytes: int = 0, choose: Callable[[int], int] = choose_last, hosts: list[Host] = HOSTS
) -> Post:
    return Post(RUN, hosts, hosts[place].name, KEYS[place], choose, pad_bytes)


def letters_to(*addressees: int) -> Sealed:
    """Party k sends k + 1 words, all of them 10 k."""
    lengths = np.arange(1, len(addressees) + 1)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    words = np.repeat(10 * np.arange(len(addressees), dtype=np.int32), lengths)
    return Sealed(Letter(Ragged(starts, words)), np.array(addressees, np.int32))


def words(frames: list[Frame]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for frame in frames:
        for place, number in enumerate(frame.numbers.tolist()):
            found.setdefault(number, []).extend(frame.message.words.part(place, place + 1).values.tolist())
    return found


def written(sealed: Sealed, sender: int = 0, pad_bytes: int = 0) -> list[tuple[Mail, bytes]]:
    return list(post(sender, pad_bytes).write([sealed], 3, 9))


def read(place: int, letters: list[tuple[Mail, Any]], round_number: int = 3, pad_bytes: int = 0) -> list[Frame]:
    return [letter.frame for letter in post(place, pad_bytes).read(letters, round_number, [Letter])]


def refused(place: int, letters: list[tuple[Mail, Any]], round_number: int = 3, match: str = ".") -> None:
    with pytest.raises((SealError, BadLetter), match=match) as caught:
        read(place, letters, round_number)
    assert "\n" not in str(caught.value)


def test_mail_goes_under_one_seal_per_addressee() -> None:
    letters = written(letters_to(4, 1, 4, -1, 6))
    assert [(mail.addressee, mail.sequence, mail.relay) for mail, _ in letters] == [
        (1, 9, ""),
        (4, 9, ""),
        (6, 9, ""),
    ]
    assert words(read(1, letters[:1])) == {1: [10, 10]}
    assert words(read(3, letters[1:])) == {4: [0, 20, 20, 20], 6: [40] * 5}


def test_mail_to_oneself_is_sealed_too() -> None:
    [(mail, letter)] = written(letters_to(5))
    assert words(read(0, [(mail, letter)])) == {5: [0]}
    assert encode(letters_to(5).message, 3, np.array([5], np.int32)) not in letter


def test_nothing_of_a_letter_shows() -> None:
    """Neither the frame, nor any 8 bytes of its rows; two seals of one frame share nothing but chance."""
    message = Letter(Ragged(np.array([0, 64]), np.arange(1_000_000, 1_000_064, dtype=np.int32)))
    sealed = Sealed(message, np.array([3], np.int32))
    (_, one), (_, other) = *written(sealed), *written(sealed)
    rows = message.words.values.tobytes()
    for place in range(0, len(rows) - 8, 4):
        assert rows[place : place + 8] not in one
    assert one[:32] != other[:32]
    assert one[32:] != other[32:]


@pytest.mark.parametrize("sender", range(4))
def test_onions_have_one_size_and_come_through_a_third_node(sender: int) -> None:
    sealed = letters_to(0, 1, 3, 4, 6, 7, 2, 4, 4)
    letters = written(sealed, sender, pad_bytes=512)
    assert {len(letter) for _, letter in letters} == {512 + INSIDE_BYTES + 2 * 48 + 4}
    assert [mail.addressee for mail, _ in letters] == [-1] * len(letters)
    found: list[tuple[Mail, bytes]] = []
    for place in range(4):
        held = [(mail, letter) for mail, letter in letters if mail.relay == f"node-{place}"]
        assert place != sender or not held
        passed = post(place, 512).pass_on(held, 3)
        assert {mail.relay for mail, _ in passed} <= {""}
        assert not {mail.addressee for mail, _ in passed} & set(MEMBERS[place])
        found += passed
    assert {len(letter) for _, letter in found} == {512 + INSIDE_BYTES + 48}
    for place, numbers in enumerate(MEMBERS):
        own = [(mail, letter) for mail, letter in found if mail.addressee in numbers]
        expected = {
            number: [
                10 * sent for sent, to in enumerate(sealed.addressees) if to == number for _ in range(sent + 1)
            ]
            for number in set(numbers) & set(sealed.addressees.tolist())
        }
        assert words(read(place, own, pad_bytes=512)) == expected


@pytest.mark.parametrize("num_hosts", [1, 2])
def test_an_onion_of_few_nodes_goes_through_whom_there_is(num_hosts: int) -> None:
    """Of two nodes the other relays, even to itself; a single node relays its own."""
    hosts = HOSTS[:num_hosts]
    sealed = letters_to(*(number for host in hosts for number in host.numbers.tolist()))
    letters = list(post(0, 256, hosts=hosts).write([sealed], 3, 9))
    assert {mail.relay for mail, _ in letters} == {f"node-{num_hosts - 1}"}
    passed = post(num_hosts - 1, 256, hosts=hosts).pass_on(letters, 3)
    assert sorted(mail.addressee for mail, _ in passed) == sorted(sealed.addressees.tolist())


def test_relays_are_drawn_among_all_thirds() -> None:
    drawn = np.random.default_rng(0)
    writer = post(0, 256, lambda below: int(drawn.integers(below)))
    relays = [mail.relay for _ in range(60) for mail, _ in writer.write([letters_to(1)], 3, 9)]
    assert set(relays) == {"node-2", "node-3"}
    assert 15 < relays.count("node-2") < 45  # false alarm: 1e-4


def test_a_relay_mixes_what_it_passes_on() -> None:
    """All 6 orders of 3 letters come; with a chooser that never swaps, the order stays."""
    letters = [entry for entry in written(letters_to(1, 2, 4), pad_bytes=256) if entry[0].relay == "node-3"]
    letters = [*letters, *(entry for entry in written(letters_to(3), pad_bytes=256))]
    assert [mail.relay for mail, _ in letters] == ["node-3"] * 3
    assert [mail.addressee for mail, _ in post(3, 256).pass_on(letters, 3)] == [1, 2, 3]
    drawn = np.random.default_rng(0)
    relay = post(3, 256, lambda below: int(drawn.integers(below)))
    orders = {tuple(mail.addressee for mail, _ in relay.pass_on(letters, 3)) for _ in range(80)}
    assert len(orders) == 6


def test_a_relay_opens_only_outer_layers_meant_for_it() -> None:
    letters = written(letters_to(1), pad_bytes=256)
    [(mail, letter)] = letters
    for place, held, round_number in (
        (2, letters, 3),
        (3, letters, 4),
        (3, [(Mail(-1, mail.code, 8), letter)], 3),
        (3, [(Mail(-1, mail.code + 1, 9), letter)], 3),
        (3, [(mail, letter[:-1])], 3),
        (3, written(letters_to(4)), 3),
    ):
        with pytest.raises(SealError):
            post(place, 256).pass_on(held, round_number)


def test_the_letter_that_cannot_be_used_is_named_by_its_place() -> None:
    letters = written(letters_to(4, 6, 7))
    mail, letter = letters[1]
    with pytest.raises(BadLetter, match=r"^letter 2: a letter is not signed by") as caught:
        read(3, [letters[0], (mail, letter[:-1]), letters[2]])
    assert caught.value.place == 1


def test_who_is_away_relays_nothing() -> None:
    drawn = np.random.default_rng(0)
    writer = Post(RUN, HOSTS, "node-0", KEYS[0], lambda below: int(drawn.integers(below)), 256, away=["node-2"])
    for _ in range(20):
        assert {mail.relay for mail, _ in writer.write([letters_to(0, 1, 4)], 3, 9)} <= {"node-1", "node-3"}


def test_altered_mail_is_refused() -> None:
    [(mail, letter)] = written(letters_to(1))
    for place in range(len(letter)):
        altered = bytearray(letter)
        altered[place] ^= 1
        refused(1, [(mail, bytes(altered))])
    for changed in (b"", letter[:31], letter[:-1], letter + b"\0"):
        refused(1, [(mail, changed)])


def test_mail_elsewhere_is_refused() -> None:
    """Of another round, ask, type or run, to another client of the node, or to another node."""
    [(mail, letter)] = written(letters_to(1))
    refused(1, [(mail, letter)], round_number=4)
    refused(1, [(mail, letter)], round_number=2)
    refused(1, [(msg(mail, sequence=8), letter)])
    refused(1, [(msg(mail, addressee=2), letter)])
    refused(2, [(mail, letter)])
    refused(1, [(msg(mail, code=code_of(Other)), letter)])
    stranger = Post(b"s" * 16, HOSTS, "node-1", KEYS[1], choose_last)
    with pytest.raises(BadLetter):
        list(stranger.read([(mail, letter)], 3, [Letter]))


def msg(mail: Mail, **changes: Any) -> Mail:
    values = {
        "addressee": mail.addressee,
        "code": mail.code,
        "sequence": mail.sequence,
        "relay": mail.relay,
        "writer": mail.writer,
    }
    return Mail(**{**values, **changes})


@pytest.mark.parametrize("number", [-1, 2**32, -5])
def test_impossible_numbers_outside_are_refused(number: int) -> None:
    [(mail, letter)] = written(letters_to(1))
    refused(1, [(msg(mail, addressee=number), letter)])
    refused(1, [(msg(mail, sequence=-1), letter)])


def test_a_letter_is_taken_from_its_writer_alone() -> None:
    """By who carries it: a sound letter of node-0 under another name, or from somebody else, is no letter."""
    [(mail, letter)] = written(letters_to(4))
    own, other = (KEYS[place].public.signing for place in (0, 1))
    check_writer(mail, letter, RUN, 3, "node-0", own)
    with pytest.raises(ForgedError, match="sent mail in another's name"):
        check_writer(msg(mail, writer="node-1"), letter, RUN, 3, "node-0", own)
    with pytest.raises(ForgedError, match="sent mail in another's name"):
        check_writer(mail, letter, RUN, 3, "node-1", other)
    with pytest.raises(ForgedError, match="not signed"):
        check_writer(msg(mail, writer="node-1"), letter, RUN, 3, "node-1", other)


def test_mail_delivered_twice_is_refused() -> None:
    letters = written(letters_to(4, 6))
    assert len(read(3, letters)) == 2
    refused(3, [*letters, letters[0]], match="twice")
    refused(3, [letters[1], letters[1]], match="twice")


def test_mail_of_two_asks_at_once_is_refused() -> None:
    earlier = list(post(0).write([letters_to(4)], 3, 8))
    later = list(post(0).write([letters_to(6)], 3, 9))
    refused(3, earlier + later, match="several asks")


def test_unknown_types_are_refused() -> None:
    message = Other(Ragged(np.array([0, 1]), np.array([1], np.int32)))
    letters = list(post(0).write([Sealed(message, np.array([1], np.int32))], 3, 9))
    refused(1, letters, match="unknown type")


def test_the_inside_must_fit_the_outside() -> None:
    """A node that seals what it likes: another round, another addressee, a frame of garbage, another type."""
    message = letters_to(1).message

    def sealed(frame: bytes) -> list[tuple[Mail, bytes]]:
        bound = Binding(RUN, 3, 9, code_of(Letter), 1)
        return [
            (
                Mail(1, code_of(Letter), 9, writer="node-0"),
                write_letter(frame, HOSTS[1].keys.mail, bound, WRITTEN, KEYS[0].signing),
            )
        ]

    def one(number: int) -> np.ndarray:
        return np.array([number], np.int32)

    assert words(read(1, sealed(encode(message, 3, one(1))))) == {1: [0]}
    refused(1, sealed(encode(message, 4, one(1))), match="not fit the outside")
    refused(1, sealed(encode(message, 3, one(2))), match="not fit the outside")
    refused(1, sealed(b""), match="frame")
    refused(1, sealed(encode(message, 3, one(1))[:-1]))
    refused(1, sealed(encode(Other(message.words), 3, one(1))), match="type")
    refused(1, sealed(pad(encode(message, 3, one(1)), 64)))


def test_mail_to_nobody_is_refused() -> None:
    for number in (8, 1000):
        with pytest.raises(SealError, match="does not exist"):
            written(letters_to(number))


def test_mail_to_a_client_whose_node_never_came_is_not_written() -> None:
    """Between those who are hosted, or behind the last of them."""
    some = [HOSTS[0], HOSTS[2]]
    writer = Post(RUN, some, "node-0", KEYS[0], choose_last, num_clients=8)
    assert [mail.addressee for mail, _ in writer.write([letters_to(2, 3, 7)], 3, 9)] == [3]
    with pytest.raises(SealError, match="does not exist"):
        list(writer.write([letters_to(8)], 3, 9))


def test_an_addressees_bad_key_is_refused() -> None:
    hosts = [HOSTS[0], replace(HOSTS[1], keys=PublicKeys(bytes(32), HOSTS[1].keys.signing))]
    with pytest.raises(HushrecError, match="not an X25519 key"):
        list(Post(RUN, hosts, "node-0", KEYS[0], choose_last).write([letters_to(1)], 3, 9))


def test_numbers_within_are_found_or_refused() -> None:
    members = np.array([2, 5, 9], np.int32)
    assert numbers_within(np.array([2, 9], np.int32), members).tolist() == [0, 2]
    assert numbers_within(np.array([], np.int32), members).tolist() == []
    for numbers in ([3], [10], [1], [5, 2], [5, 5], [2, 5, 9, 10], [2, 3, 9]):
        with pytest.raises(WireError, match="not of this node, or not in order"):
            numbers_within(np.array(numbers, np.int32), members)


@pytest.mark.parametrize("pad_bytes", [0, 256])
def test_nobody_writes_in_the_name_of_anothers_party(pad_bytes: int) -> None:
    """node-0 has parties 0 and 5. It writes as one of these, and neither as another's nor as who is unknown."""

    def letters(*numbers: int) -> list[tuple[Mail, bytes]]:
        sealed = Sealed(Named(np.array(numbers, np.int32)), np.full(len(numbers), 3, np.int32))
        found = list(post(0, pad_bytes).write([sealed], 3, 9))
        return post(3, pad_bytes).pass_on(found, 3) if pad_bytes else found

    [opened] = post(2, pad_bytes).read(letters(0, 5), 3, [Named])
    assert opened.frame.message.number.tolist() == [0, 5]
    for forged in ((1,), (0, 4), (8,), (2**31 - 1,)):
        with pytest.raises(BadLetter, match="in the name of a party that its writer does not host"):
            list(post(2, pad_bytes).read(letters(*forged), 3, [Named]))
