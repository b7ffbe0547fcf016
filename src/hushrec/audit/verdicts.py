"""What an audit comes to: for each who may attack, what the strongest attack learns, and the switch against it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from hushrec.audit.scoreboard import Attack, Finding
from hushrec.protocol import DRIVING
from hushrec.settings import switches_of

# From which advantage on, which word; below the last, an attack tells hardly more than a blind guess.
_WORDS = ((0.9, "reads"), (0.5, "reads most of"), (0.1, "learns something of"), (0.0, "learns a little of"))
_MARGIN = 0.01  # an advantage below this is nothing that anybody could use


def verdicts(
    findings: Sequence[Finding],
    config: Any,
    repairs: Sequence[Mapping[str, Any]] = (),
    cost: Callable[[str], str] = lambda _switch: "",
) -> list[str]:
    """A line for each who attacks, the strongest first.

    `repairs` are those that the system declares, named where an attack knows no switch of the system against it;
    one that is on already, and did not help, is not named again. `cost` says what a switch changes, as far as it
    was measured.
    """
    strongest: dict[str, Finding] = {}
    for finding in sorted(findings, key=_rank):
        strongest.setdefault(finding.attack.role, finding)
    found = []
    for finding in strongest.values():
        is_known = bool(known_repairs(finding.attack, config))
        switches = repairs_of(finding.attack, config) if is_known else _declared(repairs, config)
        found.append(_line(finding, [f"{switch}{cost(switch)}" for switch in switches]))
    return found


def strongest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Those above chance by how much they learn, then the others."""
    return sorted(findings, key=_rank)


def _rank(finding: Finding) -> tuple[bool, bool, float]:
    return not finding.is_above_chance, not finding.is_hardly_hidden, -finding.advantage


def _line(finding: Finding, switches: Sequence[str]) -> str:
    attack = finding.attack
    numbers = f"{attack.name}: {attack.measure} {finding.score:.3f}, chance {finding.chance:.3f}"
    is_learned = finding.is_above_chance and finding.advantage >= _MARGIN
    what = attack.guesses.split(",")[0]
    if is_learned:
        word = next(word for least, word in _WORDS if finding.advantage >= least)
        told = f"the {_who(attack)}: {word} {what} ({numbers})"
    elif finding.is_hardly_hidden:
        told = f"the {_who(attack)}: need not attack, a blind guess knows {what} ({numbers})"
    else:
        return f"the {_who(attack)}: learns nothing beyond chance by the attacks tried (at best {numbers})"
    if finding.is_of_stand_in:
        told += ", in a stand-in that sends in the clear what is encrypted in a real run"
    return f"{told}; against it: {' or '.join(switches)}" if switches else told


def _who(attack: Attack[Any]) -> str:
    """Who attacks; of a role that helps, whether all of it do."""
    first, *others = attack.seats
    helpers = [
        f"all {seat.role}s" if seat.number is None and seat.role not in DRIVING else seat.role for seat in others
    ]
    return "+".join([first.role, *helpers])


def repairs_of(attack: Attack[Any], config: Any) -> list[str]:
    """The switches against an attack that a system has, and that are not on already."""
    return [switch for switch in known_repairs(attack, config) if not _is_on(switch, config)]


def known_repairs(attack: Attack[Any], config: Any) -> list[str]:
    """The switches against an attack that a system has."""
    names = {entry.name for entry in fields(config)}
    return [switch for switch in attack.repairs if _setting(switch)[0] in names]


def _is_on(switch: str, config: Any) -> bool:
    name, value = _setting(switch)
    return str(getattr(config, name)) == value


def _setting(switch: str) -> tuple[str, str]:
    """The name and the value of a setting, from how it is typed."""
    flag, _, value = switch.partition(" ")
    return flag.removeprefix("--").replace("-", "_"), value or "True"


def _declared(repairs: Sequence[Mapping[str, Any]], config: Any) -> list[str]:
    """Those of a system's repairs that are not on already, as they are typed."""
    return [
        switches_of(values)
        for values in repairs
        if any(getattr(config, name) != value for name, value in values.items())
    ]
