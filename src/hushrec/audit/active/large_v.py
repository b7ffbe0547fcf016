"""Large V: vectors so long that SDCF's noise is nothing beside the rows, and different for every item.

V_i is c s_i times the first unit vector, with a huge c and s_i between 1 and 2. The error of a rated item is then
c s_i U_u1, whatever its rating is; that of another item is the error of some rated item j, with s_j in place of
s_i. In the columns without V a row is gamma e_ui U_u less the noise: divided by s_i it is the same number for all
rated items of a client. Clients are asked again in the same round.

Symbols: U = user_factors, V = item_factors, gamma = learning_rate.
"""

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.asking import changed, clients_asked, with_vectors
from hushrec.audit.scoreboard import Attack, Lie, Own, Stage
from hushrec.audit.told import Told, judge_of_list, nothing_of, told_of
from hushrec.audit.uploads import lists, paired
from hushrec.protocol import Message, Role, Round, Seat, View

_SIZE = 1e12  # c
_SPREAD = 1e3  # more than the logarithms of two numbers ever differ


def scales(num_items: int) -> NDArray[np.float64]:
    """s_i of all items: as far from each other as can be."""
    return 1 + np.arange(num_items) / num_items


def long_vectors(vectors: NDArray[np.float32], size: float = _SIZE) -> NDArray[np.float32]:
    """The V that is sent: of this size times s_i."""
    made = np.zeros_like(vectors)
    made[:, 0] = size * scales(len(vectors))
    return made


def tell(stage: Stage, _own: Own) -> Round[None]:
    """The round again, with long vectors."""
    yield from changed(stage.honest, with_vectors(long_vectors))


def look(_before: Told | None, view: View, _own: Own) -> Told:
    """Items whose rows, divided by s_i, are what most of a client's are."""
    asked = clients_asked(view)
    uploads = [one for one in view if lists(type(one.message), "gradients")]
    sizes = [len(_vectors(one.message)) for one in view if hasattr(one.message, "item_factors")]
    if not uploads or not sizes:
        return nothing_of(asked)
    lengths = np.concatenate([one.message.lengths for one in uploads])
    clients = np.concatenate([one.numbers for one in uploads]).astype(np.int64)
    items = np.concatenate([one.message.column("items").values for one in uploads])
    rows = np.concatenate([one.message.column("gradients").values[:, 1:] for one in uploads]).astype(np.float64)
    who = np.repeat(np.arange(len(clients)), lengths)
    along = _largest_column(rows, who, len(clients)) / scales(sizes[0])[items]
    is_rated = _in_agreement(who, along, 1 / (8 * sizes[0]))
    return told_of(asked, paired(clients[who], items), is_rated)


def _vectors(message: Message) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = message.item_factors  # type: ignore[attr-defined]
    return vectors


def _largest_column(rows: NDArray[np.float64], who: NDArray[np.int64], num_clients: int) -> NDArray[np.float64]:
    """Of each row the number in the column that is largest in all rows of its client."""
    totals = np.stack([np.bincount(who, np.abs(column), num_clients) for column in rows.T], axis=1)
    best: NDArray[np.float64] = rows[np.arange(len(rows)), np.argmax(totals, axis=1)[who]]
    return best


def _in_agreement(who: NDArray[np.int64], numbers: NDArray[np.float64], tolerance: float) -> NDArray[np.bool_]:
    """Whether each number is, but for the tolerance, that on which most of its client agree; at least two must."""
    with np.errstate(divide="ignore"):
        heights = np.clip(np.log(np.abs(numbers)), -0.4 * _SPREAD, 0.4 * _SPREAD)
    places = who * _SPREAD + heights
    ascending = np.sort(places)
    first, last = (np.searchsorted(ascending, places + shift) for shift in (-tolerance, tolerance))
    num_near = last - first
    best = np.lexsort((num_near, who))
    is_last = np.append(np.diff(who[best]) != 0, True) if len(best) else np.empty(0, np.bool_)
    centre = np.zeros(int(who.max(initial=-1)) + 1)
    enough = np.zeros(len(centre), np.bool_)
    centre[who[best[is_last]]] = places[best[is_last]]
    enough[who[best[is_last]]] = num_near[best[is_last]] > 1
    return np.asarray((np.abs(places - centre[who]) <= tolerance) & enough[who])


ATTACK = Attack(
    name="large V",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every rated item that is reported, as one whose error follows from a huge V",
    measure="F1",
    sentence="With a V beside which noise is nothing, clients tell which items that they report are rated with an "
    "F1 of {score:.3f}; a blind guess has {chance:.2f}.",
    reads=lambda kind: lists(kind, "gradients"),
    look=look,
    judge=judge_of_list,
    settings=("temperature", "report_if_set"),
    repairs=("--secure-sums",),
    lie=Lie(tell),
)
