"""Checks of what parties list, for folds that keep it: a refusal names who sent it."""

import numpy as np

from hushrec.errors import HushrecError
from hushrec.protocol.messages import Numbers, Ragged


def check_listed(numbers: Numbers, items: Ragged, num_items: int) -> None:
    """Refuse items that are not in the catalogue, or that do not ascend, as where one is listed twice."""
    is_unknown = (items.values < 0) | (items.values >= num_items)
    is_wrong = is_unknown | items.not_ascending()
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        sender = numbers[np.searchsorted(items.starts, place, side="right") - 1]
        what = "an item that is not in the catalogue" if is_unknown[place] else "an item twice, or not in order"
        raise HushrecError(f"client {sender} lists {what}; leave it out")
