"""What one partner itself has after a round: for audits, which give it to an attacker as its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError
from hushrec.systems.fedcore.partners import Partnership
from hushrec.systems.fedcore.visitors import names_of


def holds_of(private: Partnership, number: int) -> Mapping[str, NDArray[Any]]:
    """Arrays by name: its ratings, its vectors now and as the round began, and what it knows of visitors."""
    if number not in private.numbers:
        raise HushrecError(f"there is no partner number {number + 1} here; train with more, as with --partners 3")
    place = int(np.flatnonzero(private.numbers == number)[0])
    partner, (user_ids, item_ids) = private.partners[place], private.ids_of(place)
    no_batches, no_scores = np.empty(0, np.int64), np.empty((0, 0), np.float32)
    return {
        "users": partner.users,
        "items": partner.items,
        "ratings": partner.ratings,
        "batches": no_batches if partner.order is None else partner.order[1],  # ratings in the order of a round
        "user_factors": partner.user_factors,
        "item_factors": partner.item_factors,
        "layers": partner.layers,
        **dict(zip(("user_factors_before", "item_factors_before", "layers_before"), partner.before, strict=True)),
        "common_users": partner.common_users,
        "holders_of_users": partner.holders_of_users,
        "user_names": names_of(user_ids),  # as partners call them to each other
        "item_ids": item_ids,
        "asked": partner.asked,
        "helpers": partner.helpers,
        "shown_users": partner.shown_users,
        **{f"decrypted_{asker}": partner.decrypted.get(asker, no_scores) for asker in private.numbers.tolist()},
    }
