"""`python -m benchmarks.drift_epoch`: one epoch of DRIFT, and what encryption and batching add to it.

All forms are measured in one run on one thread, the plain one first and last. AES-GCM itself is the encryption and
decryption of the same number of messages of the same size, and nothing else.
"""

import argparse
import time
from dataclasses import replace
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hushrec.data import latest_share, load, owned
from hushrec.data.holdings import OWNERS
from hushrec.data.interactions import Interactions
from hushrec.registry import system_named
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job
from hushrec.systems.drift.messages import SentInteractions

FORMS: dict[str, dict[str, Any]] = {
    "not encrypted": {"encryption": "none"},
    "aes-gcm, flag outside (published)": {},
    "aes-gcm, flag inside": {"flag": "inside"},
    "aes-gcm, 8 together": {"batch": 8},
    "aes-gcm, 32 together": {"batch": 32},
    "not encrypted, again": {"encryption": "none"},
}


class Epoch(NamedTuple):
    """What one epoch took."""

    cpu_seconds: float
    num_messages: int
    sent_bytes: int
    cipher_seconds: float


def epoch(train: Interactions, values: dict[str, Any]) -> Epoch:
    """Run one."""
    system = system_named("drift")
    config = system.configure({"epochs": 1, **values})
    progress = run_job(job_for(system, config, 0, train), RuntimeOptions(threads=1))
    sent = progress.transcript.total(SentInteractions)
    cipher = cipher_seconds(sent.rows, config.plan.form.plain_bytes) if config.plan.form.is_encrypted else 0.0
    return Epoch(progress.cpu_seconds, sent.rows, sent.payload_bytes, cipher)


def cipher_seconds(num_messages: int, plain_bytes: int, sample: int = 100_000) -> float:
    """CPU time to encrypt and decrypt so many messages, from a sample."""
    cipher, bound = AESGCM(bytes(16)), bytes(13)
    nonces = [number.to_bytes(12, "little") for number in range(min(sample, num_messages))]
    plain, count = [bytes(plain_bytes)] * len(nonces), len(nonces)
    began = time.process_time()
    sealed = list(map(cipher.encrypt, nonces, plain, [bound] * count))
    list(map(cipher.decrypt, nonces, sealed, [bound] * count))
    return (time.process_time() - began) * num_messages / max(count, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift_epoch", description=__doc__)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--owners", default="genre")
    options = parser.parse_args()
    data = owned(load(options.data), options.owners, 0)
    train = latest_share(data).train
    warm_up = train.select(train.users < 50)
    for values in FORMS.values():
        epoch(replace(warm_up, user_ids=train.user_ids), values)
    print(f"{options.data}: {len(train):,} interactions; CPU seconds of one epoch, one core")
    print("\n".join(OWNERS.lines_for_people(train)))
    print(f"{'form':34} {'epoch':>6} {'ratio':>6} {'added':>6} {'share':>6} {'AES-GCM':>8} {'share':>6}", end="")
    print(f" {'messages':>10} {'MB':>6}")
    plain = 0.0
    for name, values in FORMS.items():
        took = epoch(train, values)
        plain = plain or took.cpu_seconds
        added = took.cpu_seconds - plain
        print(f"{name:34} {took.cpu_seconds:6.2f} {took.cpu_seconds / plain:6.2f} {added:6.2f} ", end="")
        print(f"{added / took.cpu_seconds:6.1%} {took.cipher_seconds:8.2f} ", end="")
        print(
            f"{took.cipher_seconds / took.cpu_seconds:6.1%} {took.num_messages:10,} {took.sent_bytes / 1e6:6.1f}"
        )


if __name__ == "__main__":
    main()
