"""Lists of items for people: by numbers, as entries with ids and titles, as rows of a table, and in a file."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.errors import HushrecError
from hushrec.evaluation.top_k import NO_ITEM
from hushrec.files import private_file
from hushrec.protocol import Numbers


@dataclass(frozen=True)
class Reason:
    """Why an item is in a list: the nearest of the person's own items, those that are liked before others."""

    item: Any  # the id of the source
    title: str
    similarity: float  # at most 1: see `hushrec.evaluation.neighbours`


@dataclass(frozen=True)
class Recommendation:
    """One item of a list, with its score and its title; and why it is there, if that was asked and is known."""

    item: Any  # the id of the source
    score: float
    title: str
    because: Reason | None = None

    def told(self, why: bool = False) -> dict[str, Any]:
        """As JSON has it; `because` only where it was asked for."""
        found = {"item": self.item, "score": self.score, "title": self.title}
        return found | {"because": self.because and asdict(self.because)} if why else found


class Lists(NamedTuple):
    """Lists of several people, by the numbers of items: arrays (people, k), -1 where a list is shorter."""

    items: Numbers
    scores: NDArray[np.float32]
    because: Numbers  # the items that are reasons, -1 where there is none
    similarities: NDArray[np.float32]

    def entries(self, train: Interactions) -> list[list[Recommendation]]:
        """A list per person, with ids and titles."""
        rows = zip(*(array.tolist() for array in self), strict=True)
        return [[_entry(train, *entry) for entry in zip(*row, strict=True) if entry[0] != NO_ITEM] for row in rows]

    def table(self, users: Numbers, train: Interactions, why: bool) -> pa.RecordBatch:
        """A row per entry: the ids of user and item, the place in the list, score and title, perhaps why."""
        people, places = np.nonzero(self.items != NO_ITEM)
        items, because = self.items[people, places], self.because[people, places]
        columns = {
            "user": pa.array(train.user_ids[users[people]]),
            "rank": pa.array((places + 1).astype(np.int32)),
            "item": pa.array(train.item_ids[items]),
            "score": pa.array(self.scores[people, places].astype(np.float32)),
            "title": pa.array(_titles(train, items), pa.string()),
        }
        if why:
            is_known = because != NO_ITEM
            columns["because"] = pa.array(train.item_ids[because], mask=~is_known)
            columns["because_title"] = pa.array(_titles(train, because), pa.string(), mask=~is_known)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def table_of_lists(
    lists: Sequence[Sequence[Recommendation]], train: Interactions, why: bool, users: Sequence[Any] | None = None
) -> pa.Table:
    """The same table from entries; without users it is one person's list."""
    entries = [(place, one) for found in lists for place, one in enumerate(found, 1)]
    item_kind = pa.from_numpy_dtype(train.item_ids.dtype) if train.item_ids.dtype.kind == "i" else pa.string()
    columns = {
        "rank": pa.array([place for place, _ in entries], pa.int32()),
        "item": pa.array([one.item for _, one in entries], item_kind),
        "score": pa.array([one.score for _, one in entries], pa.float32()),
        "title": pa.array([one.title for _, one in entries], pa.string()),
    }
    if users is not None:
        own = pa.array([user for user, found in zip(users, lists, strict=True) for _ in found])
        columns = {"user": own} | columns
    if why:
        columns["because"] = pa.array([one.because and one.because.item for _, one in entries], item_kind)
        columns["because_title"] = pa.array([one.because and one.because.title for _, one in entries], pa.string())
    return pa.table(columns)


def _entry(train: Interactions, item: int, score: float, because: int, similarity: float) -> Recommendation:
    reason = None
    if because != NO_ITEM:
        reason = Reason(train.item_ids[because].item(), title_of(train, because), similarity)
    return Recommendation(train.item_ids[item].item(), score, title_of(train, item), reason)


def title_of(train: Interactions, item: int) -> str:
    """The title of an item, "" if there is none."""
    return "" if train.titles is None else str(train.titles[item])


def _titles(train: Interactions, items: Numbers) -> NDArray[np.str_]:
    return np.full(len(items), "") if train.titles is None else train.titles[items]


# --- Files -------------------------------------------------------------------------------------------------

_Write = Callable[[pa.RecordBatch], Any]


@contextmanager
def _json_lines(file: IO[bytes], _schema: pa.Schema) -> Iterator[_Write]:
    encoder = msgspec.json.Encoder()
    yield lambda batch: file.write(encoder.encode_lines(batch.to_pylist()))


def _csv(file: IO[bytes], schema: pa.Schema) -> AbstractContextManager[_Write]:
    return _of_arrow(pa_csv.CSVWriter(file, schema))


def _parquet(file: IO[bytes], schema: pa.Schema) -> AbstractContextManager[_Write]:
    return _of_arrow(pa_parquet.ParquetWriter(file, schema))


@contextmanager
def _of_arrow(opened: Any) -> Iterator[_Write]:
    with opened as writer:
        yield writer.write_batch


_WRITERS = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines}


def check_lists_file(path: Path, replaces: bool) -> None:
    """Refuse a file whose ending says nothing, or that is there already, before any list is made."""
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:  # as if the name is too long
        raise HushrecError(f"--out cannot be used ({error.strerror}); choose another file") from None
    if path.suffix not in _WRITERS:
        raise HushrecError(f"{path} must end in {', '.join(_WRITERS)}: the ending says what is written")
    if is_folder:
        raise HushrecError(f"{path} is a folder; name a file in it, as in {path / 'lists.parquet'}")
    if is_there and not replaces:
        raise HushrecError(f"{path} is there already; choose another, or replace it with --force")


def write_lists(path: Path, blocks: Iterator[pa.RecordBatch]) -> int:
    """Write blocks of rows as they come; the file is there when all are in it, for its owner only."""
    num_rows, first = 0, next(blocks)
    try:
        with private_file(path) as file, _WRITERS[path.suffix](file, first.schema) as write:
            for block in _chained(first, blocks):
                write(block)
                num_rows += block.num_rows
    except OSError as error:
        raise HushrecError(f"{path} cannot be written ({error.strerror}); choose another place") from None
    return num_rows


def _chained(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
