"""One person watched through the rounds of a small run: what is private, what was sent, what attacks conclude.

A few people are taken from the data, the person among them, and trained with for real, masks and ciphers included.
After each round attacks look at what who attacks saw, as in an audit. The truth marks what they said as right or
wrong, and nothing else. Which attack is the strongest is told by how it does on the other people.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hushrec.audit.attacks import attacks_on
from hushrec.audit.driver import Onlooker
from hushrec.audit.scoreboard import Attack, Own
from hushrec.audit.uploads import clients_of, is_own
from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.messages import MaskedNumbers
from hushrec.protocol import AnySystem, Recorded, Role, Seat
from hushrec.protocol.padding import padding_of
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job
from hushrec.settings import to_dict
from hushrec.ui.privacy_readings import READERS, Named
from hushrec.ui.privacy_sent import sent_by

LONE_ROWS = "lone rows"
_ALIKE = 1e-3  # ratings that differ by less are the same


@dataclass(frozen=True)
class Scene:
    """A small run, and whom it is about."""

    job: Job
    person: int  # its number in the run
    with_denoisers: bool = False  # whether they share what they saw with the server

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Who attacks."""
        return (Seat(Role.SERVER), Seat(Role.DENOISER)) if self.with_denoisers else (Seat(Role.SERVER),)

    @property
    def own_items(self) -> NDArray[np.int32]:
        """The person's items, ascending."""
        rows = self.job.train.by_user()
        return rows.items[rows.starts[self.person] : rows.starts[self.person + 1]]

    @property
    def own_ratings(self) -> NDArray[np.float32] | None:
        """Their ratings; None: the system learns from none."""
        rows = self.job.train.by_user()
        return (
            None if rows.ratings is None else rows.ratings[rows.starts[self.person] : rows.starts[self.person + 1]]
        )


def scene_of(
    system: AnySystem,
    config: Any,
    data: Interactions,
    user: int,
    num_people: int,
    seed: int = 0,
    with_denoisers: bool = False,
) -> Scene:
    """The run of a person among others, who are drawn by the seed; all items stay."""
    order = Draws(seed).generator("watched-people").permutation(data.num_users)
    has_rows = np.bincount(data.users, minlength=data.num_users) > 0
    others = order[(order != user) & has_rows[order]][: max(num_people - 1, 0)]
    chosen = np.sort(np.append(others, user))
    rows = data.select(np.isin(data.users, chosen))
    numbers = np.searchsorted(chosen, rows.users).astype(np.int32)
    few = replace(rows, users=numbers, user_ids=data.user_ids[chosen])
    job = job_for(system, config, seed, few)
    return Scene(job, int(np.searchsorted(chosen, user)), with_denoisers)


class Sent(NamedTuple):
    """A message of the person."""

    message: Recorded
    num_bytes: int
    is_seen: bool  # by who attacks


class Said(NamedTuple):
    """What an attack says of the person."""

    attack: Attack[Any]
    items: NDArray[np.int64]  # ascending
    ratings: NDArray[np.float64]  # NaN: not said
    since_round: int  # in which it was concluded
    f1_of_others: float

    @property
    def has_ratings(self) -> bool:
        """Whether ratings are said."""
        return bool(np.isfinite(self.ratings).any())


class Unnamed(NamedTuple):
    """Ratings that were read of somebody in a sum, without a name."""

    num_read: int
    num_own: int  # of them, the person's


class Watched(NamedTuple):
    """A round."""

    round_number: int
    sent: list[Sent]
    said: list[Said]  # the strongest first
    num_summed: int  # people in the sum; 0: there was none
    unnamed: Unnamed | None


OnWatched = Callable[[Watched], None]


def watch(scene: Scene, on_round: OnWatched, is_enough: Callable[[], bool], threads: int = 2) -> None:
    """Train, and tell of each round while its messages are there."""
    watcher = _Watcher(scene)

    def after_round(progress: Progress) -> None:
        with threadpool_limits(1, user_api="blas"):
            on_round(watcher.look(progress))
        progress.transcript.forget()

    options = RuntimeOptions(threads=threads, keep_payloads=True)
    run_job(scene.job, options, on_round=after_round, is_enough=lambda _progress: is_enough())


def usable(attack: Attack[Any], seats: Sequence[Seat]) -> bool:
    """Whether who attacks can make it: with nothing but what they saw, and no lie."""
    alone = attack.share is None and not attack.own and not attack.asks_attributes and attack.lie is None
    return alone and set(attack.seats) <= set(seats)


class _Watcher:
    """Looks at one round after the other."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._onlooker = scene, Onlooker(scene.job)
        attacks = [attack for attack in attacks_on(scene.job.system) if usable(attack, scene.seats)]
        self._attacks = [attack for attack in attacks if attack.name in READERS]
        self._lone_rows = next((attack for attack in attacks if attack.name == LONE_ROWS), None)
        self._before: dict[str, Said] = {}

    def look(self, progress: Progress) -> Watched:
        """What there is to tell of a round."""
        self._onlooker.begin(progress)
        transcript, job = progress.transcript, self._scene.job
        seen = {type(one.message) for one in transcript.seen_by(*self._scene.seats)}
        sent = [
            Sent(one, num_bytes, type(one.message) in seen)
            for one, num_bytes in sent_by(transcript, self._scene.person, padding_of(job.config))
        ]
        said = [found for attack in self._attacks if (found := self._said(attack, progress.round_number))]
        return Watched(
            progress.round_number,
            sent,
            sorted(said, key=lambda one: (-round(one.f1_of_others, 3), not one.has_ratings)),
            _num_summed(transcript.recorded),
            self._unnamed(),
        )

    def _said(self, attack: Attack[Any], round_number: int) -> Said | None:
        """What an attack says of the person now, or said before and has no reason to take back; None: nothing."""
        job, person = self._scene.job, self._scene.person
        try:
            guess = self._onlooker.guess(attack)
        except HushrecError:  # it had nothing to read
            return self._before.get(attack.name)
        named = READERS[attack.name](guess, _own_of(job))
        own = named.of(person)
        if len(own.pairs):
            f1 = f1_of_others(named, job.train, person)
            self._before[attack.name] = Said(attack, own.items, own.ratings, round_number, f1)
        elif attack.only_last:  # it says something else now, which is nothing
            self._before.pop(attack.name, None)
        return self._before.get(attack.name)

    def _unnamed(self) -> Unnamed | None:
        if self._lone_rows is None:
            return None
        try:
            found = self._onlooker.guess(self._lone_rows)
        except HushrecError:
            return None
        read = np.concatenate([one.items[np.isfinite(one.ratings)] for one in found])
        return Unnamed(len(read), int(np.isin(read, self._scene.own_items).sum()))


def _own_of(job: Job) -> Own:
    """What all who attack know of a run."""
    no_draws = np.random.default_rng(0)  # readers draw nothing
    return Own(
        to_dict(job.config), {}, no_draws, num_items=job.train.num_items, rating_range=job.train.rating_range
    )


def f1_of_others(named: Named, train: Interactions, person: int) -> float:
    """Mean F1 of the items that are said to be the others', who have some; who is not spoken of counts 0."""
    num_own = np.bincount(train.users, minlength=train.num_users)
    owners = clients_of(named.pairs)
    num_named = np.bincount(owners, minlength=train.num_users)
    num_hits = np.bincount(owners, is_own(named.pairs, train), train.num_users)
    shares = 2 * num_hits / np.maximum(num_named + num_own, 1)
    is_other = num_own > 0
    is_other[person] = False
    return float(shares[is_other].mean()) if is_other.any() else 0.0


def _num_summed(recorded: Sequence[Recorded]) -> int:
    masked = [one.numbers for one in recorded if isinstance(one.message, MaskedNumbers)]
    return len(np.unique(np.concatenate(masked))) if masked else 0


# --- How right it is -------------------------------------------------------------------------------------------


class Marks(NamedTuple):
    """What an attack says of the person, held against the truth."""

    is_right: NDArray[np.bool_]  # of each item that is named
    is_exact: NDArray[np.bool_]  # whether its rating is right, too
    num_own: int

    @property
    def num_right(self) -> int:
        """Items that are the person's."""
        return int(self.is_right.sum())

    @property
    def num_wrong(self) -> int:
        """Items that are not."""
        return len(self.is_right) - self.num_right

    @property
    def num_exact(self) -> int:
        """Ratings that are read as they are."""
        return int(self.is_exact.sum())

    @property
    def precision(self) -> float | None:
        """The share of what is named that is right; None: nothing is named."""
        return self.num_right / len(self.is_right) if len(self.is_right) else None

    @property
    def recall(self) -> float:
        """The share of the person's items that is named."""
        return self.num_right / max(self.num_own, 1)


def marked(said: Said | None, scene: Scene) -> Marks:
    """Mark what is said as right or wrong."""
    own, ratings = scene.own_items, scene.own_ratings
    if said is None:
        nothing = np.empty(0, np.bool_)
        return Marks(nothing, nothing, len(own))
    is_right = np.isin(said.items, own)
    is_exact = np.zeros(len(said.items), np.bool_)
    if ratings is not None:
        places = np.searchsorted(own, said.items[is_right])
        is_exact[is_right] = np.abs(said.ratings[is_right] - ratings[places]) < _ALIKE
    return Marks(is_right, is_exact, len(own))


def verdict(watched: Watched, scene: Scene) -> tuple[str, str]:
    """A sentence, and how bad it is: "read", "some" or "nothing"; the truth only counts what is right."""
    who = "The server, with the denoisers," if scene.with_denoisers else "The server"
    said = watched.said[0] if watched.said else None
    marks = marked(said, scene)
    if said is None or not len(said.items):
        if watched.num_summed:
            has_unnamed = watched.unnamed is not None and watched.unnamed.num_read > 0
            what = "nothing under this person's name" if has_unnamed else "nothing of this person alone"
            return f"{who} saw only sums over {watched.num_summed:,} people: {what}.", "nothing"
        if any(type(one.message.message).sender == Role.DENOISER for one in watched.sent):
            told = "This person is a denoiser here, who lists no items of its own."
            return f"{told} {who} read nothing of it, by the attacks tried.", "nothing"
        return f"{who} read nothing of this person, by the attacks tried.", "nothing"
    own, wrong = marks.num_own, marks.num_wrong
    tone = "read" if marks.recall > 0.5 and (marks.precision or 0) > 0.5 else "some"
    if said.has_ratings:
        near = marks.num_right - marks.num_exact
        named = f" It named {near:,} more of this person's items, with another rating." if near else ""
        more = f" Of {wrong:,} more it is wrong." if wrong else ""
        return f"{who} read {marks.num_exact:,} of {own:,} ratings of this person.{named}{more}", tone
    if said.attack.name == "listed items" and wrong >= marks.num_right:
        return (
            f"{who} has a list of {len(said.items):,} items with {marks.num_right:,} of this person's {own:,} "
            "among them. Which these are, the attacks tried do not tell.",
            tone,
        )
    more = f", and {wrong:,} that are not this person's" if wrong else ""
    return f"{who} named {marks.num_right:,} of {own:,} items of this person{more}.", tone
