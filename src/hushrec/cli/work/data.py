"""Data sets, printed: the known ones, where one lies, what one or a file holds."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import numpy as np
from rich.table import Table

from hushrec.cli.console import note, print_json, results, show
from hushrec.cli.options import ReadingOptions
from hushrec.data.catalogue import CATALOGUE, FOLDER_VARIABLE, SYNTHETIC, Place, find_entry, load, locate
from hushrec.data.entries import Entry
from hushrec.data.interactions import Interactions
from hushrec.errors import HushrecError
from hushrec.report.numbers import format_given, format_number, format_share
from hushrec.report.tables import name_of_data

_BAR_WIDTH = 30
_MOST_BARS = 12


@dataclass(frozen=True)
class Description:
    """What `describe` prints. `histogram` pairs a label with a number of ratings."""

    name: str
    is_synthetic: bool
    users: int
    items: int
    items_rated: int
    interactions: int
    density: float
    feedback: str
    rating_range: tuple[float, float] | None
    rating_mean: float | None
    histogram: tuple[tuple[str, int], ...]
    per_user: tuple[int, float, int]
    time_span: tuple[str, str] | None
    sha256: str
    source: str
    licence: str


def list_datasets(as_json: bool) -> None:
    """Print the known data sets and where each would come from now."""
    places = {entry: locate(entry) for entry in CATALOGUE.values()}
    if as_json:
        print_json([_listing(entry, place) for entry, place in places.items()])
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "users", "items", "ratings", "feedback", "from"):
        is_count = heading in ("users", "items", "ratings")
        table.add_column(heading, justify="right" if is_count else "left", no_wrap=True)
    for entry, place in places.items():
        counts = (f"{number:,}" for number in (entry.num_users, entry.num_items, entry.num_interactions))
        table.add_row(" = ".join((entry.name, *entry.aliases)), *counts, entry.kind, place.kind)
    table.add_row(SYNTHETIC, "any", "any", "any", "explicit", "generator")
    show(table)
    note(f"folder: ${FOLDER_VARIABLE}. publisher, mirror: fetched into the cache when first used.")
    note(f"not available: put NAME.parquet into a folder and set {FOLDER_VARIABLE} to it.")


def _listing(entry: Entry, place: Place) -> dict[str, object]:
    return {
        "name": entry.name,
        "aliases": entry.aliases,
        "title": entry.title,
        "feedback": entry.kind,
        "users": entry.num_users,
        "items": entry.num_items,
        "interactions": entry.num_interactions,
        "licence": entry.licence,
        "sha256": entry.data_sha256,
        "from": place.kind,
        "address": place.address,
    }


def fetch(name: str, as_json: bool) -> None:
    """Get a data set into the cache, check it, and say where it lies."""
    entry = find_entry(name)
    if entry is None:
        raise HushrecError(f"{name} is no data set of the catalogue; see `hushrec data list`")
    data = load(entry.name, notify=note)
    place = locate(entry)
    if as_json:
        print_json(_listing(entry, place))
    else:
        results().print(place.address, soft_wrap=True)
        note(f"{len(data):,} interactions, digest {data.sha256}; licence: {entry.licence}")


def describe(name: str, reading: ReadingOptions, as_json: bool) -> None:
    """Describe a data set or a file: size, ratings, times, digest, source, licence."""
    data = reading.load(name)
    description = describe_data(data, name)
    if as_json:
        print_json(asdict(description) | {"histogram": dict(description.histogram)})
    else:
        show(_description_table(description))


def describe_data(data: Interactions, name: str) -> Description:
    """Figures of the data; `name` is what the user called it."""
    entry = find_entry(name)
    if data.is_synthetic:
        source, licence = "made up by the generator", "none needed"
    elif entry is None:
        source, licence = name, "yours to know"
    else:
        source, licence = locate(entry).address, entry.licence
    counts = np.bincount(data.users, minlength=data.num_users)
    return Description(
        name=data.name,
        is_synthetic=data.is_synthetic,
        users=data.num_users,
        items=data.num_items,
        items_rated=int(np.unique(data.items).size),
        interactions=len(data),
        density=len(data) / (data.num_users * data.num_items),
        feedback="implicit" if data.ratings is None else "explicit",
        rating_range=data.rating_range,
        rating_mean=None if data.ratings is None else float(data.ratings.mean(dtype=np.float64)),
        histogram=_histogram(data),
        per_user=(int(counts.min()), float(np.median(counts)), int(counts.max())),
        time_span=_time_span(data),
        sha256=data.sha256,
        source=source,
        licence=licence,
    )


def _histogram(data: Interactions) -> tuple[tuple[str, int], ...]:
    """A bar for each rating that occurs, or for each of ten spans where these are many."""
    if data.ratings is None:
        return ()
    values, counts = np.unique(data.ratings, return_counts=True)
    if values.size <= _MOST_BARS:
        return tuple((f"{value:g}", int(count)) for value, count in zip(values, counts, strict=True))
    counts, edges = np.histogram(data.ratings, bins=10)
    spans = zip(edges[:-1], edges[1:], counts, strict=True)
    return tuple((f"{low:.2g}..{high:.2g}", int(count)) for low, high, count in spans)


def _time_span(data: Interactions) -> tuple[str, str] | None:
    known = None if data.timestamps is None else data.timestamps[data.timestamps != -1]
    if known is None or not known.size:
        return None
    return _date(int(known.min())), _date(int(known.max()))


def _date(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"  # in no year that a calendar has


def _description_table(description: Description) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    low, median, high = description.per_user
    table.add_row("data", name_of_data(description.name, description.is_synthetic))
    table.add_row("users", f"{description.users:,}")
    table.add_row("items", f"{description.items:,} ({description.items_rated:,} occur)")
    table.add_row("interactions", f"{description.interactions:,}")
    table.add_row("density", format_share(description.density))
    table.add_row("feedback", description.feedback)
    if description.rating_range is not None:
        least, most = description.rating_range
        mean = "" if description.rating_mean is None else f", mean {format_number(description.rating_mean)}"
        table.add_row("ratings", f"{format_given(least)} to {format_given(most)}{mean}")
    largest = max((count for _, count in description.histogram), default=1)
    for label, count in description.histogram:
        bar = "█" * max(1, round(_BAR_WIDTH * count / largest)) if count else ""
        table.add_row(f" {label}", f"{bar} {count:,}".strip())
    table.add_row("per user", f"least {low:,}, median {format_given(median)}, most {high:,}")
    table.add_row("time span", " to ".join(description.time_span) if description.time_span else "unknown")
    table.add_row("digest", description.sha256)
    table.add_row("source", description.source)
    table.add_row("licence", description.licence)
    return table
