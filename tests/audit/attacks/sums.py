"""Sums that tests make by hand."""

from typing import Any

import numpy as np

from hushrec.audit.sums import Remembered, SeenSum
from hushrec.audit.uploads import Pairs

NONE = np.empty((0, 0))


def seen(participants: list[int], counts: list[int], number: int = 1, listed: Pairs | None = None) -> SeenSum:
    return SeenSum(number, np.array(participants, np.int64), np.array(counts, np.int64), NONE, NONE, listed)


def known(*sums: SeenSum) -> Remembered:
    return Remembered(sums, sums[-1].round_number)


def rounds_of(has: Any, drawn: list[Any]) -> Remembered:
    """Counts of rounds with these participants, where `has` says who has what."""
    sums = [seen(list(one), has[one].sum(axis=0).tolist(), place + 1) for place, one in enumerate(drawn)]
    return known(*sums)
