# mypy: allow-untyped-defs, allow-untyped-calls
"""What a client of FedNCF does with the model: it learns from its samples and, if asked to, hides them.

To hide them it plays `rho` further clients, who start from its own vector and have as many positives and negatives
as it has, all of them virtual: items that it has not listed, drawn at random. Of these the best scored ones are
the positives, as people like what the model thinks they like. What these clients would learn is noise; nothing of
it stays, and nothing of what is learned from real samples depends on it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.draws import BLOCK_WORDS, Draws, shuffle
from hushrec.privacy.filling import Listing, list_items
from hushrec.protocol import Cohort, Numbers, Ragged
from hushrec.systems.fedncf.network import (
    Floats,
    NcfClients,
    NcfModel,
    Places,
    Training,
    train_clients,
)


class Learned(NamedTuple):
    """What clients list, and how far they would move it."""

    listing: Listing
    steps: Floats

    @property
    def items(self) -> Ragged:
        """The listed items."""
        return Ragged(self.listing.starts, self.listing.items)

    @property
    def gradients(self) -> Ragged:
        """The step of each listed item."""
        return Ragged(self.listing.starts, self.steps)


class Sent(NamedTuple):
    """What clients were sent."""

    item_factors: Floats
    layers: Floats


def drawn_samples(cohort: Cohort[NcfClients], num_negatives: int, draws: Draws) -> Listing:
    """Positives, and negatives that are drawn for this round."""
    clients, key = cohort.private, draws.key("negatives")
    return list_items(clients, cohort.rows, cohort.numbers, num_negatives, key, cohort.round_number)


def learn(cohort: Cohort[NcfClients], sent: Sent, num_negatives: int, training: Training, draws: Draws) -> Learned:
    """Train on positives and drawn negatives; keep the vectors and, until asked for, the steps of the layers."""
    clients, rows, numbers, round_number = cohort.private, cohort.rows, cohort.numbers, cohort.round_number
    clients.check_fit(*sent)
    listing = drawn_samples(cohort, num_negatives, draws)
    clients.begin(rows, round_number)
    user_factors = clients.user_factors[rows]
    item_steps, layer_steps = train_clients(
        user_factors, *sent, listing, numbers, round_number, training, draws.key("order")
    )
    clients.user_factors[rows], clients.layer_steps[rows] = user_factors, layer_steps
    return Learned(listing, item_steps)


def weighted_layers(clients: NcfClients, rows: Places, num_negatives: int) -> Floats:
    """Weights as FedAvg has them, by samples, here as a share of all items; and each times the layers' steps."""
    weights = (clients.num_samples(num_negatives)[rows] / clients.num_items).astype(np.float32)[:, None]
    return np.hstack([weights, weights * clients.layer_steps[rows]])


@dataclass
class _Real:
    """What clients have listed, as the drawing of virtual items needs it."""

    starts: Places
    items: Numbers
    num_items: int


def hide(
    cohort: Cohort[NcfClients], sent: Sent, real: Learned, rho: int, training: Training, draws: Draws
) -> tuple[Learned, Learned]:
    """Real and virtual items in one list, and the virtual ones alone: the noise."""
    numbers, round_number = cohort.numbers, cohort.round_number
    held = _Real(real.listing.starts, real.listing.items, cohort.private.num_items)
    every = np.arange(len(numbers))
    shown = list_items(held, every, numbers, rho, draws.key("virtual-items"), round_number)
    is_virtual = shown.rated_place < 0
    owners = np.repeat(every, np.diff(shown.starts))[is_virtual]
    virtual = _listing(owners, shown.items[is_virtual], len(numbers))
    noise = _learn_virtual(cohort, sent, real.listing, virtual, rho, training, draws)
    steps = np.empty((len(shown.items), real.steps.shape[1]), np.float32)
    steps[is_virtual], steps[~is_virtual] = noise, real.steps
    return Learned(shown, steps), Learned(virtual, noise)


def _listing(
    owners: Places, items: Numbers, num_clients: int, is_positive: NDArray[np.bool_] | None = None
) -> Listing:
    """Items by their owners, ascending."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=num_clients))])
    places = np.full(len(items), -1, np.int32) if is_positive is None else is_positive.astype(np.int32) - 1
    return Listing(starts, items, places)


def _learn_virtual(
    cohort: Cohort[NcfClients],
    sent: Sent,
    real: Listing,
    virtual: Listing,
    rho: int,
    training: Training,
    draws: Draws,
) -> Floats:
    """The steps of virtual items: each of `rho` virtual clients trains on its own, as the real one does.

    Together they would not look like it: the further Adam has come, the more it makes of a first gradient.
    """
    clients, numbers, round_number = cohort.private, cohort.numbers, cohort.round_number
    start = clients.previous_user_factors[cohort.rows]
    owners = np.repeat(np.arange(len(numbers)), np.diff(virtual.starts))
    groups = np.empty(len(virtual.items), np.int32)
    _deal(draws.key("virtual-clients"), numbers, round_number, virtual.starts, rho, groups)
    is_positive = _alike(NcfModel(start, *sent, training.shape), real, virtual, groups, rho)
    steps = np.empty((len(virtual.items), training.shape.num_columns), np.float32)
    for group in range(rho):
        own = groups == group
        listing = _listing(owners[own], virtual.items[own], len(numbers), is_positive[own])
        order = draws.key(f"virtual-order-{group}")
        steps[own], _ = train_clients(start.copy(), *sent, listing, numbers, round_number, training, order)
    return steps


@numba.njit(nogil=True, cache=True)
def _deal(key, numbers, round_number, starts, num_groups, groups):
    """Deal each client's virtual items to groups of equal size."""
    words, most = np.empty(BLOCK_WORDS, np.uint32), 0
    for client in range(numbers.size):
        most = max(most, starts[client + 1] - starts[client])
    order = np.empty(most, np.int32)
    for client in range(numbers.size):
        first, count = starts[client], starts[client + 1] - starts[client]
        shuffle(key, numbers[client], round_number, 0, words, order, count)
        for place in range(count):
            groups[first + order[place]] = place % num_groups


def _alike(model: NcfModel, real: Listing, virtual: Listing, groups: Numbers, rho: int) -> NDArray[np.bool_]:
    """Which of each group's items are its positives: those whose scores are like those of real ones."""
    num_clients = len(real.starts) - 1
    users, every = np.arange(num_clients, dtype=np.int32), np.arange(num_clients)
    is_real = real.rated_place >= 0
    owners = np.repeat(every, np.diff(real.starts))[is_real]
    positives = _listing(owners, real.items[is_real], num_clients)
    real_scores = model.score_listed(users, positives.starts, positives.items)
    real_scores = real_scores[np.lexsort((-real_scores, owners))]
    scores = model.score_listed(users, virtual.starts, virtual.items)
    cells = np.repeat(every, np.diff(virtual.starts)) * rho + groups
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=num_clients * rho))])
    shares = np.diff(positives.starts) / np.maximum(np.diff(real.starts), 1)
    is_positive = np.zeros(len(scores), np.bool_)
    order = np.lexsort((-scores, cells))
    _match(starts, scores, order, positives.starts, real_scores, rho, shares, is_positive)
    return is_positive


@numba.njit(nogil=True, cache=True)
def _match(starts, scores, order, real_starts, real_scores, num_groups, shares, is_positive):
    """In each group, take for each real positive the best scored item that is not above it and not taken yet.

    `order`: the groups' items, the best scored first; `real_scores`: each client's positives, the best first. A
    group that is smaller than the real one stands for every so-manieth of its positives.
    """
    for group in range(starts.size - 1):
        client, first, last = group // num_groups, starts[group], starts[group + 1]
        num_real = real_starts[client + 1] - real_starts[client]
        num_wanted = min(np.int64(np.rint(shares[client] * (last - first))), num_real)
        place = first
        for rank in range(num_wanted):
            real = real_scores[real_starts[client] + rank * num_real // num_wanted]
            latest = last - (num_wanted - rank)
            while place < latest and scores[order[place]] > real:
                place += 1
            is_positive[order[place]] = True
            place += 1
