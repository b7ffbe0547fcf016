"""What may be said of a run to others: settings, counts, metrics, digests. No ids, no ratings, no names of files.

Trackers and cards take what they tell from here, and from nowhere else.
"""

import math
import shlex
from collections.abc import Mapping
from typing import Any

from hushrec.audit.kept import KeptAudit
from hushrec.data.catalogue import CATALOGUE
from hushrec.runs.record import FoldResult, Run
from hushrec.runs.watching import FoldProgress

OWN_DATA = "data of its owner"
BYTES_SENT = "bytes sent"
_FILES = {
    "--data": "RATINGS",
    "--items": "ITEMS",
    "--owners": "OWNERS",
    "--columns": "COLUMNS",
    "--live": "EVENTS",
}
_OWNERS_BY_RULE = ("", "genre")

Told = str | int | float | bool


def public_data(run: Run) -> str:
    """What the data is called, if everybody may know it: the name of a file is its owner's."""
    if run.provenance.is_synthetic:
        return "synthetic"
    return run.data if run.data in CATALOGUE else OWN_DATA


def public_settings(run: Run) -> dict[str, Told]:
    """What was run."""
    made = run.provenance
    told: dict[str, Told] = {
        "system": run.system,
        "data": public_data(run),
        "users": made.num_users,
        "items": made.num_items,
        "ratings": made.num_ratings,
        f"{made.party}s": run.num_parties,
        "split": made.split,
        "measure": made.measure,
        "seed": run.seed,
        "folds": run.num_folds,
        "hushrec": made.versions.get("hushrec", ""),
    }
    return told | {name: _plain(value) for name, value in run.config.items()}


def _plain(value: Any) -> Told:
    return value if isinstance(value, str | int | float | bool) else str(value)


def public_round(now: FoldProgress) -> dict[str, float]:
    """What is known after a round: metrics so far, and bytes."""
    found = {public_name(name): value for name, value in now.metrics.items()} | {BYTES_SENT: float(now.sent_bytes)}
    before = f"fold {now.fold}/" if now.num_folds > 1 else ""
    return {f"{before}{name}": value for name, value in found.items() if math.isfinite(value)}


def public_results(run: Run, audit: KeptAudit | None = None) -> tuple[dict[str, float], dict[str, str]]:
    """What came out: numbers, and digests of the models."""
    numbers = {f"final/{public_name(name)}": value for name, value in run.mean.items()}
    digests = {}
    for fold in run.folds:
        part = f" of fold {fold.fold}" if run.num_folds > 1 else ""
        digests[f"model_sha256{part}"] = fold.model_sha256
        numbers |= {f"final/{name}{part}": value for name, value in _costs(fold).items()}
    if run.folds:
        numbers |= {f"final/{public_name(name)}": float(value) for name, value in run.folds[0].facts.items()}
    numbers |= public_leakage(audit)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}, digests


def _costs(fold: FoldResult) -> dict[str, float]:
    sent = {public_name(f"bytes {way}"): float(number) for way, number in fold.sent_bytes.items()}
    return sent | {"rounds": float(fold.num_rounds), "CPU seconds": fold.cpu_seconds}


def public_leakage(audit: KeptAudit | None) -> dict[str, float]:
    """What attacks read of everybody on average, beside a blind guess."""
    found: dict[str, float] = {}
    for one in audit.findings if audit else ():
        name = public_name(f"leakage/{one.name} by {one.role}")
        found |= {name: one.score, f"{name}, blind".replace(",", ""): one.chance}
    return found


def public_name(name: str) -> str:
    """A metric as every tracker takes it: letters, digits, blanks and few signs.

    >>> public_name("NDCG@10"), public_name("RMSE, cold"), public_name("bytes server->client")
    ('NDCG at 10', 'RMSE cold', 'bytes server to client')
    """
    spoken = name.replace("@", " at ").replace("->", " to ")
    kept = "".join(sign if sign.isascii() and (sign.isalnum() or sign in " ._-/") else " " for sign in spoken)
    return " ".join(kept.split())


def public_command(run: Run) -> str:
    """The command that makes a run again, with words in capitals for what is its owner's."""
    words = shlex.split(run.command)
    for place, word in enumerate(words[1:], 1):
        before, (flag, equals, value) = words[place - 1], word.partition("=")
        if before in _FILES and not _is_known(before, word):
            words[place] = _FILES[before]
        elif equals and flag in _FILES and not _is_known(flag, value):
            words[place] = f"{flag}={_FILES[flag]}"
    return shlex.join(words)


def _is_known(flag: str, value: str) -> bool:
    if flag == "--data":
        return value in CATALOGUE or value.split(":")[0] == "synthetic"
    return flag == "--owners" and (value in _OWNERS_BY_RULE or value.isdigit())


def python_of(run: Run, class_name: str, defaults: Mapping[str, Any]) -> str:
    """The line of Python that makes a model again that was fitted there; settings as always are left out."""
    own = {name: value for name, value in run.config.items() if defaults.get(name) != value}
    arguments = ", ".join(f"{name}={value!r}" for name, value in {**own, "seed": run.seed}.items())
    return f"hushrec.{class_name}({arguments}).fit(train)"
