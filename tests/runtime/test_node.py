"""A node answers as the handlers in one process do, for its own clients only, again and again the same."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from hushrec import settings
from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError, PublicError
from hushrec.privacy.sealing import SealError, new_keys
from hushrec.protocol import Cohort, Message, Transcript, kept_arrays
from hushrec.registry import SYSTEMS
from hushrec.runtime import in_process, node
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.node import Node, Stopwatch
from hushrec.runtime.packets import Contents, Kind, Mail, Packet, about, contents_of, decode_packet, encode_packet
from hushrec.runtime.post import BadLetter, Host, Post
from hushrec.runtime.wire import Frame, WireError, decode, encode
from hushrec.systems.fedrec import ItemGradients, Settle
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, DenoisingSums, ItemFactors, Noise

SYSTEM = SYSTEMS["fedrec++"]
CONFIG = settings.build(SYSTEM.config, {"num_factors": 4, "num_rounds": 3, "rho": 2, "denoisers": 1})
RUN, DRAWS = b"r" * 16, Draws(0)
ROWS = synthetic(12, 20, 100).by_user()
KEYS = [new_keys(), new_keys()]
MEMBERS = (np.array([7, 2, 11, 0, 9], np.int32), np.array([1, 3, 4, 5, 6, 8, 10], np.int32))
"""The first node's rows are in another order than the numbers of its clients."""
HOSTS = [Host(f"node-{place}", KEYS[place].public, np.sort(MEMBERS[place])) for place in (0, 1)]
STATE = SYSTEM.start(12, 20, CONFIG, DRAWS)


def rows_of(numbers: np.ndarray) -> UserRows:
    places = [np.arange(ROWS.starts[number], ROWS.starts[number + 1]) for number in numbers.tolist()]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in places])])
    joined = np.concatenate(places)
    return UserRows(starts, ROWS.items[joined], ROWS.ratings[joined], ROWS.rating_range)


def make_node(place: int, pad_bytes: int = 0) -> Node:
    numbers = MEMBERS[place]
    private = SYSTEM.enrol(numbers, rows_of(numbers), 20, CONFIG, DRAWS)
    post = Post(RUN, HOSTS, f"node-{place}", KEYS[place], lambda below: below - 1, pad_bytes)
    return Node(SYSTEM, CONFIG, DRAWS, numbers, private, post)


def packet(message: Message, numbers: Any, round_number: int = 1, sequence: int = 1, **values: Any) -> Packet:
    frame = encode(message, values.get("frame_round", round_number), np.array(numbers, np.int32))
    letters = values.get("letters", [])
    contents = msgspec.msgpack.encode(Contents(1, [mail for mail, _ in letters]))
    return Packet(Kind.ASK, RUN, round_number, sequence, contents, (frame, *(letter for _, letter in letters)))


def ask(numbers: list[int], denoiser: int = 4, **values: Any) -> Packet:
    counted = np.zeros(len(numbers), np.int32)
    return packet(
        ItemFactors(STATE.item_factors, counted, np.full(len(numbers), denoiser, np.int32)), numbers, **values
    )


def collect(numbers: list[int], **values: Any) -> Packet:
    counted = np.zeros(len(numbers), np.int32)
    return packet(DenoiserFactors(STATE.item_factors, counted), numbers, **{"sequence": 2, **values})


def served(node: Node, request: Packet) -> tuple[list[Frame], list[tuple[Mail, Any]]]:
    """Through bytes, as on a wire."""
    reply = decode_packet(encode_packet(node.answer(decode_packet(encode_packet(request)))))
    assert reply.kind == Kind.REPLY
    assert reply.is_reply_to(request)
    frames, letters = contents_of(reply)
    return [decode(frame, SYSTEM.messages) for frame in frames], letters


@dataclass
class Handled:
    gradients: ItemGradients
    noise: Noise


def handled(numbers: list[int], denoiser: int = 4) -> Handled:
    """What the handler of one process answers for these clients."""
    everyone = np.arange(12, dtype=np.int32)
    private = SYSTEM.enrol(everyone, ROWS, 20, CONFIG, DRAWS)
    cohort = Cohort(np.array(numbers, np.int32), np.array(numbers), private, 1)
    counted = np.zeros(len(numbers), np.int32)
    request = ItemFactors(STATE.item_factors, counted, np.full(len(numbers), denoiser, np.int32))
    reply = SYSTEM.handlers[ItemFactors].answer(cohort, request, CONFIG, DRAWS)
    return Handled(reply.message, reply.mail[0].message)  # type: ignore[arg-type]


def assert_same(one: Any, other: Any) -> None:
    for kind in one.kinds():
        left, right = getattr(one, kind.name), getattr(other, kind.name)
        np.testing.assert_array_equal(left.starts, right.starts)
        np.testing.assert_array_equal(left.values, right.values)


def test_a_node_answers_as_the_handler_in_one_process() -> None:
    for place, numbers in enumerate(([0, 2, 7, 9, 11], [1, 3, 5, 6, 8, 10])):
        [frame], letters = served(make_node(place), ask(numbers))
        assert frame.numbers.tolist() == numbers
        assert frame.round_number == 1
        expected = handled(numbers)
        assert_same(frame.message, expected.gradients)
        [mail] = make_node(1)._open(letters, 1, (Noise,), Stopwatch())[0].values()
        noise = SYSTEM.inboxes[Noise](make_node(1).private, CONFIG)
        noise.add(np.full(len(numbers), 4, np.int32), expected.noise)
        np.testing.assert_array_equal(mail.totals, noise.totals)
        np.testing.assert_array_equal(mail.counts, noise.counts)


def test_cohorts_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """With cohorts of one client there is a frame per client, and the same rows in them."""
    [whole], _ = served(make_node(0), ask([0, 2, 7]))
    monkeypatch.setattr(node, "cohort_bounds", lambda sizes: in_process.cohort_bounds(sizes, 1))
    frames, letters = served(make_node(0), ask([0, 2, 7]))
    assert [frame.numbers.tolist() for frame in frames] == [[0], [2], [7]]
    assert len(letters) == 3
    parts = [frame.message.items.values for frame in frames]
    np.testing.assert_array_equal(np.concatenate(parts), whole.message.items.values)


def test_an_ask_can_come_again() -> None:
    """The same frames, and the same noise under new seals; the private state is that of one ask."""
    asked = make_node(0)
    [first], first_letters = served(asked, ask([0, 2, 7, 9, 11]))
    after = asked.private.user_factors.copy()
    [second], second_letters = served(asked, ask([0, 2, 7, 9, 11]))
    assert_same(first.message, second.message)
    np.testing.assert_array_equal(asked.private.user_factors, after)
    assert bytes(first_letters[0][1]) != bytes(second_letters[0][1])
    opened = [
        make_node(1)._open(letters, 1, (Noise,), Stopwatch())[0][Noise]
        for letters in (first_letters, second_letters)
    ]
    np.testing.assert_array_equal(opened[0].totals, opened[1].totals)


def test_a_denoiser_takes_out_what_came_sealed() -> None:
    """Node 1 hosts the denoiser; the sums that it sends are those of one process."""
    letters = []
    for place, numbers in enumerate(([0, 2, 7, 9, 11], [1, 3, 5, 6, 8, 10])):
        letters += served(make_node(place), ask(numbers))[1]
    [frame], mail = served(make_node(1), collect([4], letters=letters))
    assert isinstance(frame.message, DenoisingSums)
    assert not mail
    private = SYSTEM.enrol(np.arange(12, dtype=np.int32), ROWS, 20, CONFIG, DRAWS)
    runtime = InProcess(SYSTEM, CONFIG, DRAWS, private, Transcript(True), RuntimeOptions(threads=1))
    runtime.run_round(replace(STATE, denoisers=np.array([4], np.int32)), 1)
    [expected] = [sent.message for sent in runtime.transcript.recorded if type(sent.message) is DenoisingSums]
    assert_same(frame.message, expected)


def test_a_denoiser_without_mail_refuses() -> None:
    with pytest.raises(HushrecError, match="got no noise"):
        make_node(1).answer(collect([4]))


def test_where_time_goes_is_told() -> None:
    request = ask([0, 2])
    seconds = about(make_node(0).answer(request), Contents).seconds
    assert set(seconds) == {"decode", "seal", "compute", "encode"}
    assert all(0 <= spent < 60 for spent in seconds.values())


@pytest.mark.parametrize("numbers", [[1], [0, 1], [12], [2, 0], [0, 0], [1000]])
def test_strangers_and_disorder_are_refused(numbers: list[int]) -> None:
    asked = make_node(0)
    before = asked.private.user_factors.copy()
    with pytest.raises(WireError, match="not of this node, or not in order"):
        asked.answer(ask(numbers))
    np.testing.assert_array_equal(asked.private.user_factors, before)


def test_an_ask_for_nobody_is_answered_with_nothing() -> None:
    frames, letters = served(make_node(0), ask([]))
    assert (frames, letters) == ([], [])


def test_frames_that_are_no_ask_are_refused() -> None:
    asked, good = make_node(0), ask([0, 2])
    two = msgspec.msgpack.encode(Contents(2))
    with pytest.raises(WireError, match="one frame"):
        asked.answer(replace(good, about=two, sections=(good.sections[0],) * 2))
    with pytest.raises(WireError, match="one frame"):
        asked.answer(replace(good, about=msgspec.msgpack.encode(Contents(0)), sections=()))
    with pytest.raises(WireError, match="another round"):
        asked.answer(ask([0, 2], frame_round=2))
    gradients = served(asked, good)[0][0]
    for message in (gradients.message, handled([0, 2]).noise):
        with pytest.raises(WireError, match="type that is not expected"):
            asked.answer(packet(message, [0, 2]))
    for frame in (b"", bytes(good.sections[0])[:-4], bytes(good.sections[0]) + bytes(4)):
        with pytest.raises(WireError):
            asked.answer(replace(good, sections=(frame,)))


def test_bad_mail_is_refused_before_anybody_trains() -> None:
    letters = served(make_node(0), ask([0, 2, 7]))[1]
    [(mail, letter)] = letters
    asked = make_node(1)
    before = {name: array.copy() for name, array in kept_arrays(asked.private).items()}
    assert "user_factors" in before
    altered = bytearray(letter)
    altered[40] ^= 1
    for held in (
        [(mail, bytes(altered))],
        letters * 2,
        [(Mail(5, mail.code, mail.sequence), letter)],
        [(Mail(mail.addressee, mail.code, 7), letter)],
        [(Mail(mail.addressee, 7, mail.sequence), letter)],
    ):
        with pytest.raises((SealError, BadLetter)):
            asked.answer(collect([4], letters=held))
    with pytest.raises(BadLetter):
        make_node(0).answer(collect([0], letters=letters))
    with pytest.raises(BadLetter):
        asked.answer(collect([4], letters=letters, round_number=2))
    for name, array in kept_arrays(asked.private).items():
        np.testing.assert_array_equal(array, before[name])


def test_mail_that_the_handler_does_not_read_is_not_opened() -> None:
    """A server may attach letters to any ask; one process gives a handler only what it reads."""
    letters = served(make_node(0), ask([0, 2, 7]))[1]
    asked = make_node(1)
    before = asked.private.user_factors.copy()
    with pytest.raises(SealError, match="unknown type"):
        asked.answer(ask([4], denoiser=-1, letters=letters))
    np.testing.assert_array_equal(asked.private.user_factors, before)
    served(asked, collect([4], letters=letters))


class Unhappy:
    """An inbox that does not take what comes, and quotes it."""

    def __init__(self, error: HushrecError) -> None:
        self._error = error

    def add(self, _numbers: Any, _message: Message) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HushrecError("the rating 4.75 of film-003 is odd"), "letter 1: cannot be used"),
        (PublicError("rows of 3 numbers, not 4"), "letter 1: rows of 3 numbers, not 4"),
    ],
)
def test_what_an_inbox_says_of_a_letter_is_told_only_if_it_is_public(error: HushrecError, told: str) -> None:
    letters = served(make_node(0), ask([0, 2, 7]))[1]
    asked = make_node(1)
    asked.system = replace(SYSTEM, inboxes={Noise: lambda _private, _config: Unhappy(error)})
    with pytest.raises(BadLetter) as refused:
        asked.answer(collect([4], letters=letters))
    assert str(refused.value) == told
    assert isinstance(refused.value, PublicError)


def test_a_relay_packet_is_passed_on_unread() -> None:
    writer, relay = make_node(0, 2048), make_node(1, 2048)
    _, letters = served(writer, ask([0, 2, 7]))
    assert [mail.relay for mail, _ in letters] == ["node-1"]
    contents = msgspec.msgpack.encode(Contents(0, [mail for mail, _ in letters]))
    held = tuple(letter for _, letter in letters)
    frames, passed = served(relay, Packet(Kind.RELAY, RUN, 1, 3, contents, held))
    assert frames == []
    assert [(mail.addressee, mail.sequence) for mail, _ in passed] == [(4, 1)]
    assert {len(letter) for _, letter in letters} == {len(letter) + 52 for _, letter in passed}


def test_settled_clients_keep_the_final_model() -> None:
    asked = make_node(0)
    served(asked, ask([0, 2, 7, 9, 11]))
    trained = asked.private.user_factors.copy()
    numbers = [0, 2, 7, 9, 11]
    served(asked, packet(Settle(STATE.item_factors, np.array([1, 1, 0, 1, 0], np.int32)), numbers, sequence=4))
    np.testing.assert_array_equal(asked.private.item_factors, STATE.item_factors)
    start = SYSTEM.enrol(MEMBERS[0], rows_of(MEMBERS[0]), 20, CONFIG, DRAWS).user_factors
    is_undone = np.isin(MEMBERS[0], [7, 11])
    np.testing.assert_array_equal(asked.private.user_factors[is_undone], start[is_undone])
    np.testing.assert_array_equal(asked.private.user_factors[~is_undone], trained[~is_undone])


def test_a_stopwatch_adds_up_even_when_a_block_fails() -> None:
    watch = Stopwatch()
    with watch.at("a"):
        pass
    first = watch.seconds["a"]
    with pytest.raises(ZeroDivisionError), watch.at("a"):
        _ = 1 / 0
    assert watch.seconds["a"] > first >= 0
