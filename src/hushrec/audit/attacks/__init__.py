"""Attacks, one file each. An attack is one line here; those of other packages come in by entry points."""

import logging
from typing import Any

from hushrec.audit.scoreboard import Attack
from hushrec.errors import HushrecError
from hushrec.plugins import Registry
from hushrec.protocol import AnySystem

_log = logging.getLogger("hushrec")

ATTACKS: Registry[Attack[Any]] = Registry(
    "attack",
    "hushrec.attacks",
    "ATTACK",
    {
        "ratings from one upload": f"{__name__}.ratings_from_one_upload",
        "rated items in one upload": f"{__name__}.rated_items_in_one_upload",
        "rated items found in one upload": f"{__name__}.rated_items_found_in_one_upload",
        "noise match": f"{__name__}.noise_match",
        "intersection": f"{__name__}.intersection",
        "listed items": f"{__name__}.listed_items",
        "top guess": f"{__name__}.top_guess",
        "order change": f"{__name__}.order_change",
        "upload frequency": f"{__name__}.upload_frequency",
        "frequency with scores": f"{__name__}.frequency_with_scores",
        "pulled up": f"{__name__}.pulled_up",
        "fitting pairs": f"{__name__}.fitting_pairs",
        "server extraction 1%": f"{__name__}.server_extraction_1",
        "server extraction 10%": f"{__name__}.server_extraction",
        "server extraction 50%": f"{__name__}.server_extraction_50",
        "server extraction untold": f"{__name__}.server_extraction_untold",
        "dense gradients": f"{__name__}.dense_gradients",
        "error signs": f"{__name__}.error_signs",
        "step direction": f"{__name__}.step_direction",
        "sent blocks": f"{__name__}.sent_blocks",
        "request watching": f"{__name__}.request_watching",
        "score difference": f"{__name__}.score_difference",
        "gradient direction": f"{__name__}.gradient_direction",
        "gradient sign": f"{__name__}.gradient_sign",
        "interactions read": f"{__name__}.interactions_read",
        "linked items": f"{__name__}.linked_items",
        "foreign items": f"{__name__}.foreign_items",
        "foreign items read": f"{__name__}.foreign_items_read",
        "flag reading": f"{__name__}.flag_reading",
        "wire reading": f"{__name__}.wire_reading",
        "packet lengths": f"{__name__}.packet_lengths",
        "gradient inversion": f"{__name__}.gradient_inversion",
        "item vectors": f"{__name__}.item_vectors",
        "ratings from gradients": f"{__name__}.ratings_from_gradients",
        "item identification": f"{__name__}.item_identification",
        "joint identification": f"{__name__}.joint_identification",
        "joint ratings": f"{__name__}.joint_ratings",
        "accuracy reference": f"{__name__}.accuracy_reference",
        "training": f"{__name__}.training",
        "training on 1%": f"{__name__}.training_1",
        "training on 50%": f"{__name__}.training_50",
        "joint answers": f"{__name__}.joint_answers",
        "model extraction": f"{__name__}.model_extraction",
        "shadow membership": f"{__name__}.shadow_membership",
        "uploaded preferences": f"{__name__}.uploaded_preferences",
        "public vectors": f"{__name__}.public_vectors",
        "gender inference": f"{__name__}.gender_inference",
        "age inference": f"{__name__}.age_inference",
        "occupation inference": f"{__name__}.occupation_inference",
        "lone rows": f"{__name__}.lone_rows",
        "counts of one round": f"{__name__}.counts_of_one_round",
        "differing rounds": f"{__name__}.differing_rounds",
        "count equations": f"{__name__}.count_equations",
        "another V": "hushrec.audit.active.another_v",
        "chosen V": "hushrec.audit.active.chosen_v",
        "large V": "hushrec.audit.active.large_v",
        "longest V": "hushrec.audit.active.longest_v",
        "forged letter": "hushrec.audit.active.forged_letter",
        "lone letter": "hushrec.audit.active.lone_letter",
        "lone shares": "hushrec.audit.active.lone_shares",
        "rounds that never count": "hushrec.audit.active.rounds_that_never_count",
        "rounds beyond the last": "hushrec.audit.active.rounds_beyond_the_last",
        "sum without one": "hushrec.audit.active.sum_without_one",
        "sum begun again": "hushrec.audit.active.sum_begun_again",
        "invented items": "hushrec.audit.active.invented_items",
        "asked in the clear": "hushrec.audit.active.asked_in_the_clear",
        "believed table": "hushrec.audit.active.believed_table",
        "invented partner": "hushrec.audit.active.invented_partner",
    },
    kind="hushrec.audit.scoreboard:Attack",
)


def attacks_on(system: AnySystem, is_active: bool = False) -> list[Attack[Any]]:
    """The attacks that can use what is sent in a system: those who keep to the protocol make, or an active server.

    One of others that cannot say what it uses is left out.
    """
    found = []
    for name, attack in ATTACKS.items():
        try:
            if (attack.lie is not None) == is_active and attack.applies_to(system):
                found.append(attack)
        except Exception as error:
            if ATTACKS.is_built_in(name):
                raise
            _log.warning("the attack %s is left out (%r); update or remove its package", name, error)
    return found


def attacks_named(text: str | None, system: AnySystem, is_active: bool = False) -> list[Attack[Any]]:
    """Those attacks on a system that are named in a list with commas, in its order; None: all, active or not."""
    if text is None:
        return attacks_on(system, is_active)
    by_name = {_as_typed(attack.name): attack for attack in (*attacks_on(system), *attacks_on(system, True))}
    wanted = [_as_typed(name) for name in text.split(",")]
    for name in wanted:
        if name not in by_name:
            choice = f"choose from {', '.join(by_name)}" if by_name else "there is none on it"
            raise HushrecError(f"--attacks {text}: no attack {name} on {system.name}; {choice}")
    return [by_name[name] for name in dict.fromkeys(wanted)]


def _as_typed(name: str) -> str:
    """The name of an attack as one word."""
    return name.strip().lower().replace(" ", "-")
