"""Clients that hold ratings and a vector: what FedRec, FedRec++ and SDCF keep between rounds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.data.interactions import UserRows
from hushrec.draws import Draws, uniform_rows
from hushrec.errors import HushrecError
from hushrec.models.biases import initial_users, scale_of
from hushrec.protocol import kept

Factors = NDArray[np.float32]


def initial_factors(purpose: str, numbers: NDArray[np.int32], num_factors: int, draws: Draws) -> Factors:
    """Uniform in (-0.005, 0.005), independently per coordinate."""
    return uniform_rows(draws.key(purpose), numbers, num_factors, -0.005, 0.005)


@dataclass
class RatingClients:
    """Private state of clients that hold ratings and a vector: what never leaves them.

    An update counts only if the driving side says so in its next request (`counted_round`). Until then the
    vector before it is kept, so a request can be repeated and an update that was left out is undone. Folders of
    runs that did not count updates say in which round the last one was; with all clients in all rounds, it is the
    same number.
    """

    starts: NDArray[np.int64]
    items: NDArray[np.int32]  # ascending within a client
    ratings: NDArray[np.float32]  # with biases: in units of the scale
    num_items: int  # of the whole catalogue
    user_factors: Factors = kept(result=True)  # with biases: the last column
    updated_round: NDArray[np.int32] = kept()  # of `user_factors`
    previous_user_factors: Factors = kept()
    previous_round: NDArray[np.int32] = kept()  # of `previous_user_factors`
    item_factors: Factors = kept()  # as sent at the end of a run; zero before
    num_updates: NDArray[np.int32] = kept(instead="updated_round")  # that counted, with the one of `user_factors`

    @classmethod
    def enrol(
        cls,
        numbers: NDArray[np.int32],
        rows: UserRows,
        num_items: int,
        num_factors: int,
        draws: Draws,
        has_biases: bool = False,
    ) -> "RatingClients":
        """Clients at the start of a run; `numbers` says who they are in the whole federation."""
        assert rows.ratings is not None, "explicit feedback only"
        if has_biases:
            user_factors = initial_users(numbers, np.diff(rows.starts), num_factors, draws)
            ratings = scale_of(rows.rating_range).to_units(rows.ratings)
            return cls.at_start(rows.starts, rows.items, ratings, num_items, user_factors)
        user_factors = initial_factors("user-factors", numbers, num_factors, draws)
        return cls.at_start(rows.starts, rows.items, rows.ratings, num_items, user_factors)

    @classmethod
    def at_start(
        cls,
        starts: NDArray[np.int64],
        items: NDArray[np.int32],
        ratings: NDArray[np.float32],
        num_items: int,
        user_factors: Factors,
    ) -> "RatingClients":
        """Clients with these vectors before any update."""
        rounds = np.zeros(len(user_factors), np.int32)
        item_factors = np.zeros((num_items, user_factors.shape[1]), np.float32)
        previous = user_factors.copy(), rounds.copy()
        made = user_factors, rounds, *previous, item_factors, rounds.copy()
        return cls(starts, items, ratings, num_items, *made)

    def num_ratings(self) -> NDArray[np.int64]:
        """Ratings of each client."""
        return np.diff(self.starts)

    def check_fit(self, item_factors: Factors) -> None:
        """Refuse a V of another catalogue or another length of vectors: kernels do not look."""
        expected = (self.num_items, self.user_factors.shape[1])
        if item_factors.shape != expected:
            raise HushrecError(f"V has the shape {item_factors.shape} and clients expect {expected}; send that")

    def settle(self, rows: NDArray[np.int64], counted_round: NDArray[np.int32]) -> None:
        """Undo the last update of those clients for whom it did not count."""
        is_undone = self.updated_round[rows] != counted_round
        if not is_undone.any():
            return
        undone = rows[is_undone]
        if (self.previous_round[undone] != counted_round[is_undone]).any():
            raise HushrecError("a client holds the vectors of other rounds than were counted; enrol it anew")
        self.user_factors[undone] = self.previous_user_factors[undone]
        self.updated_round[undone] = self.previous_round[undone]
        self.num_updates[undone] -= 1

    def updated(self, rows: NDArray[np.int64], round_number: int) -> None:
        """Note that these clients made the update of a round."""
        self.previous_round[rows] = self.updated_round[rows]
        self.updated_round[rows] = round_number
        self.num_updates[rows] += 1

    def settled_factors(self, counted_round: NDArray[np.int32]) -> Factors:
        """Every client's vector with the updates that counted; changes nothing."""
        is_settled = self.updated_round == counted_round
        if is_settled.all():
            return self.user_factors
        return np.where(is_settled[:, None], self.user_factors, self.previous_user_factors)
