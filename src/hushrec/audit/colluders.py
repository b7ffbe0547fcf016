"""Who attacks: roles that share what they saw, as in `server+denoiser`, and the seats that they take.

An attack needs some roles. Colluders who have them, and perhaps more, look at all that they saw together. Where
there are several parties of a role, so many as are named are drawn by the seed, the same in every round.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hushrec.audit.scoreboard import Attack
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import DRIVING, AnySystem, Recorded, Role, Seat

_ALL_ALIKE = (*DRIVING, Role.OBSERVER)  # of whom there is one, or no matter how many


def parse_colluders(text: str | None, system: AnySystem) -> tuple[Role, ...]:
    """The roles of `server+denoiser`, which the system must have; none: each attack has its own seats."""
    if not text:
        return ()
    has = {role for kind in system.messages for role in (kind.sender, kind.receiver)} | {Role.OBSERVER}
    if has & set(DRIVING):
        has.add(Role.ACTIVE_SERVER)
    words = text.split("+")
    if unknown := [word for word in words if word not in has]:
        names = ", ".join(sorted(has))
        raise HushrecError(f"--as {text}: {system.name} has no {unknown[0]}; join some of {names} by +")
    roles = tuple(Role(word) for word in words)
    if twice := [role for role, count in Counter(roles).items() if count > 1 and role in _ALL_ALIKE]:
        raise HushrecError(f"--as {text}: there is one {twice[0]}; name it once")
    return roles


def usable_by(attacks: Iterable[Attack[Any]], roles: Sequence[Role]) -> list[Attack[Any]]:
    """The attacks whose seats these roles can take, or all if no roles are named."""
    return [one for one in attacks if not roles or not Counter(seat.role for seat in one.seats) - Counter(roles)]


def seated(attack: Attack[Any], roles: Sequence[Role], recorded: Iterable[Recorded], draws: Draws) -> Attack[Any]:
    """The attack with seats for all of these roles: its own first, then others who look with it.

    One that draws a share of all parties itself stays as it is.
    """
    if attack.share is not None:
        return attack
    left = Counter(roles) - Counter(seat.role for seat in attack.seats)
    wanted = [*attack.seats, *(Seat(role) for role in left.elements())]
    sent = list(recorded)
    taken: list[Seat] = []
    for seat in wanted:
        if seat.number is None and seat.role not in _ALL_ALIKE:
            others = [*wanted, *taken] + ([] if attack.victim is None else [attack.victim])
            seat = _drawn(seat.role, others, sent, draws)
        taken.append(seat)
    return replace(attack, seats=tuple(taken))


def _drawn(role: Role, others: Sequence[Seat], sent: Sequence[Recorded], draws: Draws) -> Seat:
    """One more party of a role, beside those that have a seat."""
    parties = parties_of(role, sent)
    order = draws.generator(f"colluders-{role}").permutation(parties).tolist()
    has_seat = {seat.number for seat in others if seat.role == role}
    free = [number for number in order if number not in has_seat]
    if not free:
        raise HushrecError(f"there are no more than {len(parties)} with the role {role}; name fewer in --as")
    return Seat(role, free[0])


def parties_of(role: Role, recorded: Iterable[Recorded]) -> list[int]:
    """The numbers of those who sent or got something in this role, ascending."""
    found: set[int] = set()
    for one in recorded:
        kind = type(one.message)
        if one.addressees is None:
            if role in (kind.sender, kind.receiver):
                found.update(one.numbers.tolist())
        else:
            if role == kind.sender:
                found.update(one.writers().tolist())
            if role == kind.receiver:
                found.update(np.unique(one.addressees).tolist())
    return sorted(found)
