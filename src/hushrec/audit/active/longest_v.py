"""Longest V: vectors as long as a node takes, in a round to come: see `large_v`."""

from dataclasses import replace

from hushrec.audit.active import large_v
from hushrec.audit.asking import changed, with_vectors
from hushrec.audit.scoreboard import Lie, Own, Stage
from hushrec.protocol import Round
from hushrec.runtime.guard import longest_vector


def tell(stage: Stage, own: Own) -> Round[None]:
    """The next round, with vectors that are not longer than any node takes: the longest s_i is below 2."""
    size = longest_vector(own.rating_range) / 2
    yield from changed(stage.honest, with_vectors(lambda vectors: large_v.long_vectors(vectors, size)))


ATTACK = replace(
    large_v.ATTACK,
    name="longest V",
    guesses="every rated item that is reported, as one whose error follows from the longest V that is taken",
    sentence="With the longest V that a node takes, clients tell which items that they report are rated with an "
    "F1 of {score:.3f}; a blind guess has {chance:.2f}.",
    lie=Lie(tell, 1),
)
