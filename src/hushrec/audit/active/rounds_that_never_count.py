"""Rounds that never count: clients are asked for rounds to come, again and again, and told that none counted.

Where virtual items are drawn anew in each round, what is in every list is rated. An honest server has to wait for
the rounds of a training; this one has as many as it likes, and the training goes on as if they had not been.
"""

import numpy as np

from hushrec.audit.asking import changed, clients_asked
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import Told, judge, told_of
from hushrec.audit.uploads import clients_of, listed, lists
from hushrec.protocol import Role, Round, Seat, View

NUM_ROUNDS = 5


def tell(stage: Stage, _own: Own) -> Round[None]:
    """The next round as it would be; it is begun from the same state each time."""
    yield from changed(stage.honest, lambda request: request)


def look(_before: Told | None, view: View, _own: Own) -> Told:
    """What a client listed every time is rated; what it listed the first time is what it is chosen from."""
    first = view[0].round_number if view else 0
    pairs, counts = np.unique(listed(view).pairs, return_counts=True)
    clients = clients_of(pairs)
    most = np.zeros(int(clients.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, clients, counts)
    in_first = np.isin(pairs, listed([one for one in view if one.round_number == first]).pairs)
    return told_of(clients_asked(view), pairs[in_first], (counts == most[clients])[in_first])


ATTACK = Attack(
    name="rounds that never count",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item, as one that is in each list of rounds that do not count",
    measure="F1",
    sentence=f"In {NUM_ROUNDS} rounds that never count, clients tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    reads=lists,
    look=look,
    judge=judge,
    settings=("rho", "resample"),
    repairs=("--secure-sums", "--resample once"),
    lie=Lie(tell, NUM_ROUNDS),
)
