"""Hostile but well-formed messages of every system: taken in or refused in one line, and nothing else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.draws import Draws
from hushrec.errors import MissingExtraError
from hushrec.privacy.homomorphic import BfvAdder
from hushrec.protocol import Message, Ragged, Round, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.wire import WireError, decode, encode
from hushrec.systems.fedcore.inference import MAIL, Serve, Served, serve_visitors
from hushrec.systems.fedmf.system import EncryptedSteps
from hushrec.testing.altered import Alter
from hushrec.testing.hostile import Act, Before, Scene, scenes

NUM_ACTS = 8  # of each variant
BUILT_IN = [name for name in SYSTEMS if SYSTEMS.is_built_in(name)]


@pytest.mark.parametrize("name", BUILT_IN)
def test_hostile_values_are_taken_in_or_refused(name: str) -> None:
    """Of each type that is sent some are given to whoever takes it in."""
    met: set[str] = set()
    try:
        for scene in scenes(SYSTEMS[name]):
            sent = {kind.__name__ for kind in scene.sent if kind.kinds()}
            for seed in range(NUM_ACTS):
                act = Act(scene, 1 + seed % len(scene.rounds), seed)
                act.play()
                assert not act.faults, (scene.variant, seed, act.faults)
                assert "\n" not in act.ending
                met |= {kind for kind, _ in act.counts}
            assert sent & met
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["fedrec++", "fedcore", "drift", "metamf"])
def test_altered_messages_are_well_formed(name: str) -> None:
    """Most come out of a frame as they went in: it is values that are hostile, not bytes."""
    scene = next(scenes(SYSTEMS[name]))
    alter, num_refused, num_altered = Alter(np.random.default_rng(0)), 0, 0
    for kind, known in scene.sent.items():
        message, size = known[0]
        if not kind.kinds():
            continue
        for _ in range(100):
            altered = alter.message(message, size)
            num_altered += 1
            try:
                frame = decode(bytearray(encode(altered, 1, np.arange(size, dtype=np.int32))), (kind,))
                assert_same_columns(frame.message, altered)
            except WireError:
                num_refused += 1
    assert 0 < num_refused < num_altered / 3


def test_altered_ciphertexts_stay_within_the_bounds_of_a_small_run() -> None:
    """A ciphertext is one long row: two thousand of them would be more than a process may take."""
    row = BfvAdder.fresh_bytes
    starts = np.arange(3, dtype=np.int64)
    blocks, places = np.zeros((2, row), np.uint8), np.zeros(2, np.int32)
    honest = EncryptedSteps(Ragged(starts, places), Ragged(starts, blocks), np.zeros(2, np.int64))
    alter = Alter(np.random.default_rng(0))
    sizes = [alter.message(honest, 2).blocks.values.nbytes for _ in range(60)]
    assert 2 * row < max(sizes) <= 1 << 22


def assert_same_columns(one: Message, other: Message) -> None:
    for kind in one.kinds():
        left, right = getattr(one, kind.name), getattr(other, kind.name)
        if isinstance(left, Ragged):
            left, right = left.values, right.values
        np.testing.assert_array_equal(left, right)


# --- FedCORE's inference: what partners tell each other about visitors -----------------------------------------


def serving(state: Any, _round_number: int, _config: Any, _draws: Draws) -> Round[Any]:
    yield from serve_visitors(np.flatnonzero(state.is_present).astype(np.int32))
    return state


def serving_scene() -> Scene:
    """Partners after their last round, who serve each other's visitors once more and do nothing else."""
    *_, scene = scenes(SYSTEMS["fedcore"])
    assert scene.config.serves_visitors
    state, private = scene.begin(scene.config.num_rounds)
    runtime = InProcess(scene.system, scene.config, Draws(0), private, Transcript(), RuntimeOptions(1))
    state = runtime.run_round(state, scene.config.num_rounds)
    runtime.close()
    system = replace(scene.system, round=serving)
    return replace(scene, system=system, rounds=[Before(state, private)], asked=[[Serve] * 5])


# Each of these disturbs all messages of one stage, or of all stages.
ACTS_OF_EACH_STAGE = (8, 3, 40, 7, 30, 10, 18)


@pytest.mark.parametrize("seeds", [ACTS_OF_EACH_STAGE, pytest.param(range(80), marks=pytest.mark.slow)], ids=len)
def test_hostile_values_of_an_inference_are_taken_in_or_refused(seeds: Sequence[int]) -> None:
    """Most letters that an inbox takes are read; each type is met by whoever takes it in."""
    pytest.importorskip("tenseal")
    scene, met = serving_scene(), Counter[tuple[str, str]]()
    for seed in seeds:
        act = Act(scene, 1, seed, put_share=0.7)
        act.play()
        assert not act.faults, (seed, act.faults)
        assert "\n" not in act.ending
        met += act.counts
    assert {kind.__name__ for kind in (*MAIL, Serve, Served)} <= {kind for kind, _ in met}
    assert met["Serve", "refused by the node"] > len(seeds)
    assert met["round", "ended"] > 0
