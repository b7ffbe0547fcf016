"""Training of a server's NeuMF, NGCF and LightGCN: the library's kernels against PyTorch, on one thread.

`taskset -c 1 python -m benchmarks.neural_servers [--data ml-100k] [--model ngcf] [--steps 60] [--repeats 7]`. Both
begin with the same numbers, see the same batches and drop the same messages, so that their results are compared
too. They train on what a system hands to `server_model.train`: everyone's items and drawn ones (neumf, ngcf,
lightgcn), or what clients showed (ptf-fedrec). The ratio of CPU times is measured in one run, in turns; seconds
are this machine's. A model whose ratio is above 1.3 keeps its kernels.

PyTorch (`benchmarks.neural_pytorch`) is as fast as we got it on one core: `embedding_bag` for products with the
graph (a sparse tensor takes twice as long), the last layer for a batch's nodes only, as in the kernels, random
words instead of `functional.dropout`, fused Adam. `torch.compile` of the dense parts made nothing faster.

Clients' models are another matter: all clients train in one call. `benchmarks.local_training` compares that with
PyTorch, one client at a time.
"""

import argparse
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import hushrec
from benchmarks.engine import best
from benchmarks.neural_pytorch import Case, train_by_pytorch
from hushrec.data import random_share
from hushrec.draws import Draws
from hushrec.models import server_model
from hushrec.models.server_model import Learned, Pairs
from hushrec.registry import system_named
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job


def first_training(data: str, system_name: str, values: dict[str, Any]) -> Case:
    """What the server is to train on in the first round of a system."""
    system, calls = system_named(system_name), []

    def keep(*call: Any) -> Learned:
        calls.append(Case(*call[:5]))
        return calls[0].learned

    with mock.patch.object(server_model, "train", keep):
        train = random_share(hushrec.load(data), 0.2, 0).train
        run_job(
            job_for(system, system.configure({**values, "num_rounds": 1}), 0, train), RuntimeOptions(threads=1)
        )
    return calls[0]


def part_of_epoch(case: Case, num_steps: int) -> Case:
    """Samples for so many steps, over the same graph."""
    chosen = np.random.default_rng(0).permutation(len(case.samples))[: num_steps * case.settings.batch_size]
    samples = Pairs(*(part[chosen] for part in vars(case.samples).values()))
    return case._replace(settings=replace(case.settings, epochs=1), samples=samples)


def compare(name: str, case: Case, num_steps: int, repeats: int) -> None:
    """Print times, and how far parameters are off: the 99.9th percentile, the most, the most that they moved."""
    part = part_of_epoch(case, num_steps)
    works = partial(server_model.train, *part, 1, Draws(0)), partial(train_by_pytorch, part, Draws(0))
    one, other = (work().parameters for work in works)
    off, moved = np.abs(one - other), np.abs(one - case.learned.parameters).max()
    (kernels, _), (pytorch, _) = best(repeats, *works)
    steps = -(-len(case.samples) // case.settings.batch_size)
    share = steps / -(-len(part.samples) // case.settings.batch_size)
    print(f"{name:34} {steps:6} {kernels * share:8.2f} {pytorch * share:8.2f} {pytorch / kernels:6.2f} ", end="")
    print(f"{np.quantile(off, 0.999):8.0e} {off.max():8.0e} {moved:8.0e}", flush=True)


def main() -> None:
    """Compare on ML-100K and Gowalla, 80% of each user's items."""
    models = ("neumf", "ngcf", "lightgcn")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neural_servers", description=__doc__)
    parser.add_argument("--data", action="append", help="ml-100k and gowalla-20 if not given")
    parser.add_argument("--model", choices=models, action="append")
    parser.add_argument("--steps", type=int, default=60, help="steps of Adam that are timed; times are an epoch's")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'CPU seconds of an epoch':34} {'steps':>6} {'kernels':>8} {'PyTorch':>8} {'ratio':>6} ", end="")
    print(f"{'off':>8} {'most':>8} {'moved':>8}")
    with threadpool_limits(1):
        for data in options.data or ("ml-100k", "gowalla-20"):
            for model in options.model or models:
                for system, values in ((model, {}), ("ptf-fedrec", {"server_model": model})):
                    case = first_training(data, system, values)
                    compare(f"{data} {model}, {system}", case, options.steps, options.repeats)


if __name__ == "__main__":
    main()
