"""Partners that train in step: what each of them holds, and its steps.

The arrays of all partners in this process lie one after the other; a `Partner` looks at its own part of them. A
step is computed from the state before it and counted only when the next request comes, so a request can be
repeated, and a round can begin again from where it began.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushrec.data import PartnerRows
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError, PublicError
from hushrec.limits import MOST_PARTNERS, MOST_PASSES, MOST_RATINGS
from hushrec.models import neucf
from hushrec.protocol import Numbers, kept, packed
from hushrec.systems.fedcore.co_training import (
    Rows,
    Sums,
    is_addable,
    move_layers,
    move_own,
    pmf_gradients,
    shared_rows,
)
from hushrec.systems.fedcore.gaussian import gaussian_rows
from hushrec.systems.fedcore.laplace import key_for, private_rows


class Privatizer(NamedTuple):
    """What is done to gradients before others see them (Eqs. 12 to 14)."""

    is_averaged: bool
    clip: float  # of the l1 norm of a row, l2 with Gaussian noise; 0: neither clipped nor noised
    scale: float  # of the Laplace noise, or the standard deviation of Gaussian noise
    is_gaussian: bool = False


class Training(NamedTuple):
    """The settings that partners train with in one round."""

    model: str  # pmf or neucf
    activation: neucf.Activation
    batch_size: int
    learning_rate: float
    regularization: float
    privatizer: Privatizer


class Agreement(NamedTuple):
    """What partners agree on for a whole run, training apart."""

    model: str  # pmf or neucf
    activation: neucf.Activation
    width: int  # numbers of a vector
    alignment: str  # psi or keyed-hash
    unaligned: float  # share of common items that stay so
    prior_seed: int
    num_asked: int  # visitors that a partner asks about
    query_budget: int  # visitors that a partner answers to another; 0: all
    top_k: int  # answers name so many best items only; 0: they are scores
    answer_noise: float = 0.0  # scale of the noise on scores that are returned


class Release(NamedTuple):
    """What a partner tells the others in one step: rows of common vectors, and the gradient of the layers."""

    users: Numbers  # common numbers
    user_rows: Rows
    items: Numbers  # of aligned items
    item_rows: Rows
    layers: Rows

    def is_addable(self, num_partners: int) -> bool:
        """Whether it can be added to what the others release: who sends another one is at fault."""
        parts = self.user_rows, self.item_rows, self.layers[None]
        return all(is_addable(rows, num_partners) for rows in parts)


class Step(NamedTuple):
    """One step of a partner: its batch, its gradients and what it releases of them."""

    number: int
    places: NDArray[np.int64]
    user_rows: Rows
    item_rows: Rows
    release: Release


@dataclass
class Partner:
    """One partner: views of its part of the arrays."""

    number: int
    users: NDArray[np.int32]  # of its ratings
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]
    user_factors: Rows
    item_factors: Rows
    layers: Rows
    before: tuple[Rows, Rows, Rows]  # the three as they were when the round began
    clock: NDArray[np.int64]  # round, and how many steps of it are counted
    common_users: Numbers  # the common number of each user, -1 for one's own
    common_items: Numbers
    holders_of_users: NDArray[np.int64]  # bit q: partner q has this user as well
    holders_of_items: NDArray[np.int64]
    user_sums: Sums
    item_sums: Sums
    shown_users: Rows  # vectors as visitors elsewhere are served with: the learned ones, perhaps with noise
    asked: Numbers  # visitors it asked others about, -1 where there are fewer
    answers: Rows  # scores of its items for them, NaN where there are none
    helpers: Numbers  # which partner answers about each of them, -1: none
    owed: NDArray[np.int64]  # by partner that asked: how many vectors it was sent, and how many items it has
    slots: tuple[Numbers, Numbers]  # scratch of -1, one per user and per item
    place_of: tuple[Numbers, Numbers] | None = None  # see `places`
    held: dict[int, tuple[NDArray[np.bool_], NDArray[np.bool_]] | None] = field(default_factory=dict)  # `held_by`
    pending: Step | None = None
    decrypted: dict[int, Rows] = field(default_factory=dict)  # by partner that asked: scores of its items
    order: tuple[int, NDArray[np.int64]] | None = None  # of the ratings in a round
    num_steps: int = 0  # of a round, as it was told since users were aligned; 0: not yet
    aligned_with: set[int] = field(default_factory=set)  # all partners that were aligned, itself too
    answered: dict[int, bytes] = field(
        default_factory=dict
    )  # by partner that asked: digest of whom it asked about
    # By partner that asked: a digest of all vectors, and the scores that it had decrypted.
    returned: dict[int, tuple[bytes, NDArray[np.floating]]] = field(default_factory=dict)

    @property
    def is_rated(self) -> NDArray[np.bool_]:
        """Of each account, whether it has a rating here; the others are visitors."""
        return np.bincount(self.users, minlength=len(self.user_factors)) > 0

    def places(self) -> tuple[Numbers, Numbers]:
        """Which user and which item has a common number; -1 for one that others share."""
        if self.place_of is None:
            self.place_of = _places(self.common_users), _places(self.common_items)
        return self.place_of

    def held_by(self, other: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
        """Of each common number of users and of items, whether another partner has it too; None: it has all."""
        if other not in self.held:
            users = _held(self.common_users, self.holders_of_users, other)
            items = _held(self.common_items, self.holders_of_items, other)
            self.held[other] = None if users.all() and items.all() else (users, items)
        return self.held[other]

    def told_to(self, other: int, release: Release) -> Release:
        """What of a release is about users and items that the other has as well."""
        held = self.held_by(other)
        if held is None:
            return release
        has_user, has_item = held[0][release.users], held[1][release.items]
        return Release(
            release.users[has_user], release.user_rows[has_user], release.items[has_item],
            release.item_rows[has_item], release.layers,
        )  # fmt: skip

    def aligned(self) -> None:
        """Forget what followed from an earlier alignment."""
        self.place_of, self.num_steps = None, 0
        self.held.clear()

    def check_step(self, step: int, num_steps: int, round_number: int, num_rounds: int, batch_size: int) -> None:
        """Refuse a step or a round that there is not, or a length of rounds that changes or cannot be."""
        if not self.clock[0] <= round_number <= num_rounds:
            raise PublicError(f"round {round_number} is over or was not agreed on; go on with {self.clock[0]}")
        size = min(batch_size, len(self.ratings))
        if self.num_steps not in (0, num_steps) or num_steps < max(1, len(self.ratings) // batch_size):
            raise PublicError(
                f"a round of {num_steps:,} steps leaves ratings out, or had another number of them before"
            )
        most = min(MOST_RATINGS, MOST_PASSES * len(self.ratings))
        if step >= num_steps or num_steps * size > most:
            raise PublicError(f"step {step:,} of {num_steps:,} cannot be; ask for one that there is")
        self.num_steps = num_steps

    def begin(self, round_number: int) -> None:
        """Begin a round, or begin it again."""
        now = (self.user_factors, self.item_factors, self.layers)
        is_again = self.clock[0] == round_number
        for before, current in zip(self.before, now, strict=True):
            if is_again:
                current[:] = before
            else:
                before[:] = current
        self.clock[:] = round_number, 0
        self.pending = None
        for sums in (self.user_sums, self.item_sums):  # a round that was broken off may have left something there
            sums.clear()

    def step(self, number: int, num_steps: int, training: Training, draws: Draws) -> Step:
        """The gradients of a batch, and what is released of them (Alg. 1, lines 6 to 14)."""
        if self.pending is not None and self.pending.number == number:
            return self.pending
        places = self._batch(number, num_steps, training.batch_size, draws)
        width = self.user_factors.shape[1]
        user_rows, item_rows = np.empty((2, len(places), width), np.float32)
        layers = np.empty(len(self.layers), np.float32)
        if training.model == "pmf":
            pmf_gradients(
                self.user_factors, self.item_factors, self.users, self.items, self.ratings, places,
                training.regularization, user_rows, item_rows,
            )  # fmt: skip
        else:
            neucf.batch_gradients(
                self.user_factors, self.item_factors, self.layers, self.users[places], self.items[places],
                self.ratings[places], training.activation, neucf.Gradients(user_rows, item_rows, layers),
            )  # fmt: skip
        released = self._release(number, places, user_rows, item_rows, layers, training.privatizer, draws)
        if not released.is_addable(len(self.aligned_with)):
            raise DivergedError("a gradient is not finite or far too large")
        self.pending = Step(number, places, user_rows, item_rows, released)
        return self.pending

    def count(self, number: int, num_steps: int, others: list[Release], training: Training, draws: Draws) -> None:
        """Move by the means of what all partners released in a step (Alg. 1, lines 16 to 22)."""
        if self.clock[1] == number + 1:
            return  # asked again
        if self.clock[1] != number:
            raise HushrecError(f"step {number} cannot follow step {self.clock[1]}; begin the round again")
        own = self.step(number, num_steps, training, draws)
        rate = training.learning_rate
        releases = [own.release, *others]
        for sums in (self.user_sums, self.item_sums):
            if sums.senders:  # a step that was refused half way
                sums.clear()
        place_of_user, place_of_item = self.places()
        for release in releases:
            self.user_sums.add(release.users, release.user_rows, place_of_user)
        self.user_sums.move(self.user_factors, rate)
        move_own(self.user_factors, self.users, own.places, own.user_rows, self.common_users, rate)
        if len(place_of_item):
            for release in releases:
                self.item_sums.add(release.items, release.item_rows, place_of_item)
            self.item_sums.move(self.item_factors, rate)
        move_own(self.item_factors, self.items, own.places, own.item_rows, self.common_items, rate)
        if len(self.layers):
            move_layers(self.layers, [release.layers for release in releases], rate)
        self.clock[1] = number + 1
        self.pending = None

    def _batch(self, number: int, num_steps: int, batch_size: int, draws: Draws) -> NDArray[np.int64]:
        """Ratings of a step: a round goes through all of them, again and again where others have more."""
        size, round_number = min(batch_size, len(self.ratings)), int(self.clock[0])
        if self.order is None or self.order[0] != round_number:
            rng, needed = draws.generator(f"batches-{self.number}", round_number), num_steps * size
            passes = [rng.permutation(len(self.ratings)) for _ in range(-(-needed // max(len(self.ratings), 1)))]
            self.order = round_number, np.concatenate([*passes, np.empty(0, np.int64)]).astype(np.int64)
        return self.order[1][number * size : (number + 1) * size]

    def _release(
        self,
        number: int,
        places: NDArray[np.int64],
        user_rows: Rows,
        item_rows: Rows,
        layers: Rows,
        privatizer: Privatizer,
        draws: Draws,
    ) -> Release:
        key = draws.key("gradient-noise")
        # Users' and items' noise of a step never overlap: twice as many components as a batch can have.
        first = 2 * number * user_rows.size
        round_number = int(self.clock[0])

        def released(
            owners: NDArray[np.int32], rows: Rows, common: Numbers, slots: Numbers, first: int
        ) -> tuple[Numbers, Rows]:
            numbers, out = np.empty((len(rows), 2), np.int32), np.empty_like(rows)
            count = shared_rows(owners, places, rows, common, privatizer.is_averaged, slots, numbers, out)
            own = out[:count]
            if privatizer.clip:
                own_key = key_for(key, own)
                noised = gaussian_rows if privatizer.is_gaussian else private_rows
                own = noised(own, privatizer.clip, privatizer.scale, own_key, self.number, round_number, first)
            return np.ascontiguousarray(numbers[:count, 0]), own

        of_users = released(self.users, user_rows, self.common_users, self.slots[0], first)
        of_items = (np.empty(0, np.int32), np.empty((0, item_rows.shape[1]), np.float32))
        if self.places()[1].size:
            of_items = released(self.items, item_rows, self.common_items, self.slots[1], first + user_rows.size)
        return Release(*of_users, *of_items, layers)

    def digest(self) -> NDArray[np.uint8]:
        """SHA-256 of all that the partner has learned."""
        total = sha256()
        for array in (self.user_factors, self.item_factors, self.layers):
            total.update(np.ascontiguousarray(array).data)
        return np.frombuffer(total.digest(), np.uint8)


class Pins(msgspec.Struct, frozen=True):
    """What a partner holds others to: it has to outlive the process, or a restart would free them."""

    aligned_with: list[int]
    num_steps: int
    answered: dict[int, bytes]
    returned: dict[int, tuple[bytes, tuple[int, int], bytes]]  # scores with their shape, as bytes

    @classmethod
    def of(cls, partner: Partner) -> "Pins":
        """Those of a partner now."""
        returned = {
            asker: (vectors, (len(scores), scores.shape[1]), scores.astype("<f8").tobytes())
            for asker, (vectors, scores) in partner.returned.items()
        }
        return cls(sorted(partner.aligned_with), partner.num_steps, partner.answered, returned)

    def put_into(self, partner: Partner) -> None:
        """A partner that starts anew is held to what it was."""
        partner.aligned_with, partner.num_steps = set(self.aligned_with), self.num_steps
        partner.answered = dict(self.answered)
        partner.returned = {
            asker: (vectors, np.frombuffer(scores, "<f8").reshape(shape))
            for asker, (vectors, shape, scores) in self.returned.items()
        }


@dataclass
class Partnership:
    """The private state of the partners in this process."""

    rows: PartnerRows
    numbers: Numbers
    user_factors: Rows = kept(result=True)
    item_factors: Rows = kept(result=True)
    layers: Rows = kept(result=True)  # (partners, weights)
    user_factors_before: Rows = kept()  # as they were when the round began
    item_factors_before: Rows = kept()
    layers_before: Rows = kept()
    clock: NDArray[np.int64] = kept()  # (partners, 2)
    common_users: Numbers = kept()
    common_items: Numbers = kept()
    holders_of_users: NDArray[np.int64] = kept()
    holders_of_items: NDArray[np.int64] = kept()
    shown_users: Rows = kept()
    asked: Numbers = kept()  # (partners, most)
    answers: Rows = kept()  # (partners, most, most items)
    helpers: Numbers = kept()  # (partners, most)
    owed: NDArray[np.int64] = kept()  # (partners, most partners, 2)
    partners: list[Partner] = field(default_factory=list)

    @classmethod
    def enrol(
        cls, numbers: Numbers, rows: PartnerRows, width: int, num_weights: int, num_asked: int
    ) -> "Partnership":
        """Partners before they are aligned: all vectors are zero."""
        if numbers.max(initial=0) >= MOST_PARTNERS:
            raise HushrecError(f"more than {MOST_PARTNERS} partners; use fewer")
        num_users, num_items = int(rows.user_starts[-1]), int(rows.item_starts[-1])
        factors = [
            np.zeros((size, width), np.float32) for size in (num_users, num_items, num_users, num_items, num_users)
        ]
        layers = np.zeros((2, len(numbers), num_weights), np.float32)
        common = [np.full(size, -1, np.int32) for size in (num_users, num_items)]
        holders = [np.zeros(size, np.int64) for size in (num_users, num_items)]
        clock = np.zeros((len(numbers), 2), np.int64)
        num_asked = min(num_asked, _most_visitors(rows))
        held = cls(
            rows, numbers, factors[0], factors[1], layers[0], factors[2], factors[3], layers[1], clock,
            common[0], common[1], holders[0], holders[1], factors[4],
            np.full((len(numbers), num_asked), -1, np.int32),
            np.full((len(numbers), num_asked, int(np.diff(rows.item_starts).max())), np.nan, np.float32),
            np.full((len(numbers), num_asked), -1, np.int32), np.zeros((len(numbers), MOST_PARTNERS, 2), np.int64),
        )  # fmt: skip
        held.partners = [held._view(place, width) for place in range(len(numbers))]
        return held

    def _pack_pins(self) -> NDArray[np.uint8]:
        return np.frombuffer(msgspec.msgpack.encode([Pins.of(one) for one in self.partners]), np.uint8)

    def _unpack_pins(self, packed: NDArray[np.uint8]) -> None:
        try:
            pins = msgspec.msgpack.decode(packed.tobytes(), type=list[Pins])
        except msgspec.MsgspecError:
            raise ValueError("pins are damaged") from None
        for partner, own in zip(self.partners, pins, strict=True):
            own.put_into(partner)

    pins = packed(_pack_pins, _unpack_pins, later=True)

    def ids_of(self, place: int) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
        """A partner's own names of its users and items."""
        rows = self.rows
        return (
            rows.user_ids[rows.user_starts[place] : rows.user_starts[place + 1]],
            rows.item_ids[rows.item_starts[place] : rows.item_starts[place + 1]],
        )

    def _view(self, place: int, width: int) -> Partner:
        rows = self.rows
        own, users, items = (
            slice(int(starts[place]), int(starts[place + 1]))
            for starts in (rows.starts, rows.user_starts, rows.item_starts)
        )
        num_users, num_items = users.stop - users.start, items.stop - items.start
        return Partner(
            int(self.numbers[place]), rows.users[own], rows.items[own], rows.ratings[own],
            self.user_factors[users], self.item_factors[items], self.layers[place],
            (self.user_factors_before[users], self.item_factors_before[items], self.layers_before[place]),
            self.clock[place], self.common_users[users], self.common_items[items],
            self.holders_of_users[users], self.holders_of_items[items],
            Sums.zeros(num_users, width), Sums.zeros(num_items, width), self.shown_users[users], self.asked[place],
            self.answers[place], self.helpers[place], self.owed[place],
            (np.full(num_users, -1, np.int32), np.full(num_items, -1, np.int32)),
        )  # fmt: skip


def _most_visitors(rows: PartnerRows) -> int:
    """The largest number of accounts without a rating that a partner has."""
    of_row = np.searchsorted(rows.starts, np.arange(len(rows.users)), "right") - 1
    rated = np.unique(rows.user_starts[of_row] + rows.users)
    num_rated = np.diff(np.searchsorted(rated, rows.user_starts))
    return int((np.diff(rows.user_starts) - num_rated).max(initial=0))


def _held(common: Numbers, holders: NDArray[np.int64], other: int) -> NDArray[np.bool_]:
    is_held = np.zeros(int(common.max(initial=-1)) + 1, np.bool_)
    is_held[common[common >= 0]] = (holders[common >= 0] >> other) & 1
    return is_held


def _places(common: Numbers) -> Numbers:
    """Where each common number is here; -1 where it is not."""
    numbers = np.flatnonzero(common >= 0)
    places = np.full(int(common.max(initial=-1)) + 1, -1, np.int32)
    places[common[numbers]] = numbers
    return places
