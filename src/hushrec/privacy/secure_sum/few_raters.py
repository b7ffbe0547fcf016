"""Items with few raters are left out of a sum, so that no row of a sum is of few.

Rows are counted first, in a secure sum of its own; then the server names the items that have fewer than the
least, and who takes part leaves these out. The server has no row of them, not even masked.

Guarantee: no row of a sum is of fewer than the least, but for those who are lost between the two sums, and for
what noise does. Not protected: the counts by which items are left out. Each of n participants may add 1 or -1 to
the count of an item, each with the chance s^2 / 2n, so that all together add noise of deviation s; then items are
left out below the least and two deviations. A participant adds the same in all rounds, as what is drawn anew would
average out. Sums over other participants have other noise, and their differences tell: see `together`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.privacy.masking import MaskedSum, as_ragged
from hushrec.privacy.secure_sum.messages import ItemCounts, LeaveOut, LeftOut, SendCounts, stand_in_for
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.parties import Summed
from hushrec.privacy.secure_sum.server import SubRound, secure_sum
from hushrec.privacy.secure_sum.settings import SecureItemSums
from hushrec.privacy.secure_sum.together import Together
from hushrec.protocol import Answer, Ask, Cohort, Collect, Ragged, Reply

Lists = Callable[[Cohort[Any], Any, Draws], Ragged]  # the items that clients will have rows of in this round

COUNTED = Summed(
    ItemCounts,
    stand_in_for(ItemCounts),
    lambda request, _config, _clients: MaskedSum.zeros(int(request.num_items)),
    lambda _config: Size(1.0),  # never with a user's noise: settings refuse both together
)


@dataclass
class LeavesOut:
    """Private state that knows what is left out."""

    sum_left_out: NDArray[np.bool_]  # (items,)


def leaves_out(config: object) -> bool:
    """Whether items with few raters are left out."""
    return isinstance(config, SecureItemSums) and config.secure_sums and config.secure_least_raters > 1


def counting(lists: Lists) -> Callable[[Cohort[Any], SendCounts, SecureItemSums, Draws], Reply]:
    """What participants answer: a 1 for each item that they will have a row of, with their share of the noise."""

    def counts(cohort: Cohort[Any], request: SendCounts, config: SecureItemSums, draws: Draws) -> Reply:
        items, num_items = lists(cohort, config, draws), int(request.num_items)
        if num_items != len(cohort.private.sum_left_out):
            raise HushrecError("a sum over another number of items than the catalogue has; use its own")
        rows = np.zeros((len(cohort.numbers), num_items), np.int64)
        rows[np.repeat(np.arange(len(rows)), items.lengths), items.values] = 1
        if config.secure_count_noise:
            chance = min(config.secure_count_noise**2 / max(int(request.num_parties), 1), 1.0)
            drawn = uniform_rows(draws.key("secure-count-noise"), cohort.numbers, num_items, -1.0, 1.0)
            rows += np.where(np.abs(drawn) < chance, np.sign(drawn), 0).astype(np.int64)
        return Reply(ItemCounts(as_ragged(rows)))

    return counts


def leave_out(cohort: Cohort[LeavesOut], request: LeaveOut, _config: object, _draws: Draws) -> Reply:
    """Note what is left out of the sum to come."""
    if (request.items >= len(cohort.private.sum_left_out)).any():
        raise HushrecError("an item is to be left out that is not in the catalogue; leave out known ones")
    cohort.private.sum_left_out[:] = False
    cohort.private.sum_left_out[request.items] = True
    return Reply(LeftOut())


def sum_without_few(
    ask: Ask,
    name: str,
    summed: Summed,
    round_number: int,
    config: SecureItemSums,
    draws: Draws,
    num_items: int,
    together: Together | None,
) -> SubRound:
    """A secure sum of rows, without items of which too few have one."""
    counts = MaskedSum.zeros(num_items)
    request = SendCounts(np.array(num_items), np.array(len(ask.to)))
    how = round_number, config, draws, together
    answer = yield from secure_sum(Ask(ask.to, request, counts), f"{name} counts", COUNTED, *how)
    present = answer.came(ask.to)
    least = config.secure_least_raters + 2 * config.secure_count_noise
    left_out = np.flatnonzero(counts.totals < least).astype(np.int32)
    if len(present):
        present = (yield Ask(present, LeaveOut(left_out), Collect())).came(present)
    if not len(present):
        return Answer(ask.to)
    places = np.searchsorted(ask.to, present)
    rest = replace(ask, to=present, request=ask.request.take(places))
    answer = yield from secure_sum(rest, name, summed, *how, left_out)
    return Answer(ask.to[~np.isin(ask.to, answer.came(present))])
