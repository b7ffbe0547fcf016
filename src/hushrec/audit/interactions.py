"""Guesses of interactions with the items of data owners, and how right they are."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.scoreboard import Outcome, Truth
from hushrec.data import Interactions
from hushrec.data.holdings.owners import owners_of, rows_of_owners


class Guesses(NamedTuple):
    """Interactions that are guessed, a row each."""

    owners: NDArray[np.int64]
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    is_positive: NDArray[np.bool_] | None  # None: nothing is said about it


class Interacted:
    """Who interacted with what: the truth, to score guesses by."""

    def __init__(self, train: Interactions) -> None:
        self.owners, self.events = owners_of(train), rows_of_owners(train)
        self._num_items = train.num_items
        keys = self.events.users.astype(np.int64) * train.num_items + self.events.items
        self._keys, rows = np.unique(keys, return_index=True)
        self.is_positive: NDArray[np.bool_] = self.events.is_positive[rows]  # of each interaction
        self.users: NDArray[np.int64] = self._keys // train.num_items
        self.items: NDArray[np.int64] = self._keys % train.num_items
        self.is_held = np.diff(self.owners.starts) > 0  # of each item
        self.is_mostly_positive = bool(self.is_positive.mean() >= 0.5)
        self.mean_density = len(self._keys) / max(train.num_users * train.num_items, 1)
        held = np.maximum(np.diff(self.events.held_starts), 1)
        is_usual = self.is_positive == self.is_mostly_positive
        self._density, self._usual = self._per_owner(None) / held, self._per_owner(is_usual) / held

    def _per_owner(self, weights: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """Interactions of each user with items of each owner."""
        row, owner = self.deliveries(self.items)
        shape = (self.events.num_users, len(self.owners.names))
        cells = self.users[row] * shape[1] + owner
        counts = np.bincount(cells, None if weights is None else weights[row], shape[0] * shape[1])
        return counts.astype(np.float64).reshape(shape)

    def deliveries(self, items: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """To whom interactions with these items go: places among them, and owners."""
        lengths = np.diff(self.owners.starts)[items]
        row = np.repeat(np.arange(len(items)), lengths)
        place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return row, self.owners.owners[self.owners.starts[items[row]] + place]

    def find(self, guesses: Guesses) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For each guess its interaction, and whether there is one."""
        keys = guesses.users * self._num_items + guesses.items
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return places, (self._keys[places] == keys) & (guesses.items < self._num_items)

    def judged(self, guesses: Guesses, with_sign: bool = False) -> Outcome:
        """Score guesses by user. Blind: one of the owner's items, and the commoner sign."""
        places, is_right = self.find(guesses)
        if with_sign and guesses.is_positive is not None:
            is_right = is_right & (self.is_positive[places] == guesses.is_positive)
        density = self._usual if with_sign else self._density
        return Outcome.of_marks(guesses.users, is_right, density[guesses.users, guesses.owners])


@lru_cache(maxsize=1)  # all attacks of all rounds of a run ask for the same
def _interacted(train: Interactions) -> Interacted:
    return Interacted(train)


def interacted(truth: Truth) -> Interacted:
    """Who really interacted with what."""
    return _interacted(truth.train)
