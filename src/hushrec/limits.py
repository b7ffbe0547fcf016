"""What is believed of numbers that another party claims: no more than whoever hears them can afford.

Nobody knows beforehand how many clients a node has, or how long a stream is. So a claim is taken at its word up
to the bounds below, which are far above all that was ever run and stand nowhere else, and what is to be allocated
by it has to fit into a share of this machine's memory: a half, or what `HUSHREC_MEMORY_SHARE` says (0.25 for a
quarter). A claim beyond is refused in one line, before anything is allocated.
"""

import os
from functools import cache

from hushrec.errors import HushrecError, PublicError

MOST_PARTIES = 1 << 24  # clients, partners or owners of a run
MOST_USERS = 1 << 24  # of a stream: an owner keeps 9 bytes for each, the orchestrator a vector
MOST_ITEMS = 1 << 24  # of a catalogue that a party tells of
MOST_ROUNDS = 1 << 31  # live learning has one for each batch; half of a stamp of DRIFT, windows are the other
MOST_COLUMNS = 1 << 24  # of a row, whoever sends it
MOST_NAME = 1000  # characters of what a party calls itself
MOST_COUNTED = 1 << 53  # rows, users: whole numbers up to here are floating point numbers, too
MOST_MEASURED = 1e18  # a mean, a sum or a promise, either way of zero
MOST_LETTER_BYTES = 1 << 28
MOST_FRAME_BYTES = 1 << 31
MOST_PACKET_BYTES = 1 << 31
MOST_SECTIONS = 1 << 20  # of a packet

# Of streams (DRIFT, SAROS).
MOST_WINDOWS = 1 << 31  # of a round
MOST_EVENTS = 1 << 31  # of a round
MOST_MESSAGES = 1 << 62  # to an owner: their numbers can be counted in 64 bits
MOST_NUMBERS = 1 << 28  # of vectors that are sent at once, or kept for newcomers: 1 GB

# Of partners (FedCORE).
MOST_PARTNERS = 63  # their numbers are bits of a 64-bit word
MOST_STEPS = 1 << 24  # of a round
MOST_RATINGS = 1 << 26  # in the batches of a round: 512 MB
MOST_PASSES = 1000  # through a partner's ratings in a round; nobody has so many more than another
MOST_IDS = 1 << 24  # of a list: some 13 minutes to blind

# A packet of small numbers has up to so many bytes for each of its own, once it is read.
_READ_FACTOR = 8
_SHARE = 0.5


class TooMuchError(PublicError):
    """A claim that is beyond what whoever hears it can afford."""


def check_claim(what: str, claimed: int, most: int) -> None:
    """Refuse a number that nobody can mean.

    >>> check_claim("steps", 10**9, MOST_STEPS)
    Traceback (most recent call last):
    hushrec.limits.TooMuchError: 1000000000 steps are claimed; at most 16777216 are believed
    """
    if claimed > most:
        raise TooMuchError(f"{claimed} {what} are claimed; at most {most} are believed")


def check_room(what: str, needed_bytes: int) -> None:
    """Refuse what does not fit into this machine's share of memory."""
    room = room_bytes()
    if needed_bytes > room:
        raise TooMuchError(
            f"{what} would take {needed_bytes:,} bytes; this machine gives at most {room:,} "
            f"(HUSHREC_MEMORY_SHARE {memory_share():g})"
        )


def memory_share() -> float:
    """The share of memory that claims of others may fill."""
    text = os.environ.get("HUSHREC_MEMORY_SHARE", "")
    try:
        share = float(text) if text else _SHARE
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise HushrecError(f"HUSHREC_MEMORY_SHARE is {text!r}; use a share above 0 and up to 1, such as 0.5")
    return share


def room_bytes() -> int:
    """Bytes that a claim of another party may fill."""
    return int(memory_share() * _memory_bytes())


def packet_bytes() -> int:
    """The longest packet that can be read here."""
    return min(MOST_PACKET_BYTES, room_bytes() // _READ_FACTOR)


@cache
def _memory_bytes() -> int:
    """Of this machine; where it does not tell, 4 GB."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4 << 30


# Settings that are lengths of rows: of each party's or of each item's.
_LENGTHS = ("num_factors", "hidden_size", "memory_size", "item_memory", "layers")


def check_sizes(config: object, num_parties: int, num_items: int) -> None:
    """Refuse settings of others with which a party's own arrays would not fit."""
    for name in _LENGTHS:
        value = getattr(config, name, 0)
        length = max(value, default=0) if isinstance(value, tuple) else value
        check_claim(f"numbers in a row ({name})", length, MOST_COLUMNS)
        check_room(f"{name} {length}", 4 * length * (num_parties + num_items))
