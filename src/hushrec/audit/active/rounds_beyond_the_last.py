"""Rounds beyond the last: clients are asked for rounds that the run does not have, after its end.

What they tell is what rounds that never count tell (`rounds_that_never_count`), but there is no end to them.
"""

from dataclasses import replace

from hushrec.audit.active import rounds_that_never_count as within
from hushrec.audit.scoreboard import Lie

ATTACK = replace(
    within.ATTACK,
    name="rounds beyond the last",
    guesses="every rated item, as one that is in each list of rounds after the last",
    sentence=f"In {within.NUM_ROUNDS} rounds after the last one, clients tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    lie=Lie(within.tell, within.NUM_ROUNDS, is_beyond=True),
)
