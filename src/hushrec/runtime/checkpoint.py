"""A run on disk: what each side holds after a round, as plain arrays, written at once or not at all.

A `state.npz` is checkpoint and result alike: the server's state, the learned part of the private state, the
tallies of the transcript and the learning curve. A `train.npz` beside it holds the ratings that were trained on,
with ids and titles, so that a folder can be resumed and used without the dataset.
"""

import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions, Owners, Partners, UserRows, stream_order
from hushrec.errors import HushrecError
from hushrec.protocol import System, Tally, Transcript

Arrays = dict[str, NDArray[Any]]

# All that NumPy and zipfile raise when bytes of an archive are not what they were.
_DAMAGE = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass
class Progress:
    """Where a training is: all that is needed to go on."""

    state: Any
    private: Any  # None on a server whose parties are elsewhere
    transcript: Transcript
    round_number: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    curve: NDArray[np.float64] | None = None  # (rounds, metrics)


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    total = sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def model_arrays(system: System[Any, Any, Any], state: Any) -> Arrays:
    """The arrays that the driving side ends with."""
    return {name: getattr(state, name) for name in system.model_arrays}


def private_arrays(system: System[Any, Any, Any], private: Any) -> Arrays:
    """The arrays that the other parties end with."""
    return {name: getattr(private, name) for name in system.private_arrays}


def shared_arrays(system: System[Any, Any, Any], private: Any) -> Arrays:
    """The model as all parties hold it, where the driving side cannot read it; else nothing."""
    return {name: getattr(private, name) for name in system.shared_arrays}


def model_digest(system: System[Any, Any, Any], state: Any, private: Any) -> str:
    """Of the model after the last round, decrypted if the driving side has ciphertexts, which never repeat."""
    return digest(shared_arrays(system, private) or model_arrays(system, state))


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays that only its owner can read."""
    with _private_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    with _private_file(path) as file:
        file.write(data)


@contextmanager
def _private_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there as a whole or not at all, also after a power cut."""
    for folder in reversed([path.parent, *path.parent.parents]):
        folder.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: Path) -> Arrays:
    """The arrays of a file."""
    try:
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise HushrecError(f"{path} is missing; run again without --resume to start anew") from None
    except _DAMAGE:
        raise HushrecError(f"{path} is damaged; delete its folder and run again") from None


def save_progress(path: Path, system: System[Any, Any, Any], progress: Progress) -> None:
    """Write all that is needed to go on from here."""
    arrays: Arrays = {
        f"server.{entry.name}": getattr(progress.state, entry.name) for entry in fields(progress.state)
    }
    if progress.private is not None:
        arrays |= {f"private.{name}": getattr(progress.private, name) for name in system.learned}
    tallies = [
        (round_number, system.messages.index(kind), tally.messages, tally.rows, tally.payload_bytes)
        for (round_number, kind), tally in progress.transcript.tallies.items()
    ]
    arrays["tallies"] = np.array(tallies, np.int64).reshape(-1, 5)
    arrays["round_number"] = np.array(progress.round_number)
    arrays["seconds"] = np.array([progress.cpu_seconds, progress.wall_seconds])
    if progress.curve is not None:
        arrays["curve"] = progress.curve
    write_arrays(path, arrays)


def load_progress(path: Path, system: System[Any, Any, Any], start: Progress) -> Progress:
    """Go on from a file; `start` is the same run before its first round."""
    arrays = read_arrays(path)
    try:
        server = {entry.name: arrays[f"server.{entry.name}"] for entry in fields(start.state)}
        if not all(_fits(server[name], getattr(start.state, name)) for name in system.model_arrays):
            raise ValueError
        round_number = int(arrays["round_number"])
        if start.private is not None:
            restore_private(system, start.private, arrays)
        for sent_in, kind, *counts in arrays["tallies"].tolist():
            start.transcript.tallies[sent_in, system.messages[kind]] = Tally(*counts)
        cpu_seconds, wall_seconds = arrays["seconds"].tolist()
    except (KeyError, ValueError, IndexError):
        raise HushrecError(f"{path} is not of this run; choose another --out") from None
    state = replace(start.state, **server)
    return Progress(
        state, start.private, start.transcript, round_number, cpu_seconds, wall_seconds, arrays.get("curve")
    )


def _fits(kept: NDArray[Any], start: NDArray[Any]) -> bool:
    """Whether an array can have grown out of another: with rows for those who came since."""
    return kept.ndim == start.ndim and kept.shape[1:] == start.shape[1:] and len(kept) >= len(start)


def restore_private(system: System[Any, Any, Any], private: Any, arrays: Arrays) -> None:
    """Put what training changed back where it was."""
    for name in system.learned:
        if isinstance(getattr(type(private), name, None), property):  # packed: only what is in use was kept
            setattr(private, name, arrays[f"private.{name}"])
        else:
            getattr(private, name)[:] = arrays[f"private.{name}"]


def save_train(path: Path, train: Interactions) -> None:
    """Keep what was trained on, with ids and titles."""
    rows = train.by_user()
    arrays: Arrays = {"starts": rows.starts, "items": rows.items}
    arrays |= {"user_ids": train.user_ids, "item_ids": train.item_ids}
    if rows.ratings is not None:
        arrays["ratings"] = rows.ratings
    if train.titles is not None:
        arrays["titles"] = train.titles
    if train.rating_range is not None:
        arrays["rating_range"] = np.array(train.rating_range)
    if train.partners is not None:
        partners = train.partners
        arrays |= {"partner_names": np.array(partners.names, np.str_)}
        arrays |= {"partner_users": partners.user_starts, "partner_items": partners.item_starts}
    if train.owners is not None:
        arrays |= _owner_arrays(train, train.owners)
    write_arrays(path, arrays)


def _owner_arrays(train: Interactions, owners: Owners) -> Arrays:
    """Who holds which item, and the place of each row in the stream of all users' events."""
    rows, place = train.canonical_order(), np.empty(len(train), np.int64)
    place[stream_order(train)] = np.arange(len(train))
    return {
        "owner_names": np.array(owners.names, np.str_),
        "owner_starts": owners.starts,
        "item_owners": owners.owners,
        "owner_has_users": np.array(owners.has_users),
        "stream_places": place if rows is None else place[rows],
    }


def load_train(path: Path, name: str, data_sha256: str, is_synthetic: bool) -> Interactions:
    """What `save_train` kept; times are not, but where items have owners, places in the stream stand for them."""
    arrays = read_arrays(path)
    if not {"starts", "items", "user_ids", "item_ids"} <= arrays.keys():
        raise HushrecError(f"{path} is not what a run was trained on; delete its folder and run again")
    rows = UserRows(arrays["starts"], arrays["items"], arrays.get("ratings"))
    users = np.repeat(np.arange(len(rows.starts) - 1, dtype=np.int32), np.diff(rows.starts))
    low_high = arrays.get("rating_range")
    rating_range = None if low_high is None else (float(low_high[0]), float(low_high[1]))
    partners = None
    if "partner_names" in arrays:
        names = tuple(str(name) for name in arrays["partner_names"])
        partners = Partners(names, arrays["partner_users"], arrays["partner_items"])
    owners = None
    if "owner_names" in arrays:
        names = tuple(str(name) for name in arrays["owner_names"])
        has_users = bool(arrays["owner_has_users"])
        owners = Owners(names, arrays["owner_starts"], arrays["item_owners"], has_users)
    return Interactions(
        users, rows.items, rows.ratings, arrays.get("stream_places"), None, arrays["user_ids"], arrays["item_ids"],
        arrays.get("titles"), rating_range, name, data_sha256, is_synthetic, partners, owners,
    )  # fmt: skip
