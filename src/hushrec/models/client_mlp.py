# mypy: allow-untyped-defs, allow-untyped-calls
"""NeuMF and LightGCN on clients: loss, gradients and scores of one client, written for compiled kernels.

NeuMF: score = sigmoid(h . relu(W2 relu(W1 [u, v] + b1) + b2) + b), with any number of layers. The user's vector is
the same for all samples, so its half of layer 1 is computed once per batch (`base`).

LightGCN puts the same layers on vectors that went through the client's own graph: a star of the user and its P
positives, each edge c = 1 / sqrt(P). With s = c (sum of the positives' vectors), the layers of the user are
u, s, u, s, ... and those of a positive v, c u, c s, c u, ...; other items have no edge. The mean over layers 0..L
is (a u + b s) / (L + 1) for the user, (v + c (e u + f s)) / (L + 1) for a positive, v / (L + 1) for another item,
where a, b count the even and odd layers of 0..L, and e, f those of 0..L-1. NeuMF is the case L = 0.
"""

import numba
import numpy as np

from hushrec.models.client_products import add_product, add_rows, sigmoid, transpose

BLOCK = 64  # samples at a time, so that their layers stay in the first cache


@numba.njit(nogil=True, cache=True)
def mlp_room(sizes):
    """Arrays that `mlp_gradients` and `mlp_scores` work in."""
    num_outputs, largest = 0, 0
    for layer in range(1, sizes.size):
        num_outputs += sizes[layer]
        largest = max(largest, sizes[layer - 1] * sizes[layer])
    return (
        np.zeros((5, sizes[0]), np.float32),  # user, s, what positives share; gradients of the last, of s
        np.empty(BLOCK * sizes[0], np.float32),  # item vectors, then their gradients
        np.empty(BLOCK * num_outputs, np.float32),  # outputs of all layers
        np.empty(BLOCK * num_outputs, np.float32),  # their gradients
        np.empty(sizes[1], np.float32),  # the user's half of layer 1
        np.empty(sizes[1], np.float32),  # its gradient
        np.empty(largest, np.float32),  # a matrix, transposed
        np.empty(BLOCK, np.float32),  # what sigmoid is given, then the errors
    )


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _graph_weights(num_positives, graph_layers):
    """1 / (L + 1), c, and a, b, c e, c f of the module's text, each over L + 1."""
    own = np.float32(1.0) / np.float32(graph_layers + 1)
    edge = np.float32(1.0) / np.sqrt(np.float32(max(num_positives, 1)))
    even, odd = np.float32(graph_layers // 2 + 1), np.float32((graph_layers + 1) // 2)
    lower_even, lower_odd = np.float32((graph_layers + 1) // 2), np.float32(graph_layers // 2)
    return own, edge, own * even, own * odd, own * edge * lower_even, own * edge * lower_odd


@numba.njit(nogil=True, cache=True)
def _propagate(rows, num_positives, graph_layers, weights, vectors):
    """Write the user's vector, s, and what positives share, after the graph."""
    size = vectors.shape[1]
    own, edge, even, odd, lower_even, lower_odd = _graph_weights(num_positives, graph_layers)
    vectors[1, :] = 0
    if graph_layers > 0:
        for slot in range(num_positives):
            for factor in range(size):
                vectors[1, factor] += rows[slot * size + factor]
    for factor in range(size):
        vectors[1, factor] *= edge
        vectors[0, factor] = even * weights[factor] + odd * vectors[1, factor]
        vectors[2, factor] = lower_even * weights[factor] + lower_odd * vectors[1, factor]
    return own


@numba.njit(nogil=True, cache=True)
def user_half(weights, user, sizes, base):
    """The biases of layer 1 plus the user's half of it."""
    size, width = sizes[0], sizes[1]
    bias = size + 2 * size * width
    for output in range(width):
        base[output] = weights[bias + output]
    for factor in range(size):
        for output in range(width):
            base[output] += user[factor] * weights[size + factor * width + output]


@numba.njit(nogil=True, cache=True)
def gather(rows, slots, num_positives, own, shared, inputs):
    """Item vectors of samples, after the graph."""
    size = shared.size
    for sample in range(slots.size):
        source = slots[sample] * size
        if slots[sample] < num_positives:
            for factor in range(size):
                inputs[sample * size + factor] = own * rows[source + factor] + shared[factor]
        else:
            for factor in range(size):
                inputs[sample * size + factor] = own * rows[source + factor]


@numba.njit(nogil=True, cache=True)
def _layer(biases, inputs, matrix, num_samples, num_inputs, width, out):
    """relu(biases + inputs matrix)."""
    for sample in range(num_samples):
        for output in range(width):
            out[sample * width + output] = biases[output]
    add_product(inputs, matrix, out, num_samples, num_inputs, width, False)
    for place in range(num_samples * width):
        out[place] = max(out[place], np.float32(0.0))


@numba.njit(nogil=True, cache=True)
def forward(weights, sizes, base, inputs, num_samples, outputs, logits):
    """The outputs of all layers, layer after layer, and what sigmoid is given.

    Returns where the output's weights and the last layer's outputs begin.
    """
    size = sizes[0]
    place, start = size + size * sizes[1], 0
    _layer(base, inputs, weights[place:], num_samples, size, sizes[1], outputs)
    place += (size + 1) * sizes[1]
    for layer in range(2, sizes.size):
        before, width = sizes[layer - 1], sizes[layer]
        bias, above = place + before * width, start + BLOCK * before
        below = outputs[start:above]
        _layer(weights[bias:], below, weights[place:], num_samples, before, width, outputs[above:])
        place, start = bias + width, above
    width = sizes[-1]
    for sample in range(num_samples):
        total = weights[place + width]
        for output in range(width):
            total += weights[place + output] * outputs[start + sample * width + output]
        logits[sample] = total
    return place, start


@numba.njit(nogil=True, cache=True)
def _backward_output(weights, width, num_samples, outputs, errors, gradients, deltas):
    """From the errors to the last layer's outputs."""
    for sample in range(num_samples):
        error, first = errors[sample], sample * width
        gradients[width] += error
        for output in range(width):
            value = outputs[first + output]
            gradients[output] += error * value
            delta = error * weights[output]
            deltas[first + output] = delta if value > np.float32(0.0) else np.float32(0.0)


@numba.njit(nogil=True, cache=True)
def _backward_layer(inputs, matrix, deltas, shape, turned, gradients, out):
    """Add the gradients of a layer's matrix and write those of its inputs; deltas are those of its outputs."""
    num_samples, num_inputs, width = shape
    add_product(inputs, deltas, gradients, num_inputs, num_samples, width, True)
    transpose(matrix, num_inputs, width, turned)
    out[: num_samples * num_inputs] = 0
    add_product(deltas, turned, out, num_samples, width, num_inputs, False)


@numba.njit(nogil=True, cache=True)
def backward(weights, sizes, place, start, inputs, num_samples, outputs, errors, room, gradients):
    """Add the gradients of all layers but the user's half; `inputs` becomes the gradient of the item vectors."""
    deltas, base_gradient, turned = room
    last = outputs[start:]
    _backward_output(weights[place:], sizes[-1], num_samples, last, errors, gradients[place:], deltas[start:])
    for layer in range(sizes.size - 1, 1, -1):
        before, width = sizes[layer - 1], sizes[layer]
        bias = place - width
        place, below = bias - before * width, start - BLOCK * before
        add_rows(deltas[start:], num_samples, width, gradients[bias:])
        shape, under, delta = (num_samples, before, width), outputs[below:], deltas[below:]
        _backward_layer(under, weights[place:], deltas[start:], shape, turned, gradients[place:], delta)
        for entry in range(num_samples * before):
            delta[entry] = delta[entry] if under[entry] > np.float32(0.0) else np.float32(0.0)
        start = below
    size, width = sizes[0], sizes[1]
    place, shape = size + size * width, (num_samples, size, width)
    add_rows(deltas, num_samples, width, base_gradient)
    _backward_layer(inputs, weights[place:], deltas, shape, turned, gradients[place:], inputs)


@numba.njit(nogil=True, cache=True)
def backward_user(weights, sizes, num_positives, graph_layers, vectors, base_gradient, gradients):
    """From the user's half of layer 1 and the positives' shared part to u and s."""
    size, width = sizes[0], sizes[1]
    bias = size + 2 * size * width
    _, edge, even, odd, lower_even, lower_odd = _graph_weights(num_positives, graph_layers)
    for output in range(width):
        gradients[bias + output] += base_gradient[output]
    for factor in range(size):
        total, place = np.float32(0.0), size + factor * width
        for output in range(width):
            total += weights[place + output] * base_gradient[output]
            gradients[place + output] += vectors[0, factor] * base_gradient[output]
        gradients[factor] += even * total + lower_even * vectors[3, factor]
        vectors[4, factor] = edge * (odd * total + lower_odd * vectors[3, factor])


@numba.njit(nogil=True, cache=True)
def scatter(slots, num_positives, own, inputs, shared_gradient, row_gradients):
    """Add the gradients of samples to those of their items; repeats add up."""
    size = shared_gradient.size
    for sample in range(slots.size):
        target = slots[sample] * size
        for factor in range(size):
            row_gradients[target + factor] += own * inputs[sample * size + factor]
        if slots[sample] < num_positives:
            for factor in range(size):
                shared_gradient[factor] += inputs[sample * size + factor]


@numba.njit(nogil=True, cache=True)
def mlp_gradients(item_rows, num_positives, graph_layers, weights, sizes, batch, room, out):
    """Add the gradients of the mean binary cross-entropy of one batch to those of weights and item vectors.

    `item_rows` is the client's table, flat, positives first; the gradients of item vectors are laid out alike.
    """
    slots, labels = batch
    gradients, row_gradients = out
    vectors, inputs, outputs, deltas, base, base_gradient, turned, errors = room
    own = _propagate(item_rows, num_positives, graph_layers, weights, vectors)
    user_half(weights, vectors[0], sizes, base)
    base_gradient[:] = 0
    vectors[3, :] = 0
    share = np.float32(1.0) / np.float32(slots.size)
    for begin in range(0, slots.size, BLOCK):
        part = slots[begin : begin + BLOCK]
        gather(item_rows, part, num_positives, own, vectors[2], inputs)
        place, start = forward(weights, sizes, base, inputs, part.size, outputs, errors)
        for sample in range(part.size):
            errors[sample] = share * (sigmoid(errors[sample]) - labels[begin + sample])
        rest = (deltas, base_gradient, turned)
        backward(weights, sizes, place, start, inputs, part.size, outputs, errors, rest, gradients)
        scatter(part, num_positives, own, inputs, vectors[3], row_gradients)
    backward_user(weights, sizes, num_positives, graph_layers, vectors, base_gradient, gradients)
    if graph_layers > 0:
        size = sizes[0]
        for slot in range(num_positives):
            for factor in range(size):
                row_gradients[slot * size + factor] += vectors[4, factor]


@numba.njit(nogil=True, cache=True)
def mlp_scores(item_rows, num_positives, graph_layers, weights, sizes, slots, room, out):
    """Scores of the items in `slots`."""
    vectors, inputs, outputs, _, base, _, _, logits = room
    own = _propagate(item_rows, num_positives, graph_layers, weights, vectors)
    user_half(weights, vectors[0], sizes, base)
    for begin in range(0, slots.size, BLOCK):
        part = slots[begin : begin + BLOCK]
        gather(item_rows, part, num_positives, own, vectors[2], inputs)
        forward(weights, sizes, base, inputs, part.size, outputs, logits)
        for sample in range(part.size):
            out[begin + sample] = sigmoid(logits[sample])
