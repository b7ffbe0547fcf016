"""A denoiser that cannot answer again without showing somebody: the round goes on without it and its clients."""

from typing import Any

import numpy as np
import pytest

from deploy.federation import Federation, Leg, Lost, Ordered, Wire, in_process, opened, small, some_split
from hushrec.registry import SYSTEMS
from hushrec.runtime.packets import Refusal, contents_of, encode_packet
from hushrec.runtime.wire import decode
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, ItemFactors

SYSTEM = "fedrec++"
CONFIG = small(SYSTEM, biases=False, shrinkage=0.0, participation=1.0, denoisers=4)
LOST = "node-3"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 3)


def denoisers_of_round_2(wire: Wire) -> dict[int, int]:
    """The denoiser of each client, as it was told."""
    asked = [opened(data) for leg, data in wire.requests if (leg.phase, leg.round_number) == ("ItemFactors", 2)]
    frames = [decode(contents_of(packet)[0][0], SYSTEMS[SYSTEM].messages) for packet in asked]
    return {
        client: denoiser
        for frame in frames
        for client, denoiser in zip(frame.numbers.tolist(), frame.message.denoiser.tolist(), strict=True)
    }


def test_a_node_with_one_client_of_a_denoiser_is_lost_after_that_has_answered(federation: Federation) -> None:
    """The others' denoisers answer again; those with one client less do not, and others are drawn for them."""

    def mishap(leg: Leg) -> Any:
        def dies(_deliver: Any, _packet: bytes) -> bytes:
            raise Lost

        return dies if (leg.phase, leg.round_number, leg.node) == ("DenoiserFactors", 2, LOST) else None

    ordered, wire = federation.order(SYSTEM, CONFIG), Wire(federation, mishap)
    report = ordered.drive(wire)
    assert (report.status, list(report.lost)) == ("paused", [LOST])
    gone = federation.numbers(LOST)
    denoiser_of = denoisers_of_round_2(wire)
    missing = {
        denoiser: sum(denoiser_of[client] == denoiser for client in gone.tolist() if client in denoiser_of)
        for denoiser in set(denoiser_of.values()) - set(gone.tolist())
    }
    declining = [denoiser for denoiser, count in missing.items() if count == 1]
    assert declining, missing
    assert len(declining) < len(missing)

    def losses(round_number: int, request: Any, to: np.ndarray) -> np.ndarray:
        is_gone = np.isin(to, gone) & (round_number >= 2)
        return is_gone | (np.isin(to, declining) & (round_number == 2) & (request is DenoiserFactors))

    (report,) = ordered.finish(away=[LOST])
    assert report.status == "done"
    ordered.assert_equals(in_process(SYSTEM, CONFIG, some_split(), losses), away=[LOST])
    told = [line for name in ("node-1", "node-2") for line in federation.log(name) if line["event"] == "refused"]
    assert {line["reason"] for line in told} == {
        "two sums of a denoiser in a round would differ by fewer than 2 clients, and show them"
    }


@pytest.mark.parametrize("numbers", [[-1], [10**6], [2**62], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, *range(10, 30)]])
def test_a_node_can_decline_for_its_own_clients_alone(federation: Federation, numbers: list[int]) -> None:
    """Whatever it says of others is a refusal like any, and its own loss."""

    def declines(_deliver: Any, packet: bytes) -> bytes:
        return encode_packet(opened(packet).refusal(Refusal("cannot", declined=numbers)))

    def mishap(leg: Leg) -> Any:
        return declines if (leg.phase, leg.round_number, leg.node) == ("ItemFactors", 2, LOST) else None

    ordered: Ordered = federation.order(SYSTEM, CONFIG)
    report = ordered.drive(Wire(federation, mishap))
    is_own = set(federation.numbers(LOST).tolist()) <= set(numbers)
    assert (report.status, list(report.lost)) == (("done", []) if is_own else ("paused", [LOST]))
    if is_own:
        left_out = federation.numbers(LOST)
        expected = in_process(
            SYSTEM,
            CONFIG,
            some_split(),
            lambda number, request, to: np.isin(to, left_out) & (number == 2) & (request is ItemFactors),
        )
        ordered.assert_equals(expected)
