"""Sum without one: over two rounds that never count, the same clients are summed up, the second time but for one.

Masks hide what is in a sum, not what two sums differ by. Clients see their neighbours alone: they cannot tell
somebody who was lost from somebody whom the server says was lost. Both sums are made by the protocol, so no client
has a reason to refuse; of the one who was left out the server has what two sums differ by. It does not keep
clients together (`--secure-together`), and names no items with few raters to be left out: honest servers do.

Who is left out is drawn anew after each honest round, so a run tells of as many as it has rounds. Where clients
draw what they list anew in each round, two rounds differ by that, too: see `sum_begun_again`.
"""

from copy import deepcopy
from dataclasses import replace
from itertools import combinations, permutations, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.asking import Forgiving
from hushrec.audit.attacks.dense_gradients import HALFWAY, distances
from hushrec.audit.attacks.differing_rounds import differences
from hushrec.audit.scoreboard import Attack, Lie, Outcome, Own, Stage, Truth
from hushrec.audit.sums import Remembered, SeenSum, dense_sums_in, everything, f1_beside_popular, sums_in
from hushrec.audit.uploads import Pairs, items_of, paired
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.messages import LeaveOut, MaskedNumbers, SendKeys, SendShares
from hushrec.protocol import Answer, Ask, Numbers, Role, Round, Seat, View

_NO_ONE = np.empty(0, np.int32)
_ROUNDING = 1e-4  # of a row's numbers, which are rounded to 32 bits and then for the sum


def tell(stage: Stage, own: Own) -> Round[None]:
    """The next round; then one like it, in which one participant is said to be lost when each sum begins."""
    left_out: Numbers | None = None
    try:
        ask = next(stage.honest)
        while True:
            to, request = ask.to, ask.request
            if isinstance(request, SendKeys) and stage.turn:
                left_out = _drawn(to, own) if left_out is None else left_out
                to = to[~np.isin(to, left_out)]
            elif isinstance(request, LeaveOut):
                request = replace(request, items=_NO_ONE)
            answer = yield Ask(to, request, Forgiving(ask.replies))
            missing = ask.to[~np.isin(ask.to, to)]
            ask = stage.honest.send(Answer(np.union1d(answer.lost, missing).astype(np.int32)))
    except StopIteration:
        return


def _drawn(participants: Numbers, own: Own) -> Numbers:
    """Who is left out: the attacker's first draw, whenever it is asked for."""
    place = int(deepcopy(own.generator).integers(len(participants)))
    return participants[place : place + 1]


class Told(NamedTuple):
    """What is guessed, ascending, and of whom."""

    pairs: Pairs
    victims: NDArray[np.int64]


def look(_before: Told | None, view: View, own: Own) -> Told:
    """What the sums differ by. Of who was to be left out in vain the whole catalogue: nothing is told."""
    first = takewhile(lambda one: not isinstance(one.message, SendShares), view)
    asked = [one.numbers for one in first if isinstance(one.message, SendKeys)]
    if not asked:
        raise HushrecError("the run makes no secure sums; switch them on")
    sums = sums_in(view, own.settings)
    pairs, victims = differences(Remembered(tuple(sums))) if sums else dense_differences(view, own)
    if len(victims):
        return Told(pairs if own.rating_range else pulled_up(pairs, victims, sums), victims)
    victims = _drawn(np.unique(np.concatenate(asked)), own).astype(np.int64)
    return Told(everything(victims, own.num_items), victims)


def pulled_up(pairs: Pairs, victims: NDArray[np.int64], sums: list[SeenSum]) -> Pairs:
    """Of the items of the one who is left out, those that are pulled up, where an upload ranks items.

    Then all rows are multiples of one vector, whose last number is 1, and below zero for what is pulled up (see
    `audit.attacks.pulled_up`). Rows that are not are of uploads that rank nothing: all items stay.
    """
    for more, less in permutations(sums, 2):
        if more.totals.size and np.array_equal(np.setdiff1d(more.participants, victims), less.participants):
            rows = (more.totals - less.totals)[items_of(pairs)]
            slopes = rows[:, -1:]
            largest = int(np.abs(slopes).argmax())
            if slopes[largest] and np.allclose(rows, slopes * rows[largest] / slopes[largest], atol=_ROUNDING):
                return pairs[slopes[:, 0] < 0]
    return pairs


def dense_differences(view: View, own: Own) -> Told:
    """The same where sums count nothing: the difference is an upload with a row of each item.

    If most rows are zero, the others are of the one's own items; else those that do not fit, as in an upload.
    """
    for one, other in combinations(dense_sums_in(view, own), 2):
        victims = np.setdiff1d(one.participants, other.participants)
        if len(victims) == 1 and len(one.participants) == len(other.participants) + 1:
            rows = one.totals - other.totals
            is_own = rows.any(axis=1)
            if 2 * is_own.sum() > len(rows):
                if one.vectors.shape != rows.shape:
                    continue  # other rows than those of an upload in which most are zero: not read
                is_own = distances(rows[None], one.vectors)[0] > HALFWAY
            items = np.flatnonzero(is_own)
            return Told(paired(np.full(len(items), victims[0]), items), victims)
    return Told(np.empty(0, np.int64), np.empty(0, np.int64))


def judge(told: Told, truth: Truth) -> Outcome:
    """F1 of who was left out."""
    return f1_beside_popular(told.pairs, told.victims, truth.train)


ATTACK = Attack(
    name="sum without one",
    seats=(Seat(Role.ACTIVE_SERVER),),
    guesses="every item of a participant that is left out of a sum, as what two sums differ by",
    measure="F1",
    sentence="Summed up in two rounds, in the second without one who is said to be lost, clients tell that one's "
    "items with an F1 of {score:.3f}; as many of the most popular items give {chance:.2f}.",
    reads=lambda kind: kind is MaskedNumbers,
    look=look,
    judge=judge,
    settings=("secure_sums",),
    repairs=("--epsilon-total 8.0",),
    lie=Lie(tell, 2, is_repeated=True, drops=("secure_together",)),
)
