"""Rated items in one upload: those whose ratings are on steps of the scale, as virtual ones are not."""

from dataclasses import replace

from hushrec.audit import one_upload
from hushrec.audit.attacks import ratings_from_one_upload

ATTACK = replace(
    ratings_from_one_upload.ATTACK,
    name="rated items in one upload",
    guesses="a user's items, as those with a rating on a step of the scale",
    measure="precision",
    sentence="Of the items that one upload says are the user's own, {score:.1%} are; of all that it lists, "
    "{chance:.0%}.",
    judge=one_upload.judge_items,
    repairs=(*one_upload.REPAIRS, "--filling drawn"),
)
