"""Public vectors: which items others have, for one client that watches how far the item vectors move.

Every participant is sent V in every round, and an item's vector moves as those who trained on it push it. Where
the server adds up, what many have moves furthest; where it takes means, what few have. The watcher sees which by
the items of its own uploads. The guess is the same about all others: it finds what is common among them, and tells
of a person only where few take part in a round. So a list of the items that most others have stands beside it as
the blind guess. No published attack; the weakest seat that there is, beside which what the server can do is to be
seen.
"""

from typing import NamedTuple

import numpy as np

from hushrec.audit.item_rows import Floats, item_rows
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.audit.sums import judged_alike, ranked
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, Seat, View

WATCHER = 0  # the client that watches


class Watched(NamedTuple):
    """The item vectors as they were sent last, and how far each has moved in all."""

    vectors: Floats
    moved: Floats  # (items,)
    times: int  # that they were sent
    told: Floats  # (items,): how much the watcher's own uploads said of each

    def scores(self) -> Floats:
        """How much others seem to have each item: how far it moved, or the reverse, as the watcher's own say."""
        ranks = ranked(self.moved)
        is_further = float(self.told @ ranks) >= float(self.told.sum() * ranks.mean())
        return ranks if is_further else -ranks


def is_public(message_type: type[Message]) -> bool:
    """Whether the server sends clients the item vectors."""
    columns = {column.name: column.layout for column in message_type.kinds()}
    is_to_clients = message_type.sender == Role.SERVER and message_type.receiver == Role.CLIENT
    return is_to_clients and columns.get("item_factors") == "shared"


def watch(before: Watched | None, view: View, own: Own) -> Watched:
    """What has moved after one more round; sent once, vectors do not tell."""
    for one in view:
        if not is_public(type(one.message)):
            continue
        vectors: Floats = one.message.item_factors.astype(np.float64)  # type: ignore[attr-defined]
        if before is None:
            before = Watched(vectors, np.zeros(len(vectors)), 1, np.zeros(len(vectors)))
        elif before.vectors.shape == vectors.shape:
            step = np.linalg.norm(vectors - before.vectors, axis=1)
            before = before._replace(vectors=vectors, moved=before.moved + step, times=before.times + 1)
    if before is None:
        raise HushrecError("the client that watches was not sent the item vectors yet")
    told = before.told.copy()
    for batch in item_rows(view, own.settings):
        np.add.at(told, batch.items, np.abs(batch.sizes()))
    return before._replace(told=told)


def judge(watched: Watched, truth: Truth) -> Outcome:
    """Per other user: how often one of its items has moved further than another item; nothing after one round.

    Blind: how often more of the others have it.
    """
    others = np.arange(truth.train.num_users if watched.times > 1 else 0)
    victims = others[others != WATCHER]
    return judged_alike(victims, watched.scores(), truth.train)


ATTACK = Attack(
    name="public vectors",
    seats=(Seat(Role.CLIENT, WATCHER),),
    guesses="the items that others have, by how far their public vectors moved",
    measure="AUC",
    sentence="Of an item that another user has and one that it has not, how far vectors moved, which every "
    "participant sees, tells the former in {score:.0%} of cases; a list of what most have, in {chance:.0%}.",
    reads=is_public,
    look=watch,
    judge=judge,
    only_last=True,
)
