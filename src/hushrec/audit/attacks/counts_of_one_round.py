"""Counts of one round: of n participants c have an item, so each of them has it with the chance c / n.

With few participants the counts of a round are much of each one's own list. An item with no raters is nobody's,
one with n is everybody's. Where lists are seen, as with shares, it is c / l of the l participants who list it.
"""

import numpy as np

from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.sums import Floats, Remembered, SeenSum, everything, has_sums, judged, remember
from hushrec.audit.uploads import Pairs, items_of
from hushrec.protocol import Role, Seat


def likely(seen: SeenSum) -> tuple[Pairs, Floats]:
    """Pairs of participants and items, ascending, and how likely each is by the counts of one sum."""
    if seen.listed is not None:
        items = items_of(seen.listed)
        num_listing = np.bincount(items, minlength=len(seen.counts))
        return seen.listed, seen.counts[items] / num_listing[items]
    pairs = everything(seen.participants, len(seen.counts))
    return pairs, np.tile(seen.counts / max(len(seen.participants), 1), len(seen.participants))


def judge(known: Remembered, truth: Truth) -> Outcome:
    """AUC by participant of the round, of each sum of it."""
    outcomes = [judged(*likely(seen), truth.train) for seen in known.of_last_round()]
    if not outcomes:
        return Outcome.of_victims(np.empty(0, np.int64), np.empty(0), np.empty(0))
    victims, right, blind, _ = (np.concatenate(column) for column in zip(*outcomes, strict=True))
    return Outcome.of_marks(victims, right, blind)


ATTACK = Attack(
    name="counts of one round",
    seats=(Seat(Role.SERVER),),
    guesses="a participant's items, as those with many raters among few participants",
    measure="AUC",
    sentence="Of one of a participant's own items and another, the counts of a single round tell the own one in "
    "{score:.1%} of cases; how popular items are among all others tells it in {chance:.1%}.",
    reads=has_sums,
    look=remember,
    judge=judge,
    repairs=("--participation 1.0",),
)
