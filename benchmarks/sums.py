"""What sums tell, by how many take part in a round and how many raters items need: `python -m benchmarks.sums`.

Sums are those that secure sums end with, made here without masks: `tests/audit/test_sums.py` holds that both are
the same. FedRec, rho 0, participants drawn anew in each round; first fold, seed 0. `benchmarks.sums NAME`
takes other data. A star: above a blind guess by more than the interval, and more than 1% of what is left to know.
Takes some minutes on one core.
"""

import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.attacks.lone_rows import Lone, read_sum
from hushrec.audit.scoreboard import Finding, Own, Score, Truth
from hushrec.audit.sums import Remembered, SeenSum
from hushrec.data import Interactions, load
from hushrec.draws import Draws
from hushrec.privacy.exact_sum import ExactSum
from hushrec.protocol import View, draw_participants
from hushrec.registry import SYSTEMS
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job
from hushrec.settings import to_dict

DATA = ("ml-100k", "synthetic:users=2000,items=1000,ratings=100000")
PARTICIPANTS = (5, 10, 20, 50, 100, 200, 500, 1_000_000)
ROUNDS = (1, 10, 100, 1000)
LEAST_RATERS = (1, 2, 3, 5, 10)
_MARGIN = 0.01  # as in verdicts


def first_fold(name: str) -> Interactions:
    """The training part."""
    system, data = SYSTEMS["fedrec"], load(name)
    settings = settings_for(system, 0, 1, None, 0.2, owners="", data=data)
    return next(splits_for(system, data, settings, system.configure({}))).train


def counted(has: NDArray[np.bool_], num_participants: int, num_rounds: int) -> tuple[SeenSum, ...]:
    """Counts of rounds, with participants that are drawn for each."""
    none, sums = np.empty((0, 0)), []
    for number in range(1, num_rounds + 1):
        drawn = draw_participants(len(has), num_participants / len(has), number, Draws(0)).astype(np.int64)
        sums.append(SeenSum(number, drawn, has[drawn].sum(axis=0), none, none))
    return tuple(sums)


def shown(finding: Finding | None) -> str:
    """Score, and what blind guesses have."""
    if finding is None:
        return "-"
    star = "*" if finding.is_above_chance and finding.advantage >= _MARGIN else " "
    return f"{finding.score:.3f}{star} ({finding.chance:.3f})"


def found(name: str, guesses: Iterable[object], truth: Truth) -> str:
    """How right an attack's guesses are, one after each round."""
    score = Score(ATTACKS[name])
    for guess in guesses:
        score.add(ATTACKS[name].judge(guess, truth))
    return shown(score.finding(Draws(0)))


def by_participants(train: Interactions) -> None:
    """Counts of one round and of many, by how many take part."""
    has = np.zeros((train.num_users, train.num_items), np.bool_)
    has[train.users, train.items] = True
    truth = Truth(train)
    for wanted in PARTICIPANTS:
        size = min(wanted, len(has))
        single = [Remembered((one,), one.round_number) for one in counted(has, size, max(200 // size, 1))]
        row = [found("counts of one round", single, truth)]
        for num_rounds in ROUNDS if size < len(has) else (1, 10):
            known = Remembered(counted(has, size, num_rounds), num_rounds)
            row.append(found("count equations", [known], truth))
        print(f"| {size} | {' | '.join(row)} |", flush=True)
        if size == len(has):
            break


def by_raters(train: Interactions) -> None:
    """Counts of one round where those below a least number are not seen, by how many take part."""
    has = np.zeros((train.num_users, train.num_items), np.bool_)
    has[train.users, train.items] = True
    for wanted in PARTICIPANTS:
        size = min(wanted, len(has))
        sums = counted(has, size, max(200 // size, 1))
        row = []
        for least in LEAST_RATERS:
            seen = [one._replace(counts=np.where(one.counts < least, 0, one.counts)) for one in sums]
            known = [Remembered((one,), one.round_number) for one in seen]
            row.append(found("counts of one round", known, Truth(train)))
        print(f"| {size} | {' | '.join(row)} |", flush=True)
        if size == len(has):
            break


def rows_read(train: Interactions) -> None:
    """Ratings read out of rows with one, two and three raters, by how many take part; two rounds."""
    system = SYSTEMS["fedrec"]
    for wanted in PARTICIPANTS:
        share = min(wanted / train.num_users, 1.0)
        config = system.configure({"rho": 0, "num_rounds": 2, "participation": share})
        guesses: dict[int, list[list[Lone]]] = {1: [], 2: [], 3: []}
        own = Own(to_dict(config), {}, np.random.default_rng(0))

        def look(progress: Progress, own: Own = own, guesses: dict[int, list[list[Lone]]] = guesses) -> None:
            seen = _summed(progress.transcript.recorded)
            for num_raters, known in guesses.items():
                known.append([read_sum(seen, own, num_raters)])
            progress.transcript.recorded.clear()

        job = job_for(system, config, 0, train)
        run_job(job, RuntimeOptions(1, keep_payloads=True), on_round=look)
        row = [found("lone rows", known, Truth(train, to_dict(config))) for known in guesses.values()]
        print(f"| {min(wanted, train.num_users)} | {' | '.join(row)} |", flush=True)
        if share == 1:
            break


def _summed(view: View) -> SeenSum:
    """The sum of what was uploaded in the clear."""
    vectors = next(one.message.item_factors for one in view if hasattr(one.message, "item_factors"))
    total = ExactSum.zeros(vectors.shape, len(view))
    uploads = [one for one in view if hasattr(one.message, "gradients")]
    for one in uploads:
        total.add(one.numbers, one.message)  # type: ignore[arg-type]
    numbers = np.sort(np.concatenate([one.numbers for one in uploads])).astype(np.int64)
    return SeenSum(view[0].round_number, numbers, total.counts, total.to_float(), vectors.astype(np.float64))


if __name__ == "__main__":
    for name in sys.argv[1:] or DATA:
        train = first_fold(name)
        print(f"\n{train.name}: {train.num_users} users, {train.num_items} items, {len(train)} ratings")
        rounds = " | ".join(f"equations, {number} rounds" for number in ROUNDS)
        print(f"\n| participants | counts of one round | {rounds} |")
        by_participants(train)
        print(f"\n| participants | {' | '.join(f'counts from {least} on' for least in LEAST_RATERS)} |")
        by_raters(train)
        print("\n| participants | rows with one rater | with two | with three |")
        rows_read(train)
