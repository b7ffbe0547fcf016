"""What left one person's device in a round, as the transcript has it."""

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import Message, Ragged, Recorded, Role, Transcript
from hushrec.runtime.wire import frame_sizes

Told = dict[str, Any]

PEOPLE = (Role.CLIENT, Role.DENOISER, Role.USER)
MOST_NUMBERS = 960  # of a message without items that are shown
MOST_COLUMNS = 6  # of a row that are shown
_BYTE = 1  # item size
_EXACT = 1 << 53


def sent_by(transcript: Transcript, person: int, padding: Any) -> list[tuple[Recorded, int]]:
    """Messages of a person in the order of sending, cut to its own slices, with their bytes."""
    found = []
    for one in transcript.recorded:
        if type(one.message).sender not in PEOPLE:
            continue
        writers = one.numbers if one.addressees is None else one.writers()
        places = np.flatnonzero(writers == person)
        if len(places):
            message = one.message.take(places)
            addressees = None if one.addressees is None else one.addressees[places]
            own = Recorded(one.round_number, np.array([person], np.int32), message, addressees)
            found.append((own, int(frame_sizes(message, len(places), padding).sum())))
    return found


def told(one: Recorded, num_bytes: int, is_seen: bool, most_columns: int = MOST_COLUMNS) -> Told:
    """A message for the page: what it is, to whom it goes, whether who attacks can read it, and its numbers."""
    kind = type(one.message)
    reveals = " ".join((inspect.getdoc(kind) or "").split()).removeprefix("Reveals: ")
    about = {
        "type": kind.__name__,
        "from": str(kind.sender),
        "to": str(kind.receiver),
        "sealed": one.addressees is not None,
        "letters": 0 if one.addressees is None else len(one.addressees),
        "seen": is_seen,
        "bytes": num_bytes,
        "reveals": reveals,
    }
    return {**about, **_content(one.message, most_columns)}


def _content(message: Message, most_columns: int) -> Told:
    """Items with a row of numbers each, or numbers alone; and single numbers of the person."""
    columns = {kind.name: message.column(kind.name) for kind in message.kinds() if kind.layout == "ragged"}
    single = {
        kind.name: np.asarray(getattr(message, kind.name)).tolist()
        for kind in message.kinds()
        if kind.layout == "each" and not kind.counts_bytes
    }
    found: Told = {"single": {name: [_shown(value) for value in values] for name, values in single.items()}}
    items = columns.pop("items", None)
    if items is not None:
        found["items"] = items.values.tolist()
    found["columns"] = [_column(name, column, items is not None, most_columns) for name, column in columns.items()]
    return found


def _column(name: str, column: Ragged, is_by_item: bool, most_columns: int) -> Told:
    """Numbers of a field: a row for each item, or the first of them."""
    values = column.values
    width = int(np.prod(values.shape[1:], dtype=np.int64))
    about = {"name": name, "kind": _kind(values), "width": width, "count": int(values.size)}
    shown = _word if about["kind"] == "words" else _shown
    if is_by_item:
        rows = values.reshape(len(values), width)[:, :most_columns]
        return {**about, "rows": [[shown(number) for number in row] for row in rows.tolist()]}
    return {**about, "numbers": [shown(number) for number in values.ravel()[:MOST_NUMBERS].tolist()]}


def _kind(values: NDArray[Any]) -> str:
    """How numbers are drawn: bytes, words of 64 bits, whole numbers, or others."""
    if values.dtype.kind == "f":
        return "real"
    if values.dtype.itemsize == _BYTE and values.dtype.kind == "u":
        return "bytes"
    return "words" if values.dtype == np.int64 else "whole"


def _shown(number: float | bool | int) -> float | bool | int | str:
    """A number as the page gets it; whole ones beyond what a browser counts exactly, in hexadecimal."""
    if isinstance(number, int):  # bool, too
        return number if abs(number) < _EXACT else _word(number)
    return float(f"{number:.5g}")


def _word(number: int) -> str:
    return f"{number & 0xFFFFFFFFFFFFFFFF:016x}"
