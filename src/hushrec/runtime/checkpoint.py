"""A run on disk: what each side holds after a round, as plain arrays, written at once or not at all.

A `state.npz` is checkpoint and result alike: the server's state, what is kept of the private state, the tallies of
the transcript and the learning curve. A `train.npz` beside it holds the ratings that were trained on, with ids,
titles and who holds them, so that a folder can be resumed and used without the dataset.
"""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions, UserRows
from hushrec.errors import HushrecError
from hushrec.files import private_file
from hushrec.limits import MOST_ROUNDS, check_room
from hushrec.protocol import (
    AnySystem,
    Arrays,
    Tally,
    Transcript,
    alike_arrays,
    kept_arrays,
    restore,
    restored,
    result_arrays,
)

# All that NumPy and zipfile raise when bytes of an archive are not what they were.
_DAMAGE = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, MemoryError, zipfile.BadZipFile,
    zlib.error,
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


def model_digest(state: Any, private: Any) -> str:
    """Digest of the final model; of its decrypted form where the driving side holds ciphertexts."""
    return digest(alike_arrays(private) or result_arrays(state))


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays that only its owner can read."""
    with private_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> Arrays:
    """The arrays of a file."""
    try:
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            members = archive.zip.infolist() if archive.zip is not None else []
            check_room(str(path), sum(member.file_size for member in members))
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise HushrecError(f"{path} is missing; run again without --resume to start anew") from None
    except _DAMAGE:
        raise HushrecError(f"{path} is damaged; delete its folder and run again") from None


def in_file(part: str, arrays: Arrays) -> Arrays:
    """Arrays under the names that they have in a file: `server.item_factors`."""
    return {f"{part}.{name}": array for name, array in arrays.items()}


def from_file(part: str, arrays: Arrays) -> Arrays:
    """Those arrays of a file that are of one part."""
    return {name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")}


def save_progress(path: Path, system: AnySystem, progress: Progress) -> None:
    """Write all that is needed to go on from here."""
    write_arrays(path, progress_arrays(system, progress))


def load_progress(path: Path, system: AnySystem, start: Progress) -> Progress:
    """Go on from a file; `start` is the same run before its first round."""
    arrays = read_arrays(path)
    try:
        return progress_of(arrays, system, start)
    except (KeyError, ValueError, IndexError, TypeError, OverflowError):
        raise HushrecError(f"{path} is not of this run; choose another --out") from None


def progress_arrays(system: AnySystem, progress: Progress) -> Arrays:
    """All that is needed to go on from here."""
    arrays = in_file("server", kept_arrays(progress.state))
    if progress.private is not None:
        arrays |= in_file("private", kept_arrays(progress.private))
    tallies = [
        (round_number, system.messages.index(kind), tally.messages, tally.rows, tally.payload_bytes)
        for (round_number, kind), tally in progress.transcript.tallies.items()
    ]
    arrays["tallies"] = np.array(tallies, np.int64).reshape(-1, 5)
    arrays["round_number"] = np.array(progress.round_number)
    arrays["seconds"] = np.array([progress.cpu_seconds, progress.wall_seconds])
    if progress.curve is not None:
        arrays["curve"] = progress.curve
    return arrays


def progress_of(arrays: Arrays, system: AnySystem, start: Progress) -> Progress:
    """What `progress_arrays` told; `start` is the same run before its first round, and is used up."""
    state = restored(start.state, from_file("server", arrays))
    round_number, tallies, curve = int(arrays["round_number"]), arrays["tallies"], arrays.get("curve")
    if not 0 <= round_number <= MOST_ROUNDS or tallies.shape[1:] != (5,) or (tallies < 0).any():
        raise ValueError("a round or a count that cannot be")
    if curve is not None and curve.ndim != 2:
        raise ValueError("curve has another shape")
    if start.private is not None:
        restore(start.private, from_file("private", arrays))
    for sent_in, kind, *counts in tallies.tolist():
        start.transcript.tallies[sent_in, system.messages[kind]] = Tally(*counts)
    cpu_seconds, wall_seconds = arrays["seconds"].tolist()
    return Progress(state, start.private, start.transcript, round_number, cpu_seconds, wall_seconds, curve)


def save_train(path: Path, train: Interactions, system: AnySystem) -> None:
    """Keep what was trained on, with ids and titles, and who holds it."""
    rows = train.by_user()
    arrays: Arrays = {"starts": rows.starts, "items": rows.items}
    arrays |= {"user_ids": train.user_ids, "item_ids": train.item_ids}
    if rows.ratings is not None:
        arrays["ratings"] = rows.ratings
    about_items = {"titles": train.titles, "genres": train.genres}
    arrays |= {name: texts for name, texts in about_items.items() if texts is not None}
    if train.item_columns:  # numbered, as their names are a stranger's
        arrays["item_columns"] = np.array(list(train.item_columns), np.str_)
        arrays |= in_file(
            "item_column", {str(place): texts for place, texts in enumerate(train.item_columns.values())}
        )
    if train.rating_range is not None:
        arrays["rating_range"] = np.array(train.rating_range)
    if train.signed_from is not None:
        arrays["signed_from"] = np.array(train.signed_from)
    write_arrays(path, arrays | system.holders.arrays(train))


def _are_rows(rows: UserRows, num_users: int, num_items: int) -> bool:
    """Whether arrays are a slice of known items for each user, with as many ratings, if there are some."""
    starts, items, ratings = rows.starts, rows.items, rows.ratings
    if starts.shape != (num_users + 1,) or items.ndim != 1 or starts.dtype.kind + items.dtype.kind != "ii":
        return False
    is_cut = starts[0] == 0 and starts[-1] == len(items) and bool((np.diff(starts) >= 0).all())
    is_known = not len(items) or 0 <= int(items.min()) <= int(items.max()) < num_items
    return is_cut and is_known and (ratings is None or ratings.shape == items.shape)


def load_train(path: Path, system: AnySystem, name: str, data_sha256: str, is_synthetic: bool) -> Interactions:
    """What `save_train` kept. Times are not, but for the order of events where the holders need it."""
    arrays = read_arrays(path)
    if not {"starts", "items", "user_ids", "item_ids"} <= arrays.keys():
        raise HushrecError(f"{path} is not what a run was trained on; delete its folder and run again")
    rows = UserRows(arrays["starts"], arrays["items"], arrays.get("ratings"))
    if not _are_rows(rows, len(arrays["user_ids"]), len(arrays["item_ids"])):
        raise HushrecError(f"{path} is not what a run was trained on; delete its folder and run again")
    users = np.repeat(np.arange(len(rows.starts) - 1, dtype=np.int32), np.diff(rows.starts))
    low_high = arrays.get("rating_range")
    rating_range = None if low_high is None else (float(low_high[0]), float(low_high[1]))
    signed = arrays.get("signed_from")
    signed_from = None if signed is None else (float(signed[0]), float(signed[1]), float(signed[2]))
    columns = from_file("item_column", arrays)
    named = {
        name: columns[str(place)] for place, name in enumerate(arrays.get("item_columns", np.empty(0)).tolist())
    }
    data = Interactions(
        users, rows.items, rows.ratings, None, None, arrays["user_ids"], arrays["item_ids"], arrays.get("titles"),
        rating_range, name, data_sha256, is_synthetic, arrays.get("genres"), named, signed_from=signed_from,
    )  # fmt: skip
    try:
        return system.holders.restored(data, arrays)
    except KeyError:
        raise HushrecError(f"{path} does not say who holds its rows; delete its folder and run again") from None
