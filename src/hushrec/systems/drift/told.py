"""What the parties of DRIFT tell of themselves after a round: to people, and to audits. Used by `drift`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.systems.drift.blocks import WAITING
from hushrec.systems.drift.members import COUNTS, Members


def facts(private: Members, _config: Any) -> Mapping[str, float]:
    """What owners did with the messages that came; and, on the users' side, how much one owner shares with others.

    Who claims items of everybody is the one that shares the most.
    """
    totals = sum((owner.counts for owner in private.owners), np.zeros(len(COUNTS), np.int64))
    waiting = sum(owner.num_waiting for owner in private.owners)
    counts = {f"messages {name}": float(totals[place]) for name, place in COUNTS._asdict().items()}
    shared = {}
    if private.gateway is not None and private.gateway.book.entries:
        most, held = private.gateway.book.most_shared()
        shared = {"most items that an owner shares": float(most), "of items that it holds": float(held)}
    return {
        "interactions accepted": counts.pop("messages accepted"), **counts, "interactions waiting": waiting,
        **shared,
    }  # fmt: skip


def holds(private: Members, _config: Any, number: int) -> Mapping[str, NDArray[Any]]:
    """What an owner has: its items, and the interactions that wait or were learned from in the last round.

    `windows`: that they were learned from in; -1: they wait, or are in no block with a pair.
    """
    found = [owner for owner in private.owners if owner.number == number]
    if not found:
        return {}
    entries = found[0].blocks.kept()
    is_learned = (entries.stamps != WAITING) & (entries.blocks >= 0)
    windows = np.where(is_learned, entries.stamps & 0xFFFFFFFF, -1)
    return {
        "held": found[0].held, "users": entries.users, "items": entries.items, "is_positive": entries.is_positive,
        "windows": windows,
    }  # fmt: skip
