"""Longest V: vectors as long as a node takes, in a round to come: see `large_v`."""

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.active.large_v import look, scales
from hushrec.audit.asking import changed, with_vectors
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import judge_of_list
from hushrec.audit.uploads import lists
from hushrec.protocol import Role, Round, Seat
from hushrec.runtime.guard import longest_vector


def tell(stage: Stage, own: Own) -> Round[None]:
    """The next round, with vectors that are not longer than any node takes."""
    longest = longest_vector(own.rating_range)

    def long_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        made = np.zeros_like(vectors)
        made[:, 0] = longest / 2 * scales(len(vectors))
        return made

    yield from changed(stage.honest, with_vectors(long_vectors))


ATTACK = Attack(
    name="longest V",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item that is reported, as one whose error follows from the longest V that is taken",
    measure="F1",
    sentence="With the longest V that a node takes, clients tell which items that they report are rated with an "
    "F1 of {score:.3f}; a blind guess has {chance:.2f}.",
    reads=lambda kind: lists(kind, "gradients"),
    look=look,
    judge=judge_of_list,
    settings=("temperature", "report_if_set"),
    repairs=("--secure-sums",),
    lie=Lie(tell, 1),
)
