"""Attacks on what a party really saw, one file each."""

from typing import Any

from hushrec.audit.attacks import (
    dense_gradients,
    error_signs,
    listed_items,
    sent_blocks,
    top_guess,
    upload_frequency,
)
from hushrec.audit.scoreboard import Attack
from hushrec.protocol import AnySystem, System

ATTACKS: dict[str, Attack[Any]] = {
    module.ATTACK.name: module.ATTACK
    for module in (listed_items, top_guess, upload_frequency, dense_gradients, error_signs, sent_blocks)
}


def attacks_on(system: AnySystem) -> list[Attack[Any]]:
    """The attacks that can use what a system sends."""
    return [attack for attack in ATTACKS.values() if attack.applies_to(system)]
