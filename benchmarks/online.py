"""`python -m benchmarks.online`: events per second with a recommendation after each, and how long an event takes.

The items of ML-1M with its genres as owners; every event is a window of its own, as in the report's sequence.
Lines of JSON are read and written as `hushrec run drift --live -` does. Seconds are this machine's.
"""

import argparse
import json
import time
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions, load, owned, stream_order
from hushrec.data.holdings import OWNERS
from hushrec.registry import SYSTEMS
from hushrec.systems.drift.live import Live
from hushrec.systems.drift.live_lines import Event, parse

AT_ONCE = 1024  # events that wait, where more come than can be answered


class Measured(NamedTuple):
    """Seconds on the clock and of CPU: of single events, a row each, and of all of them."""

    of_events: NDArray[np.float64]
    of_all: NDArray[np.float64]


def now() -> tuple[float, float]:
    """Seconds on the clock and of CPU."""
    return time.perf_counter(), time.process_time()


def lines_of(data: Interactions, num_events: int) -> list[bytes]:
    """The first events of a dataset as lines of JSON."""
    data = data.as_signed()
    assert data.ratings is not None
    rows = stream_order(data)[:num_events]
    users, items = data.user_ids[data.users[rows]].tolist(), data.item_ids[data.items[rows]].tolist()
    columns = zip(users, items, (data.ratings[rows] > 0.5).tolist(), strict=True)
    return [json.dumps({"user": user, "item": item, "positive": good}).encode() for user, item, good in columns]


def measured(live: Live, lines: list[bytes], at_once: int) -> Measured:
    """Learn and recommend; the time of an event is that from the one before it, or from when its line is read."""
    encode, moments = msgspec.json.Encoder().encode, list[tuple[float, float]]()

    def tell(user: str, items: list[str]) -> None:
        encode({"user": user, "items": items})
        moments.append(now())

    of_events = []
    start = now()
    for first in range(0, len(lines), at_once):
        begin = now()
        events = [parse(line) for line in lines[first : first + at_once]]
        live.learn([event for event in events if isinstance(event, Event)], tell)
        of_events.append(np.diff([begin, *moments], axis=0))
        moments.clear()
    return Measured(np.concatenate(of_events), np.subtract(now(), start))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--warm-up", type=int, default=20_000, help="events before those that are measured")
    parser.add_argument("--events", type=int, default=10_000)
    chosen = parser.parse_args()
    data = owned(load(chosen.data), "genre", 0)
    lines = lines_of(data, chosen.warm_up + 2 * chosen.events)
    print(f"{chosen.data}: {data.num_items:,} items of {OWNERS.how_many(data)} owners")
    print(f"{chosen.events:,} events after {chosen.warm_up:,}, 5 items recommended after each")
    print("                     on the clock               of CPU (other processes do not count)")
    print("encryption  waiting  events/s  p50 ms  p99 ms  events/s  p50 ms  p99 ms")
    for encryption in ("aes-gcm", "none"):
        settings = {"window": 1, "parts": 1, "recommended": 5, "encryption": encryption}
        live = Live.of(SYSTEMS["drift"], SYSTEMS["drift"].configure(settings), 0, data)
        measured(live, lines[: chosen.warm_up], AT_ONCE)
        rest = lines[chosen.warm_up :]
        for at_once, part in ((AT_ONCE, rest[: chosen.events]), (1, rest[chosen.events :])):
            found = measured(live, part, at_once)
            _print_row(encryption, "many" if at_once > 1 else "one", found)


def _print_row(encryption: str, waiting: str, found: Measured) -> None:
    cells = [f"{encryption:10}  {waiting:>7}"]
    for column in (0, 1):
        median, high = 1000 * np.percentile(found.of_events[:, column], [50, 99])
        rate = len(found.of_events) / found.of_all[column]
        cells.append(f"{rate:8,.0f}  {median:6.2f}  {high:6.2f}")
    print("  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
