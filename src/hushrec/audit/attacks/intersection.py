"""Intersection: the items that are in every upload of a client are its own; others were drawn anew each time."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.upload_frequency import Counts, add_round
from hushrec.audit.scoreboard import Attack, Outcome, Truth
from hushrec.audit.uploads import by_client, clients_of, distinct, is_own, listed, lists
from hushrec.protocol import Role, Seat, View


class Seen(NamedTuple):
    """In how many rounds each pair was listed, and each client listed anything."""

    counts: Counts
    clients: Counts  # of clients instead of pairs


def count(before: Seen | None, view: View) -> Seen:
    """The counts with one more round."""
    pairs = distinct(listed(view).pairs)
    known = (None, None) if before is None else before
    return Seen(add_round(known[0], pairs), add_round(known[1], by_client(pairs)[0]))


def in_every_upload(seen: Seen) -> NDArray[np.bool_]:
    """Whether each pair was in all uploads of its client."""
    owners = np.searchsorted(seen.clients.pairs, clients_of(seen.counts.pairs))
    return np.asarray(seen.counts.times == seen.clients.times[owners])


def judge(seen: Seen, truth: Truth) -> Outcome:
    """Precision by client. Blind: of all lists together, as of a list by itself."""
    pairs, is_in = seen.counts.pairs, in_every_upload(seen)
    own = is_own(pairs, truth.train)
    clients, place = by_client(pairs)
    size = len(clients)
    num_in, num_hits = (np.bincount(place, marks, size) for marks in (is_in, is_in & own))
    listed_times, own_times = (np.bincount(place, seen.counts.times * marks, size) for marks in (1, own))
    told = num_in > 0
    return Outcome.of_victims(clients[told], num_hits[told] / num_in[told], own_times[told] / listed_times[told])


ATTACK = Attack(
    name="intersection",
    seats=(Seat(Role.SERVER),),
    guesses="a user's items, as those in every upload so far",
    measure="precision",
    sentence="Of the items in every upload of a user, {score:.0%} are its own; of those in a single one, "
    "{chance:.0%}.",
    reads=lists,
    look=lambda before, view, _own: count(before, view),
    judge=judge,
    only_last=True,
    repairs=("--resample once", "--secure-sums"),
)
