# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""Training and scoring of clients' own models, client by client, inside compiled kernels.

A client is computed alone, so its numbers do not depend on its cohort nor on threads. `model` is (sizes, layers of
the graph). `ngcf` is True, or None for NeuMF and LightGCN: by its type, each is compiled without the other.
"""

import numba
import numpy as np
from numba import types
from numba.extending import overload

from hushrec.draws import BLOCK_WORDS, shuffle
from hushrec.kernels.adam import adam_rounded_as_torch as adam
from hushrec.models.client_mlp import mlp_gradients, mlp_room, mlp_scores
from hushrec.systems.ptf_fedrec.client_ngcf import ngcf_gradients, ngcf_room, ngcf_scores
from hushrec.systems.ptf_fedrec.client_start import initial_row, row_words

_SCORED = 64  # items that are scored at a time


@numba.njit(nogil=True, cache=True)
def _most(counts, rows):
    """The largest count of any client of `rows`."""
    most = 0
    for client in range(rows.size):
        most = max(most, np.int64(counts[rows[client]]))
    return most


def _room(ngcf, model, most_positives, batch_size):
    """Arrays that a client's training works in; which, depends on its model."""


@overload(_room)
def _choose_room(ngcf, model, most_positives, batch_size):
    if isinstance(ngcf, types.NoneType):
        return lambda ngcf, model, most_positives, batch_size: mlp_room(model[0])
    return lambda ngcf, model, most_positives, batch_size: ngcf_room(
        model[0][0], model[1], most_positives, batch_size
    )


def _gradients(ngcf, model, table, num_positives, weights, batch, room, out):
    """Add the gradients of one batch."""


@overload(_gradients)
def _choose_gradients(ngcf, model, table, num_positives, weights, batch, room, out):
    if isinstance(ngcf, types.NoneType):
        return lambda ngcf, model, table, num_positives, weights, batch, room, out: mlp_gradients(
            table, num_positives, model[1], weights, model[0], batch, room, out
        )
    return lambda ngcf, model, table, num_positives, weights, batch, room, out: ngcf_gradients(
        table, num_positives, model[1], weights, model[0][0], batch, room, out
    )


def _scores(ngcf, model, table, num_positives, weights, slots, room, out):
    """The model's scores of these slots of a client's table."""


@overload(_scores)
def _choose_scores(ngcf, model, table, num_positives, weights, slots, room, out):
    if isinstance(ngcf, types.NoneType):
        return lambda ngcf, model, table, num_positives, weights, slots, room, out: mlp_scores(
            table, num_positives, model[1], weights, model[0], slots, room, out
        )
    return lambda ngcf, model, table, num_positives, weights, slots, room, out: ngcf_scores(
        table, num_positives, model[1], weights, model[0][0], slots, room, out
    )


@numba.njit(nogil=True, cache=True)
def train_rows(tables, weights, samples, num_steps, rows, numbers, order_of, model, ngcf, pace):
    """Passes over the samples of each client, in batches, each with one step of Adam."""
    starts, num_slots, num_positives, item_rows, row_means, row_squares = tables
    values, means, squares = weights
    sample_starts, num_samples, sample_slots, sample_labels = samples
    key, round_number = order_of
    epochs, batch_size, learning_rate = pace
    size = model[0][0]
    words = np.empty(BLOCK_WORDS, np.uint32)
    order = np.empty(_most(num_samples, rows), np.int32)
    slots, labels = np.empty(batch_size, np.int32), np.empty(batch_size, np.float32)
    gradients = np.zeros(values.shape[1], np.float32)
    row_gradients = np.zeros(_most(num_slots, rows) * size, np.float32)
    out = (gradients, row_gradients)
    room = _room(ngcf, model, _most(num_positives, rows), batch_size)
    for client in range(rows.size):
        row = rows[client]
        used = slice(starts[row] * size, (starts[row] + num_slots[row]) * size)
        table, table_means, table_squares, own = item_rows[used], row_means[used], row_squares[used], values[row]
        positives, first, count = np.int64(num_positives[row]), sample_starts[row], np.int64(num_samples[row])
        for epoch in range(epochs):
            shuffle(key, numbers[client], round_number, epoch, words, order, count)
            for begin in range(0, count, batch_size):
                length = min(batch_size, count - begin)
                for place in range(length):
                    slots[place] = sample_slots[first + order[begin + place]]
                    labels[place] = sample_labels[first + order[begin + place]]
                batch = (slots[:length], labels[:length])
                _gradients(ngcf, model, table, positives, own, batch, room, out)
                num_steps[row] += 1
                steps = np.int64(num_steps[row])
                adam(own, gradients, means[row], squares[row], learning_rate, steps)
                adam(table, row_gradients, table_means, table_squares, learning_rate, steps)


@numba.njit(nogil=True, cache=True)
def score_slots(tables, weights, rows, slot_starts, slots, model, ngcf, out):
    """Scores of given slots of each client."""
    starts, num_slots, num_positives, item_rows = tables
    size, room = model[0][0], _room(ngcf, model, _most(num_positives, rows), _SCORED)
    for client in range(rows.size):
        row = rows[client]
        table = item_rows[starts[row] * size : (starts[row] + num_slots[row]) * size]
        part = slice(slot_starts[client], slot_starts[client + 1])
        positives = np.int64(num_positives[row])
        _scores(ngcf, model, table, positives, weights[row], slots[part], room, out[part])


@numba.njit(nogil=True, cache=True)
def complete_tables(tables, slot_items, rows, numbers, wanted_starts, wanted, start, out):
    """Tables of clients with the wanted items in them; those never trained have their initial vectors."""
    starts, num_slots, _, item_rows = tables
    num_items, size, key, bound = start
    out_rows, out_num_slots, slots = out
    slot_of, table_items = np.full(num_items, -1, np.int32), np.empty(num_items, np.int32)
    words = row_words(size)
    for client in range(rows.size):
        row, used = rows[client], np.int64(num_slots[rows[client]])
        table = out_rows[client * num_items * size : (client + 1) * num_items * size]
        table[: used * size] = item_rows[starts[row] * size : (starts[row] + used) * size]
        for slot in range(used):
            table_items[slot] = slot_items[starts[row] + slot]
            slot_of[table_items[slot]] = slot
        for place in range(wanted_starts[client], wanted_starts[client + 1]):
            item = wanted[place]
            if slot_of[item] < 0:
                initial_row(key, numbers[client], item, bound, words, table, used * size, size)
                table_items[used] = item
                slot_of[item] = used
                used += 1
            slots[place] = slot_of[item]
        out_num_slots[client] = used
        for slot in range(used):
            slot_of[table_items[slot]] = -1
