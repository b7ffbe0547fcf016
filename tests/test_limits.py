"""Numbers that others claim are believed up to what whoever hears them can afford, and refused beyond."""

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from hushrec import limits
from hushrec.deploy.orders import Assignment, Enrolled, Hosts, Measured
from hushrec.errors import HushrecError
from hushrec.limits import TooMuchError, check_claim, check_room, check_sizes, packet_bytes, room_bytes
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.secure_sum.plan import plan_for
from hushrec.registry import system_named
from hushrec.runtime.checkpoint import read_arrays, write_arrays
from hushrec.runtime.packets import Kind, Packet, about, decode_packet, encode_packet
from hushrec.runtime.wire import WireError


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million bytes of memory, a quarter of them for what others claim."""
    monkeypatch.setattr(limits, "_memory_bytes", lambda: 1_000_000)
    monkeypatch.setenv("HUSHREC_MEMORY_SHARE", "0.25")


def test_a_claim_up_to_the_bound_is_believed() -> None:
    check_claim("steps", limits.MOST_STEPS, limits.MOST_STEPS)
    with pytest.raises(TooMuchError, match=r"\A16777217 steps are claimed; at most 16777216 are believed\Z"):
        check_claim("steps", limits.MOST_STEPS + 1, limits.MOST_STEPS)


@pytest.mark.usefixtures("small_machine")
def test_what_is_claimed_has_to_fit_into_a_share_of_memory() -> None:
    check_room("a table", 250_000)
    with pytest.raises(
        TooMuchError, match=r"\Aa table would take 250,001 bytes; this machine gives at most 250,000"
    ):
        check_room("a table", 250_001)
    assert packet_bytes() == 250_000 // 8


@pytest.mark.parametrize("share", ["0", "-1", "1.5", "nan", "half"])
def test_a_share_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, share: str) -> None:
    monkeypatch.setenv("HUSHREC_MEMORY_SHARE", share)
    with pytest.raises(HushrecError, match=r"\AHUSHREC_MEMORY_SHARE is .* such as 0\.5\Z"):
        room_bytes()


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize(("name", "value"), [("num_factors", 1000), ("layers", (8, 1000)), ("hidden_size", 1000)])
def test_settings_with_which_a_partys_arrays_would_not_fit_are_refused(name: str, value: Any) -> None:
    check_sizes(SimpleNamespace(**{name: value}), 10, 20)
    with pytest.raises(TooMuchError, match=f"{name} 1000 would take 400,000 bytes"):
        check_sizes(SimpleNamespace(**{name: value}), 40, 60)


# --- Who asks for it ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_machine")
def test_a_packet_that_cannot_be_read_here_is_refused_unread() -> None:
    packet = Packet(Kind.ASK, bytes(16), 1, 1, b"", (bytes(40_000),))
    with pytest.raises(WireError, match="is larger than 31250"):
        decode_packet(encode_packet(packet))


@pytest.mark.usefixtures("small_machine")
def test_a_file_of_arrays_that_does_not_fit_is_refused_unread(tmp_path: Any) -> None:
    write_arrays(tmp_path / "state.npz", {"large": np.zeros(40_000)})
    with pytest.raises(HushrecError, match=r"state\.npz would take 320,\d+ bytes"):
        read_arrays(tmp_path / "state.npz")


def test_lists_within_lists_without_end_are_refused() -> None:
    endless = b"\x81\xa6config" + b"\x91" * 100_000
    with pytest.raises(WireError, match="does not say what"):
        about(Packet(Kind.ENROL, bytes(16), 0, 1, endless), dict[str, Any])


CLAIMS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "clients": (Enrolled, {"num_clients": limits.MOST_PARTIES + 1, "numbers": None, "letter_bytes": 1}),
    "a letter": (Enrolled, {"num_clients": 1, "numbers": None, "letter_bytes": limits.MOST_LETTER_BYTES + 1}),
    "a name": (Enrolled, {"num_clients": 1, "numbers": None, "letter_bytes": 1, "names": ["x" * 1001]}),
    "a number": (Assignment, {"numbers": [limits.MOST_PARTIES]}),
    "padding": (Hosts, {"hosts": [], "pad_bytes": limits.MOST_LETTER_BYTES + 1}),
    "all clients": (Hosts, {"hosts": [], "pad_bytes": 0, "num_clients": limits.MOST_PARTIES + 1}),
    "test rows": (Measured, {"num_test": limits.MOST_COUNTED + 1}),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_nodes_and_server_claim_is_bounded(claim: str) -> None:
    kind, values = CLAIMS[claim]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(values, kind)
    name = list(values)[-1]
    less = {"names": ["x"], "numbers": [limits.MOST_PARTIES - 1]}.get(name, 1)
    lower = {**values, name: less} if claim != "clients" else {**values, "num_clients": limits.MOST_PARTIES}
    assert msgspec.convert(lower, kind) is not None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300])
def test_what_cannot_have_been_measured_has_no_sense(value: float) -> None:
    assert Measured({"MAE": 0.7}, 10).has_sense()
    assert not Measured({"MAE": value}, 10).has_sense()
    assert not Measured(facts={"bytes": value}).has_sense()


def test_a_sum_over_more_than_there_can_be_is_not_planned() -> None:
    config = system_named("fedrec").configure({"secure_sums": True})
    with pytest.raises(TooMuchError, match="participants of a sum are claimed"):
        plan_for(2**62, config)


def test_a_sum_that_counts_fewer_than_none_is_refused() -> None:
    words = np.zeros(9, np.int64)
    words[-1] = -1
    with pytest.raises(HushrecError, match="counts fewer than none"):
        ExactSum.zeros((3, 2), num_summands=1).add_words(words)
