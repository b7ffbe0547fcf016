"""The audit of data owners: what the orchestrator, and who watches the wire, find out about interactions."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.audit.attacks.request_watching import Guesses, guess_all_pairs
from hushrec.audit.attacks.requests import answered, asked_for
from hushrec.audit.attacks.score_difference import follow, guess_by_directions, guess_by_scores
from hushrec.audit.attacks.wire_reading import Read, guess_positives, read_messages
from hushrec.audit.scoreboard import Finding, Headline, finding_of
from hushrec.data import Interactions
from hushrec.data.holdings.owners import owners_of, rows_of_owners
from hushrec.draws import Draws
from hushrec.protocol import Role
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job


class Marks(NamedTuple):
    """One for each guess: about whom it is, whether it is right, how probably a blind one would be."""

    victims: NDArray[np.int64]
    right: NDArray[Any]
    blind: NDArray[Any]


class Truth:
    """Who interacted with what, to mark guesses by."""

    def __init__(self, train: Interactions) -> None:
        self.owners, self.events = owners_of(train), rows_of_owners(train)
        self._num_items = train.num_items
        keys = self.events.users.astype(np.int64) * train.num_items + self.events.items
        self._keys, rows = np.unique(keys, return_index=True)
        self._is_positive = self.events.is_positive[rows]
        held = np.maximum(np.diff(self.events.held_starts), 1)
        self.is_held = np.diff(self.owners.starts) > 0  # of each item
        self.users: NDArray[np.int64] = self._keys // train.num_items  # of each interaction
        self.is_sent: NDArray[np.bool_] = self.is_held[self._keys % train.num_items]  # whether any owner gets it
        self.is_mostly_positive = bool(self._is_positive.mean() >= 0.5)
        self.mean_density = len(self._keys) / max(train.num_users * train.num_items, 1)
        is_usual = self._is_positive == self.is_mostly_positive
        self._density, self._usual = self._per_owner(None) / held, self._per_owner(is_usual) / held

    def _per_owner(self, weights: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """Interactions of each user with items of each owner."""
        row, owner = self.deliveries(self._keys % self._num_items)
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
        """For each guess its interaction, if there is one."""
        keys = guesses.users * self._num_items + guesses.items
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_there = (self._keys[places] == keys) & (guesses.items < self._num_items)
        return places, is_there

    def marks(self, guesses: Guesses, with_sign: bool = False) -> Marks:
        """Mark guesses by user. Blind: one of the owner's items, and the commoner sign."""
        places, is_right = self.find(guesses)
        if with_sign and guesses.is_positive is not None:
            is_right = is_right & (self._is_positive[places] == guesses.is_positive)
        density = self._usual if with_sign else self._density
        return Marks(guesses.users, is_right, density[guesses.users, guesses.owners])


@dataclass(frozen=True)
class View:
    """What was guessed in a round, and the truth."""

    truth: Truth
    pairs: Guesses  # from requests alone
    by_scores: Guesses
    by_directions: Guesses
    is_read: NDArray[np.bool_]  # of each interaction, whether it was ever guessed, with its sign
    read: Read
    is_positive: NDArray[np.int8]  # of each place of the messages that were read; -1: nothing is there


@dataclass(frozen=True)
class OwnerAttack(Headline):
    """One attack, with a mark for each guess."""

    mark: Callable[[View], Marks]
    sums_up: bool = False  # whether a guess is about all rounds so far, not about the last one


def _all_read(view: View) -> Marks:
    """Every interaction that an owner got. Blind: as many guesses, from all items."""
    users, is_sent = view.truth.users, view.truth.is_sent
    num_read = np.bincount(users, view.is_read, view.truth.events.num_users)
    blind = num_read / np.count_nonzero(view.truth.is_held)
    return Marks(users[is_sent], view.is_read[is_sent], blind[users[is_sent]])


def _flags(view: View) -> Marks:
    """Blind: the commoner sign for all."""
    batch = view.is_positive.size // max(len(view.read.owners), 1)
    is_there = view.is_positive >= 0
    truth = view.is_positive[is_there] == 1
    owners = np.repeat(view.read.owners, batch)[is_there]
    is_usual = truth == view.truth.is_mostly_positive
    return Marks(owners, guess_positives(view.read, batch).ravel()[is_there] == truth, is_usual)


def _bytes(view: View) -> Marks:
    """Blind: the density of interactions among all users and items."""
    read = view.read
    _, is_right = view.truth.find(Guesses(read.owners, read.users, read.items, None))
    return Marks(read.owners, is_right, np.full(len(read.owners), view.truth.mean_density))


ATTACKS = (
    OwnerAttack(
        "request watching", Role.ORCHESTRATOR, "that every user of a group had every item of it", "precision",
        "Taking every user and item whose vectors are asked for together for an interaction is right for "
        "{score:.1%} of the guesses about a user; a blind guess among the owner's items for {chance:.1%}.",
        lambda view: view.truth.marks(view.pairs),
    ),
    OwnerAttack(
        "score difference", Role.ORCHESTRATOR, "who had an item, by the largest change of a score", "precision",
        "Taking the user of a group whose score of an item moved most, as the report fears, is right for "
        "{score:.1%}; a blind guess for {chance:.1%}.",
        lambda view: view.truth.marks(view.by_scores),
    ),
    OwnerAttack(
        "gradient direction", Role.ORCHESTRATOR, "who had an item, by vectors that fit its gradient", "precision",
        "Taking the users whose vectors make up the gradient of an item is right for {score:.1%}; "
        "a blind guess for {chance:.1%}.",
        lambda view: view.truth.marks(view.by_directions),
    ),
    OwnerAttack(
        "gradient sign", Role.ORCHESTRATOR, "the same, and whether it was positive", "precision",
        "With the sign, which says whether it was positive, {score:.1%} are right; of blind guesses {chance:.1%}.",
        lambda view: view.truth.marks(view.by_directions, with_sign=True),
    ),
    OwnerAttack(
        "interactions read", Role.ORCHESTRATOR, "all interactions: user, item, whether positive", "recall",
        "What the threshold leaves open: the orchestrator has read {score:.1%} of a user's interactions, with "
        "their sign; as many blind guesses find {chance:.1%}. Only blocks learned from can be read.",
        _all_read, sums_up=True,
    ),
    OwnerAttack(
        "flag reading", Role.OBSERVER, "whether a message is positive", "share",
        "Who watches the wire knows for {score:.1%} of the messages of an owner whether they are positive; the "
        "commoner answer for all is right for {chance:.1%}. Without TLS, as in the report, it also sees all that "
        "the orchestrator sees; in a deployment interactions are sealed once more, and flags do not show.",
        _flags,
    ),
    OwnerAttack(
        "wire reading", Role.OBSERVER, "user and item of a message, as if it were plain", "precision",
        "A message, read as user and item, is right for {score:.1%}; a blind guess for {chance:.1%}.",
        _bytes,
    ),
)  # fmt: skip


@dataclass
class _Score:
    """What came of one attack so far."""

    totals: NDArray[np.float64]  # right, blind, number of guesses, by victim
    rounds: list[float | None] = field(default_factory=list)

    def add(self, marks: Marks, sums_up: bool) -> None:
        size = self.totals.shape[1]
        columns = (marks.right, marks.blind, np.ones(len(marks.victims)))
        now: NDArray[np.float64] = np.stack([np.bincount(marks.victims, column, size) for column in columns])
        self.totals = now if sums_up else self.totals + now
        has_any = now[2] > 0
        self.rounds.append(float((now[0, has_any] / now[2, has_any]).mean()) if has_any.any() else None)


class OwnerAudit:
    """Has every attack look after each round; messages are forgotten then."""

    def __init__(self, job: Job) -> None:
        self._job, self._plan, self._truth = job, job.config.plan, Truth(job.train)
        events, size = self._truth.events, max(job.train.num_users, len(self._truth.owners.names))
        self._scores = {attack.name: _Score(np.zeros((3, size))) for attack in ATTACKS}
        self._is_read = np.zeros(len(self._truth.users), np.bool_)
        self._num_windows = -(-len(events.users) // self._plan.window)
        self.num_groups = self.num_lone = self.num_users = 0  # groups, those with one user, users of all

    def look(self, progress: Progress) -> dict[str, float]:
        """Attack what was said in the last round; the mean scores."""
        transcript = progress.transcript
        seen, wire = transcript.seen_by(Role.ORCHESTRATOR), transcript.seen_by(Role.OBSERVER)
        transcript.recorded.clear()
        asked = asked_for(seen)
        moved = follow(asked, *answered(seen, asked), self._plan.learning_rate, self._plan.regularization)
        by_directions = guess_by_directions(moved)
        places, _ = self._truth.find(by_directions)
        self._is_read[places[self._truth.marks(by_directions, with_sign=True).right]] = True
        self.num_groups += len(asked.num_users)
        self.num_lone += int(np.count_nonzero(asked.num_users == 1))
        self.num_users += int(asked.num_users.sum())
        view = View(
            self._truth, guess_all_pairs(asked), guess_by_scores(moved), by_directions, self._is_read,
            read_messages(wire), self._sent(progress.round_number),
        )  # fmt: skip
        means = {}
        for attack in ATTACKS:
            score = self._scores[attack.name]
            score.add(attack.mark(view), attack.sums_up)
            if score.rounds[-1] is not None:
                means[f"{attack.name} {attack.measure}"] = score.rounds[-1]
        return means

    def _sent(self, round_number: int) -> NDArray[np.int8]:
        """Of a round's messages, owner after owner, whether each place is positive; -1: filled up."""
        plan, events = self._plan, self._truth.events
        part, batch = (round_number - 1) % plan.parts, plan.form.batch
        first, last = (self._num_windows * cut // plan.parts * plan.window for cut in (part, part + 1))
        event, owner = self._truth.deliveries(events.items[first:last])
        order = np.lexsort((event, owner))
        letters = owner[order].astype(np.int64) * self._num_windows + event[order] // plan.window
        _, starts, counts = np.unique(letters, return_index=True, return_counts=True)
        num_places = -(-counts // batch) * batch
        firsts = np.cumsum(num_places) - num_places
        is_positive = np.full(int(num_places.sum()), -1, np.int8)
        to = np.arange(len(order)) + np.repeat(firsts - starts, counts)
        is_positive[to] = events.is_positive[first:last][event[order]]
        return is_positive

    def findings(self) -> list[Finding]:
        """The scoreboard."""
        found = []
        for attack in ATTACKS:
            score = self._scores[attack.name]
            right, blind, number = score.totals[:, score.totals[2] > 0]
            if len(number):
                draws = Draws(self._job.seed)
                found.append(finding_of(attack, right / number, blind / number, score.rounds, draws))
        return found


@dataclass(frozen=True)
class ThresholdRow:
    """What one way to set the threshold leaves open."""

    theta: int
    threshold: str
    num_groups: int
    users_per_group: float
    one_user_share: float  # of groups
    scores: dict[str, float]  # by attack of the orchestrator; without those that had nothing to guess
    chances: dict[str, float]


def audit_threshold(
    job: Job, theta: int, threshold: str, options: RuntimeOptions, on_round: Callable[[Progress], None]
) -> ThresholdRow:
    """Train for one epoch with this threshold, and attack."""
    job = replace(job, config=replace(job.config, epochs=1, theta=theta, threshold=threshold))
    audit = OwnerAudit(job)

    def look(progress: Progress) -> None:
        audit.look(progress)
        on_round(progress)

    run_job(job, replace(options, keep_payloads=True), on_round=look)
    findings = [finding for finding in audit.findings() if finding.attack.role == Role.ORCHESTRATOR]
    return ThresholdRow(
        theta, threshold, audit.num_groups, audit.num_users / max(audit.num_groups, 1),
        audit.num_lone / max(audit.num_groups, 1),
        {finding.attack.name: finding.score for finding in findings},
        {finding.attack.name: finding.chance for finding in findings},
    )  # fmt: skip
