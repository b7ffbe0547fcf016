"""Altered messages: what well-formed frames can say, at and beyond the ends of what is meant."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol import FieldKind, Message, Ragged

_MOST_ROWS = 2000  # of an altered slice
_MOST_NUMBERS = 1 << 22  # in its widest column, where an honest one has fewer: ciphertexts are long rows
_INTS = (0, 1, -1, 2, 7, 29, 30, 31, 23, 24, 25, 127, -128, 255, 1000, 10**6, 2**31 - 1, -(2**31), 2**62, -(2**63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-30, 0.5, 2048.0, -2048.0, 1e6, -1e10, 1e18, 3e38, -3e38, 1e300)
_NOT_FINITE = (np.nan, np.inf, -np.inf)


@dataclass(frozen=True)
class Alter:
    """Alters messages in ways that their declared columns allow, and sometimes in ways that they do not."""

    draws: np.random.Generator

    def message(self, honest: Message, num_parties: int) -> Message:
        """The same type with one to three changes."""
        message = honest
        for _ in range(int(self.draws.choice([1, 1, 1, 2, 3]))):
            message = self._once(message, num_parties)
        return message

    def _once(self, message: Message, num_parties: int) -> Message:
        kinds = message.kinds()
        if not kinds:
            return message
        has_rows = any(kind.layout == "ragged" for kind in kinds)
        if has_rows and self.draws.random() < 0.3:
            return self._other_rows(message, num_parties)
        kind = kinds[int(self.draws.integers(len(kinds)))]
        column = getattr(message, kind.name)
        values = np.array(column.values if kind.layout == "ragged" else column)
        if kind.layout != "each" and kind.num_dims and self.draws.random() < 0.15:
            values = self._other_shape(values, kind)
        else:
            values = self._other_values(values, kind)
        new = Ragged(column.starts, values) if kind.layout == "ragged" else values
        return replace(message, **{kind.name: new})

    def _other_rows(self, message: Message, num_parties: int) -> Message:
        """Slices that are empty, cut, repeated, shuffled or long; the same way in all ragged columns."""
        starts, lengths = _ragged_of(message).starts, message.lengths
        way = self.draws.choice(["empty", "cut", "repeat", "shuffle", "reverse", "one", "long"])
        chosen = self.draws.random(num_parties) < self.draws.choice([0.2, 1.0])
        most = min(_MOST_ROWS, _MOST_NUMBERS // (max(num_parties, 1) * _widest_row(message)))
        places = []
        for party, (first, length) in enumerate(zip(starts[:-1].tolist(), lengths.tolist(), strict=True)):
            own = first + np.arange(length)
            if chosen[party]:
                own = self._rearranged(own, str(way))[: max(length, most)]
            places.append(own)
        new_starts = np.concatenate([[0], np.cumsum([len(own) for own in places])]).astype(np.int64)
        taken = np.concatenate(places).astype(np.int64) if places else np.empty(0, np.int64)
        columns = {
            kind.name: Ragged(new_starts, getattr(message, kind.name).values[taken])
            for kind in message.kinds()
            if kind.layout == "ragged"
        }
        return replace(message, **columns)

    def _rearranged(self, own: NDArray[np.int64], way: str) -> NDArray[np.int64]:
        if way == "empty" or not len(own):
            return own[:0]
        if way == "cut":
            return own[: int(self.draws.integers(len(own) + 1))]
        if way == "repeat":
            return np.tile(own, int(self.draws.integers(2, 4)))
        if way == "shuffle":
            return self.draws.permutation(own)
        if way == "reverse":
            return own[::-1]
        if way == "one":
            return np.repeat(own[:1], int(self.draws.integers(1, 4)))
        return np.resize(own, int(self.draws.integers(1, _MOST_ROWS)))

    def _other_shape(self, values: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
        """A shared array of any shape; rows of parties that are wider or narrower."""
        shape = list(values.shape)
        first = 1 if kind.layout == "ragged" else 0
        if len(shape) <= first:
            return self._other_values(values, kind)
        axis = int(self.draws.integers(first, len(shape)))
        shape[axis] = int(self.draws.choice([0, 1, shape[axis] + 1, max(shape[axis] - 1, 0), 2 * shape[axis], 64]))
        if values.size and np.prod(shape) < 1 << 20:
            return np.resize(values, shape)
        return np.zeros([min(size, 1000) for size in shape] if first == 0 else shape, values.dtype)

    def _other_values(self, values: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
        """Some numbers, or all, at or beyond the ends of what can be said; mostly within the declared bounds."""
        if not values.size:
            return values
        flat = values.reshape(-1).copy()
        share = self.draws.choice(["one", "some", "all"])
        places = {
            "one": self.draws.integers(flat.size, size=1),
            "some": np.flatnonzero(self.draws.random(flat.size) < 0.3),
            "all": np.arange(flat.size),
        }[str(share)]
        flat[places] = self._values(len(places), flat, kind)
        return flat.reshape(values.shape)

    def _values(self, count: int, flat: NDArray[Any], kind: FieldKind) -> NDArray[Any]:
        dtype = flat.dtype
        if not count:
            return flat[:0]
        if dtype.kind == "b":
            return self.draws.random(count) < 0.5
        if dtype.kind == "f":
            pool = _NOT_FINITE if self.draws.random() < 0.05 else _FLOATS
            with np.errstate(over="ignore"):
                drawn = np.array(pool, dtype)[self._indices(len(pool), count)]
            is_alright = np.isfinite(drawn) | (pool is _NOT_FINITE)
            drawn = np.where(is_alright, drawn, np.finfo(dtype).max).astype(dtype)
        else:
            drawn = self._integers(count, flat, dtype)
        if self.draws.random() < 0.95 and pool_is_bounded(kind):
            low = drawn.min() if kind.low is None else kind.low
            high = drawn.max() if kind.high is None else kind.high
            drawn = np.clip(drawn, low, high).astype(dtype)
        return drawn

    def _integers(self, count: int, flat: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        bounds = np.iinfo(dtype)
        way = self.draws.choice(["known", "near", "random", "other"])
        if way == "near":
            near = flat[self._indices(flat.size, count)].astype(np.float64) + self.draws.integers(-2, 3)
            return np.clip(near, bounds.min, float(bounds.max) / 2 if bounds.bits == 64 else bounds.max).astype(
                dtype
            )
        if way == "random":
            return self.draws.integers(bounds.min, bounds.max, count, dtype, endpoint=True)
        if way == "other":
            return flat[self._indices(flat.size, count)]
        pool = np.array(
            [one for one in (*_INTS, bounds.min, bounds.max) if bounds.min <= one <= bounds.max], dtype
        )
        return pool[self._indices(len(pool), count)]

    def _indices(self, size: int, count: int) -> NDArray[np.int64]:
        """The same for all, or one for each."""
        if self.draws.random() < 0.5:
            return np.full(count, self.draws.integers(size))
        return self.draws.integers(size, size=count)


def pool_is_bounded(kind: FieldKind) -> bool:
    """Whether a column declares bounds."""
    return kind.low is not None or kind.high is not None


def _widest_row(message: Message) -> int:
    """Numbers in a row of the widest ragged column."""
    widths = [
        int(np.prod(getattr(message, kind.name).values.shape[1:]))
        for kind in message.kinds()
        if kind.layout == "ragged"
    ]
    return max(1, *widths)


def _ragged_of(message: Message) -> Ragged:
    return message.column(next(kind.name for kind in message.kinds() if kind.layout == "ragged"))
