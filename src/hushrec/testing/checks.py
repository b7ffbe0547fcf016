"""What the contract's tests compare and alter."""

from collections.abc import Mapping
from dataclasses import Field, replace
from typing import Any

import numpy as np

from hushrec.protocol import AnySystem, Cohort, Handler, Message, Ragged, Reply
from hushrec.testing.small_runs import Finished, digest


def asking_twice(system: AnySystem) -> AnySystem:
    """The same system, whose parties are asked everything twice."""

    def twice(handler: Handler[Any, Any]) -> Handler[Any, Any]:
        def answer(cohort: Cohort[Any], request: Any, config: Any, draws: Any) -> Reply:
            first = handler.answer(cohort, request, config, draws).message
            columns = {kind.name: _copy(getattr(first, kind.name)) for kind in first.kinds()}
            again = handler.answer(cohort, request, config, draws)
            assert_equal_messages(again.message, replace(first, **columns))
            return again

        return replace(handler, answer=answer)

    return replace(system, handlers={kind: twice(handler) for kind, handler in system.handlers.items()})


def _copy(column: Any) -> Any:
    return replace(column, values=column.values.copy()) if isinstance(column, Ragged) else column.copy()


def impossible(entry: Field[Any], kind: Any) -> list[Any]:
    """Values that a setting cannot have: of another type, or outside of its bounds."""
    wrong: list[Any] = [2.5] if kind is int else [] if kind is str else ["no such value"]
    if interval := entry.metadata.get("within"):
        low, high = (float(bound) for bound in interval[1:-1].split(","))
        bounds = [low if interval[0] == "(" else low - 1, high if interval[-1] == ")" else high + 1]
        if kind is float:
            return [*wrong, *bounds]
        numbers = [int(bound) for bound in bounds if bound < np.inf]
        wrong += numbers if kind is int else [[number] for number in numbers]
    return wrong


def assert_same(one: Finished, other: Finished) -> None:
    """The same result and the same messages, to the last bit."""
    assert_arrays(one.results, other.results)
    assert digest(one) == digest(other)


def assert_arrays(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """The same arrays, by name."""
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def assert_equal_messages(one: Message, other: Message) -> None:
    """The same columns, to the last bit."""
    assert type(one) is type(other)
    for kind in one.kinds():
        left, right = getattr(one, kind.name), getattr(other, kind.name)
        if kind.layout == "ragged":
            np.testing.assert_array_equal(left.starts, right.starts)
            left, right = left.values, right.values
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes(), kind.name
