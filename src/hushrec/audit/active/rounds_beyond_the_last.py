"""Rounds beyond the last: clients are asked for rounds that the run does not have, after its end.

What they tell is what rounds that never count tell (`rounds_that_never_count`), but there is no end to them.
"""

from hushrec.audit.active.rounds_that_never_count import look, tell
from hushrec.audit.scoreboard import Attack, Lie
from hushrec.audit.told import judge
from hushrec.audit.uploads import lists
from hushrec.protocol import Role, Seat

_NUM_ROUNDS = 5

ATTACK = Attack(
    name="rounds beyond the last",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item, as one that is in each list of rounds after the last",
    measure="F1",
    sentence=f"In {_NUM_ROUNDS} rounds after the last one, clients tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    reads=lists,
    look=look,
    judge=judge,
    settings=("rho", "resample"),
    repairs=("--secure-sums", "--resample once"),
    lie=Lie(tell, _NUM_ROUNDS, is_beyond=True),
)
