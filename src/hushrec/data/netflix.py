# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment"
"""From the raw files of the Netflix Prize to NF5K5K: 5,000 popular films, rated by 5,000 active users.

The files hold 100 million lines, so a compiled loop reads them, 64 MB at a time. A line is "FILM:", or one of the
ratings of that film that follow: "USER,RATING,YEAR-MONTH-DAY".
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hushrec.data.interactions import Interactions
from hushrec.errors import HushrecError

NUM_FILMS, NUM_USERS, NUM_RATINGS = 5_000, 5_000, 7_944_473
COMBINED = tuple(f"combined_data_{number}.txt" for number in range(1, 5))

_CHUNK_BYTES = 64 << 20
_SHORTEST_LINE = 14  # "1,5,2005-12-31" and no line's end
_SECONDS_PER_DAY = 86_400
_BLOCK_ROWS = 1 << 22


class Columns(NamedTuple):
    """All ratings, in the order of the files."""

    users: NDArray[np.int32]
    films: NDArray[np.int16]
    ratings: NDArray[np.int8]
    days: NDArray[np.int32]  # since 1970


def nf5k5k(path: Path) -> Interactions:
    """NF5K5K of the FedRec++ paper, from the raw files that lie beside `path`."""
    return densest(path, NUM_FILMS, NUM_USERS, NUM_RATINGS)


def densest(path: Path, num_films: int, num_users: int, num_ratings: int | None) -> Interactions:
    """The ratings of the most popular films by the most active users; ties go to the lower id.

    The paper does not say whether active means among those films, so the number of ratings decides: of three
    readings the first that gives it is taken, and None takes the first.
    """
    columns = read_columns(path)
    found = []
    for films, users in _readings(columns, num_films, num_users):
        is_kept = films[columns.films] & users[columns.users]
        found.append(int(np.count_nonzero(is_kept)))
        if num_ratings in (None, found[-1]):
            return _draft(columns, np.flatnonzero(is_kept))
    raise HushrecError(
        f"the {num_films:,} most popular films and {num_users:,} most active users have {found[0]:,} ratings "
        f"(by other readings {found[1]:,} or {found[2]:,}), the published set has {num_ratings:,}"
    )


Chosen = NDArray[np.bool_]


def _readings(columns: Columns, num_films: int, num_users: int) -> Iterator[tuple[Chosen, Chosen]]:
    """Films first, then users by their ratings of these; both by all ratings; users first, then films."""
    films = _most(_counts(columns.films), num_films)
    yield films, _most(_counts(columns.users, (columns.films, films)), num_users)
    users = _most(_counts(columns.users), num_users)
    yield films, users
    yield _most(_counts(columns.films, (columns.users, users)), num_films), users


def _most(counts: NDArray[np.int64], wanted: int) -> Chosen:
    """Those that occur most often; none that does not occur."""
    chosen = np.zeros(len(counts), bool)
    chosen[np.argsort(-counts, kind="stable")[:wanted]] = True
    return chosen & (counts > 0)


def _counts(
    numbers: NDArray[np.signedinteger], among: tuple[NDArray[np.signedinteger], Chosen] | None = None
) -> NDArray[np.int64]:
    """How often each number occurs, in all rows or among those whose other number is chosen."""
    size = int(numbers.max(initial=0)) + 1
    total = np.zeros(size, np.int64)
    for first in range(0, len(numbers), _BLOCK_ROWS):
        block = numbers[first : first + _BLOCK_ROWS]
        if among is not None:
            others, chosen = among
            block = block[chosen[others[first : first + _BLOCK_ROWS]]]
        total += np.bincount(block, minlength=size)
    return total


def _draft(columns: Columns, rows: NDArray[np.int64]) -> Interactions:
    user_ids, users = np.unique(columns.users[rows].astype(np.int64), return_inverse=True)
    item_ids, items = np.unique(columns.films[rows].astype(np.int64), return_inverse=True)
    return Interactions(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        ratings=columns.ratings[rows].astype(np.float32),
        timestamps=columns.days[rows].astype(np.int64) * _SECONDS_PER_DAY,
        order=None,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=None,
        rating_range=(1.0, 5.0),
        name="",
        sha256="",
        is_synthetic=False,
    )


# --- Reading -----------------------------------------------------------------------------------------------------


def read_columns(path: Path) -> Columns:
    """All ratings: of combined_data_1.txt to _4.txt, of training_set.tar, or of a folder of mv_*.txt."""
    room = sum(size for _, size in _sizes(path)) // _SHORTEST_LINE + 1
    # Memory is taken where it is written.
    columns = Columns(
        np.empty(room, np.int32), np.empty(room, np.int16), np.empty(room, np.int8), np.empty(room, np.int32)
    )
    num_rows = 0
    for name, file in _files(path):
        film, rest = 0, b""
        while chunk := file.read(_CHUNK_BYTES):
            head, end, rest = (rest + chunk).rpartition(b"\n")
            num_rows, film = _parsed(name, head + end, film, num_rows, columns)
        num_rows, _ = _parsed(name, rest, film, num_rows, columns)
    users, films, ratings, days = columns
    return Columns(users[:num_rows], films[:num_rows], ratings[:num_rows], days[:num_rows])


def _sizes(path: Path) -> Iterator[tuple[Path, int]]:
    for file in [path] if path.suffix == ".tar" else _beside(path):
        yield file, file.stat().st_size


def _beside(path: Path) -> list[Path]:
    """All files of the kind of this one."""
    if path.name in COMBINED:
        return [path.with_name(name) for name in COMBINED]
    return sorted(path.parent.glob("mv_*.txt"))


def _files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if path.suffix != ".tar":
        for place in _beside(path):
            with place.open("rb") as file:
                yield place.name, file
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                inside = archive.extractfile(member) if name.startswith("mv_") else None
                if inside is not None:
                    yield name, inside
    except tarfile.TarError:
        raise HushrecError(f"{path.name} is no archive of tar, or not whole") from None


def _parsed(name: str, text: bytes, film: int, num_rows: int, columns: Columns) -> tuple[int, int]:
    """Read whole lines into the columns from a row on; the next row, and the film that the last line is of."""
    num_rows, film, is_good = _parse(np.frombuffer(text, np.uint8), film, num_rows, *columns)
    if not is_good:  # without the line, which is of somebody
        raise HushrecError(f"{name}: expected lines of FILM: and of USER,RATING,YEAR-MONTH-DAY")
    return num_rows, film


@njit(cache=True, nogil=True)
def _parse(text, film, row, users, films, ratings, days):
    """Next row, film, and whether every line was as it should be."""
    place, size = 0, text.size
    while place < size:
        if text[place] == 10 or text[place] == 13:
            place += 1
            continue
        number, place = _number(text, place, 8)
        if number < 1 or place == size:
            return row, film, False
        if text[place] == 58:  # a colon
            film, place = number, place + 1
            if film > 32_767:
                return row, film, False
        else:
            rating, day = _rating_and_day(text, place)
            if film < 1 or rating < 1 or day < 0:
                return row, film, False
            users[row], films[row], ratings[row], days[row] = number, film, rating, day
            row, place = row + 1, place + 13
        if place < size and text[place] != 10 and text[place] != 13:
            return row, film, False
    return row, film, True


@njit(cache=True, nogil=True)
def _number(text, place, most_digits):
    """The number that begins here, -1 if there is none or it is too long; and what follows it."""
    number, first = 0, place
    while place < text.size and 48 <= text[place] <= 57:
        if place - first == most_digits:
            return -1, place
        number = 10 * number + np.int64(text[place]) - 48
        place += 1
    return (number if place > first else -1), place


@njit(cache=True, nogil=True)
def _rating_and_day(text, place):
    """Of ",5,2005-12-31": 1 to 5 and the day since 1970; -1 for what is not so."""
    if place + 13 > text.size or text[place] != 44 or text[place + 2] != 44:
        return -1, -1
    if text[place + 7] != 45 or text[place + 10] != 45:
        return -1, -1
    rating = np.int64(text[place + 1]) - 48
    year, after_year = _number(text, place + 3, 4)
    month, after_month = _number(text, place + 8, 2)
    day, after_day = _number(text, place + 11, 2)
    is_date = after_year == place + 7 and after_month == place + 10 and after_day == place + 13
    if not (1 <= rating <= 5 and is_date and year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return -1, -1
    # Years that begin in March have their odd day at the end.
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return rating, 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468
