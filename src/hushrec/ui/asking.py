"""What can be asked of the index: words and conditions, an order, a part of the rows.

A filter is a line of words, all of which must fit: `fedrec++ rho=3 RMSE<0.95 tag:good state=done`. A word without
a sign is looked for in names, systems, data and tags. What is compared is a column, a setting or a metric (its
last value; `best:RMSE` is its best). What has spaces stands in quotes: `tag:"to show"`. Values always travel
beside the statement, and names are checked against those that some run has.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from hushrec.errors import HushrecError

COLUMNS = ("id", "name", "system", "data", "seed", "state", "started", "folds", "rounds", "bytes", "seconds",
"leakage",
           "parties")  # fmt: skip
_CONDITION = re.compile(r"([^\s<>=!]+)(<=|>=|!=|=|<|>)(.*)", re.DOTALL)
_WORD = re.compile(r'(?:"[^"]*"|\S)+')
_QUOTED = re.compile(r'"([^"]*)"')
_TEXTS = ("id", "name", "system", "data", "state", "started")
_IN_SETTINGS = "json_extract(config,"
_MOST_LETTERS = 500
_BEST = "best:"
_TAG = "tag:"
_ALL_OF_TAGS = 30_000  # SQLite takes so many values


class Query(msgspec.Struct, frozen=True):
    """Which runs, in which order, and which part of them."""

    filter: str = ""
    sort: str = "started"
    descending: bool = True
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True)
class Asked:
    """A query as SQL."""

    where: str
    values: tuple[Any, ...]
    order: str
    known: Mapping[str, list[str]]

    def expression(self, name: str) -> str:
        """A column, a setting or a metric as SQL."""
        return _expression(name, self.known)


def sql_of(query: Query, known: Mapping[str, list[str]], tags: Mapping[str, list[str]]) -> Asked:
    """What a query asks for; `known`: names of settings and metrics."""
    if len(query.filter) > _MOST_LETTERS:
        raise HushrecError(f"a filter may have {_MOST_LETTERS} letters; use fewer words")
    parts, values = ["1"], list[Any]()
    for word in _words(query.filter):
        part, own = _condition(word, known, tags)
        parts.append(part)
        values += own
    way = "desc" if query.descending else "asc"
    key = _expression(query.sort, known)
    # What has no value comes last, whichever way.
    order = f"({key}) is null, {key} {way}, id"
    return Asked(" and ".join(parts), tuple(values), order, known)


def _words(line: str) -> list[str]:
    """The words of a filter.

    >>> _words('rho=3 tag:"to show"  "" 5"')
    ['rho=3', 'tag:to show', '5"']
    """
    return [word for found in _WORD.findall(line) if (word := _QUOTED.sub(r"\1", found))]


def _condition(word: str, known: Mapping[str, list[str]], tags: Mapping[str, list[str]]) -> tuple[str, list[Any]]:
    if word.startswith(_TAG):
        wanted = word.removeprefix(_TAG).casefold()
        return _among([run_id for run_id, own in tags.items() if wanted in (one.casefold() for one in own)])
    found = _CONDITION.fullmatch(word)
    if found is None:
        text = word.casefold()
        tagged, ids = _among([name for name, own in tags.items() if any(text in one.casefold() for one in own)])
        pattern = "%" + re.sub(r"([%_\\])", r"\\\1", text) + "%"
        return f"(id || ' ' || system || ' ' || data like ? escape '\\' or {tagged})", [pattern, *ids]
    name, sign, text = found.groups()
    expression, value = _expression(name, known), _value(text)
    if sign == "=":
        return f"({expression} is ? or {expression} is ?)", [value, text]  # "none" may be a word, too
    if sign == "!=":
        return f"({expression} is not ? and {expression} is not ?)", [value, text]
    if expression in _TEXTS:
        return f"{expression} {sign} ?", [value]
    # SQLite has every text after every number: RMSE<0,95 would fit all runs.
    is_text = isinstance(value, str)
    if is_text and not expression.startswith(_IN_SETTINGS):
        raise HushrecError(f"{name} is a number, and {text!r} is none; compare it with one, as in {name}{sign}0.5")
    return f"(typeof({expression}) {'=' if is_text else '!='} 'text' and {expression} {sign} ?)", [value]


def _among(ids: list[str]) -> tuple[str, list[Any]]:
    if len(ids) > _ALL_OF_TAGS:
        raise HushrecError(f"more than {_ALL_OF_TAGS} runs have that tag; choose another")
    return (f"id in ({', '.join('?' * len(ids))})", list(ids)) if ids else ("0", [])


def _value(text: str) -> Any:
    """What was typed, as JSON has it: a number, a truth (1 or 0, as SQLite has it), or a text."""
    words = {"true": 1, "false": 0, "yes": 1, "no": 0, "": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return storable(kind(text))
    return text


def storable(value: Any) -> Any:
    """A number as SQLite can have it: a whole one that is too large for it is a real one.

    >>> storable(7), storable(None), storable(2**63), storable(-(10**400))
    (7, None, 9.223372036854776e+18, -inf)
    """
    if not isinstance(value, int) or -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _expression(name: str, known: Mapping[str, list[str]]) -> str:
    is_best = name.startswith(_BEST)
    plain = name.removeprefix(_BEST).replace("-", "_") if not is_best else name.removeprefix(_BEST)
    if plain in COLUMNS and not is_best:
        return plain
    if not is_best and plain in known["settings"]:
        return _in_json("config", plain)
    if not is_best and f"num_{plain}" in known["settings"]:
        return _in_json("config", f"num_{plain}")
    metrics = {metric.casefold().replace(" ", "_"): metric for metric in known["metrics"]}
    metric = metrics.get(name.removeprefix(_BEST).casefold().replace(" ", "_"))
    if metric is not None:
        return _in_json("best" if is_best else "last", metric)
    raise HushrecError(f"no run has {name!r}; use one of {', '.join(COLUMNS[1:])}, a setting or a metric")


def _in_json(column: str, name: str) -> str:
    """A value of a column of JSON. The name is one that some run has; what could end the text is doubled."""
    path = '$."' + name.replace('"', "") + '"'
    return "json_extract(" + column + ", '" + path.replace("'", "''") + "')"
