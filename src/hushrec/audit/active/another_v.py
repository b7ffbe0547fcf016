"""Another V: clients are asked again in the same round, with a V of zeros. Virtual items then have equal rows.

With V = 0 a row e_ui U_u + lambda V_i is -r_ui U_u. Virtual items of a client all have the same rating, its mean,
or a prediction, which is zero (or the client's bias); so their rows are equal, and there are more of them than of
any rating. Nothing need be known of the scale of ratings. Clients take the second request for one that is
repeated. Virtual ratings that are drawn from the client's own have the rows of these.
"""

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.asking import changed, clients_asked, with_vectors
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import Told, judge, told_of
from hushrec.audit.uploads import distinct, listed, lists, paired
from hushrec.protocol import Recorded, Role, Round, Seat, View


def tell(stage: Stage, _own: Own) -> Round[None]:
    """The round again, with a V of zeros."""
    yield from changed(stage.honest, with_vectors(np.zeros_like))


def look(_before: Told | None, view: View, own: Own) -> Told:
    """What is not in a client's largest group of equal rows is rated."""
    asked = clients_asked(view)
    uploads = [one for one in view if lists(type(one.message), "gradients")]
    if not uploads:  # at most lists, with masked rows
        pairs = distinct(listed(view).pairs)
        return told_of(asked, pairs, np.ones(len(pairs), np.bool_))
    who = np.concatenate([np.repeat(one.numbers, one.message.lengths) for one in uploads]).astype(np.int64)
    items = np.concatenate([one.message.column("items").values for one in uploads])
    if (
        not own.settings["rho"] or own.settings.get("filling") == "drawn"
    ):  # no virtual items, or none that can be told
        return told_of(asked, paired(who, items), np.ones(len(who), np.bool_))
    return told_of(asked, paired(who, items), ~_in_largest_group(who, _marks(uploads)))


def _marks(uploads: list[Recorded]) -> NDArray[np.float64]:
    """A number of each row: equal for equal errors, as all rows of a client are multiples of one vector."""
    return np.concatenate([one.message.column("gradients").values[:, -1] for one in uploads]).astype(np.float64)


def _in_largest_group(who: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each row is one of the most that a client has with the same mark; never, if all marks differ."""
    order = np.lexsort((marks, who))
    is_first = np.ones(len(who), np.bool_)
    is_first[1:] = (np.diff(who[order]) != 0) | (np.diff(marks[order]) != 0)
    groups = np.cumsum(is_first) - 1
    sizes = np.bincount(groups)
    owners = who[order][is_first]
    largest = np.zeros(int(owners.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, owners, sizes)
    is_largest = (sizes == largest[owners]) & (sizes > 1)
    found = np.empty(len(who), np.bool_)
    found[order] = is_largest[groups]
    return found


ATTACK = Attack(
    name="another V",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item, as a row that differs from most when V is all zeros",
    measure="F1",
    sentence="Asked again in the same round with a V of zeros, clients tell their rated items with an F1 of "
    "{score:.3f}; a blind guess has {chance:.2f}.",
    reads=lambda kind: lists(kind, "gradients"),
    look=look,
    judge=judge,
    settings=("rho", "filling"),
    repairs=("--secure-sums", "--shares 2", "--filling drawn"),
    lie=Lie(tell),
)
