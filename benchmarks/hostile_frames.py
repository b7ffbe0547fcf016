"""A million hostile but well-formed frames through all systems: each is taken in or refused, and nothing else.

`python -m benchmarks.hostile_frames` plays acts (see `hushrec.testing.hostile`) in turn over all systems and their
variants until so many frames went through, or so many minutes are over. Acts of a system are played in a process
of their own with a bound on memory and time, so that a fault that ends a process is one as well, with its seeds.
Counts and faults are kept in a file of JSON: `--resume` goes on with it. `--act SYSTEM VARIANT SEED` plays one act
again.

With NUMBA_BOUNDSCHECK=1 and an own NUMBA_CACHE_DIR, kernels look at their indices, too.
"""

import argparse
import faulthandler
import json
import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hushrec.files import write_private_file
from hushrec.limits import MOST_LETTER_BYTES
from hushrec.protocol import AnySystem
from hushrec.registry import SYSTEMS, system_named
from hushrec.testing.hostile import Act, Scene, scenes

_MOST_BYTES = 16 * MOST_LETTER_BYTES  # more than a small run needs, whatever it is told
_ACT_SECONDS = 60.0


def systems() -> list[str]:
    """The built-in systems."""
    return [name for name in SYSTEMS if SYSTEMS.is_built_in(name)]


def played(scene: Scene, seed: int) -> Act:
    """One act; rounds take turns."""
    act = Act(scene, 1 + seed % len(scene.rounds), seed)
    act.play()
    return act


def described(error: BaseException) -> str:
    """Kind and places of a fault."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:100]} at {places}"


class Bout:
    """Some acts of one system, in a process of their own."""

    def __init__(self, made: list[Scene], name: str, seeds: range) -> None:
        self._scenes, self._name, self._seeds = made, name, seeds
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def play(self) -> None:
        """All of them; a process that dies or hangs is a fault of the act that it was at."""
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=self._work, args=(theirs,))
        process.start()
        theirs.close()
        at = (0, self._seeds.start)
        try:
            while True:
                if not ours.poll(2 * _ACT_SECONDS):
                    self.faults.append(f"{self._name} {at[0]} {at[1]}: hangs")
                    break
                at, counts, faults, is_last = ours.recv()
                self.counts.update(counts)
                self.faults += faults
                if is_last:
                    break
        except EOFError:
            process.join(10)
            self.faults.append(f"{self._name} {at[0]} {at[1]} or the next: ended with {process.exitcode}")
        process.kill()
        process.join()

    def _work(self, told: Any) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        for seed in self._seeds:
            for place, scene in enumerate(self._scenes):
                faulthandler.dump_traceback_later(_ACT_SECONDS, exit=True)
                act = played(scene, seed)
                faulthandler.cancel_dump_traceback_later()
                counts = Counter(
                    {f"{self._name} {kind}: {outcome}": n for (kind, outcome), n in act.counts.items()}
                )
                faults = [
                    f"{self._name} {place} {seed}: {one.where}: {described(one.error)}" for one in act.faults
                ]
                is_last = seed == self._seeds[-1] and scene is self._scenes[-1]
                told.send(((place, seed), counts, faults, is_last))


def num_frames(counts: Counter[str]) -> int:
    """All but rounds."""
    return sum(number for what, number in counts.items() if " round: " not in what)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play until it is enough; 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--acts", type=int, default=40, help="acts of each variant in one process")
    parser.add_argument("--systems", nargs="*", default=None)
    parser.add_argument("--out", type=Path, default=Path("hostile-frames.json"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--act", nargs=3, metavar=("SYSTEM", "VARIANT", "SEED"))
    given = parser.parse_args(arguments)
    if given.act:
        return _replay(*given.act)
    counts, faults, first = Counter[str](), list[str](), 0
    if given.resume and given.out.exists():
        kept = json.loads(given.out.read_bytes())
        counts, faults, first = Counter(kept["counts"]), kept["faults"], kept["next_seed"]
    stages = {name: _stage(system_named(name)) for name in given.systems or systems()}
    until = time.monotonic() + 60 * given.minutes
    while num_frames(counts) < given.frames and time.monotonic() < until:
        for name, made in stages.items():
            bout = Bout(made, name, range(first, first + given.acts))
            bout.play()
            counts.update(bout.counts)
            faults += bout.faults
            for fault in bout.faults:
                print(fault, flush=True)
        first += given.acts
        kept = {"counts": dict(counts), "faults": faults, "next_seed": first}
        write_private_file(given.out, json.dumps(kept, indent=1).encode())
        print(f"{num_frames(counts):,} frames, {len(faults)} faults, next seed {first}", flush=True)
    _report(counts, faults)
    return int(bool(faults))


def _stage(system: AnySystem) -> list[Scene]:
    """All scenes, and an act of each, so that kernels are compiled before processes are bounded."""
    made = list(scenes(system))
    for scene in made:
        faulthandler.dump_traceback_later(600, exit=True)
        played(scene, 0)
        faulthandler.cancel_dump_traceback_later()
    return made


def _replay(name: str, variant: str, seed: str) -> int:
    act = played(list(scenes(system_named(name)))[int(variant)], int(seed))
    print(dict(act.counts), act.ending)
    for fault in act.faults:
        print(fault.where, *traceback.format_exception(fault.error), sep="\n")
    return int(bool(act.faults))


def _report(counts: Counter[str], faults: list[str]) -> None:
    """By system, message and outcome."""
    for what, number in sorted(counts.items()):
        print(f"{number:>10,}  {what}")
    print(f"{num_frames(counts):,} frames, {len(faults)} faults")


if __name__ == "__main__":
    sys.exit(main())
