"""Gradient sign: as `gradient_direction.py`, with the sign of each user's part, which tells liked from not."""

from dataclasses import replace

from hushrec.audit.attacks import gradient_direction
from hushrec.audit.interactions import interacted

ATTACK = replace(
    gradient_direction.ATTACK,
    name="gradient sign",
    guesses="the same, and whether it was positive",
    sentence="With the sign, which says whether it was positive, {score:.1%} are right; of blind guesses "
    "{chance:.1%}.",
    judge=lambda read, truth: interacted(truth).judged(read.now, with_sign=True),
)
