"""Who a verdict is about."""

from dataclasses import replace

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.scoreboard import Finding
from hushrec.audit.verdicts import verdicts
from hushrec.protocol import Role, Seat
from hushrec.registry import SYSTEMS


def test_a_verdict_says_whether_all_of_a_role_help() -> None:
    """By default noise match has the help of all denoisers; with `--as server+denoiser`, of one."""
    attack, config = ATTACKS["noise match"], SYSTEMS["fedrec++"].config()
    one = replace(attack, seats=(Seat(Role.SERVER), Seat(Role.DENOISER, 3)))
    lines = [verdicts([Finding(who, 1.0, 0.4, None, [])], config)[0] for who in (attack, one)]
    assert lines[0].startswith("the server+all denoisers: ")
    assert lines[1].startswith("the server+denoiser: ")
