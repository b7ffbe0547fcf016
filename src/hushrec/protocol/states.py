"""States: what a party holds between rounds, with what is kept of it marked where it is declared.

A checkpoint keeps the marked arrays; those marked as the result are what a run ends with, and what is digested. A
`packed` array is made when it is kept, for states that hold more than plain arrays or have room to spare.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import Arrays as Arrays
from hushrec.errors import HushrecError

State = TypeVar("State")


@dataclass(frozen=True)
class Mark:
    """What is done with an array of a state."""

    name: str
    is_result: bool
    is_alike: bool
    instead: str = ""
    packed: "packed[Any] | None" = None


def kept(*, result: bool = False, alike: bool = False, instead: str = "") -> Any:
    """A field that a checkpoint keeps.

    `result`: it is part of what the run ends with. `alike`: all parties end with the same; marked on the driving
    side, too, where that has it only encrypted. `instead`: the array that stands for it in checkpoints that were
    written before there was this one.
    """
    return field(metadata={"kept": (result, alike, instead)})


class packed(Generic[State]):
    """A kept array that is made of a state, and taken apart again: `entries = packed(_pack, _unpack)`.

    `later`: checkpoints that were written before there was this one are restored without it.
    """

    def __init__(
        self,
        pack: Callable[[State], NDArray[Any]],
        unpack: Callable[[State, NDArray[Any]], None],
        *,
        result: bool = False,
        later: bool = False,
    ) -> None:
        self.pack, self.unpack, self.is_result, self.is_later = pack, unpack, result, later

    def __get__(self, state: State | None, _kind: type) -> Any:
        return self if state is None else self.pack(state)

    def __set__(self, state: State, array: NDArray[Any]) -> None:
        self.unpack(state, array)


def _marks(kind: type) -> tuple[Mark, ...]:
    return _marks_of(kind)


@cache
def _marks_of(kind: Any) -> tuple[Mark, ...]:
    columns = [entry for entry in fields(kind) if "kept" in entry.metadata] if is_dataclass(kind) else []
    members = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    arrays = {name: value for name, value in members.items() if isinstance(value, packed)}
    return (
        *(Mark(entry.name, *entry.metadata["kept"]) for entry in columns),
        *(Mark(name, array.is_result, False, packed=array) for name, array in arrays.items()),
    )


def _taken(state: object, marks: list[Mark]) -> Arrays:
    return {mark.name: getattr(state, mark.name) for mark in marks}


def kept_arrays(state: object) -> Arrays:
    """All that a checkpoint keeps of a state."""
    return _taken(state, list(_marks(type(state))))


def result_arrays(state: object) -> Arrays:
    """What the run ends with."""
    return _taken(state, [mark for mark in _marks(type(state)) if mark.is_result])


def alike_arrays(state: object) -> Arrays:
    """What all parties end with alike: the model, where the driving side has it only encrypted."""
    return _taken(state, [mark for mark in _marks(type(state)) if mark.is_alike])


def has_alike_arrays(kind: type) -> bool:
    """Whether a state has something that all parties end with alike."""
    return any(mark.is_alike for mark in _marks(kind))


def restore(state: object, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put kept arrays back where they were. The state itself stays: others look at its arrays."""
    for mark in _marks(type(state)):
        if mark.packed is None:
            name = mark.instead if mark.instead and mark.name not in arrays else mark.name
            own, array = getattr(state, mark.name), arrays[name]
            if array.shape != own.shape:  # else NumPy might repeat rows
                raise ValueError(f"{mark.name} has another shape")
            own[:] = array
        elif mark.name in arrays or not mark.packed.is_later:
            mark.packed.unpack(state, arrays[mark.name])


def restored(state: State, arrays: Mapping[str, NDArray[Any]]) -> State:
    """A frozen state with its kept arrays as they were; rows may be others, of the same width and kind.

    Of a result there are no fewer: it may have grown.
    """
    marks = _marks(type(state))
    for mark in marks:
        if mark.packed is not None:
            where = f"{type(state).__name__}.{mark.name}"
            raise HushrecError(
                f"{where} cannot be packed: the driving side's state is frozen; make it a kept() field"
            )
        array, own = arrays[mark.name], getattr(state, mark.name)
        if not _is_like(array, own) or (mark.is_result and len(np.atleast_1d(array)) < len(np.atleast_1d(own))):
            raise ValueError(f"{mark.name} has another shape")
    return replace(state, **{mark.name: arrays[mark.name] for mark in marks})  # type: ignore[type-var]


def _is_like(array: NDArray[Any], start: NDArray[Any]) -> bool:
    """Whether an array can have become of another: it has rows of the same kind, however many."""
    is_same_kind = np.asarray(array).dtype.kind == np.asarray(start).dtype.kind
    return is_same_kind and array.ndim == start.ndim and array.shape[1:] == start.shape[1:]


def is_finite(state: object) -> bool:
    """Whether all numbers that the run ends with are numbers."""
    return all(bool(np.isfinite(array).all()) for array in result_arrays(state).values())
