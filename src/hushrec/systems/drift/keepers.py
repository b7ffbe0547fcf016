"""The users' side as the keeper of users' vectors. Used by `drift`: `--user-vectors users`."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.exact_sum import ExactSum
from hushrec.protocol import Numbers, packed
from hushrec.systems.drift.gateway import Gateway
from hushrec.systems.drift.members import Members, Owner
from hushrec.systems.drift.plan import Plan
from hushrec.systems.drift.vectors import Factors, grown_users, move_users


@dataclass
class KeptVectors:
    """The vectors of all users, now and as the round began."""

    now: Factors
    before: Factors
    clock: NDArray[np.int64] = field(default_factory=lambda: np.array([0, -1]))  # round, last window that counted

    def begin(self, round_number: int) -> None:
        """Begin a round, or begin it again: then what it moved is undone."""
        if round_number < self.clock[0]:
            raise HushrecError(f"round {round_number} is over with the users' side; go on with {self.clock[0]}")
        if round_number == self.clock[0]:
            self.now[:] = self.before
        else:
            self.before[:] = self.now
        self.clock[:] = round_number, -1

    def move(self, window: int, users: Numbers, total: ExactSum, plan: Plan) -> None:
        """Move vectors once in a window."""
        if window > self.clock[1]:
            move_users(self.now, users, total, plan)
            self.clock[1] = window


class Keepers(Members):
    """Parties of whom the users' side keeps the vectors of users."""

    def __init__(self, numbers: Numbers, owners: list[Owner], gateway: Gateway | None, vectors: Factors) -> None:
        super().__init__(numbers, owners, gateway)
        self.vectors = KeptVectors(vectors, vectors.copy())

    @classmethod
    def of(cls, members: Members, plan: Plan, draws: Draws) -> "Keepers":
        """The same parties, with vectors at random (Sec. 3.1) where the users' side is."""
        num_users = 0 if members.gateway is None else members.gateway.num_users
        none = np.empty((0, plan.num_columns), np.float32)
        return cls(members.numbers, members.owners, members.gateway, grown_users(none, num_users, plan, draws))

    def _pack_vectors(self) -> Factors:
        return np.stack([self.vectors.now, self.vectors.before])

    def _unpack_vectors(self, vectors: Factors) -> None:
        self.vectors.now[:], self.vectors.before[:] = vectors

    def _pack_clock(self) -> NDArray[np.int64]:
        return self.vectors.clock.copy()

    def _unpack_clock(self, clock: NDArray[np.int64]) -> None:
        self.vectors.clock[:] = clock

    user_vectors = packed(_pack_vectors, _unpack_vectors)
    user_clock = packed(_pack_clock, _unpack_clock)


def vectors_of_users(members: Members, of_orchestrator: Factors) -> Factors:
    """Users' vectors, whoever holds them."""
    return members.vectors.now if isinstance(members, Keepers) else of_orchestrator


def kept_vectors(members: Members) -> KeptVectors:
    """The users' vectors, which must be kept here."""
    assert isinstance(members, Keepers)
    return members.vectors
