"""The runtime over a network equals the one in this process; a node that does not answer as it should is lost."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from hushrec import settings
from hushrec.data.interactions import UserRows
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.sealing import new_keys
from hushrec.protocol import Ask, Ragged, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.calling import Caller, NodesLost, RefusedForGood
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.node import Node
from hushrec.runtime.over_network import OverNetwork
from hushrec.runtime.packets import (
    Contents,
    Kind,
    Mail,
    Packet,
    Refusal,
    contents_of,
    decode_packet,
    encode_packet,
)
from hushrec.runtime.post import Host, Post
from hushrec.runtime.transport import Delivery
from hushrec.runtime.wire import code_of, decode, encode
from hushrec.systems.fedrec_plus_plus import ItemGradients, Noise

SYSTEM, DRAWS, RUN = SYSTEMS["fedrec++"], Draws(0), b"r" * 16
CONFIG = settings.build(SYSTEM.config, {"num_factors": 4, "num_rounds": 3, "rho": 2, "denoisers": 3})
NUM_CLIENTS, NUM_ITEMS = 15, 25
ROWS = synthetic(NUM_CLIENTS, NUM_ITEMS, 130).by_user()
KEYS = {f"node-{place}": new_keys() for place in (1, 2, 3)}
VICTIM = "node-1"  # hosts two of the three denoisers
MEMBERS = {name: np.arange(place, NUM_CLIENTS, 3, dtype=np.int32) for place, name in enumerate(KEYS)}


def rows_of(numbers: np.ndarray) -> UserRows:
    places = [np.arange(ROWS.starts[number], ROWS.starts[number + 1]) for number in numbers.tolist()]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in places])])
    joined = np.concatenate(places)
    return UserRows(starts, ROWS.items[joined], ROWS.ratings[joined], ROWS.rating_range)


Change = Callable[[bytes], bytes | None]


class Hub:
    """Nodes behind a transport; `change` is asked about every reply, None loses it."""

    def __init__(
        self, pad_bytes: int = 0, change: Callable[[str, str, bytes], bytes | None] | None = None
    ) -> None:
        self.change = change or (lambda _name, _phase, reply: reply)
        self.calls: list[tuple[str, list[str], int]] = []
        hosts = [Host(name, key.public, MEMBERS[name]) for name, key in KEYS.items()]
        self.nodes = {}
        for name, numbers in MEMBERS.items():
            private = SYSTEM.enrol(numbers, rows_of(numbers), NUM_ITEMS, CONFIG, DRAWS)
            post = Post(RUN, hosts, name, KEYS[name], lambda below: below - 1, pad_bytes)
            self.nodes[name] = Node(SYSTEM, CONFIG, DRAWS, numbers, private, post)

    def call(
        self, phase: str, requests: Mapping[str, bytes], round_number: int, timeout_seconds: float
    ) -> Delivery:
        self.calls.append((phase, list(requests), round_number))
        replies, lost = {}, {}
        for name, data in requests.items():
            request = decode_packet(data)
            reply = self.change(name, phase, encode_packet(self.nodes[name].answer(request)))
            if reply is None:
                lost[name] = f"no reply within {timeout_seconds:g} s"
            else:
                replies[name] = reply
        return Delivery(replies, lost)


def over(hub: Hub, transcript: Transcript | None = None, **values: Any) -> OverNetwork:
    return OverNetwork(
        SYSTEM, CONFIG, DRAWS, MEMBERS, Caller(hub, RUN, 5, 0), transcript or Transcript(), **values
    )


def run(network: Any, num_rounds: int = 3) -> Any:
    state = SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS)
    for round_number in range(1, num_rounds + 1):
        state = network.run_round(state, round_number)
    return state


def in_process(losses: Any = None) -> tuple[Any, Any, Transcript]:
    private = SYSTEM.enrol(np.arange(NUM_CLIENTS, dtype=np.int32), ROWS, NUM_ITEMS, CONFIG, DRAWS)
    transcript = Transcript()
    options = RuntimeOptions(threads=1, losses=losses)
    return run(InProcess(SYSTEM, CONFIG, DRAWS, private, transcript, options)), private, transcript


@pytest.mark.parametrize("pad_bytes", [0, 4096])
def test_the_same_bits_as_in_one_process(pad_bytes: int) -> None:
    hub, transcript = Hub(pad_bytes), Transcript()
    state = run(over(hub, transcript))
    expected, private, counted = in_process()
    for name in ("item_factors", "counted_round", "denoisers"):
        np.testing.assert_array_equal(getattr(state, name), getattr(expected, name))
    for name, node in hub.nodes.items():
        np.testing.assert_array_equal(node.private.user_factors, private.user_factors[MEMBERS[name]])
        np.testing.assert_array_equal(node.private.item_factors, expected.item_factors)
    for (round_number, kind), tally in counted.tallies.items():
        if kind is not Noise:
            found = transcript.tallies[round_number, kind]
            assert (found.messages, found.rows) == (tally.messages, tally.rows)
    # A letter is all mail of one node to one denoiser; not every node has clients of every denoiser.
    assert all(6 <= transcript.tallies[number, Noise].messages <= 9 for number in (1, 2, 3))


def test_calls_are_as_few_as_asks() -> None:
    hub = Hub()
    run(over(hub))
    phases = [phase for phase, _, _ in hub.calls]
    assert phases == ["ItemFactors", "DenoiserFactors"] * 3 + ["Settle"]
    assert [number for _, _, number in hub.calls] == [1, 1, 2, 2, 3, 3, 3]
    onion = Hub(4096)
    run(over(onion))
    assert [phase for phase, _, _ in onion.calls] == ["ItemFactors", "relay", "DenoiserFactors"] * 3 + ["Settle"]


def test_who_is_away_is_lost_and_not_called() -> None:
    """From the first round on, as the losses of one process."""
    hub = Hub()
    state = run(over(hub, away=[VICTIM]))
    expected, private, _ = in_process(lambda _round, _request, to: np.isin(to, MEMBERS[VICTIM]))
    np.testing.assert_array_equal(state.item_factors, expected.item_factors)
    np.testing.assert_array_equal(state.counted_round, expected.counted_round)
    assert all(VICTIM not in names for _, names, _ in hub.calls)
    for name in set(MEMBERS) - {VICTIM}:
        np.testing.assert_array_equal(hub.nodes[name].private.user_factors, private.user_factors[MEMBERS[name]])


def test_all_away_changes_nothing() -> None:
    hub = Hub()
    state = run(over(hub, away=list(MEMBERS)))
    start = SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS)
    np.testing.assert_array_equal(state.item_factors, start.item_factors)
    assert all(names == [] for _, names, _ in hub.calls)


@pytest.mark.parametrize("phase", ["ItemFactors", "DenoiserFactors", "Settle", "relay"])
def test_a_lost_reply_is_a_lost_node(phase: str) -> None:
    hub = Hub(
        4096 if phase == "relay" else 0,
        lambda name, now, reply: None if (name, now) == (VICTIM, phase) else reply,
    )
    network = over(hub)
    with pytest.raises(NodesLost) as caught:
        run(network)
    assert caught.value.lost == {VICTIM: "no reply within 5 s"}
    assert caught.value.proven == frozenset()
    number = caught.value.round_number
    assert str(caught.value) == f"round {number}, {phase}: lost {VICTIM} (no reply within 5 s)"
    assert hub.calls[-1][0] == phase
    # Whoever was silent is not asked again within the same attempt.
    assert [now for now, _, _ in hub.calls].count(phase) == 1


class Garbled:
    """Changes the first reply of one node in one phase, or every one."""

    def __init__(self, phase: str, change: Change, times: int) -> None:
        self.phase, self.apply, self.times = phase, change, times

    def __call__(self, name: str, phase: str, reply: bytes) -> bytes | None:
        if (name, phase) != (VICTIM, self.phase) or not self.times:
            return reply
        self.times -= 1
        return self.apply(reply)


def changed_packet(**values: Any) -> Change:
    def change(reply: bytes) -> bytes:
        packet = decode_packet(reply)
        known = {name: getattr(packet, name) for name in packet.__dataclass_fields__}
        return encode_packet(Packet(**{**known, **values}))

    return change


def changed_frame(alter: Callable[[np.ndarray, Any], tuple[np.ndarray, Any]], **values: Any) -> Change:
    """Another frame in the reply to ItemFactors: `alter` gets numbers and message."""

    def change(reply: bytes) -> bytes:
        packet = decode_packet(reply)
        frames, letters = contents_of(packet)
        parts = [decode(frame, SYSTEM.messages) for frame in frames]
        changed = [
            encode(message, values.get("round_number", part.round_number), numbers)
            for part in parts
            for numbers, message in [alter(part.numbers, part.message)]
        ]
        contents = msgspec.msgpack.encode(Contents(len(changed), [mail for mail, _ in letters]))
        sections = (*changed, *(letter for _, letter in letters))
        known = (packet.kind, packet.run_id, packet.round_number, packet.sequence)
        return encode_packet(Packet(*known, contents, sections))

    return change


def gradients(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Change:
    def alter(numbers: np.ndarray, message: Any) -> tuple[np.ndarray, Any]:
        items, rows = change(message.items.values.copy(), message.gradients.values.copy())
        starts = message.items.starts
        return numbers, ItemGradients(Ragged(starts, items), Ragged(starts, rows))

    return changed_frame(alter)


def unknown_item(items: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    items[3] = NUM_ITEMS
    return items, rows


def infinite(items: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows[3, 1] = np.inf
    return items, rows


def mail(**values: Any) -> Change:
    """Another outside of the letters."""

    def change(reply: bytes) -> bytes:
        packet = decode_packet(reply)
        frames, letters = contents_of(packet)
        outsides = [Mail(**{**msgspec.structs.asdict(one), **values}) for one, _ in letters]
        contents = msgspec.msgpack.encode(Contents(len(frames), outsides))
        known = (packet.kind, packet.run_id, packet.round_number, packet.sequence)
        return encode_packet(Packet(*known, contents, packet.sections))

    return change


GARBAGE: dict[str, Change] = {
    "nothing": lambda _reply: b"",
    "noise": lambda reply: np.random.default_rng(0).bytes(len(reply)),
    "cut": lambda reply: reply[:-8],
    "longer": lambda reply: reply + bytes(8),
    "another run": changed_packet(run_id=bytes(16)),
    "another round": changed_packet(round_number=7),
    "another call": changed_packet(sequence=2**40),
    "a request": changed_packet(kind=Kind.ASK),
    "no contents": changed_packet(about=b""),
    "contents of a refusal": changed_packet(about=msgspec.msgpack.encode(Refusal("x"))),
    "sections missing": changed_packet(sections=()),
    "a refusal": changed_packet(
        kind=Kind.REFUSAL, about=msgspec.msgpack.encode(Refusal("not today")), sections=()
    ),
    "a refusal that says nothing": changed_packet(kind=Kind.REFUSAL, about=b"\x80", sections=()),
    "frame of another round": changed_frame(lambda numbers, message: (numbers, message), round_number=9),
    "for other clients": changed_frame(lambda numbers, message: (numbers + 1, message)),
    "for fewer clients": changed_frame(lambda numbers, message: (numbers[1:], message.part(1, len(numbers)))),
    "an item that is not there": gradients(unknown_item),
    "a number that is not finite": gradients(infinite),
    "too few factors": gradients(lambda items, rows: (items, rows[:, :3].copy())),
    "mail of an unknown type": mail(code=5),
    "mail of another ask": mail(sequence=0),
}


FOUND_BY_ASKING = {
    "nothing", "noise", "cut", "longer", "another run", "another round", "another call", "a request", "a refusal",
    "a refusal that says nothing",
}  # fmt: skip
"""Garbage that is noticed at once, so that the node can be asked once more."""


@pytest.mark.parametrize("what", GARBAGE)
def test_a_node_that_answers_garbage_is_lost(what: str) -> None:
    """And nothing of its reply is in the state: without it, the round is as if it had not answered."""
    hub = Hub(change=Garbled("ItemFactors", GARBAGE[what], times=99))
    start = SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS)
    with pytest.raises(NodesLost) as caught:
        over(hub).run_round(start, 1)
    assert list(caught.value.lost) == [VICTIM]
    assert caught.value.proven == (set() if what == "a refusal" else {VICTIM})
    assert "\n" not in str(caught.value)
    assert len(hub.calls) == (2 if what in FOUND_BY_ASKING else 1)
    state = run(over(Hub(), away=[VICTIM]), 1)
    expected, _, _ = in_process(lambda _round, _request, to: np.isin(to, MEMBERS[VICTIM]))
    assert state.counted_round[MEMBERS[VICTIM]].max() == 0
    assert expected.counted_round[MEMBERS[VICTIM]].max() == 0


def test_what_breaks_our_own_fold_is_a_loss_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a fault of ours: the run goes on, and nobody is banned for it."""

    def broken(self: ExactSum, numbers: np.ndarray, message: Any) -> None:
        if numbers[0] in MEMBERS[VICTIM]:
            raise IndexError("index 9 is out of bounds")

    monkeypatch.setattr(ExactSum, "add", broken)
    with pytest.raises(NodesLost) as caught:
        run(over(Hub()))
    assert caught.value.lost == {VICTIM: "sent what cannot be used (IndexError)"}
    assert caught.value.proven == frozenset()


@pytest.mark.parametrize("what", sorted(FOUND_BY_ASKING))
def test_garbage_that_comes_once_does_no_harm(what: str) -> None:
    hub = Hub(change=Garbled("ItemFactors", GARBAGE[what], times=1))
    np.testing.assert_array_equal(run(over(hub)).item_factors, in_process()[0].item_factors)
    assert hub.calls[1] == ("ItemFactors", [VICTIM], 1)


@pytest.mark.parametrize("what", ["no contents", "sections missing"])
def test_a_relay_that_answers_garbage_is_lost(what: str) -> None:
    hub = Hub(4096, Garbled("relay", GARBAGE[what], times=99))
    with pytest.raises(NodesLost) as caught:
        over(hub).run_round(SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS), 1)
    assert list(caught.value.lost) == [VICTIM]


def test_a_relay_that_keeps_mail_back_is_lost() -> None:
    def keep_one(reply: bytes) -> bytes:
        packet = decode_packet(reply)
        _, letters = contents_of(packet)
        contents = msgspec.msgpack.encode(Contents(0, [one for one, _ in letters[1:]]))
        return changed_packet(about=contents, sections=packet.sections[1:])(reply)

    hub = Hub(4096, Garbled("relay", keep_one, times=99))
    with pytest.raises(NodesLost, match=r"node-1 .kept mail back"):
        over(hub).run_round(SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS), 1)


@pytest.mark.parametrize("claimed", [{"seal": float("nan")}, {"seal": -1e300}, {"seal": 1e300}, {"x" * 99: 1.0}])
def test_a_node_cannot_spoil_the_account_of_time(claimed: dict[str, float]) -> None:
    def claim(reply: bytes) -> bytes:
        packet = decode_packet(reply)
        contents = msgspec.msgpack.decode(packet.about, type=Contents)
        return changed_packet(about=msgspec.msgpack.encode(msgspec.structs.replace(contents, seconds=claimed)))(
            reply
        )

    network = over(Hub(change=lambda _name, _phase, reply: claim(reply)))
    try:
        run(network)
    except NodesLost:
        return
    assert set(network.seconds) <= {"encode", "decode", "compute", "seal", "wire"}
    assert all(0 <= seconds < 60 for seconds in network.seconds.values())


def test_what_cannot_go_on_at_all_is_an_error_of_its_own() -> None:
    final = msgspec.msgpack.encode(Refusal("this node does not take part", is_final=True))
    change = changed_packet(kind=Kind.REFUSAL, about=final, sections=())
    hub = Hub(change=Garbled("ItemFactors", change, times=99))
    with pytest.raises(RefusedForGood, match="round 1, ItemFactors: node-1 refused: this node does not take part"):
        run(over(hub))
    assert len(hub.calls) == 1


def test_a_long_refusal_is_cut() -> None:
    change = changed_packet(kind=Kind.REFUSAL, about=msgspec.msgpack.encode(Refusal("no " * 10_000)), sections=())
    with pytest.raises(NodesLost) as caught:
        run(over(Hub(change=Garbled("ItemFactors", change, times=99))))
    assert len(str(caught.value)) < 500


def test_a_refusal_stays_one_line() -> None:
    change = changed_packet(
        kind=Kind.REFUSAL, about=msgspec.msgpack.encode(Refusal("no\nround 3: all is well\r\x1b[2J")), sections=()
    )
    with pytest.raises(NodesLost) as caught:
        run(over(Hub(change=Garbled("ItemFactors", change, times=99))))
    assert str(caught.value).isprintable()


def test_a_relay_that_does_not_exist_is_the_writers_fault() -> None:
    hub = Hub(change=Garbled("ItemFactors", mail(relay="nobody"), times=99))
    with pytest.raises(NodesLost) as caught:
        over(hub).run_round(SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS), 1)
    assert list(caught.value.lost) == [VICTIM]


def test_a_transport_that_names_nobody_loses_everybody() -> None:
    class Silent:
        def call(self, *_about: Any) -> Delivery:
            return Delivery({})

    network = OverNetwork(SYSTEM, CONFIG, DRAWS, MEMBERS, Caller(Silent(), RUN, 5, 0), Transcript())
    with pytest.raises(NodesLost) as caught:
        run(network)
    assert caught.value.lost == dict.fromkeys(MEMBERS, "no reply")


def test_each_call_has_a_number_of_its_own() -> None:
    caller = Caller(Hub(), RUN, 5, 7 << 32)
    assert [caller.next_sequence() for _ in range(3)] == [(7 << 32) + 1, (7 << 32) + 2, (7 << 32) + 3]


def test_mail_of_an_ask_replaces_that_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a round asks its clients twice, denoisers get the second noise only; the next round gets none of it."""
    seen: list[set[int]] = []
    request = OverNetwork._request

    def watched(self: OverNetwork, *about: Any) -> Packet:
        packet = request(self, *about)
        seen.append({one.sequence for one in msgspec.msgpack.decode(packet.about, type=Contents).mail})
        return packet

    monkeypatch.setattr(OverNetwork, "_request", watched)
    hub = Hub()
    run(over(hub, away=[VICTIM]))
    assert any(seen)
    assert all(len(sequences) <= 1 for sequences in seen)


def test_only_sealed_mail_is_routed() -> None:
    """The driving side holds letters, and no key that opens one."""
    network = over(Hub())
    state = SYSTEM.start(NUM_CLIENTS, NUM_ITEMS, CONFIG, DRAWS)
    steps = SYSTEM.round(state, 1, CONFIG, DRAWS)
    ask = next(steps)
    assert isinstance(ask, Ask)
    network._serve(ask, 1)
    [(code, letters)] = network._letters.items()
    assert code == code_of(Noise)
    assert 6 <= len(letters) <= 9
    for held in letters:
        with pytest.raises(HushrecError):
            decode(network._mailroom._read(held.place, held.size), SYSTEM.messages)
    network._mailroom.empty()
