"""NeuMF, NGCF and LightGCN of a server in PyTorch: what `benchmarks.neural_servers` holds the kernels against.

The same arithmetic as `hushrec.models.server_model`, with the same draws, as fast as we found it on one core.

Symbols: as in `hushrec.models.networks`.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch.autograd import Function
from torch.nn import functional
from torch.optim.adam import adam

from hushrec.draws import Draws
from hushrec.models.networks_graph import normalised_graph
from hushrec.models.server_model import Learned, ModelSettings, Pairs, Sizes

ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "maximize": False}
Blocks = dict[str, torch.Tensor]
Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # compressed: starts, columns, weights


class Case(NamedTuple):
    """One call of `server_model.train`."""

    learned: Learned
    settings: ModelSettings
    sizes: Sizes
    samples: Pairs
    graph: Pairs


class Neighbours:
    """A, and its rows of those nodes that a batch asks for; all rows where these have most of the edges."""

    def __init__(self, graph: Pairs, sizes: Sizes) -> None:
        starts, columns, weights = normalised_graph(graph.users, graph.items, graph.labels, sizes)
        self._matrix = sparse.csr_array((weights, columns, starts), shape=(sum(sizes),) * 2)
        self._rows, self._degrees = _rows(self._matrix), np.diff(starts)

    def ask(self, pairs: NDArray[np.int64]) -> torch.Tensor:
        """Choose the nodes of these pairs; returns the pairs' places among them."""
        is_asked, places = np.zeros(len(self._degrees), np.bool_), np.empty(len(self._degrees), np.int64)
        is_asked[pairs] = True
        nodes = np.flatnonzero(is_asked)
        places[nodes] = np.arange(len(nodes))
        is_part = 2 * self._degrees[nodes].sum() < len(self._rows[1])
        self._part = self._matrix[nodes.astype(np.int32)] if is_part else None
        self.nodes = torch.from_numpy(nodes)
        return torch.from_numpy(places[pairs])

    def product(self, vectors: torch.Tensor) -> torch.Tensor:
        """A times the vectors."""
        return _product(self._rows, vectors)

    def product_of_asked(self, vectors: torch.Tensor) -> torch.Tensor:
        """The asked rows of A times the vectors."""
        if self._part is None:
            return self.product(vectors).index_select(0, self.nodes)
        return _product(_rows(self._part), vectors)

    def filled(self, rows: torch.Tensor) -> torch.Tensor:
        """The asked rows among zeros."""
        return torch.zeros(len(self._degrees), rows.shape[1]).index_copy_(0, self.nodes, rows)

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """A times the asked rows among zeros."""
        return (
            self.product(self.filled(rows)) if self._part is None else _product(_rows(self._part.T.tocsr()), rows)
        )


def _rows(matrix: sparse.csr_array) -> Rows:
    return torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices), torch.from_numpy(matrix.data)


def _product(rows: Rows, vectors: torch.Tensor) -> torch.Tensor:
    starts, columns, weights = rows
    return functional.embedding_bag(
        columns, vectors, starts, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


class Sides(Function):
    """A E, of all nodes or, in the last layer, of those asked for."""

    @staticmethod
    def forward(context: Any, vectors: torch.Tensor, graph: Neighbours, is_last: bool) -> torch.Tensor:
        """Without what autograd would keep for `embedding_bag`."""
        context.graph, context.is_last = graph, is_last
        return (graph.product_of_asked if is_last else graph.product)(vectors.detach())

    @staticmethod
    def backward(context: Any, slopes: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The same product, as A is symmetric."""
        product = context.graph.spread if context.is_last else context.graph.product
        return product(slopes.contiguous()), None, None


class Means(Function):
    """The mean of E, A E, A^2 E, ..., of the nodes asked for, summed as E + A (E + A (E + A E))."""

    @staticmethod
    def forward(context: Any, vectors: torch.Tensor, graph: Neighbours, num_layers: int) -> torch.Tensor:
        """From the inside."""
        context.graph, context.num_layers = graph, num_layers
        last = vectors = vectors.detach()
        for _ in range(num_layers - 1):
            last = graph.product(last).add_(vectors)
        return graph.product_of_asked(last).add_(vectors.index_select(0, graph.nodes)).div_(num_layers + 1)

    @staticmethod
    def backward(context: Any, slopes: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The same sum."""
        rows = slopes / (context.num_layers + 1)
        start = context.graph.filled(rows)
        last = context.graph.spread(rows).add_(start)
        for _ in range(context.num_layers - 1):
            last = context.graph.product(last).add_(start)
        return last, None, None


class Normal(Function):
    """Rows of length 1. Autograd's own takes more passes."""

    @staticmethod
    def forward(context: Any, rows: torch.Tensor) -> torch.Tensor:
        """Divide by the lengths."""
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(1e-12)
        normal = rows / lengths
        context.save_for_backward(normal, lengths)
        return normal

    @staticmethod
    def backward(context: Any, slopes: torch.Tensor) -> torch.Tensor:
        """What is not along the row."""
        normal, lengths = context.saved_tensors
        along = (slopes * normal).sum(1, keepdim=True)
        return torch.addcmul(slopes, normal, along, value=-1).div_(lengths)


def dense_logits(inputs: torch.Tensor, layers: list[torch.Tensor]) -> torch.Tensor:
    """NeuMF: dense layers with relu over the vectors of a pair."""
    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        inputs = torch.addmm(bias, inputs, weight).relu_()
    return torch.addmm(layers[-1], inputs, layers[-2]).view(-1)


def product_logits(outputs: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The inner products of pairs of outputs."""
    users, items = (outputs.index_select(0, side) for side in places.unbind(0))
    return (users * items).sum(1)


def ngcf_logits(
    blocks: Blocks, places: torch.Tensor, graph: Neighbours, settings: ModelSettings, dropout: np.random.SFC64
) -> torch.Tensor:
    """NGCF: layer by layer. Only the rows of asked nodes are stretched to length 1."""
    vectors, kept = blocks["vectors"], 1 / (1 - settings.message_dropout)
    logits = product_logits(vectors.index_select(0, graph.nodes), places)
    for layer in range(settings.num_graph_layers):
        is_last = layer == settings.num_graph_layers - 1
        side = Sides.apply(vectors, graph, is_last)
        own = vectors.index_select(0, graph.nodes) if is_last else vectors
        weight, bias = blocks[f"message-{layer}-weight"] * kept, blocks[f"message-{layer}-bias"].sum(0) * kept
        one, other = weight.split(settings.num_factors)
        messages = functional.leaky_relu_(torch.addmm(bias, side, one).addmm_(own * side, other), 0.2)
        vectors = messages * keeps(messages.shape, settings.message_dropout, dropout)
        asked = vectors if is_last else vectors.index_select(0, graph.nodes)
        logits = logits + product_logits(Normal.apply(asked), places)
    return logits


def keeps(shape: torch.Size, share: float, dropout: np.random.SFC64) -> torch.Tensor:
    """1, or 0 for what the kernels drop."""
    words = dropout.random_raw(-(-shape.numel() // 4))
    words ^= np.uint64(0x8000800080008000)  # to compare unsigned words as signed ones
    signed, limit = torch.from_numpy(words.view(np.int16)), min(round(share * 2**16), 2**16 - 1) - 2**15
    return torch.ge(signed[: shape.numel()].view(shape), limit, out=torch.empty(shape))


def train_by_pytorch(case: Case, draws: Draws) -> Learned:
    """`server_model.train` of one epoch, with autograd and `torch.optim`."""
    learned, settings, sizes, samples, edges = case
    shape = settings.shape(sizes)
    arrays = [array.copy() for array in (learned.parameters, learned.means, learned.squares)]
    parameters, means, squares = ([torch.from_numpy(v) for v in shape.views(a).values()] for a in arrays)
    blocks = dict(zip(shape.blocks(), (block.requires_grad_() for block in parameters), strict=True))
    leaves, by_vectors = list(parameters), torch.empty_like(parameters[0])
    num_steps = [torch.tensor(float(learned.num_steps)) for _ in blocks]
    graph = None if settings.model == "neumf" else Neighbours(edges, sizes)
    dropout = np.random.SFC64(int(draws.generator("server-model-dropout", 1).integers(2**63)))
    pairs = np.stack([samples.users, samples.items + sizes[0]], axis=1).astype(np.int64)
    order = draws.generator("server-model-order", 1).permutation(len(samples))
    for batch in np.split(order, range(settings.batch_size, len(order), settings.batch_size)):
        if graph is None:
            numbers = torch.from_numpy(pairs.take(batch, axis=0).reshape(-1))
            leaves[0] = parameters[0].detach().index_select(0, numbers).requires_grad_()
            logits = dense_logits(leaves[0].view(len(batch), -1), parameters[1:])
        elif settings.model == "ngcf":
            logits = ngcf_logits(blocks, graph.ask(pairs[batch].T.copy()), graph, settings, dropout)
        else:
            places = graph.ask(pairs[batch].T.copy())
            logits = product_logits(Means.apply(parameters[0], graph, settings.num_graph_layers), places)
        slopes = torch.sigmoid(logits.detach()).sub_(torch.from_numpy(samples.labels[batch]))  # of cross-entropy
        slopes = slopes.div_(len(batch)) if settings.loss == "mean" else slopes
        gradients = [one.contiguous() for one in torch.autograd.grad(logits, leaves, slopes)]
        if graph is None:
            gradients[0] = by_vectors.zero_().index_add_(0, numbers, gradients[0])
        with torch.no_grad():
            adam(
                parameters, gradients, means, squares, [], num_steps, fused=True, lr=settings.learning_rate, **ADAM
            )
    return Learned(*arrays, np.array(int(num_steps[0]), np.int64))
