# mypy: allow-untyped-defs, allow-untyped-calls
"""Which slots of a client's table hold what: its own samples, all that it trains this round."""

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import Ragged
from hushrec.systems.ptf_fedrec.clients import LocalClients

Places = NDArray[np.int64]


def own_slots(clients: LocalClients, rows: Places) -> Ragged:
    """Slots of the client's positives and negatives, as often as it trains them."""
    lengths = clients.num_own_samples[rows].astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(starts[-1]) + np.repeat(clients.sample_starts[rows] - starts[:-1], lengths)
    return Ragged(starts, clients.sample_slots[places])


@numba.njit(nogil=True, cache=True)
def _mark(rows, starts, sample_starts, num_samples, sample_slots, is_trained):
    for place in range(rows.size):
        client = rows[place]
        for sample in range(sample_starts[client], sample_starts[client] + num_samples[client]):
            is_trained[starts[place] + sample_slots[sample]] = True


def trained_slots(clients: LocalClients, rows: Places, own_only: bool = False) -> Ragged:
    """Distinct slots of all that the client trains on now, or of its own samples; its positives come first."""
    num_samples = clients.num_own_samples if own_only else clients.num_samples
    sizes = clients.num_slots[rows].astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    is_trained = np.zeros(starts[-1], np.bool_)
    _mark(rows, starts, clients.sample_starts, num_samples, clients.sample_slots, is_trained)
    places = np.flatnonzero(is_trained)
    first = np.searchsorted(places, starts)
    owners = np.repeat(np.arange(len(rows)), np.diff(first))
    return Ragged(first.astype(np.int64), (places - starts[owners]).astype(np.int32))


def by_item(
    clients: LocalClients, rows: Places, slots: Ragged, scores: NDArray[np.float32]
) -> tuple[Ragged, Ragged]:
    """Items and scores of slots, sorted by item in each client's slice, so that their order tells nothing."""
    # DEVIATION: the authors' code lists a client's positives before the others, so that their place tells them.
    owners = np.repeat(np.arange(len(rows)), slots.lengths)
    items = clients.slot_items[clients.starts[rows][owners] + slots.values]
    order = np.lexsort((items, owners))
    return Ragged(slots.starts, items[order]), Ragged(slots.starts, scores[order])


def table_bytes(clients: LocalClients) -> Places:
    """What a client's training touches, for the size of cohorts: its vectors with Adam's state, its samples."""
    vector_bytes, sample_bytes = 12 * clients.rows.shape[1], 8
    touched: Places = vector_bytes * clients.num_slots.astype(np.int64) + sample_bytes * clients.num_samples
    return touched
