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


def test_where_nothing_is_hidden_a_verdict_does_not_say_that_nothing_is_learned() -> None:
    """With rho 0 every listed item is rated: a blind guess among them is right, and no attack can be better."""
    attack, config = ATTACKS["another V"], SYSTEMS["fedrec"].config()
    other = Finding(ATTACKS["rounds that never count"], 0.4, 0.4, None, [])
    (line,) = verdicts([other, Finding(attack, 1.0, 1.0, (1.0, 1.0), [])], config)
    assert line.startswith("the active-server: need not attack, a blind guess knows every rated item (another V: ")
    assert "; against it: --secure-sums" in line


def test_what_is_read_comes_before_what_is_not_hidden() -> None:
    """One that reads ratings says more than one that finds items which are told anyway."""
    config = SYSTEMS["fedrec"].config()
    told = Finding(ATTACKS["rated items in one upload"], 1.0, 1.0, None, [])
    read = Finding(ATTACKS["ratings from one upload"], 1.0, 0.35, (0.9, 1.0), [])
    (line,) = verdicts([told, read], config)
    assert line.startswith("the server: reads every rating (")


def test_a_switch_that_is_on_and_did_not_help_is_not_named() -> None:
    """All of a client's denoisers read its items in spite of `--shares 2`: nothing that the system has helps."""
    system, attack = SYSTEMS["fedrec++"], ATTACKS["noise match"]
    config = system.configure({"shares": 2, "denoisers": 2})
    (line,) = verdicts([Finding(attack, 1.0, 0.4, None, [])], config, system.about.repairs)
    assert "against it" not in line
    (before,) = verdicts([Finding(attack, 1.0, 0.4, None, [])], system.config(), system.about.repairs)
    assert "; against it: --shares 2" in before
