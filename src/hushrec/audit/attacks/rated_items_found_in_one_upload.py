"""Rated items found in one upload: how many of them are among those with a rating on a step of the scale."""

from dataclasses import replace

from hushrec.audit import one_upload
from hushrec.audit.attacks import ratings_from_one_upload

ATTACK = replace(
    ratings_from_one_upload.ATTACK,
    name="rated items found in one upload",
    guesses="a user's items, all that have a rating on a step of the scale",
    measure="recall",
    sentence="Of the user's items in one upload, {score:.1%} are found; as many blind guesses among all that it "
    "lists find {chance:.0%}.",
    judge=one_upload.judge_found,
    repairs=(*one_upload.REPAIRS, "--filling drawn"),
)
