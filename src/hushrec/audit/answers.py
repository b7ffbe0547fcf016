"""What a partner was answered about its visitors (FedCORE, Algorithm 2), and who they are at the other partner."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Own, is_sent
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Role, View

ASKER, HOME = 0, 1  # the partner that visitors come to, and the one that knows them
NOBODY = "no visitor was asked about whom the other partner knows"
NOT_PRODUCTS = "scores of NeuCF are not products of vectors; the attack is for --model pmf"


class Answers(NamedTuple):
    """Scores of all the asking partner's items, a row for each visitor that was answered about."""

    places: NDArray[np.int64]  # in the list of visitors
    scores: NDArray[np.float32] | None  # None: only the places of the best items came


def names_sender(message_type: type[Message], sender: str, column: str) -> bool:
    """Whether it goes from partner to partner, with this column of rows, and its field `sender` says whose."""
    is_named = sender in {kind.name for kind in message_type.kinds() if kind.layout == "each"}
    return is_named and is_sent(message_type, Role.PARTNER, Role.PARTNER, column)


def is_answer(message_type: type[Message]) -> bool:
    """Whether a partner returns scores of visitors with it."""
    return names_sender(message_type, "home", "scores")


def answers_to(view: View, own: Own) -> Answers:
    """What HOME answered to ASKER, whose view it is."""
    found = rows_sent(view, "home", HOME, "scores", ASKER)
    if found is None:
        raise HushrecError(NOBODY)
    places, num_items = np.flatnonzero(own.holds["helpers"] == HOME), len(own.holds["item_factors"])
    return Answers(places, None if own.settings["top_k"] else found.reshape(len(places), num_items))


def rows_sent(view: View, sender: str, number: int, column: str, to: int) -> NDArray[Any] | None:
    """The rows of a column that one partner sent to another; None, if there are none."""
    for one in view:
        if one.addressees is not None and names_sender(type(one.message), sender, column):
            is_it = (getattr(one.message, sender) == number) & (one.addressees == to)
            rows = one.message.column(column)
            for place in np.flatnonzero(is_it & (rows.lengths > 0)).tolist():
                return rows.part(place, place + 1).values
    return None


def numbers_of(names: NDArray[np.uint8], own_names: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The own numbers of users that another partner names."""
    number = {name.tobytes(): place for place, name in enumerate(own_names)}
    return np.array([number[name.tobytes()] for name in names], np.int64)
