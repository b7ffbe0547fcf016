"""What several partners together make of the gradients that another one sent each of them (FedCORE).

A partner alone does not know who wrote its mail, gets rows of those users only whom it has itself, and compares
what it finds with its own item vectors. Together they know which letters are their own, have the rows of all users
whom any of them has, and the item vectors of all; which of their items are the same, they tell each other.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit import partner_gradients as gradients
from hushrec.audit.partner_gradients import Behind, Recovered, behind, received_letters, recovered_from
from hushrec.audit.scoreboard import Own, Truth
from hushrec.protocol import Role, Seat, View

SEATS = (Seat(Role.PARTNER, 1), Seat(Role.PARTNER, 2))
OWN = (*gradients.OWN, "item_ids")


class Joint(NamedTuple):
    """What each of those who collude recovers, by its number."""

    found: dict[int, Recovered]


def recover_jointly(_before: Joint | None, view: View, own: Own) -> Joint:
    """Letters that none of them wrote, each with the copies of who got it."""
    found = {}
    for number, holds in own.each.items():
        letters = [one for one in received_letters(view, holds, number) if one.writer not in own.each]
        found[number] = recovered_from(letters, own._replace(holds=holds))
    return Joint(found)


class Rows(NamedTuple):
    """The victim's ratings that are behind rows, each once, with what was recovered of them."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]  # the victim's own numbers
    ratings: NDArray[np.float32]
    vectors: NDArray[np.float64]
    guesses: NDArray[np.float64]  # of the ratings


def rows_of(joint: Joint, truth: Truth) -> Rows:
    """What is behind all rows; who got a row of a rating first is heard."""
    parts: list[tuple[Behind, Recovered]] = [
        (behind(found, truth, number), found) for number, found in joint.found.items()
    ]
    users, items, ratings = (
        np.concatenate([getattr(made_of, name) for made_of, _ in parts]) for name in ("users", "items", "ratings")
    )
    vectors = np.concatenate([found.vectors[made_of.rows] for made_of, found in parts])
    guesses = np.concatenate([found.ratings[made_of.rows] for made_of, found in parts])
    _, firsts = np.unique(np.stack([users, items]), axis=1, return_index=True)
    return Rows(users[firsts], items[firsts], ratings[firsts], vectors[firsts], guesses[firsts])
