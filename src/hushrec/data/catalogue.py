"""The known data sets: what they are, where they come from, and the digests they must have."""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushrec.data.checking import Duplicates, checked, data_digest
from hushrec.data.entries import ENTRIES, Entry, Form
from hushrec.data.fetching import Fetch, fetch_archive, fetch_into, file_digest
from hushrec.data.in_memory import interactions_of
from hushrec.data.interactions import Interactions
from hushrec.data.readers import read, read_draft
from hushrec.data.reading import ColumnNames, Missing, Reading
from hushrec.data.sources import is_there
from hushrec.data.synthetic import synthetic
from hushrec.data.tables import checked_rows
from hushrec.data.titles import about_items, items_beside, with_items, with_named_items
from hushrec.errors import HushrecError, option
from hushrec.plugins import Registry

CATALOGUE: Registry[Entry] = Registry(
    "data set",
    "hushrec.datasets",
    loaded={entry.name: entry for entry in ENTRIES},
    kind="hushrec.data.entries:Entry",
)
FOLDER_VARIABLE = "HUSHREC_DATA"
SYNTHETIC = "synthetic"
_FOR_FILES = ("columns", "rating_range", "missing", "encoding", "decimal")

_ALIASES = {alias: entry.name for entry in ENTRIES for alias in entry.aliases}
_SYNTHETIC_OPTIONS = {
    "users": "num_users",
    "items": "num_items",
    "ratings": "num_ratings",
    "factors": "num_factors",
    "seed": "seed",
    "noise": "noise",
}


@dataclass(frozen=True)
class Place:
    """Where a data set would come from now."""

    kind: Literal["folder", "cache", "publisher", "mirror", "package", "not available"]
    address: str


def load(
    source: Any,
    *,
    columns: ColumnNames | None = None,
    duplicates: Duplicates = "error",
    rating_range: tuple[float, float] | None = None,
    implicit: bool = False,
    missing: Missing = "refuse",
    encoding: str | None = None,
    decimal: str = ".",
    items: Any = None,
    fetch: Fetch = fetch_archive,
    notify: Callable[[str], None] | None = None,
    name: str = "frame",
) -> Interactions:
    """Load a data set of the catalogue, `synthetic[:users=N,items=N,ratings=N,seed=N]`, a file, or a frame.

    A data set is looked for in $HUSHREC_DATA, then in the cache, then fetched into the cache; its digest is
    checked each time. The other arguments are for files and frames, see `hushrec.data.Reading`; `items`, a file
    or a frame with titles, genres and other columns, is for all. `notify` is told what was guessed, filled or left
    out.

    A frame is one of pandas, polars or Arrow (whatever Narwhals knows), a dict of columns, a SciPy sparse matrix
    of users and items, or a tuple of arrays (users, items, ratings, times), of which the last two may be left out.
    Its `name` is what results are kept under. Columns are found by their usual names, or named in `columns`, as in
    `columns={"user": "buyer", "item": "sku"}`. What is loaded already comes back as it is.
    """
    reading = Reading(
        columns=columns, duplicates=duplicates, rating_range=rating_range, implicit=implicit, missing=missing,
        encoding=encoding, decimal=decimal, items=items,
    )  # fmt: skip
    if isinstance(source, Interactions):
        return source.as_implicit() if implicit else source
    if isinstance(source, str | Path):
        return load_with(source, reading, fetch, notify)
    return interactions_of(source, reading, name, notify)


def load_with(
    name_or_path: str | Path,
    reading: Reading,
    fetch: Fetch = fetch_archive,
    notify: Callable[[str], None] | None = None,
) -> Interactions:
    """Load a data set of the catalogue, or a file read in this way."""
    name = str(name_or_path)
    entry = None if isinstance(name_or_path, Path) else find_entry(name)
    if entry is None and not _is_synthetic(name):
        path = Path(name_or_path).expanduser()
        if not is_there(path) and not isinstance(name_or_path, Path):
            raise _unknown(name)
        return read(path, reading, notify)
    for setting in _FOR_FILES:
        if getattr(reading, setting) != getattr(Reading(), setting):
            raise HushrecError(f"{name} is known, and no file; leave {option(setting)} out")
    data = _load_synthetic(name) if entry is None else _load_entry(entry, fetch, notify)
    if reading.items is not None:
        data = with_named_items(data, reading.items, reading.encoding, notify)
    return _as_implicit(data) if reading.implicit else data


def find_entry(name: str) -> Entry | None:
    """The entry of that name or alias, if there is one."""
    return CATALOGUE.get(_ALIASES.get(name, name))


def cache_folder() -> Path:
    """The user's cache: $XDG_CACHE_HOME or ~/.cache, then hushrec."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hushrec"


def locate(entry: Entry) -> Place:
    """Where the data set would come from now. Asks no network."""
    if entry.make is not None:
        return Place("package", entry.make.__module__)
    for kind, folder in _folders():
        form = _present_form(entry, folder)
        if form is not None:
            return Place(kind, str(folder / form.ratings))
    if entry.downloads:
        return Place(entry.downloads[0].kind, entry.downloads[0].address)
    wanted = f"needs {entry.raw_files}" if entry.raw_files else f"put {entry.forms[0].ratings}"
    return Place("not available", f"{wanted} into ${FOLDER_VARIABLE}")


def _folders() -> list[tuple[Literal["folder", "cache"], Path]]:
    given = os.environ.get(FOLDER_VARIABLE)
    if given and not Path(given).expanduser().is_dir():
        raise HushrecError(f"{FOLDER_VARIABLE} is {given}, which is no folder; correct it or unset it")
    folders: list[tuple[Literal["folder", "cache"], Path]] = [("cache", cache_folder())]
    return [("folder", Path(given).expanduser()), *folders] if given else folders


def _present_form(entry: Entry, folder: Path) -> Form | None:
    """The first form whose files are all there: a prepared file comes before raw ones."""
    return next(
        (form for form in entry.forms if all((folder / name).is_file() for name in (form.ratings, *form.beside))),
        None,
    )


def _load_entry(entry: Entry, fetch: Fetch, notify: Callable[[str], None] | None) -> Interactions:
    if entry.make is not None:
        return _made(entry, entry.make)
    for _, folder in _folders():
        if _present_form(entry, folder) is not None:
            return _load_from(entry, folder)
    _fetch_entry(entry, fetch, notify or (lambda note: None))
    return _load_from(entry, cache_folder())


def _made(entry: Entry, make: Callable[[], Interactions]) -> Interactions:
    """Data that another package makes; whatever goes wrong there, one line says which package it is."""
    try:
        data = checked(replace(make(), name=entry.name))
        if entry.data_sha256 and data.sha256 != entry.data_sha256:
            raise HushrecError(f"digest of the data {data.sha256}, expected {entry.data_sha256}")
    except Exception as error:
        reason = " ".join(str(error).split())
        raise HushrecError(
            f"{entry.name} of {make.__module__} cannot be used ({reason}); update that package"
        ) from error
    return data


def _fetch_entry(entry: Entry, fetch: Fetch, notify: Callable[[str], None]) -> None:
    if entry.raw_files:
        raise HushrecError(
            f"{entry.name} needs {entry.raw_files} into a folder and set {FOLDER_VARIABLE} to that folder"
        )
    form, failures = entry.forms[0], []
    for download in entry.downloads:
        notify(f"fetching {entry.name} from {download.address}; licence: {entry.licence}")
        try:
            fetch_into(cache_folder(), download, fetch, lambda folder: _load_from(entry, folder))
        except (OSError, HushrecError) as error:
            reason = " ".join(str(getattr(error, "reason", error)).split())
            failures.append(f"{download.address}: {reason}")
            notify(f"no luck with {download.address}: {reason}")
        else:
            return
    tried = f" ({'; '.join(failures)})" if failures else ": there is nowhere to fetch it from"
    raise HushrecError(
        f"{entry.name} could not be fetched{tried}; put {form.ratings} into a folder and "
        f"set {FOLDER_VARIABLE} to that folder"
    )


def users_file(name: str) -> Path | None:
    """The file that tells who the users of a data set are, checked; None: it has none, or none is there."""
    entry = find_entry(name)
    if entry is None:
        return None
    for form in (form for form in entry.forms if form.users):
        for path in (folder / str(form.users) for _, folder in _folders()):
            if path.is_file():
                _check_file(entry, path, form.users_sha256)
                return path
    return None


def _load_from(entry: Entry, folder: Path) -> Interactions:
    """Load the form of the data set that lies in a folder and check every digest."""
    form = _present_form(entry, folder)
    if form is None:
        raise HushrecError(f"{folder} does not hold {entry.name}; expected {entry.forms[0].ratings}")
    path = folder / form.ratings
    _check_file(entry, path, form.ratings_sha256)
    if form.titles and (folder / form.titles).is_file():
        _check_file(entry, folder / form.titles, form.titles_sha256)
    try:
        if form.recipe is not None:
            data = checked(replace(form.recipe(path), name=entry.name))
        else:
            reading = Reading(columns=form.columns, rating_range=entry.rating_range)
            rows, draft = read_draft(path, reading)
            data = checked_rows(rows, _whole_catalogue(entry, path, draft))
    except HushrecError as error:
        raise _damaged(entry, path, str(error)) from None
    counts = data.num_users, data.num_items, len(data)
    if not entry.data_sha256 and counts != (entry.num_users, entry.num_items, entry.num_interactions):
        expected = f"{entry.num_users:,} users, {entry.num_items:,} items and {entry.num_interactions:,} ratings"
        raise _damaged(entry, path, f"{counts[0]:,}, {counts[1]:,} and {counts[2]:,}, expected {expected}")
    if entry.data_sha256 and data.sha256 != entry.data_sha256:
        raise _damaged(entry, path, f"digest of the data {data.sha256}, expected {entry.data_sha256}")
    return data


def _whole_catalogue(entry: Entry, path: Path, draft: Interactions) -> Interactions:
    """The draft under its catalogue name, with all items of the catalogue as its vocabulary."""
    draft = replace(draft, name=entry.name)
    item_ids = None if entry.item_ids is None else np.array(entry.item_ids, np.int64)
    if item_ids is not None and draft.item_ids.dtype.kind == "i" and np.isin(draft.item_ids, item_ids).all():
        numbers = np.searchsorted(item_ids, draft.item_ids.astype(np.int64)).astype(np.int32)
        draft = replace(draft, items=numbers[draft.items], item_ids=item_ids)  # else the digest will tell
    beside = items_beside(path)
    return draft if beside is None else with_items(draft, about_items(beside))


def _check_file(entry: Entry, path: Path, expected: str | None) -> None:
    if expected is not None and (found := file_digest(path)) != expected:
        raise _damaged(entry, path, f"SHA-256 {found}, expected {expected}")


def _damaged(entry: Entry, path: Path, reason: str) -> HushrecError:
    then = f"run `hushrec data fetch {entry.name}`" if entry.downloads else "copy it again"
    return HushrecError(f"{path} is damaged or not {entry.name} ({reason}); delete it and {then}")


def _as_implicit(data: Interactions) -> Interactions:
    data = replace(data, ratings=None, rating_range=None)
    return replace(data, sha256=data_digest(data))


def _unknown(name: str) -> HushrecError:
    known = [*CATALOGUE, *_ALIASES, SYNTHETIC]
    close = difflib.get_close_matches(name, known, n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ";"
    return HushrecError(f"{name} is neither a file nor a known data set{meant} see `hushrec data list`")


def _is_synthetic(name: str) -> bool:
    return name.split(":")[0] == SYNTHETIC


def _load_synthetic(spec: str) -> Interactions:
    example = "synthetic:users=1000,items=500,ratings=20000,seed=1"
    options: dict[str, float] = {}
    for part in filter(None, spec.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        if key not in _SYNTHETIC_OPTIONS:
            raise HushrecError(f"{spec}: no option {key!r}; write for example {example}")
        try:
            options[_SYNTHETIC_OPTIONS[key]] = float(text) if key == "noise" else int(text)
        except ValueError:
            raise HushrecError(f"{spec}: {key} is {text!r}, not a number; write {example}") from None
    noise = options.pop("noise", 0.4)
    return synthetic(**{key: int(value) for key, value in options.items()}, noise=noise)
