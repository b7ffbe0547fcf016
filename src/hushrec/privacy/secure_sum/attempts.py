"""What participants remember of a sum, so that no secret of it is used twice.

An attempt at a sum has three steps that use its secrets: sharing, masking, unmasking. Each is done for one
request only: the same request gets the same answer again, another one is refused. Who is asked for keys after it
has shared begins a new attempt, with secrets of its own; so a round can begin again, and an old attempt cannot.
"""

from collections.abc import Iterable
from dataclasses import fields, make_dataclass
from functools import cache
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import PublicError
from hushrec.protocol import kept

_DIGEST_BYTES = 16
_STEPS = ("share", "mask", "unmask")

Private = TypeVar("Private")


class TakesPart(Protocol):
    """Private state of parties that remembers attempts, a row for each."""

    sum_attempts: NDArray[np.int64]
    sum_answers: NDArray[np.uint8]  # (parties, steps, bytes): digests of what was answered in this attempt
    sum_left_out: NDArray[np.bool_]  # (items,): left out of the sum that is being made; see `few_raters`


class AskedOtherwiseError(PublicError):
    """A request that would use the secrets of a sum a second time."""


def remembering(private: Private, num_parties: int, num_items: int = 0) -> Private:
    """The same private state, which remembers attempts besides, and which items are left out of a sum."""
    values = {entry.name: getattr(private, entry.name) for entry in fields(private)}  # type: ignore[arg-type]
    answers = np.zeros((num_parties, len(_STEPS), _DIGEST_BYTES), np.uint8)
    kind: Any = type(private)
    own = {"sum_attempts": np.zeros(num_parties, np.int64), "sum_answers": answers}
    made: Private = _kind(kind)(**values, **own, sum_left_out=np.zeros(num_items, np.bool_))
    return made


@cache
def _kind(kind: Any) -> Any:
    columns = [
        ("sum_attempts", NDArray[np.int64], kept()),
        ("sum_answers", NDArray[np.uint8], kept()),
        ("sum_left_out", NDArray[np.bool_], kept()),
    ]
    return make_dataclass(f"{kind.__name__}InSums", columns, bases=(kind,), kw_only=True)


def begin(private: TakesPart, rows: NDArray[np.int64]) -> None:
    """Begin a new attempt, where secrets of the last one were used."""
    used = rows[private.sum_answers[rows].any(axis=(1, 2))]
    private.sum_attempts[used] += 1
    private.sum_answers[used] = 0


def use_up(private: TakesPart, rows: NDArray[np.int64]) -> None:
    """Note that these parties' attempts were used, where masks are counted only and requests never differ."""
    private.sum_answers[rows] = 1


def once(private: TakesPart, row: int, step: Literal["share", "mask", "unmask"], request: Iterable[bytes]) -> None:
    """Note what a step is done for; refuse it for anything else, or before the step that it follows."""
    place = _STEPS.index(step)
    total = blake2b(digest_size=_DIGEST_BYTES)
    for part in request:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    digest = np.frombuffer(total.digest(), np.uint8)
    known = private.sum_answers[row]
    if place and not known[place - 1].any():
        raise AskedOtherwiseError(f"a participant is asked to {step} before it was asked to {_STEPS[place - 1]}")
    if known[place].any() and (known[place] != digest).any():
        raise AskedOtherwiseError(f"a participant is asked to {step} twice for one sum; begin the round again")
    known[place] = digest
