# mypy: allow-untyped-defs, allow-untyped-calls
"""Clients' own recommenders: private, trained on the client's data and on scored items that it was sent.

A client's table holds a vector only for items that it ever trains: its positives, then the negatives that it drew
first, then others as it drew or received them. The vector of any other item is its initial value, a keyed draw,
made when needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws, Key
from hushrec.errors import HushrecError, NewcomerError
from hushrec.protocol import Ragged, kept, packed
from hushrec.systems.ptf_fedrec.client_negatives import first_tables, other_negatives
from hushrec.systems.ptf_fedrec.client_start import LocalSettings, initial_row, initial_weights, row_words
from hushrec.systems.ptf_fedrec.client_training import complete_tables, score_slots, train_rows

__all__ = [
    "LocalClients",
    "LocalModel",
    "LocalSettings",
    "enrol",
    "predict_slots",
    "receive",
    "redraw",
    "train",
]

Floats = NDArray[np.float32]
Places = NDArray[np.int64]

_COMPLETE = 8  # clients whose tables are completed at a time


def _in_use(
    array_of: Callable[["LocalClients"], NDArray[Any]], *, is_sample: bool = False, result: bool = False
) -> "packed[LocalClients]":
    """What is in use of an array with spare room. The counts that tell it are restored before it."""

    def pack(clients: "LocalClients") -> NDArray[Any]:
        return array_of(clients)[clients.places_in_use(is_sample)]

    def unpack(clients: "LocalClients", kept_part: NDArray[Any]) -> None:
        array_of(clients)[clients.places_in_use(is_sample)] = kept_part

    return packed(pack, unpack, result=result)


@dataclass(kw_only=True)
class LocalClients:
    """Private state of clients: what never leaves them. Arrays have room for all that may be received."""

    num_items: int  # of the whole catalogue
    starts: Places  # (n + 1,): the first slot of each client's item table
    slot_items: NDArray[np.int32]  # positives, then all others in order of arrival
    num_slots: NDArray[np.int32] = kept()  # in use
    num_positives: NDArray[np.int32]
    rows: Floats  # (slots, d): item vectors
    row_means: Floats  # Adam's first moment
    row_squares: Floats  # Adam's second moment
    weights: Floats = kept(result=True)  # (n, size): the user's vector and the layers, see `client_start`
    weight_means: Floats = kept()
    weight_squares: Floats = kept()
    num_steps: NDArray[np.int32] = kept()  # of Adam so far
    sample_starts: Places
    sample_slots: NDArray[np.int32]  # positives, negatives (with repeats), then what was received
    sample_labels: Floats
    num_samples: NDArray[np.int32] = kept()  # in use
    num_own_samples: NDArray[np.int32]  # positives and negatives
    trained_round: NDArray[np.int32] = kept()  # the last one, 0 before
    numbers: NDArray[np.int32]  # who they are in the run
    row_key: Key = kept()  # of the first values of item vectors

    used_slot_items = _in_use(lambda clients: clients.slot_items)
    used_rows = _in_use(lambda clients: clients.rows, result=True)
    used_row_means = _in_use(lambda clients: clients.row_means)
    used_row_squares = _in_use(lambda clients: clients.row_squares)
    used_sample_slots = _in_use(lambda clients: clients.sample_slots, is_sample=True)
    used_sample_labels = _in_use(lambda clients: clients.sample_labels, is_sample=True)

    def places_in_use(self, is_sample: bool) -> Places:
        """Where the slots (or samples) in use are, client after client."""
        starts, lengths = (self.sample_starts, self.num_samples) if is_sample else (self.starts, self.num_slots)
        ends = np.cumsum(lengths, dtype=np.int64)
        return np.arange(ends[-1] if ends.size else 0) + np.repeat(starts[:-1] - ends + lengths, lengths)

    def tables(self) -> tuple[NDArray[Any], ...]:
        """Item tables as kernels take them."""
        return self.starts, self.num_slots, self.num_positives, self.rows.reshape(-1)


def enrol(
    numbers: NDArray[np.int32],
    rows: UserRows,
    num_items: int,
    settings: LocalSettings,
    num_negatives: int,
    has_repeats: bool,
    most_received: Places,
    num_redraws: int,
    draws: Draws,
) -> LocalClients:
    """Clients at the start of a run, with `num_negatives` items drawn per positive.

    For the size of arrays, `most_received` tells how many items each client may be sent in all, `num_redraws` how
    often it may draw others.
    """
    num_positives = np.diff(rows.starts)
    num_others = num_items - num_positives
    num_drawn = num_negatives * num_positives
    num_drawn = np.where(num_others > 0, num_drawn, 0) if has_repeats else np.minimum(num_drawn, num_others)
    num_own = num_positives + num_drawn
    most_slots = np.minimum(num_own + num_redraws * num_drawn + most_received, num_items)
    starts, sample_starts = (
        np.concatenate([[0], np.cumsum(room)]) for room in (most_slots, num_own + most_received)
    )
    capacity, num_clients = (int(starts[-1]), settings.num_factors), len(numbers)
    weights = initial_weights(numbers, num_items, settings, draws)
    clients = LocalClients(
        num_items=num_items,
        starts=starts,
        slot_items=np.zeros(capacity[0], np.int32),
        num_slots=np.zeros(num_clients, np.int32),
        num_positives=num_positives.astype(np.int32),
        rows=np.zeros(capacity, np.float32),
        row_means=np.zeros(capacity, np.float32),
        row_squares=np.zeros(capacity, np.float32),
        weights=weights,
        weight_means=np.zeros_like(weights),
        weight_squares=np.zeros_like(weights),
        num_steps=np.zeros(num_clients, np.int32),
        sample_starts=sample_starts,
        sample_slots=np.zeros(int(sample_starts[-1]), np.int32),
        sample_labels=np.zeros(int(sample_starts[-1]), np.float32),
        num_samples=num_own.astype(np.int32),
        num_own_samples=num_own.astype(np.int32),
        trained_round=np.zeros(num_clients, np.int32),
        numbers=numbers,
        row_key=draws.key("local-rows").copy(),
    )
    keys = draws.key("local-negatives"), draws.key("local-rows")
    samples = clients.sample_starts, clients.sample_slots, clients.sample_labels
    out = clients.starts, clients.slot_items, clients.num_slots, clients.rows, *samples
    bound = np.float32(settings.item_bound(num_items))
    first_tables((rows.starts, rows.items), numbers, num_drawn, num_items, has_repeats, keys, bound, out)
    return clients


def redraw(
    clients: LocalClients,
    rows: Places,
    numbers: NDArray[np.int32],
    round_number: int,
    has_repeats: bool,
    settings: LocalSettings,
    draws: Draws,
) -> None:
    """Draw as many negatives anew; those of before stay in the table, but are no samples any more."""
    samples = clients.sample_starts, clients.num_own_samples, clients.sample_slots
    keys, num_items = (draws.key("local-negatives"), draws.key("local-rows")), clients.num_items
    given = rows, numbers, round_number, num_items, has_repeats, keys, np.float32(settings.item_bound(num_items))
    other_negatives(clients.tables(), samples, clients.slot_items, *given, settings.num_factors)


@numba.njit(nogil=True, cache=True)
def _receive(tables, samples, slot_items, rows, numbers, received, num_items, key, bound, size):
    """Takes in what was sent; returns whether there was room."""
    starts, num_slots, num_positives, item_rows = tables
    sample_starts, num_samples, sample_slots, sample_labels = samples
    item_starts, items, scores = received
    slot_of = np.full(num_items, -1, np.int32)
    words = row_words(size)
    for client in range(rows.size):
        row = rows[client]
        first = starts[row]
        for slot in range(num_slots[row]):
            slot_of[slot_items[first + slot]] = slot
        for place in range(item_starts[client], item_starts[client + 1]):
            item = items[place]
            slot = slot_of[item]
            # DEVIATION: the paper trains on all that was told; own positives are dropped, as in the authors' code.
            if 0 <= slot < num_positives[row]:
                continue
            target = sample_starts[row] + num_samples[row]
            if target == sample_starts[row + 1]:
                return False
            if slot < 0:
                slot = num_slots[row]
                if first + slot == starts[row + 1]:
                    return False
                slot_of[item] = slot
                slot_items[first + slot] = item
                initial_row(key, numbers[client], item, bound, words, item_rows, (first + slot) * size, size)
                num_slots[row] += 1
            sample_slots[target], sample_labels[target] = slot, scores[place]
            num_samples[row] += 1
        for slot in range(num_slots[row]):
            slot_of[slot_items[first + slot]] = -1
    return True


def receive(
    clients: LocalClients,
    rows: Places,
    items: Ragged,
    scores: Ragged,
    accumulates: bool,
    settings: LocalSettings,
    numbers: NDArray[np.int32],
    draws: Draws,
) -> None:
    """Add scored items to the samples of each client, for good or instead of those received last.

    A client drops its own positives.
    """
    if items.values.size and not (items.values.min() >= 0 and items.values.max() < clients.num_items):
        raise HushrecError(f"received items must lie in 0..{clients.num_items - 1}; send numbers of the catalogue")
    if not accumulates:
        clients.num_samples[rows] = clients.num_own_samples[rows]
    samples = clients.sample_starts, clients.num_samples, clients.sample_slots, clients.sample_labels
    received = items.starts, items.values, scores.values
    key, bound = draws.key("local-rows"), np.float32(settings.item_bound(clients.num_items))
    given = rows, numbers, received, clients.num_items, key, bound, settings.num_factors
    if not _receive(clients.tables(), samples, clients.slot_items, *given):
        raise HushrecError("a client received more items than it has room for; enrol it with more most_received")


def train(
    clients: LocalClients,
    rows: Places,
    numbers: NDArray[np.int32],
    round_number: int,
    settings: LocalSettings,
    draws: Draws,
) -> None:
    """Train the clients in `rows` on their samples: binary cross-entropy, Adam, in a random order per epoch."""
    tables = *clients.tables(), clients.row_means.reshape(-1), clients.row_squares.reshape(-1)
    weights = clients.weights, clients.weight_means, clients.weight_squares
    samples = clients.sample_starts, clients.num_samples, clients.sample_slots, clients.sample_labels
    order_of = draws.key("local-order"), round_number
    pace = settings.epochs, settings.batch_size, settings.learning_rate
    train_rows(tables, weights, samples, clients.num_steps, rows, numbers, order_of, *_model(settings), pace)
    clients.trained_round[rows] = round_number


def predict_slots(clients: LocalClients, rows: Places, slots: Ragged, settings: LocalSettings) -> Floats:
    """Scores in 0..1 of given slots of each client, in their order."""
    out = np.empty(len(slots.values), np.float32)
    score_slots(clients.tables(), clients.weights, rows, slots.starts, slots.values, *_model(settings), out)
    return out


def _model(settings: LocalSettings) -> tuple[tuple[Places, int], bool | None]:
    return (settings.sizes, settings.graph_layers), True if settings.model == "ngcf" else None


@dataclass(frozen=True)
class LocalModel:
    """Clients' own models, ready to predict and to rank."""

    clients: LocalClients
    settings: LocalSettings

    def predict(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> Floats:
        """Scores of (user, item) pairs, each by the user's own model."""
        order = np.argsort(users, kind="stable")
        own, counts = np.unique(users, return_counts=True)
        out = np.empty(len(users), np.float32)
        out[order] = self._scores(own, Ragged(np.concatenate([[0], np.cumsum(counts)]), items[order]))
        return out

    def score(self, users: NDArray[np.int32]) -> Floats:
        """Scores of all items, a row per user."""
        num_items = self.clients.num_items
        every = np.tile(np.arange(num_items, dtype=np.int32), len(users))
        scores = self._scores(users, Ragged(np.arange(len(users) + 1) * num_items, every))
        return scores.reshape(len(users), num_items)

    def trained_scores(self, users: NDArray[np.int32]) -> tuple[Places, NDArray[np.int32], Floats]:
        """Of all items in each user's table: the user's place in `users`, the item, its score."""
        clients, rows = self.clients, users.astype(np.int64)
        lengths = clients.num_slots[rows].astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        owners = np.repeat(np.arange(len(rows)), lengths)
        slots = (np.arange(starts[-1]) - starts[owners]).astype(np.int32)
        scores = predict_slots(clients, rows, Ragged(starts, slots), self.settings)
        return owners, clients.slot_items[clients.starts[rows][owners] + slots], scores

    def fold_in(self, items: NDArray[np.int32], ratings: Floats) -> Floats:
        """Newcomers have no model of their own."""
        raise NewcomerError("a client's own model cannot serve newcomers; ask the server's model, or enrol them")

    def _scores(self, users: NDArray[np.int32], items: Ragged) -> Floats:
        """Scores of the items listed for each user, a few users at a time."""
        clients, size = self.clients, self.settings.num_factors
        num_items, bound = clients.num_items, np.float32(self.settings.item_bound(clients.num_items))
        start = num_items, size, clients.row_key, bound
        tables, starts = np.empty(_COMPLETE * num_items * size, np.float32), np.arange(_COMPLETE + 1) * num_items
        out = np.empty(len(items.values), np.float32)
        for first in range(0, len(users), _COMPLETE):
            rows = users[first : first + _COMPLETE].astype(np.int64)
            listed, num_slots = items.part(first, first + len(rows)), np.empty(len(rows), np.int32)
            slots = np.empty(len(listed.values), np.int32)
            given = rows, clients.numbers[rows], listed.starts, listed.values, start, (tables, num_slots, slots)
            complete_tables(clients.tables(), clients.slot_items, *given)
            block = starts, num_slots, clients.num_positives[rows], tables
            part = out[items.starts[first] : items.starts[first + len(rows)]]
            own = clients.weights[rows], np.arange(len(rows))
            score_slots(block, *own, listed.starts, slots, *_model(self.settings), part)
        return out
