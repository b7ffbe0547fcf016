"""Foreign items read: how much of users' interactions with other owners' items collusion told, over all rounds."""

from dataclasses import replace

import numpy as np

from hushrec.audit.attacks import foreign_items
from hushrec.audit.attacks.foreign_items import Foreign
from hushrec.audit.interactions import interacted
from hushrec.audit.scoreboard import Outcome, Truth
from hushrec.audit.uploads import paired


def judge(read: Foreign, truth: Truth) -> Outcome:
    """The share of a user's interactions with items that no colluding owner holds. Blind: as many guesses."""
    known = interacted(truth)
    is_foreign = known.is_held.copy()
    is_foreign[read.held] = False
    rows = is_foreign[known.items]
    users, pairs = known.users[rows], paired(known.users[rows], known.items[rows])
    is_read = np.isin(pairs, read.pairs)
    blind = np.bincount(users, is_read, known.events.num_users) / max(int(is_foreign.sum()), 1)
    return Outcome.of_marks(users, is_read, blind[users])


ATTACK = replace(
    foreign_items.ATTACK,
    name="foreign items read",
    guesses="users' interactions with items of other owners",
    measure="recall",
    sentence="The orchestrator and one owner together have read {score:.1%} of a user's interactions with items "
    "that the owner does not hold; as many blind guesses find {chance:.1%}. The owner alone gets none of them.",
    judge=judge,
    only_last=True,
)
