"""Chosen V: in a round to come, once, clients are sent a V of zeros.

No request is repeated and no round is too many: of what a node can check, all is in order. The V of a round is
what the server says it is. What it tells is what `another_v` tells.
"""

import numpy as np

from hushrec.audit.active.another_v import look
from hushrec.audit.asking import changed, with_vectors
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import judge
from hushrec.audit.uploads import lists
from hushrec.protocol import Role, Round, Seat


def tell(stage: Stage, _own: Own) -> Round[None]:
    """The next round, with a V of zeros."""
    yield from changed(stage.honest, with_vectors(np.zeros_like))


ATTACK = Attack(
    name="chosen V",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item, as a row that differs from most when V is all zeros",
    measure="F1",
    sentence="Sent a V of zeros in the next round, clients tell their rated items with an F1 of {score:.3f}; a "
    "blind guess has {chance:.2f}.",
    reads=lambda kind: lists(kind, "gradients"),
    look=look,
    judge=judge,
    settings=("rho", "filling"),
    repairs=("--secure-sums", "--shares 2", "--filling drawn"),
    lie=Lie(tell, 1),
)
