"""What clients say of items, whatever the form of a message: a row of numbers for each item of an upload.

Forms are told apart by their columns: items with scores, ratings or gradients, or alone; gradients of all items of
the catalogue; the gradient of a whole recommender; blocks of steps of an encryption that is switched off.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.error_signs import answers_recommender, item_errors
from hushrec.audit.uploads import Answered, answered, is_upload, lists
from hushrec.protocol import Message, View

Floats = NDArray[np.float64]
Form = Literal["gradients", "scores", "errors", "listed"]

_STEP_UNIT = 2.0**20  # of steps in blocks that are not encrypted: fixed point


class ItemRows(NamedTuple):
    """Uploads of some clients, a slice of rows each."""

    clients: NDArray[np.int64]
    starts: NDArray[np.int64]  # of each client's rows
    items: NDArray[np.int64]
    rows: Floats  # (rows, width): gradients or steps; else one number, which is 1 where items are only listed
    form: Form
    vectors: Floats | None = None  # of all items, as they were sent before; None: none were

    @property
    def owners(self) -> NDArray[np.int64]:
        """For each row the place of its client."""
        return np.repeat(np.arange(len(self.clients)), np.diff(self.starts))

    def sizes(self) -> Floats:
        """How much each row says: its one number, or its length."""
        return self.rows[:, 0] if self.form != "gradients" else np.linalg.norm(self.rows, axis=1)


def tells_of_items(message_type: type[Message]) -> bool:
    """Whether clients say something of items to the server, in a form that is known here."""
    return (
        lists(message_type)
        or is_upload(message_type, "gradients")
        or answers_recommender(message_type)
        or is_upload(message_type, "places", "blocks")
    )


def tells_more_than_lists(message_type: type[Message]) -> bool:
    """Whether what they say of items is more than which they are, so that some can be told from others."""
    is_list = lists(message_type) and not any(lists(message_type, name) for name in ("gradients", "scores"))
    return tells_of_items(message_type) and not is_list


def item_rows(view: View, settings: Mapping[str, Any]) -> Iterator[ItemRows]:
    """All that was said of items, batch after batch."""
    for kind in dict.fromkeys(type(one.message) for one in view):
        if lists(kind, "gradients"):
            yield from (_listed_gradients(one) for one in answered(view, "item_factors", kind))
        elif lists(kind):
            yield from _listed(view, kind)
        elif is_upload(kind, "gradients"):
            yield from (_all_gradients(one) for one in answered(view, "item_factors", kind) if _is_of_all(one))
        elif is_upload(kind, "places", "blocks") and settings.get("encryption") == "none":
            yield from (_steps(one) for one in answered(view, "blocks", kind))
    for clients, errors in item_errors(view):
        place, item = np.nonzero(errors)
        starts = np.searchsorted(place, np.arange(len(clients) + 1))
        yield ItemRows(clients, starts, item, -errors[place, item][:, None], "errors")


def _listed(view: View, kind: type[Message]) -> Iterator[ItemRows]:
    column = next((name for name in ("scores", "ratings") if lists(kind, name)), None)
    for one in view:
        if type(one.message) is kind:
            items = one.message.column("items")
            values = np.ones(len(items.values)) if column is None else one.message.column(column).values
            form: Form = "scores" if column == "scores" else "listed"
            rows = values.astype(np.float64).reshape(-1, 1)
            yield ItemRows(one.numbers.astype(np.int64), items.starts, items.values.astype(np.int64), rows, form)


def _vectors(one: Answered) -> Floats:
    vectors: Floats = one.request.item_factors.astype(np.float64)  # type: ignore[attr-defined]
    return vectors


def _listed_gradients(one: Answered) -> ItemRows:
    items, rows = one.upload.column("items"), one.upload.column("gradients").values.astype(np.float64)
    return ItemRows(one.clients, items.starts, items.values.astype(np.int64), rows, "gradients", _vectors(one))


def _is_of_all(one: Answered) -> bool:
    """Whether an upload has one gradient for each item vector that was sent."""
    gradients, vectors = one.upload.column("gradients"), _vectors(one)
    is_whole = bool((gradients.lengths == len(vectors)).all())
    return is_whole and gradients.values.shape[1:] == vectors.shape[1:]


def _all_gradients(one: Answered) -> ItemRows:
    gradients, vectors = one.upload.column("gradients"), _vectors(one)
    items = np.tile(np.arange(len(vectors)), len(one.clients))
    return ItemRows(
        one.clients, gradients.starts, items, gradients.values.astype(np.float64), "gradients", vectors
    )


def _steps(one: Answered) -> ItemRows:
    """Steps of items that an encryption would hide, one block for each."""
    places, blocks = one.upload.column("places"), one.upload.column("blocks")
    sent: NDArray[np.uint8] = one.request.blocks  # type: ignore[attr-defined]
    vectors, rows = (np.ascontiguousarray(part).view("<i4") / _STEP_UNIT for part in (sent, blocks.values))
    return ItemRows(one.clients, places.starts, places.values.astype(np.int64), rows, "gradients", vectors)
