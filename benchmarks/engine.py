"""Times of the engine, as ratios measured in one run: against the NumPy reference, the bare loop, two threads."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import hushrec
from benchmarks.bare import bare_run
from benchmarks.reference import reference_run
from hushrec.draws import Draws
from hushrec.protocol import Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.settings import build


def engine_run(rows, data, config, system, threads: int, num_rounds: int):
    """The first rounds of a run, without evaluation; returns (user_factors, item_factors)."""
    draws = Draws(0)
    numbers = np.arange(data.num_users, dtype=np.int32)
    state = system.start(data.num_users, data.num_items, config, draws)
    private = system.enrol(numbers, rows, data.num_items, config, draws)
    runtime = InProcess(system, config, draws, private, Transcript(), RuntimeOptions(threads=threads))
    for round_number in range(1, num_rounds + 1):
        state = runtime.run_round(state, round_number)
    runtime.close()
    return private.user_factors, state.item_factors


def best(repeats: int, *works: Callable[[], object]) -> list[tuple[float, float]]:
    """Least CPU and wall seconds of each, run in turns so that a slow moment of the machine hits all alike."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, kept in zip(works, times, strict=True):
            before = time.process_time(), time.perf_counter()
            work()
            kept.append((time.process_time() - before[0], time.perf_counter() - before[1]))
    # The first turn warms up.
    return [(min(cpu for cpu, _ in kept[1:]), min(wall for _, wall in kept[1:])) for kept in times]


def compare(name: str, rho: int, num_rounds: int = 100, repeats: int = 6, reference_rounds: int = 0) -> None:
    """Print the engine's time on one dataset beside the others'."""
    data = hushrec.load(name)
    rows = next(hushrec.k_folds(data)).train.by_user()
    system = SYSTEMS["fedrec++"] if rho else SYSTEMS["fedrec"]
    config = build(system.config, {"rho": rho, "num_rounds": 100})
    draws = Draws(0)
    items = system.start(data.num_users, data.num_items, config, draws).item_factors
    numbers = np.arange(data.num_users, dtype=np.int32)
    users = system.enrol(numbers, rows, data.num_items, config, draws).user_factors.copy()
    key = draws.key("virtual-items")
    print(f"{system.name} rho {rho} on {name}, {num_rounds} rounds")
    (engine, wall), (bare, _), (_, two) = best(
        repeats,
        lambda: engine_run(rows, data, config, system, 1, num_rounds),
        lambda: bare_run(rows, items, users, config, key, num_rounds),
        lambda: engine_run(rows, data, config, system, 2, num_rounds),
    )
    print(f"  engine, one thread     {engine:8.2f} s of CPU")
    print(f"  bare fused loop        {bare:8.2f} s of CPU; the engine takes {engine / bare:.2f} times it")
    print(f"  engine, two threads    {two:8.2f} s of wall time; {wall / two:.2f} times as fast as one")
    if reference_rounds:
        short = replace(config, num_rounds=reference_rounds, predict_after=-1)
        before = time.process_time()
        reference_run(rows, data.num_users, data.num_items, short, draws)
        slow = (time.process_time() - before) / reference_rounds
        [(fast, _)] = best(repeats, lambda: engine_run(rows, data, short, system, 1, reference_rounds))
        fast /= reference_rounds
        print(f"  NumPy, client by client{slow:8.3f} s per round; the engine is {slow / fast:.0f} times as fast")
