"""Training of clients' own models: compiled kernels, all clients, against plain PyTorch, one client at a time.

`python -m benchmarks.local_training [--model neumf|lightgcn|ngcf] [--clients 50]`. Both begin with the same
numbers and see the same batches. The ratio of CPU times is measured in one run; seconds are this machine's.
"""

import argparse
import time
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import hushrec
from hushrec.data import random_share
from hushrec.data.interactions import UserRows
from hushrec.draws import BLOCK_WORDS, Draws, Key, shuffle
from hushrec.protocol import Ragged
from hushrec.systems.ptf_fedrec.client_start import ClientModel
from hushrec.systems.ptf_fedrec.clients import LocalClients, LocalSettings, enrol, predict_slots, train

PRESETS = {
    "released": {"num_factors": 16, "batch_size": 256, "learning_rate": 0.01},
    "paper": {"num_factors": 32, "batch_size": 64, "learning_rate": 0.001},
}


class Recommender(nn.Module):
    """One client's model as PyTorch code would have it: a row for every item of the catalogue, autograd, Adam."""

    def __init__(self, clients: LocalClients, row: int, settings: LocalSettings) -> None:
        super().__init__()
        self.settings = settings
        first, size = clients.starts[row], settings.num_factors
        slots = slice(first, first + clients.num_slots[row])
        table = torch.zeros(clients.num_items, size)
        table[torch.from_numpy(clients.slot_items[slots]).long()] = torch.from_numpy(clients.rows[slots])
        self.items = nn.Parameter(table)
        parts = np.split(clients.weights[row].copy(), np.cumsum([part for part, _ in settings.parts(1)])[:-1])
        sizes = [2 * size, *settings.layers, 1]
        if settings.model == "ngcf":  # two matrices per layer
            sizes = [size] * (2 * settings.num_graph_layers + 1)
        self.user = nn.Parameter(torch.from_numpy(parts[0]).reshape(1, size))
        pairs = pairwise(sizes)
        self.matrices, self.biases = nn.ParameterList(), nn.ParameterList()
        for (inputs, outputs), matrix, bias in zip(pairs, parts[1::2], parts[2::2], strict=True):
            self.matrices.append(nn.Parameter(torch.from_numpy(matrix).reshape(inputs, outputs)))
            self.biases.append(nn.Parameter(torch.from_numpy(bias)))
        positives = clients.slot_items[first : first + clients.num_positives[row]].astype(np.int64)
        self.graph = star(positives, clients.num_items)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=settings.learning_rate)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """Scores of items."""
        vectors = torch.cat([self.user, self.items])
        layers = [vectors]
        for layer in range(self.settings.graph_layers):
            side = torch.sparse.mm(self.graph, vectors)
            if self.settings.model == "lightgcn":
                vectors = side
                layers.append(vectors)
            else:
                one, other = self.matrices[2 * layer : 2 * layer + 2]
                biases = self.biases[2 * layer] + self.biases[2 * layer + 1]
                vectors = nn.functional.leaky_relu(side @ one + (vectors * side) @ other + biases, 0.2)
                layers.append(nn.functional.normalize(vectors, dim=1))
        if self.settings.model == "ngcf":
            vectors = torch.cat(layers, dim=1)
            return torch.sigmoid((vectors[:1] * vectors[1:][items]).sum(dim=1))
        vectors = torch.stack(layers).mean(dim=0)
        value = torch.cat([vectors[:1].expand(len(items), -1), vectors[1:][items]], dim=1)
        for matrix, bias in zip(self.matrices[:-1], self.biases[:-1], strict=True):
            value = torch.relu(value @ matrix + bias)
        return torch.sigmoid(value @ self.matrices[-1] + self.biases[-1]).reshape(-1)

    def flat_weights(self) -> NDArray[np.float32]:
        """The user's vector and all layers in the library's layout."""
        pairs = zip(self.matrices, self.biases, strict=True)
        parts = [self.user, *(part for pair in pairs for part in pair)]
        return torch.cat([part.detach().reshape(-1) for part in parts]).numpy()


def star(positives: NDArray[np.int64], num_items: int) -> torch.Tensor:
    """The user (node 0) and its positives, symmetrically normalised."""
    center, ends = np.zeros_like(positives), positives + 1
    places = np.stack([np.concatenate([center, ends]), np.concatenate([ends, center])])
    values = torch.full((places.shape[1],), max(len(positives), 1) ** -0.5)
    return torch.sparse_coo_tensor(torch.from_numpy(places), values, (num_items + 1,) * 2, check_invariants=False)


def train_one(
    model: Recommender, clients: LocalClients, row: int, number: int, round_number: int, key: Key
) -> None:
    """One client's epochs of a round, with the batches of the library."""
    settings, first = model.settings, clients.sample_starts[row]
    samples = slice(first, first + clients.num_samples[row])
    items = clients.slot_items[clients.starts[row] + clients.sample_slots[samples]].astype(np.int64)
    labels = clients.sample_labels[samples]
    order, words = np.empty(len(items), np.int32), np.empty(BLOCK_WORDS, np.uint32)
    loss = nn.BCELoss()
    for epoch in range(settings.epochs):
        shuffle(key, number, round_number, epoch, words, order, len(items))
        for begin in range(0, len(items), settings.batch_size):
            batch = order[begin : begin + settings.batch_size]
            model.optimizer.zero_grad()
            loss(model(torch.from_numpy(items[batch])), torch.from_numpy(labels[batch])).backward()
            model.optimizer.step()


def differences(model: Recommender, clients: LocalClients, row: int) -> tuple[float, float]:
    """The largest between a client and its PyTorch twin: of vectors and weights, and of scores.

    A few clients magnify rounding: so does PyTorch in float32 against itself in float64.
    """
    slots = slice(clients.starts[row], clients.starts[row] + clients.num_slots[row])
    items = clients.slot_items[slots].astype(np.int64)
    weights = np.abs(model.flat_weights() - clients.weights[row]).max()
    rows = np.abs(model.items.detach().numpy()[items] - clients.rows[slots]).max()
    every = Ragged(np.array([0, len(items)]), np.arange(len(items), dtype=np.int32))
    scores = predict_slots(clients, np.array([row]), every, model.settings)
    off = np.abs(scores - model(torch.from_numpy(items)).detach().numpy()).max()
    return float(max(weights, rows)), float(off)


def compare(rows: UserRows, num_items: int, settings: LocalSettings, num_torch: int, num_rounds: int = 1) -> None:
    """Train all clients with the library and some with PyTorch; print times and differences."""
    draws, num_users = Draws(0), len(rows.starts) - 1
    numbers, every = np.arange(num_users, dtype=np.int32), np.arange(num_users)
    room = np.zeros(num_users, np.int64)
    clients = enrol(numbers, rows, num_items, settings, 4, True, room, 0, draws)
    train(clients, every[:1], numbers[:1], 1, settings, draws)  # compiles
    clients = enrol(numbers, rows, num_items, settings, 4, True, room, 0, draws)
    chosen = np.linspace(0, num_users - 1, num_torch).astype(np.int64)
    models = [Recommender(clients, row, settings) for row in chosen]
    ours, alone = [], []
    for round_number in range(1, num_rounds + 1):
        begin = time.process_time()
        for model, row in zip(models, chosen, strict=True):
            train_one(model, clients, row, int(numbers[row]), round_number, draws.key("local-order"))
        alone.append((time.process_time() - begin) / clients.num_samples[chosen].sum())
        begin = time.process_time()
        train(clients, every, numbers, round_number, settings, draws)
        ours.append((time.process_time() - begin) / clients.num_samples.sum())
    numbers_off, scores_off = np.transpose(
        [differences(model, clients, row) for model, row in zip(models, chosen, strict=True)]
    )
    print(
        f"{settings.model}, {settings.num_factors} factors, batch {settings.batch_size}\n"
        f"  compiled, one thread   {min(ours) * clients.num_samples.sum():8.2f} s of CPU for {num_users} clients, "
        f"{settings.epochs} epochs\n"
        f"  PyTorch, {num_torch:4d} clients  {min(alone) * clients.num_samples[chosen].sum():8.2f} s of CPU; "
        f"per sample {min(alone) / min(ours):.0f} times as much\n"
        f"  largest difference of a client's numbers: median {np.median(numbers_off):.1e}, "
        f"worst {numbers_off.max():.1e}; of its scores: worst {scores_off.max():.1e}"
    )


def main() -> None:
    """Compare on ML-100K, all items, 80% of each user's ratings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["neumf", "lightgcn", "ngcf"], action="append")
    parser.add_argument("--clients", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train_set = random_share(hushrec.load("ml-100k"), 0.2, 0).train
    models: list[ClientModel] = options.model or ["neumf", "lightgcn", "ngcf"]
    for model in models:
        for preset in PRESETS.values():
            settings = LocalSettings(model=model, layers=(32, 16), num_graph_layers=3, epochs=5, **preset)
            compare(train_set.by_user(), train_set.num_items, settings, options.clients, num_rounds=2)


if __name__ == "__main__":
    main()
