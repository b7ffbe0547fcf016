"""The driver of audits: a run in which every attack that applies looks at each round.

Attacks get what their seats saw, cut from the transcript, and what the attacker itself has. Messages are kept no
longer than the attacks look at them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hushrec.audit.attacks import ATTACKS, attacks_on
from hushrec.audit.colluders import seated, usable_by
from hushrec.audit.lying import Liar, bare_name, with_guarded
from hushrec.audit.scoreboard import Arrays, Attack, Finding, Lie, Own, Score, Truth
from hushrec.audit.verdicts import strongest_first
from hushrec.data.user_facts import user_facts
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import DRIVING, Numbers, Role, Scorer, Seat, View
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.rounds import IsEnough
from hushrec.runtime.training import Job, run_job
from hushrec.settings import shown_to_parties, to_dict

_NO_ARRAYS: Arrays = {}
OnLook = Callable[[Progress, Mapping[str, float]], None]


@dataclass(frozen=True)
class Found:
    """What came of the attacks."""

    findings: list[Finding]  # the strongest first
    left_out: dict[str, str]  # attacks that found nothing, and why

    @classmethod
    def of(cls, scores: Sequence[Score], seed: int) -> "Found":
        """What came of all rounds so far."""
        findings = {score.attack.name: score.finding(Draws(seed)) for score in scores}
        return cls(
            strongest_first([finding for finding in findings.values() if finding is not None]),
            {score.attack.name: score.fault for score in scores if findings[score.attack.name] is None},
        )


@dataclass(frozen=True)
class Audited(Found):
    """A run, and what came of the attacks on it."""

    progress: Progress


class AuditInterruptedError(KeyboardInterrupt):
    """An audit that was interrupted, with what it had found."""

    def __init__(self, scores: Sequence[Score], seed: int) -> None:
        super().__init__()
        self.found = Found.of(scores, seed)
        self.num_rounds = max((len(score.rounds) for score in scores), default=0)
        # Attacks to which the last of these rounds was not shown any more.
        self.behind = [score.attack.name for score in scores if len(score.rounds) < self.num_rounds]


def audit(
    job: Job,
    options: RuntimeOptions,
    on_look: OnLook,
    attacks: Sequence[Attack[Any]] | None = None,
    colluders: Sequence[Role] = (),
    is_enough: IsEnough | None = None,
) -> Audited:
    """Train, and have attacks look at each round: those given, or all that apply.

    With `colluders`, those attacks that they can make, on all that they saw together; an active server's lies are
    told to bare handlers, and to nodes with a guard. It ends with the last round, or when it is enough. `on_look`
    gets the mean scores of a round, while its messages are still there. An attack that is not ours may fail in any
    way: that is noted, and the others go on. An interrupt keeps what was found, and is raised again as
    `AuditInterruptedError`.
    """
    if attacks is None:
        attacks = attacks_on(job.system, Role.ACTIVE_SERVER in colluders)
    chosen = usable_by(attacks, colluders)
    if Role.ACTIVE_SERVER in colluders:
        chosen = with_guarded(chosen)
    liar = Liar(job) if any(attack.lie is not None for attack in chosen) else None
    scores, onlooker = [Score(attack) for attack in chosen], Onlooker(job, liar)
    without_seats = set(scores) if colluders else set()

    def look(score: Score) -> None:
        try:
            if score in without_seats:
                score.attack = onlooker.seated(score.attack, colluders)
                without_seats.remove(score)
            score.is_of_stand_in |= onlooker.has_stand_in(score.attack)
            guess = onlooker.guess(score.attack)
            score.refusal = onlooker.refusal(score.attack)
            score.add(score.attack.judge(guess, onlooker.truth()))
        except HushrecError as error:
            score.fail(str(error))
        except Exception as error:
            if ATTACKS.is_built_in(bare_name(score.attack.name)):
                raise
            score.fail(" ".join(f"{type(error).__name__}: {error}".split()))

    def after_round(progress: Progress) -> None:
        onlooker.begin(progress)
        # As while training: bits do not depend on the number of cores. Most matrices are too small to share, too.
        with threadpool_limits(1, user_api="blas"):
            for score in scores:
                look(score)
        now = {f"{score.attack.name} {score.attack.measure}": score.rounds[-1] for score in scores}
        on_look(progress, {name: mean for name, mean in now.items() if mean is not None})
        progress.transcript.forget()

    try:
        progress = run_job(job, replace(options, keep_payloads=True), on_round=after_round, is_enough=is_enough)
    except KeyboardInterrupt:
        raise AuditInterruptedError(scores, job.seed) from None
    found = Found.of(scores, job.seed)
    return Audited(found.findings, found.left_out, progress)


class Onlooker:
    """Cuts views from the transcript, and has each way to look at them used once a round."""

    def __init__(self, job: Job, liar: Liar | None = None) -> None:
        self._job, self._draws, self._liar = job, Draws(job.seed), liar
        self._attributes = user_facts(job.train)
        self._memory: dict[object, Any] = {}
        self._views: dict[tuple[Seat, ...], View] = {}
        self._held: dict[int, Arrays] = {}
        self._now: dict[object, Any] = {}
        self._scorer: Scorer | None = None

    def begin(self, progress: Progress) -> None:
        """Start on the messages of a new round."""
        self._progress = progress
        if self._liar is not None:
            self._liar.begin(progress)
        for of_last_round in (self._views, self._held, self._now):
            of_last_round.clear()
        self._scorer = None

    def seated(self, attack: Attack[Any], colluders: Sequence[Role]) -> Attack[Any]:
        """An attack by all of these; who of a role they are is drawn from those who took part in the round."""
        return seated(attack, colluders, self._progress.transcript.recorded, self._draws)

    def has_stand_in(self, attack: Attack[Any]) -> bool:
        """Whether it reads messages of the round that stand for encrypted ones."""
        return any(
            attack.reads(type(one.message)) and one.message.missing_bytes(len(one.numbers)) > 0
            for one in self._progress.transcript.recorded
        )

    def guess(self, attack: Attack[Any]) -> Any:
        """What an attack makes of the round."""
        seats = self._seats(attack)
        way = (attack.look, seats, attack.own, attack.lie)
        if way not in self._now:
            try:
                own = self._own(attack, seats)
                view = self._view(seats) if attack.lie is None else self._lied(attack.lie, seats, own)
                self._now[way] = attack.look(self._memory.get(way), view, own)
                self._memory[way] = self._now[way]
            except HushrecError as error:
                self._now[way] = error
        if isinstance(self._now[way], HushrecError):
            raise self._now[way]
        return self._now[way]

    def refusal(self, attack: Attack[Any]) -> str:
        """What parties said who refused to answer the lie of an attack; empty: nobody did."""
        return "" if attack.lie is None or self._liar is None else self._liar.refusals.get(attack.lie, "")

    def truth(self) -> Truth:
        """What the guesses of the round are scored by."""
        job = self._job
        truth = Truth(job.train, to_dict(job.config), self._progress.round_number, self._holds)
        truth = truth._replace(attributes=self._attributes)
        has_model = job.system.result.server is not None
        return truth._replace(server_scores=self._server_scores) if has_model else truth

    def _seats(self, attack: Attack[Any]) -> tuple[Seat, ...]:
        """Where it sits. Those who collude are the same in every round; a larger share has those of a smaller."""
        if attack.share is None:
            return attack.seats
        num_parties = self._job.system.holders.num_parties(self._job.train)
        order = self._draws.generator("attack-colluders").permutation(num_parties)
        drawn = np.sort(order[: max(round(attack.share * num_parties), 1)])
        return tuple(Seat(attack.seats[0].role, number) for number in drawn.tolist())

    def _view(self, seats: tuple[Seat, ...]) -> View:
        if seats not in self._views:
            self._views[seats] = self._progress.transcript.seen_by(*seats)
        return self._views[seats]

    def _lied(self, lie: Lie, seats: tuple[Seat, ...], own: Own) -> View:
        """What is seen of a lie to copies of the parties."""
        if self._liar is None:
            raise HushrecError(
                "an active server's attack needs somebody who lies; audit it by hushrec.audit.driver"
            )
        return self._liar.told(lie, self._view(seats), own).seen_by(*seats)

    def _own(self, attack: Attack[Any], seats: tuple[Seat, ...]) -> Own:
        config = self._job.config
        is_driving = any(seat.role in DRIVING for seat in seats)
        holds: Arrays = {}
        each: dict[int, Arrays] = {}
        if attack.share is not None:
            each = {seat.number: self._declared(attack, seat) for seat in seats if seat.number is not None}
        elif attack.own:
            holds = self._declared(attack, seats[0])
            alike = [seat for seat in seats if seat.role == seats[0].role and seat.number is not None]
            each = {seat.number: self._declared(attack, seat) for seat in alike if seat.number is not None}
        generator = self._draws.generator(f"attack-{attack.name}", self._progress.round_number)
        settings, train = to_dict(config) if is_driving else shown_to_parties(config), self._job.train
        own = Own(settings, holds, generator, each, _NO_ARRAYS, train.num_items, train.rating_range)
        return own._replace(attributes=self._known_half()) if attack.asks_attributes else own

    def _known_half(self) -> Arrays:
        """The attributes of half of the users, the same in every round; "" of the others."""
        is_known = self._draws.generator("attack-attributes").permutation(self._job.train.num_users) % 2 == 0
        return {name: np.where(is_known, column, "") for name, column in self._attributes.items()}

    def _declared(self, attack: Attack[Any], seat: Seat) -> Arrays:
        """What a party has of what an attack declares."""
        assert seat.number is not None  # an attack without it cannot be made
        known = self._holds(seat.number)
        if missing := set(attack.own) - known.keys():
            raise HushrecError(f"the attacker has no {', '.join(sorted(missing))} in this system")
        return {name: known[name] for name in attack.own}

    def _holds(self, number: int) -> Arrays:
        holds = self._job.system.result.holds
        if number not in self._held:
            self._held[number] = {} if holds is None else holds(self._progress.private, self._job.config, number)
        return self._held[number]

    def _server_scores(self, users: Numbers) -> NDArray[np.float32]:
        job, server = self._job, self._job.system.result.server
        if self._scorer is None:
            assert server is not None
            self._scorer = server(self._progress.state, job.config, job.train.rating_range)
        return self._scorer.score(users)
