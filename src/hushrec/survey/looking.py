"""What attackers learn of a system in its first rounds: the driving side, other parties, one that lies."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hushrec.audit.attacks import attacks_on
from hushrec.audit.driver import audit
from hushrec.audit.scoreboard import Attack, Finding
from hushrec.audit.verdicts import strongest_first
from hushrec.data import Interactions
from hushrec.data.interactions import Holding
from hushrec.draws import Draws
from hushrec.protocol import DRIVING, Role
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job
from hushrec.survey.record import Leak, Look

ACTIVE_ROUNDS = 2  # a lie costs rounds of its own, and tells most in the first


def with_fewer_users(data: Interactions, num_users: int, seed: int) -> Interactions:
    """The rows of so many users, drawn by the seed, and all items; data that parties hold already stays whole."""
    if data.num_users <= num_users or type(data.holding) is not Holding:
        return data
    order = Draws(seed).generator("compare-users").permutation(data.num_users)
    chosen = np.sort(order[:num_users])
    rows = data.select(np.isin(data.users, chosen))
    numbers = np.searchsorted(chosen, rows.users).astype(rows.users.dtype)
    return replace(rows, users=numbers, user_ids=data.user_ids[chosen])


class Looks(NamedTuple):
    """What each learns, as in a row of the table; and what was left out, and why."""

    server: Look
    others: Look
    together: Look
    active: Look
    left_out: list[str]


def looks(job: Job, num_users: int, num_rounds: int, budget_seconds: float) -> Looks:
    """What each learns of so many users after so many rounds, or as many as the CPU time allows.

    Where attackers share what they saw, there is one of each role; `together` has all of them.
    """
    people = [attack for attack in attacks_on(job.system) if attack.is_about_people]
    shared = [attack for attack in people if len(attack.seats) > 1]
    active = attacks_on(job.system, is_active=True)
    findings, done = _attacked(job, people, num_rounds, budget_seconds)
    wanted, left_out = min(num_rounds, job.config.num_rounds), []
    if people and done < wanted:
        left_out.append(f"the audit ended after {done} of {wanted} rounds: {budget_seconds:.0f} s were over")
    alone = [attack for attack in people if attack not in shared and attack.seats[0].role != Role.OBSERVER]
    others = [attack for attack in alone if attack.seats[0].role not in DRIVING]
    with_one = [one for one in findings if one.attack.name in {attack.name for attack in others}]
    for roles in dict.fromkeys(tuple(seat.role for seat in attack.seats) for attack in shared):
        same = [attack for attack in shared if tuple(seat.role for seat in attack.seats) == roles]
        with_one += _attacked(job, same, done, budget_seconds, roles)[0]
    told = _attacked(job, active, min(ACTIVE_ROUNDS, num_rounds), budget_seconds)
    return Looks(
        server=_look([attack for attack in alone if attack not in others], findings, done, num_users),
        others=_look([*others, *shared], strongest_first(with_one), done, num_users),
        together=_look(shared, findings, done, num_users),
        active=_look(active, *told, num_users),
        left_out=left_out,
    )


def _attacked(
    job: Job, attacks: Sequence[Attack[Any]], num_rounds: int, budget_seconds: float, roles: tuple[Role, ...] = ()
) -> tuple[list[Finding], int]:
    """What these attacks found, the strongest first, and in how many rounds; by one of each role, if named."""
    if not attacks:
        return [], 0
    end, done = time.process_time() + budget_seconds, 0

    def on_look(progress: Progress, _scores: Any) -> None:
        nonlocal done
        done = progress.round_number

    def is_enough(_progress: Progress) -> bool:
        return done >= num_rounds or (done > 0 and time.process_time() > end)

    found = audit(job, RuntimeOptions(threads=1), on_look, attacks, roles, is_enough)
    return found.findings, done


def _look(attacks: Sequence[Attack[Any]], findings: Sequence[Finding], num_rounds: int, num_users: int) -> Look:
    names = {attack.name for attack in attacks}
    best = next((_leak(one) for one in findings if one.attack.name in names), None)
    return Look(len(attacks), best, num_rounds, num_users)


def _leak(finding: Finding) -> Leak:
    attack = finding.attack
    advantage = max(finding.advantage, 0.0) if finding.is_above_chance else 0.0
    return Leak(
        attack.name, attack.role, attack.measure, finding.score, finding.chance, advantage, finding.interval,
        finding.is_of_stand_in,
    )  # fmt: skip
