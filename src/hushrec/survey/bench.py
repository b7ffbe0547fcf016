"""One system of a comparison: its published settings and its repairs, each trained, measured and audited."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from hushrec.data import Interactions
from hushrec.errors import DivergedError, HushrecError
from hushrec.protocol import DRIVING, AnySystem
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings, settings_for, splits_for
from hushrec.runs.suiting import Plan, by_data, plan_for, trained
from hushrec.runs.trials import main_metric, trials_of_run
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.settings import switches_of
from hushrec.survey.looking import looks, with_fewer_users
from hushrec.survey.record import Row
from hushrec.tuning.bench import Outcome

_ONE_THREAD = RuntimeOptions(threads=1)
_COST_USERS = 1000  # of so many at most a round is made in full, to see what it costs
_WARM_UP_USERS = 60

OnRow = Callable[[int, Row], bool]


@dataclass(frozen=True)
class Order:
    """A system to be measured, and the rows of it that are known already."""

    system: str
    known: tuple[Row, ...] = ()

    def repairs(self) -> list[Mapping[str, Any]]:
        """The sets of settings of its rows, the published first."""
        return [{}, *system_named(self.system).about.repairs]


@dataclass(frozen=True)
class Bench:
    """Where rows are made, in whichever process."""

    data: Interactions
    seed: int = 0
    audit_users: int = 200
    audit_rounds: int | None = None  # None: as many as each system declares
    budget_seconds: float = 300.0  # of CPU, for a training and again for an audit

    def make(self, order: Order, on_row: OnRow) -> Outcome:
        """Make the rows that are missing, and tell each when it is done."""
        started, known = time.process_time(), {row.key: row for row in order.known}
        published = known.get((order.system, ""))
        for number, values in enumerate(order.repairs()):
            if (order.system, switches_of(values)) in known:
                continue
            row = self._row(order.system, values, published)
            published = published or row
            on_row(number, row)
        return Outcome({}, seconds=time.process_time() - started)

    def _row(self, name: str, values: Mapping[str, Any], published: Row | None) -> Row:
        """One row; what cannot be had says why."""
        system, started = system_named(name), time.process_time()
        empty = Row(
            name, system.about.title.partition(":")[0], switches_of(values), dict(values),
            has_all_rows=system.about.hands_over_data, has_repair=bool(system.about.repairs),
        )  # fmt: skip
        try:
            if published is not None and published.fault:
                raise HushrecError("as with the published settings")
            row = _Making(self, system, values, published).row(empty)
        except HushrecError as error:
            row = replace(empty, fault=str(error))
        return replace(row, spent_seconds=time.process_time() - started)


@dataclass(frozen=True)
class _Making:
    """The making of a row."""

    bench: Bench
    system: AnySystem
    values: Mapping[str, Any]
    published: Row | None
    left_out: list[str] = field(default_factory=list)

    def row(self, empty: Row) -> Row:
        """Train, measure, count, audit."""
        done = self._trained()
        row = self._measured(empty, done)
        config = self._without_stand_in(done)
        row = replace(row, cpu_seconds=self._cost(done, config))
        if not self.system.about.hands_over_data:
            num_rounds = self.bench.audit_rounds or self.system.about.audited_rounds
            data = self._drawn(self.bench.audit_users)
            found = looks(self._job(data, config), data.num_users, num_rounds, self.bench.budget_seconds)
            row = replace(
                row, server=found.server, others=found.others, together=found.together, active=found.active
            )
            self.left_out.extend(found.left_out)
        return replace(row, left_out=list(self.left_out))

    def _settings(self, data: Interactions) -> RunSettings:
        return settings_for(self.system, self.bench.seed, data=data, min_raters=None)

    def _named(self) -> dict[str, Any]:
        """The settings that are not left to choose: of a repair, what was chosen for the published row, too."""
        chosen = self.published.settings if self.published is not None else {}
        return {**chosen, **self.values}

    # --- Training ---------------------------------------------------------------------------------------

    def _trained(self) -> Run:
        system, data = self.system, self.bench.data
        settings = self._settings(data)
        system.configure(self.values)  # for what it refuses
        plan = self._plan()
        if plan.stops_early and self._seconds_per_round(plan) * plan.config.num_rounds > self.bench.budget_seconds:
            self.left_out.append("the rounds were not chosen on a validation part: that takes too long")
            plan = replace(plan, stops_early=False)

        def train(ready: Plan) -> Run:
            end = time.process_time() + self.bench.budget_seconds
            done = run(
                system, ready.config, data, settings, _ONE_THREAD, chosen=ready.chosen,
                is_enough=lambda progress: progress.round_number > 0 and time.process_time() > end,
            )  # fmt: skip
            if done.folds[0].num_rounds < ready.config.num_rounds:
                self.left_out.append(
                    f"trained for {done.folds[0].num_rounds} of {ready.config.num_rounds} rounds: "
                    f"{self.bench.budget_seconds:.0f} s were over"
                )
            return done

        trials = trials_of_run(system, plan.config, data, settings, _ONE_THREAD, None, False, _unwatched)
        return trained(plan, trials, train, lambda _line: None)

    def _plan(self) -> Plan:
        about = self.system.about
        stand_in = {name: value for name, value in about.stand_in.items() if name not in self.values}
        return plan_for(self.system, {**self._named(), **stand_in}, self.bench.data.name)

    def _seconds_per_round(self, plan: Plan) -> float:
        data, system = self.bench.data, self.system
        split = next(splits_for(system, data, self._settings(data), plan.config))
        job = Job(system, plan.config, self.bench.seed, split.train)
        return min(_one_round(job), _one_round(job))  # the first may have compiled something

    def _measured(self, empty: Row, done: Run) -> Row:
        """Accuracy and bytes of a run; its settings are those that make it again with nothing left to choose."""
        fold, system = done.folds[0], self.system
        metric = main_metric(system, done.at)
        if metric not in fold.metrics:
            raise DivergedError(f"{metric} cannot be measured on {done.data}")
        each = max(1, fold.num_rounds) * (1 if system.holders.traffic_per is None else max(1, done.num_parties))
        up = sum(count.bytes for count in fold.messages if count.sender not in DRIVING)
        chosen = {choice.setting: choice.value for choice in done.chosen}
        return replace(
            empty,
            settings={**chosen, **self._named()},
            metric=metric,
            accuracy=fold.metrics[metric],
            split=done.provenance.split,
            num_rounds=fold.num_rounds,
            up_bytes=up / each,
            down_bytes=(sum(count.bytes for count in fold.messages) - up) / each,
            per="round" if system.holders.traffic_per is None else f"{done.party_name} and round",
            model_sha256=fold.model_sha256,
        )

    # --- Costs ------------------------------------------------------------------------------------------

    def _without_stand_in(self, done: Run) -> Any:
        """The settings of a run, as they would be outside of a comparison."""
        chosen = {choice.setting: choice.value for choice in done.chosen}
        named, _ = by_data(self.system, {**chosen, **self._named()}, self.bench.data.name)
        return self.system.configure(named)

    def _cost(self, done: Run, config: Any) -> float:
        """CPU time per party and round; where the run had stand-ins, that of a round without them."""
        system, fold = self.system, done.folds[0]
        each = 1 if system.holders.traffic_per is None else max(1, done.num_parties)
        real = system.in_full(config)
        if real == system.configure(done.config):
            return fold.cpu_seconds / max(1, fold.num_rounds) / each
        _one_round(self._job(self._drawn(_WARM_UP_USERS), real))
        job = self._job(self._drawn(_COST_USERS), real)
        num_parties = 1 if system.holders.traffic_per is None else system.holders.num_parties(job.train)
        return _one_round(job) / max(1, num_parties)

    def _drawn(self, num_users: int) -> Interactions:
        return with_fewer_users(self.bench.data, num_users, self.bench.seed)

    def _job(self, data: Interactions, config: Any) -> Job:
        settings = self._settings(data)
        return Job(
            self.system, config, self.bench.seed, next(splits_for(self.system, data, settings, config)).train
        )


def _unwatched(_label: str, _num_rounds: int, _num_folds: int) -> AbstractContextManager[None]:
    return nullcontext()


def _one_round(job: Job) -> float:
    """The CPU time of the first round."""
    done = run_job(job, _ONE_THREAD, is_enough=lambda progress: progress.round_number > 0)
    return float(done.cpu_seconds)
