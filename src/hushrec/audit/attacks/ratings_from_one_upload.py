"""Ratings from one upload: the exact ratings behind the rows e_ui U_u + lambda V_i. See `audit.one_upload`."""

from hushrec.audit import one_upload
from hushrec.audit.scoreboard import Attack
from hushrec.protocol import Role, Seat

ATTACK = Attack(
    name="ratings from one upload",
    seats=(Seat(Role.SERVER),),
    guesses="every rating, as the step of the scale on which one upload puts it",
    measure="share exact",
    sentence="Of a user's ratings in one upload, {score:.1%} are read exactly; always guessing the most common "
    "rating is right for {chance:.0%}.",
    reads=one_upload.has_rows,
    look=one_upload.read_uploads,
    judge=one_upload.judge_ratings,
    settings=one_upload.SETTINGS,
    repairs=one_upload.REPAIRS,
)
