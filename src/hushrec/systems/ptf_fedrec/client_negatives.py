# mypy: allow-untyped-defs, allow-untyped-calls
"""The negatives of clients that have models of their own, drawn by each from its own key."""

import numba
import numpy as np

from hushrec.draws import BLOCK_WORDS, chacha_block
from hushrec.systems.ptf_fedrec.client_start import initial_row, row_words


@numba.njit(nogil=True, cache=True)
def _draw(owner, num_items, has_repeats, key, slot_of, words, slots, sample_slots):
    """Items that are no positives into all of `sample_slots`; new ones go to the end of the used `slots`.

    `slot_of` tells the slots of all items, -1 without one. Returns how many slots are then in use.
    """
    number, round_number, num_positives, used = owner
    counter, place, filled = np.int64(0), BLOCK_WORDS, 0
    is_drawn = np.zeros(0 if has_repeats else num_items, np.bool_)
    while filled < sample_slots.size:
        if place == BLOCK_WORDS:
            chacha_block(key, number, round_number, counter, words)
            counter, place = counter + 1, 0
        item = np.int64((np.uint64(words[place]) * np.uint64(num_items)) >> np.uint64(32))
        place += 1
        slot = slot_of[item]
        if 0 <= slot < num_positives or (not has_repeats and is_drawn[item]):
            continue
        if slot < 0:
            slot_of[item] = slot = used
            slots[used] = item
            used += 1
        if not has_repeats:
            is_drawn[item] = True
        sample_slots[filled] = slot
        filled += 1
    return used


@numba.njit(nogil=True, cache=True)
def first_tables(positives, numbers, num_drawn, num_items, has_repeats, keys, bound, out):
    """Positives and the first negatives of each client, with the first values of their vectors."""
    positive_starts, positive_items = positives
    starts, slot_items, num_slots, rows, sample_starts, sample_slots, sample_labels = out
    item_key, row_key = keys
    size = rows.shape[1]
    flat = rows.reshape(-1)
    words, row_room = np.empty(BLOCK_WORDS, np.uint32), row_words(size)
    slot_of = np.full(num_items, -1, np.int32)
    for client in range(numbers.size):
        first, sample = starts[client], sample_starts[client]
        num_positives = positive_starts[client + 1] - positive_starts[client]
        for rank in range(num_positives):
            item = positive_items[positive_starts[client] + rank]
            slot_of[item] = rank
            slot_items[first + rank] = item
            sample_slots[sample + rank], sample_labels[sample + rank] = rank, 1
        drawn = sample_slots[sample + num_positives : sample + num_positives + num_drawn[client]]
        owner, own_slots = (numbers[client], 0, num_positives, num_positives), slot_items[first:]
        used = _draw(owner, num_items, has_repeats, item_key, slot_of, words, own_slots, drawn)
        for slot in range(used):
            item = slot_items[first + slot]
            slot_of[item] = -1
            initial_row(row_key, numbers[client], item, bound, row_room, flat, (first + slot) * size, size)
        num_slots[client] = used


@numba.njit(nogil=True, cache=True)
def other_negatives(
    tables, samples, slot_items, rows, numbers, round_number, num_items, has_repeats, keys, bound, size
):
    """Others in place of the negatives that are samples now."""
    starts, num_slots, num_positives, item_rows = tables
    sample_starts, num_own_samples, sample_slots = samples
    item_key, row_key = keys
    words, row_room = np.empty(BLOCK_WORDS, np.uint32), row_words(size)
    slot_of = np.full(num_items, -1, np.int32)
    for client in range(rows.size):
        row = rows[client]
        first, before = starts[row], num_slots[row]
        for slot in range(before):
            slot_of[slot_items[first + slot]] = slot
        sample = sample_starts[row]
        drawn = sample_slots[sample + num_positives[row] : sample + num_own_samples[row]]
        owner, own_slots = (numbers[client], round_number, num_positives[row], before), slot_items[first:]
        used = _draw(owner, num_items, has_repeats, item_key, slot_of, words, own_slots, drawn)
        for slot in range(used):
            item = slot_items[first + slot]
            slot_of[item] = -1
            if slot >= before:
                initial_row(
                    row_key, numbers[client], item, bound, row_room, item_rows, (first + slot) * size, size
                )
        num_slots[row] = used
