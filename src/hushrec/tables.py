"""Results that are rows: lists and dicts, and frames of pandas, polars and Arrow when they are asked for."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any, TypeVar

import pyarrow as pa

from hushrec.errors import MissingExtraError

Row = TypeVar("Row")
_MOST_SHOWN = 20  # rows of a table in a notebook


class Tabular(ABC):
    """What can become a frame of any library."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """A table of Arrow."""

    def to_pandas(self) -> Any:
        """A frame of pandas."""
        _needed("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A frame of polars."""
        return _needed("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        rows = table.slice(0, _MOST_SHOWN).to_pylist()
        more = f"{table.num_rows - len(rows):,} more rows" if table.num_rows > len(rows) else ""
        return html_table(table.column_names, (row.values() for row in rows), more)


class Rows(Tabular, list[Row]):
    """A list of results with a table beside it, which may have more rows: lists of several people, for example."""

    def __init__(self, rows: Iterable[Row], table: pa.Table) -> None:
        """Hold both."""
        super().__init__(rows)
        self._table = table

    def to_arrow(self) -> pa.Table:
        """A table of Arrow."""
        return self._table


class Metrics(Tabular, dict[str, float]):
    """Metrics by their names."""

    def to_arrow(self) -> pa.Table:
        """A row per metric."""
        values = pa.array(list(self.values()), pa.float64())
        return pa.table({"metric": pa.array(list(self), pa.string()), "value": values})


class Blocks(Tabular, Iterator[pa.RecordBatch]):
    """Blocks of rows, made as they are asked for; each comes once."""

    def __init__(self, blocks: Iterator[pa.RecordBatch]) -> None:
        """Hold what makes them."""
        self._blocks = blocks

    def __next__(self) -> pa.RecordBatch:
        return next(self._blocks)

    def to_arrow(self) -> pa.Table:
        """All blocks that are left, in one table."""
        return pa.Table.from_batches(list(self))

    def _repr_html_(self) -> str:
        return "blocks of rows; take them one by one, or all with to_pandas(), to_polars() or to_arrow()"


def html_table(headings: Sequence[str], rows: Iterable[Iterable[object]], below: str = "") -> str:
    """A table for notebooks; numbers are to the right, floats with four decimals."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    note = f"<p>{escape(below)}</p>" if below else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def html_facts(heading: str, facts: Mapping[str, object], below: str = "") -> str:
    """A heading and what is to be said under it, for notebooks."""
    return f"<b>{escape(heading)}</b>{html_table(('', ''), facts.items(), below)}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="text-align: left">{escape("" if value is None else str(value))}</td>'
    return f"<td>{f'{value:.4f}' if isinstance(value, float) else value}</td>"


def _needed(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(
            f"to_{package}() needs {package}; install it with: pip install {package}"
        ) from None
