"""Asked in the clear: clients that mask their uploads are sent the request of a system that does not mask them.

A system that knows two requests for a round, one of which is answered with masked numbers, is only as safe as its
clients are firm. The other request is made of the columns of the honest one, with a V of zeros: see `another_v`.
"""

from typing import Any

import numpy as np

from hushrec.audit.active.another_v import look
from hushrec.audit.asking import asks_clients
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import judge
from hushrec.audit.uploads import lists
from hushrec.protocol import Ask, Collect, Message, Recorded, Role, Round, Seat

_MADE_UP = ("item_factors", "counted_round", "denoiser")


def tell(stage: Stage, _own: Own) -> Round[None]:
    """Those who answered with masked numbers are asked again, for numbers in the clear."""
    if any(lists(type(one.message), "gradients") for one in stage.view):
        return  # as they are in an honest round
    honest = [one for one in stage.view if asks_clients(type(one.message), *_MADE_UP[:2])]
    kinds = [kind for kind in stage.messages if asks_clients(kind, *_MADE_UP) and _can_be_made(kind)]
    for one in honest:
        if kinds and type(one.message) is type(honest[0].message):
            yield Ask(one.numbers, _made(kinds[0], one), Collect())


def _can_be_made(kind: type[Message]) -> bool:
    return {column.name for column in kind.kinds()} <= set(_MADE_UP)


def _made(kind: type[Message], honest: Recorded) -> Message:
    """A request of another type, of the columns of an honest one; all have the first client for a denoiser."""
    told: Any = honest.message
    columns = {
        "item_factors": np.zeros_like(told.item_factors),
        "counted_round": told.counted_round,
        "denoiser": np.full(len(honest.numbers), honest.numbers[0], np.int32),
    }
    return kind(**{column.name: columns[column.name] for column in kind.kinds()})


ATTACK = Attack(
    name="asked in the clear",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item, from rows that clients should have masked",
    measure="F1",
    sentence="Asked for rows in the clear instead of masked ones, clients tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    reads=lambda kind: asks_clients(kind, *_MADE_UP),
    look=look,
    judge=judge,
    settings=("shares", "rho", "filling"),
    lie=Lie(tell),
)
