"""Attacks on what a party really saw, one file each."""

from typing import Any

from hushrec.attacks import listed_items, top_guess, upload_frequency
from hushrec.attacks.scoreboard import Attack
from hushrec.protocol import System

ATTACKS: dict[str, Attack[Any]] = {
    attack.name: attack for attack in (listed_items.ATTACK, top_guess.ATTACK, upload_frequency.ATTACK)
}


def attacks_on(system: System[Any, Any, Any]) -> list[Attack[Any]]:
    """The attacks that can use what a system sends."""
    return [attack for attack in ATTACKS.values() if attack.applies_to(system)]
