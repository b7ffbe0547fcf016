# mypy: allow-untyped-defs, allow-untyped-calls
"""NGCF on clients: loss, gradients and scores of one client, written for compiled kernels.

The client's graph is a star: the user and its P positives, each edge c = 1 / sqrt(P). A layer is
e' = leaky_relu(side W1 + b1 + (e * side) W2 + b2), side = c (sum of the positives' e) for the user, c e_user for a
positive, 0 for any other item. A score is the sigmoid of the inner product of user and item over layer 0 and all
later layers, each of length 1. Two things save work:

- Positives share their side, so (e * side) W2 = e M with M = diag(side) W2: one product per layer for all of them.
  The last layer is needed of a batch's positives only.
- From layer 1 on, all items without an edge have the same e' = leaky_relu(b1 + b2).
"""

import numba
import numpy as np

from hushrec.models.client_products import add_product, add_rows, sigmoid, transpose

_LEAK = np.float32(0.2)
_ORDER = {"reassoc", "contract"}  # what the compiler may change in sums


@numba.njit(nogil=True, cache=True)
def ngcf_room(size, num_layers, most_positives, batch_size):
    """Arrays that `ngcf_gradients` and `ngcf_scores` work in; those of nodes have a row per layer."""
    return (
        np.zeros((2, num_layers + 1, size), np.float32),  # e of the user, and of items without an edge
        np.zeros((2, num_layers + 1, size), np.float32),  # the same with length 1
        np.ones((2, num_layers + 1), np.float32),  # their lengths before
        np.zeros((2, num_layers + 1, size), np.float32),  # gradients of the first
        np.zeros((num_layers, 3, size), np.float32),  # sides of the user and of positives, part that those share
        np.zeros((num_layers, size * size), np.float32),  # M
        np.zeros((num_layers, most_positives * size), np.float32),  # e of positives
        np.zeros((num_layers, most_positives * size), np.float32),  # their gradients
        np.zeros((4, batch_size * size), np.float32),  # a batch's positives: last layer but one, last, gradients
        np.zeros(size * size, np.float32),  # a matrix, its gradient or its transpose
        np.zeros(batch_size, np.int64),  # slots of a batch's positives
    )


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _leaky(values, size):
    for place in range(size):
        value = values[place]
        values[place] = value if value > np.float32(0.0) else _LEAK * value


@numba.njit(nogil=True, cache=True)
def _leaky_backward(values, size, gradients):
    for place in range(size):
        gradient = gradients[place]
        gradients[place] = gradient if values[place] > np.float32(0.0) else _LEAK * gradient


@numba.njit(nogil=True, cache=True, fastmath=_ORDER)
def _dot(one, other, size):
    total = np.float32(0.0)
    for place in range(size):
        total += one[place] * other[place]
    return total


@numba.njit(nogil=True, cache=True)
def _length(values, size):
    return max(np.sqrt(_dot(values, values, size)), np.float32(1e-12))


@numba.njit(nogil=True, cache=True)
def _add_scaled(number, values, size, out):
    for place in range(size):
        out[place] += number * values[place]


@numba.njit(nogil=True, cache=True)
def _layer_places(size, layer):
    """Where W1, b1, W2, b2 of a layer begin."""
    first = size + layer * 2 * (size + 1) * size
    second = first + (size + 1) * size
    return first, first + size * size, second, second + size * size


@numba.njit(nogil=True, cache=True)
def _positives_layer(under, shared, matrix, num_rows, size, out):
    """leaky_relu(shared + e M)."""
    for row in range(num_rows):
        out[row * size : (row + 1) * size] = shared
    add_product(under, matrix, out, num_rows, size, size, False)
    _leaky(out, num_rows * size)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _forward(table, num_positives, num_layers, weights, size, room):
    """All layers of the user, of items without an edge, and of positives but for the last."""
    nodes, units, lengths, _, sides, matrices, positives = room[:7]
    edge = np.float32(1.0) / np.sqrt(np.float32(max(num_positives, 1)))
    nodes[0, 0] = weights[:size]
    positives[0, : num_positives * size] = table[: num_positives * size]
    for layer in range(num_layers):
        first, first_bias, second, second_bias = _layer_places(size, layer)
        user, after, others = nodes[0, layer], nodes[0, layer + 1], nodes[1, layer + 1]
        side, scaled, shared = sides[layer, 0], sides[layer, 1], sides[layer, 2]
        side[:] = 0
        add_rows(positives[layer], num_positives, size, side)
        for factor in range(size):
            side[factor] *= edge
            scaled[factor] = edge * user[factor]
            bias = weights[first_bias + factor] + weights[second_bias + factor]
            after[factor] = others[factor] = shared[factor] = bias
        for factor in range(size):
            row, other_row = weights[first + factor * size :], weights[second + factor * size :]
            _add_scaled(side[factor], row, size, after)
            _add_scaled(user[factor] * side[factor], other_row, size, after)
            _add_scaled(scaled[factor], row, size, shared)
            for column in range(size):
                matrices[layer, factor * size + column] = scaled[factor] * other_row[column]
        for kind in range(2):
            node = nodes[kind, layer + 1]
            _leaky(node, size)
            lengths[kind, layer + 1] = _length(node, size)
            for factor in range(size):
                units[kind, layer + 1, factor] = node[factor] / lengths[kind, layer + 1]
        if layer + 1 < num_layers:
            _positives_layer(positives[layer], shared, matrices[layer], num_positives, size, positives[layer + 1])


@numba.njit(nogil=True, cache=True)
def _last_layer(slots, num_positives, num_layers, size, room):
    """The last layer of the positives among `slots`; returns how many there are."""
    sides, matrices, positives, _, batch, _, chosen = room[4:]
    num_chosen = 0
    for place in range(slots.size):
        slot = np.int64(slots[place])
        if slot < num_positives:
            chosen[num_chosen] = slot
            for factor in range(size):
                batch[0, num_chosen * size + factor] = positives[num_layers - 1, slot * size + factor]
            num_chosen += 1
    last = num_layers - 1
    _positives_layer(batch[0], sides[last, 2], matrices[last], num_chosen, size, batch[1])
    return num_chosen


@numba.njit(nogil=True, cache=True)
def _later_layers(slot, rank, num_layers, size, units, positives, batch):
    """A positive's inner product with the user over layers 1 and on; `rank` is its place among the batch's."""
    total = np.float32(0.0)
    for layer in range(1, num_layers + 1):
        vector = batch[1, rank * size :] if layer == num_layers else positives[layer, slot * size :]
        total += _dot(units[0, layer], vector, size) / _length(vector, size)
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _shared_part(num_layers, size, units):
    """The inner product of the user and any item without an edge over layers 1 and on."""
    total = np.float32(0.0)
    for layer in range(1, num_layers + 1):
        total += _dot(units[0, layer], units[1, layer], size)
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def ngcf_scores(table, num_positives, num_layers, weights, size, slots, room, out):
    """Scores of the items in `slots`, at most as many as the batch that the room is for."""
    _forward(table, num_positives, num_layers, weights, size, room)
    units, positives, batch = room[1], room[6], room[8]
    shared, batch_size, begin = _shared_part(num_layers, size, units), room[10].size, 0
    while begin < slots.size:
        part, rank = slots[begin : begin + batch_size], 0
        _last_layer(part, num_positives, num_layers, size, room)
        for place in range(part.size):
            slot = np.int64(part[place])
            later = shared
            if slot < num_positives:
                later = _later_layers(slot, rank, num_layers, size, units, positives, batch)
                rank += 1
            out[begin + place] = sigmoid(_dot(weights, table[slot * size :], size) + later)
        begin += batch_size


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _unit_backward(vector, length, unit_gradient, scale, size, out):
    """Add `scale` times the gradient of a vector whose unit vector has the given gradient."""
    inner = _dot(vector, unit_gradient, size) / (length * length)
    for factor in range(size):
        out[factor] += scale * (unit_gradient[factor] - inner * vector[factor]) / length


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _errors(table, num_positives, num_layers, weights, size, samples, room, out):
    """From the loss to the vectors of all layers; returns how many of the batch are positives."""
    slots, labels = samples
    gradients, row_gradients = out
    _, units, lengths, node_gradients, _, _, positives, positive_gradients, batch, unit_gradient, _ = room
    num_chosen = _last_layer(slots, num_positives, num_layers, size, room)
    shared, share = _shared_part(num_layers, size, units), np.float32(1.0) / np.float32(slots.size)
    node_gradients[:] = 0
    batch[2, : num_chosen * size] = 0
    rank, total = 0, np.float32(0.0)
    for place in range(slots.size):
        slot = np.int64(slots[place])
        is_positive = slot < num_positives
        later = shared
        if is_positive:
            later = _later_layers(slot, rank, num_layers, size, units, positives, batch)
        item = table[slot * size :]
        error = share * (sigmoid(_dot(weights, item, size) + later) - labels[place])
        _add_scaled(error, item, size, gradients)
        _add_scaled(error, weights, size, row_gradients[slot * size :])
        if not is_positive:
            total += error
            continue
        for layer in range(1, num_layers + 1):
            is_last = layer == num_layers
            vector = batch[1, rank * size :] if is_last else positives[layer, slot * size :]
            target = batch[2, rank * size :] if is_last else positive_gradients[layer, slot * size :]
            length = _length(vector, size)
            _unit_backward(vector, length, units[0, layer], error, size, target)
            _add_scaled(error / length, vector, size, node_gradients[0, layer])
        rank += 1
    for layer in range(1, num_layers + 1):
        _add_scaled(total, units[1, layer], size, node_gradients[0, layer])
        _unit_backward(
            room[0][1, layer], lengths[1, layer], units[0, layer], total, size, node_gradients[1, layer]
        )
        # So far the gradient of the user's unit vector.
        unit_gradient[:size] = node_gradients[0, layer]
        node_gradients[0, layer] = 0
        user, length = room[0][0, layer], lengths[0, layer]
        _unit_backward(user, length, unit_gradient, np.float32(1.0), size, node_gradients[0, layer])
    return num_chosen


@numba.njit(nogil=True, cache=True, fastmath=_ORDER)
def _layer_backward(layer, edge, weights, size, room, under, deltas, num_rows, under_deltas, gradients):
    """From the outputs of a layer to its weights and inputs; `deltas` are of positives, before leaky_relu."""
    nodes, _, _, node_gradients, sides, matrices, _, _, _, work, _ = room
    first, first_bias, second, second_bias = _layer_places(size, layer)
    user, delta, others = nodes[0, layer], node_gradients[0, layer + 1], node_gradients[1, layer + 1]
    side, scaled, sum_delta = sides[layer, 0], sides[layer, 1], sides[layer, 2]
    _leaky_backward(nodes[0, layer + 1], size, delta)
    _leaky_backward(nodes[1, layer + 1], size, others)
    sum_delta[:] = 0
    add_rows(deltas, num_rows, size, sum_delta)
    transpose(matrices[layer], size, size, work)
    add_product(deltas, work, under_deltas, num_rows, size, size, False)
    work[:] = 0
    add_product(under, deltas, work, size, num_rows, size, True)
    for factor in range(size):
        bias = delta[factor] + others[factor] + sum_delta[factor]
        gradients[first_bias + factor] += bias
        gradients[second_bias + factor] += bias
        from_side = from_scaled = from_pair = np.float32(0.0)
        pair = user[factor] * side[factor]
        row = factor * size
        for column in range(size):
            one, other = weights[first + row + column], weights[second + row + column]
            from_side += one * delta[column]
            from_pair += other * delta[column]
            from_scaled += one * sum_delta[column] + other * work[row + column]
        for column in range(size):
            gradients[first + row + column] += side[factor] * delta[column] + scaled[factor] * sum_delta[column]
            gradients[second + row + column] += pair * delta[column] + scaled[factor] * work[row + column]
        node_gradients[0, layer, factor] += side[factor] * from_pair + edge * from_scaled
        side[factor] = edge * (from_side + user[factor] * from_pair)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def ngcf_gradients(table, num_positives, num_layers, weights, size, samples, room, out):
    """Add the gradients of the mean binary cross-entropy of one batch to those of weights and item vectors."""
    gradients, row_gradients = out
    _, _, _, node_gradients, sides, _, positives, positive_gradients, batch, _, chosen = room
    _forward(table, num_positives, num_layers, weights, size, room)
    used = num_positives * size
    positive_gradients[:, :used] = 0
    num_chosen = _errors(table, num_positives, num_layers, weights, size, samples, room, out)
    edge = np.float32(1.0) / np.sqrt(np.float32(max(num_positives, 1)))
    for layer in range(num_layers - 1, -1, -1):
        target = positive_gradients[layer]
        if layer == num_layers - 1:
            _leaky_backward(batch[1], num_chosen * size, batch[2])
            batch[3, : num_chosen * size] = 0
            _layer_backward(layer, edge, weights, size, room, batch[0], batch[2], num_chosen, batch[3], gradients)
            for rank in range(num_chosen):
                _add_scaled(np.float32(1.0), batch[3, rank * size :], size, target[chosen[rank] * size :])
        else:
            deltas = positive_gradients[layer + 1]
            _leaky_backward(positives[layer + 1], used, deltas)
            _layer_backward(
                layer, edge, weights, size, room, positives[layer], deltas, num_positives, target, gradients
            )
        # Every positive is in the user's side.
        for slot in range(num_positives):
            _add_scaled(np.float32(1.0), sides[layer, 0], size, target[slot * size :])
    _add_scaled(np.float32(1.0), node_gradients[0, 0], size, gradients)
    _add_scaled(np.float32(1.0), positive_gradients[0], used, row_gradients)
