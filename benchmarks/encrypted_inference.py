"""`python -m benchmarks.encrypted_inference`: scores under CKKS, their error, CPU time per user and bytes."""

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.systems.fedcore.encrypted_scores import ItemScorer, KeyHolder

NUM_FACTORS = 20
SIZES = (1_682, 10_000)
BATCH = 20
LENGTHS = 2.5  # of vectors: scores of up to 5 or so


class Timed(NamedTuple):
    """A result and the CPU time it took."""

    result: NDArray[np.generic]
    seconds: float


def timed(work: Callable[[], NDArray[np.generic]]) -> Timed:
    """Run once."""
    began = time.process_time()
    return Timed(work(), time.process_time() - began)


def measure(num_items: int, num_users: int) -> None:
    """Print what one catalogue costs."""
    draws = Draws(0)
    generator, spread = draws.generator("encrypted inference", num_items), LENGTHS / NUM_FACTORS**0.5
    items = generator.normal(0, spread, (num_items, NUM_FACTORS))
    offsets = generator.normal(0, 0.3, num_items)
    began = time.process_time()
    holder = KeyHolder(NUM_FACTORS, num_items, draws.key("encrypted inference"))
    keys = holder.public_keys()
    scorer = ItemScorer(keys, items, offsets)
    set_up = time.process_time() - began
    batches, largest, up, down = [], 0.0, 0, 0
    for start in range(0, num_users, BATCH):
        users = generator.normal(0, spread, (min(BATCH, num_users - start), NUM_FACTORS))
        requests, encrypting = timed(lambda users=users: holder.encrypt(users))
        answers, scoring = timed(lambda requests=requests: scorer.score(requests))
        scores, decrypting = timed(lambda answers=answers: holder.decrypt(answers))
        batches.append(np.array([encrypting, scoring, decrypting]) * 1000 / len(users))
        largest = max(largest, np.abs(scores - (users @ items.T + offsets)).max())
        up, down = requests.shape[1], answers.shape[1]
    print(f"{num_items} items, {NUM_FACTORS} factors, {num_users} users; one core")
    print(f"  largest difference to plain  {largest:.1e}")
    for name, of in (("median batch", np.median), ("best batch", np.min)):
        encrypt, product, decrypt = of(batches, axis=0)
        print(f"  CPU per user, {name:12}  {of(np.sum(batches, axis=1)):5.1f} ms: ", end="")
        print(f"encrypt {encrypt:.1f}, product {product:.1f}, decrypt {decrypt:.1f}")
    print(f"  keys and set-up, once  {set_up * 1000:.0f} ms")
    print(f"  bytes per user  {up} up, {down} down; public keys once {len(keys)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.encrypted_inference", description=__doc__)
    parser.add_argument("--users", type=int, default=1_000, help="how many to ask about")
    options = parser.parse_args()
    for size in SIZES:
        measure(size, options.users)
