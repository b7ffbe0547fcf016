"""One column of one message of a small run says something else; all that its type and bounds allow."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Answer, AnySystem, Ask, Cohort, FieldKind, Handler, Message, Ragged, Reply, Transcript
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.wire import decode, encode
from systems.runs import Ratings


def lies(kind: FieldKind, honest: Any) -> Iterator[tuple[str, Any]]:
    """Other values for a column, with words for them."""
    values = honest.values if isinstance(honest, Ragged) else honest
    for number in _numbers(kind, values):
        for is_first in (False, True) if values.size > 1 else (False,):
            changed = np.array(values)
            changed.reshape(-1)[: 1 if is_first else None] = number
            yield f"{kind.name} {'begins with' if is_first else 'is'} {number}", _with(honest, changed)
    if kind.layout == "shared" and kind.num_dims:
        yield f"{kind.name} is empty", values[:0].copy()
        yield f"{kind.name} is twice as long", np.concatenate([values, values])
        yield f"{kind.name} is backwards", values[::-1].copy()
    if values.ndim == 2 and values.shape[1]:
        yield f"{kind.name} is wider", _with(honest, np.concatenate([values, values[:, :1]], axis=1))
        yield f"{kind.name} has no width", _with(honest, values[:, :0].copy())


def _numbers(kind: FieldKind, values: NDArray[Any]) -> list[Any]:
    if kind.dtype.kind == "f":
        return [0.0, 3e38, -3e38, 1e-40]
    limits = np.iinfo(kind.dtype)
    low = limits.min if kind.low is None else int(kind.low)
    high = limits.max if kind.high is None else int(kind.high)
    highest = int(values.max(initial=0))
    wanted = {low, low + 1, highest + 1, 1 << 20, high - 1, high}
    return sorted(number for number in wanted if low <= number <= high)


def _with(honest: Any, values: NDArray[Any]) -> Any:
    return Ragged(honest.starts, values) if isinstance(honest, Ragged) else values


def row_lies(message: Message) -> Iterator[tuple[str, Message]]:
    """The same message with other rows of its parties: none, all twice, all backwards."""
    ragged = {kind.name: message.column(kind.name) for kind in type(message).kinds() if kind.layout == "ragged"}
    if not ragged:
        return
    starts = next(iter(ragged.values())).starts
    for words, picked in (
        ("no rows", [range(0) for _ in starts[1:]]),
        ("rows twice", [[*range(*pair), *range(*pair)] for pair in _pairs(starts)]),
        ("rows backwards", [range(last - 1, first - 1, -1) for first, last in _pairs(starts)]),
    ):
        rows = np.array([row for part in picked for row in part], np.int64)
        cut = np.concatenate([[0], np.cumsum([len(part) for part in picked])]).astype(np.int64)
        columns: dict[str, Any] = {name: Ragged(cut, column.values[rows]) for name, column in ragged.items()}
        yield words, replace(message, **columns)


def _pairs(starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))


def all_lies(message: Message) -> Iterator[tuple[str, Message]]:
    for kind in type(message).kinds():
        for words, value in lies(kind, getattr(message, kind.name)):
            yield words, replace(message, **{kind.name: value})  # type: ignore[call-arg]
    yield from row_lies(message)


class Told:
    """A run in which the messages of one type are changed by one lie, each time they are sent."""

    def __init__(self, system: AnySystem, config: Any, ratings: Ratings, kind: type[Message], lie: int) -> None:
        self._kind, self._lie, self.words = kind, lie, ""
        handlers = {request: self._lying(handler) for request, handler in system.handlers.items()}
        draws, numbers = Draws(0), np.arange(ratings.num_parties, dtype=np.int32)
        private = system.enrol(numbers, ratings.rows, ratings.num_items, config, draws)
        self.system = replace(system, handlers=handlers)
        self.state = system.start(ratings.num_parties, ratings.num_items, config, draws)
        self.runtime = InProcess(self.system, config, draws, private, Transcript(), RuntimeOptions(threads=1))

    def _changed(self, message: Message) -> Message:
        """What arrives of a lie; what its bounds refuse never does."""
        if type(message) is not self._kind:
            return message
        found = list(all_lies(message))
        if self._lie >= len(found):
            return message
        self.words, changed = found[self._lie]
        num_parties = max(
            [len(getattr(message, kind.name)) for kind in self._kind.kinds() if kind.layout != "shared"], default=1
        )
        frame = encode(changed, 1, np.arange(num_parties, dtype=np.int32))
        return decode(bytearray(frame), (self._kind,)).message

    def _lying(self, handler: Handler[Any, Any]) -> Handler[Any, Any]:
        def answer(cohort: Cohort[Any], request: Any, config: Any, draws: Draws) -> Reply:
            with np.errstate(all="ignore"):
                reply = handler.answer(cohort, self._changed(request), config, draws)
            mail = tuple(replace(one, message=self._changed(one.message)) for one in reply.mail)
            return Reply(self._changed(reply.message), mail)

        return Handler(answer, handler.reads)

    def run(self, num_rounds: int) -> str:
        """What was refused; empty if nothing was."""
        state = self.state
        try:
            with np.errstate(all="ignore"):
                for round_number in range(1, num_rounds + 1):
                    state = self.runtime.run_round(state, round_number)
        except HushrecError as error:
            return str(error) or type(error).__name__
        finally:
            self.runtime.close()
        return ""


def num_lies(system: AnySystem, config: Any, ratings: Ratings, kind: type[Message], num_rounds: int) -> int:
    """How many lies there are about the messages of a type: of an honest run, the most of any of them."""
    most = 0

    class Counting(Told):
        def _changed(self, message: Message) -> Message:
            nonlocal most
            if type(message) is kind:
                most = max(most, sum(1 for _ in all_lies(message)))
            return message

    assert Counting(system, config, ratings, kind, 0).run(num_rounds) == ""
    return most


def asked(runtime: InProcess, ask: Ask, round_number: int) -> Answer | str:
    """The answer to an ask, or what was said by who refused it."""
    try:
        with np.errstate(all="ignore"):
            return runtime.serve(ask, round_number)
    except HushrecError as error:
        return str(error)
