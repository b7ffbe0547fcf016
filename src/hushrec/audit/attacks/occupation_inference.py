"""Occupation inference: as `gender_inference.py`, of the occupations that enough of the known users have."""

from dataclasses import replace

from hushrec.audit.attacks import gender_inference
from hushrec.audit.attributes import judge

ATTACK = replace(
    gender_inference.ATTACK,
    name="occupation inference",
    guesses="a user's occupation, from all uploads, with that of half of the users known",
    sentence="Who knows the occupation of half of the users guesses that of the others rightly, each one counted "
    "alike, in {score:.0%} of cases; always guessing the most common one has {chance:.0%}.",
    judge=lambda inferred, truth: judge(inferred, truth.attributes, "occupation"),
)
