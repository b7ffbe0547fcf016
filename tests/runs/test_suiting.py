"""What is chosen for data of no paper: by whom, on which rows, and that it can be had again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions, k_folds
from hushrec.errors import DivergedError, HushrecError
from hushrec.experiments.published import tables
from hushrec.protocol import AnySystem, Transcript
from hushrec.registry import SYSTEMS, system_named
from hushrec.runs.folds import run
from hushrec.runs.record import Choice, Run, read_run
from hushrec.runs.run_settings import RunSettings, settings_for
from hushrec.runs.suiting import Plan, by_data, plan_for, plan_of_run, run_suited, stopped_at_best, trained
from hushrec.runs.trials import best_point, is_past_its_best, length_until, main_metric, trials_of_run
from hushrec.runs.watching import FoldProgress, Watch
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import to_dict

DATA = "synthetic:users=80,items=50,ratings=1500"
ONE_THREAD = RuntimeOptions(threads=1)
SMALL = {"num_factors": 5}


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load(DATA)


def with_general(name: str = "fedrec", **general: Any) -> AnySystem:
    """A system that has settings for data of no paper."""
    system = SYSTEMS[name]
    return replace(system, about=replace(system.about, presets={"paper": {}, "general": general}))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> AnySystem:
    """FedRec with such settings, found by its name; the training is past its best after some rounds."""
    found = with_general(num_rounds=40, regularization=0.002)
    monkeypatch.setitem(SYSTEMS._loaded, "fedrec", found)
    return found


class StopError(Exception):
    """Somebody presses Ctrl-C."""


class Counted:
    """Watches all trainings of a run, and stops it at a round, counted over all of them."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.num_rounds, self.stop_at, self.labels = 0, stop_at, list[str]()

    @contextmanager
    def watching(self, label: str, _num_rounds: int, _num_folds: int) -> Iterator[Watch]:
        self.labels.append(label)

        def watch(_now: FoldProgress) -> None:
            self.num_rounds += 1
            if self.num_rounds == self.stop_at:
                raise StopError

        yield watch


def suited(
    system: AnySystem,
    data: Interactions,
    values: dict[str, Any] | None = None,
    folder: Path | None = None,
    resume: bool = False,
    counted: Counted | None = None,
    told: list[str] | None = None,
    stop_early: bool | None = None,
    **settings: Any,
) -> Run:
    """A run in which what nobody named is chosen."""
    chosen = replace(settings_for(system, data=data), **settings)
    plan = plan_of_run(system, values if values is not None else SMALL, data, chosen, stop_early, folder, resume)
    watching, lines = (counted or Counted()).watching, told if told is not None else list[str]()
    return run_suited(plan, data, chosen, ONE_THREAD, folder, resume, watching, lines.append)


def timeless(done: Run) -> dict[str, Any]:
    """All that is the same in a run and in its like."""
    folds = [(fold.metrics, fold.model_sha256, fold.clients_sha256, fold.curve) for fold in done.folds]
    return {"config": done.config, "chosen": done.chosen, "folds": folds}


# --- Presets -----------------------------------------------------------------------------------------------


def test_data_of_no_paper_gets_the_general_preset_and_a_line_says_so() -> None:
    system = with_general(decay=0.99)
    system = replace(system, about=replace(system.about, published_on=("ml-100k",)))
    values, (choice,) = by_data(system, {"rho": 1}, "ratings.csv")
    assert values == {"preset": "general", "rho": 1}
    assert choice.why == (
        "preset general: ratings.csv is in no published table of fedrec; preset='paper' has the paper's settings"
    )
    assert choice.flag == "--preset general"
    assert by_data(system, {"rho": 1}, "ml-100k") == ({"rho": 1}, ())
    assert by_data(system, {"preset": "paper"}, "ratings.csv") == ({"preset": "paper"}, ())
    assert by_data(SYSTEMS["neucf"], {}, "ratings.csv") == ({}, ())


def test_what_was_named_wins_over_the_preset() -> None:
    system = with_general(decay=0.99, rho=0)
    plan = plan_for(system, {"decay": 0.5}, "ratings.csv")
    assert (plan.config.decay, plan.config.rho) == (0.5, 0)


def test_all_published_tables_are_on_data_that_keep_the_papers_settings() -> None:
    rows = [row for table in tables().values() for row in table.rows]
    assert len(rows) > 100
    for row in rows:
        assert row.data in system_named(row.system).about.published_on, (row.system, row.data)


@pytest.mark.parametrize(
    ("values", "wished", "stops"),
    [
        ({}, None, True),
        ({"preset": "general"}, None, True),
        ({"preset": "paper"}, None, False),
        ({"num_rounds": 7}, None, False),
        ({"num_rounds": 7}, True, True),
        ({}, False, False),
        ({"preset": "paper"}, True, True),
    ],
)
def test_the_general_preset_stops_early_unless_told(
    values: dict[str, Any], wished: bool | None, stops: bool
) -> None:
    assert plan_for(with_general(decay=0.99), values, "ratings.csv", wished).stops_early == stops


@pytest.mark.parametrize(
    ("name", "values", "is_free"),
    [
        ("fedrec", {}, True),
        ("fedrec", {"rho": 1}, True),
        ("fedrec", {"learning_rate": 0.8}, False),
        ("fedrec", {"preset": "general"}, False),
        ("average", {}, False),
        ("ptf-fedrec", {}, False),  # it has two
        ("fedcore", {}, False),  # 0 stands for one that the model has
    ],
)
def test_a_learning_rate_is_free_unless_it_was_named(name: str, values: dict[str, Any], is_free: bool) -> None:
    system = with_general() if name == "fedrec" else SYSTEMS[name]
    assert plan_for(system, values, "ratings.csv").has_free_rate == is_free


def progress_with(curve: Any) -> Progress:
    """A training of which only the curve is looked at."""
    return Progress(None, None, Transcript(False), curve=curve)


# --- When to stop ------------------------------------------------------------------------------------------


def test_the_metric_is_rmse_or_the_longest_list() -> None:
    assert main_metric(SYSTEMS["fedrec"], (10,)) == "RMSE"
    assert main_metric(SYSTEMS["lightgcn"], (5, 20, 10)) == "NDCG@20"
    assert main_metric(SYSTEMS["drift"], (1, 5)) == "NDCG@5"
    assert best_point([np.nan, 0.2, 0.1], "RMSE") == 2
    assert best_point([np.nan, 0.2, 0.1], "NDCG@10") == 1


@pytest.mark.parametrize(("num_rounds", "patience"), [(60, 10), (300, 30)])
def test_a_training_is_past_its_best_after_some_patience(num_rounds: int, patience: int) -> None:
    """Of explicit feedback a row is MAE and RMSE; the best RMSE is the fourth, MAE falls for ever."""
    system = SYSTEMS["fedrec"]
    is_enough = is_past_its_best(system, system.configure({"num_rounds": num_rounds}), (10,))
    rmse = [1.2, 1.1, 1.0, 0.9] + [0.95 - place / 1e4 for place in range(40)]
    rows = np.array([(-place, value) for place, value in enumerate(rmse)])
    ends = [is_enough(progress_with(rows[:length] if length else None)) for length in range(len(rows) + 1)]
    assert ends.index(True) == 4 + patience
    assert all(ends[4 + patience :])


def test_a_training_that_has_not_begun_to_learn_goes_on() -> None:
    """While every prediction lies below the scale and is clipped, the error stays exactly the same."""
    system = SYSTEMS["fedrec"]
    is_enough, flat = is_past_its_best(system, system.config(), (10,)), np.ones((30, 2))
    assert not is_enough(progress_with(flat))
    worse = np.concatenate([flat, np.full((10, 2), 1.1)])
    assert [is_enough(progress_with(worse[:length])) for length in (39, 40)] == [False, True]


def test_rarely_measured_systems_count_in_epochs() -> None:
    """DRIFT is measured after every epoch, here of four rounds."""
    system = SYSTEMS["drift"]
    config = system.configure({"epochs": 12, "parts": 4})
    choice = stopped_at_best(system, config, [0.1, 0.3, 0.2], "NDCG@20")
    assert (choice.setting, choice.value, choice.flag) == ("epochs", 2, "--epochs 2")
    assert choice.why == (
        "2 epochs: the best NDCG@20 on a validation part, 0.3000, of 3 measured; epochs=2 fixes it"
    )
    assert stopped_at_best(system, config, [0.1], "NDCG@20").why.startswith("1 epoch: the best")
    is_enough, falling = is_past_its_best(system, config, (20,)), np.tile(-np.arange(11.0)[:, None], 6)
    assert [is_enough(progress_with(falling[:length])) for length in (10, 11)] == [False, True]
    assert length_until(SYSTEMS["fedrec"], SYSTEMS["fedrec"].config(), 3) == 3


def test_rounds_are_those_that_were_best_and_the_run_is_that_of_the_flags(
    system: AnySystem, data: Interactions
) -> None:
    told, counted = list[str](), Counted()
    done = suited(system, data, told=told, counted=counted)
    rounds = done.config["num_rounds"]
    # On the training part of the first fold, split once more:
    validated = run(
        system,
        system.configure(SMALL | {"preset": "general"}),
        data,
        RunSettings(measure="validation"),
        ONE_THREAD,
    )
    curve = validated.folds[0].curve["RMSE"]
    assert rounds == curve.index(min(curve)) + 1 < 30
    assert counted.labels == ["fedrec, validation", "fedrec"]
    assert counted.num_rounds == rounds + 10 + rounds  # and no longer than its patience
    assert [choice.flag for choice in done.chosen] == ["--preset general", f"--rounds {rounds}"]
    assert told == [done.chosen[1].why]
    assert told[0] == (
        f"{rounds} rounds: the best RMSE on a validation part, {min(curve):.4f}, of {rounds + 10} measured; "
        f"num_rounds={rounds} fixes it"
    )
    plain = suited(system, data, SMALL | {"preset": "general", "num_rounds": rounds})
    assert plain.chosen == ()
    assert timeless(plain) == timeless(done) | {"chosen": ()}


def test_no_test_row_has_a_say(system: AnySystem, data: Interactions) -> None:
    """With other test ratings the same rounds are chosen and the same model is learned; only metrics differ."""
    fold = next(k_folds(data))
    pairs = set(zip(fold.test.users.tolist(), fold.test.items.tolist(), strict=True))
    is_test = np.array([pair in pairs for pair in zip(data.users.tolist(), data.items.tolist(), strict=True)])
    assert data.ratings is not None
    other = replace(data, ratings=np.where(is_test, 6 - data.ratings, data.ratings).astype(np.float32))
    one, two = suited(system, data), suited(system, other)
    assert one.chosen == two.chosen
    assert one.folds[0].model_sha256 == two.folds[0].model_sha256
    assert one.mean["RMSE"] != two.mean["RMSE"]


@pytest.mark.parametrize("name", ["lightgcn", "drift", "fedcore", "average"])
def test_every_kind_of_system_can_stop_early(name: str, data: Interactions) -> None:
    small = dict(SYSTEMS[name].about.small) | ({} if name in ("drift", "average") else {"num_rounds": 3})
    done = suited(SYSTEMS[name], data, small, stop_early=True)
    *_, choice = done.chosen
    assert done.config[choice.setting] == choice.value >= 1
    assert done.folds[0].metrics


def test_what_cannot_be_measured_trains_all_rounds(system: AnySystem) -> None:
    """Two ratings of two people: what is held back leaves nothing to measure on."""
    few = hushrec.load(DATA)
    few = few.select(np.isin(np.arange(len(few)), [0, len(few) - 1]))
    told = list[str]()
    plan = plan_for(system, SMALL | {"num_rounds": 2}, "few.csv", True)
    trials = trials_of_run(
        system, plan.config, few, RunSettings(split="random"), ONE_THREAD, None, False, Counted().watching
    )
    assert not trials.can_measure
    assert trained(plan, trials, lambda ready: ready, told.append) == plan
    assert told == ["all rounds are trained: no part of the data can be held back to choose their number"]


def test_a_validation_part_is_not_chosen_by_and_measured(system: AnySystem, data: Interactions) -> None:
    with pytest.raises(HushrecError, match="--measure validation measures what --stop-early would choose by"):
        suited(system, data, stop_early=True, measure="validation")
    done = suited(system, data, measure="validation")
    assert done.config["num_rounds"] == 40
    assert [choice.setting for choice in done.chosen] == ["preset"]
    with pytest.raises(DivergedError, match="diverges"):
        suited(with_general(num_rounds=20, learning_rate=40.0), data, measure="validation")


# --- Interruptions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.7, 0.9, 1.0])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    share: float, system: AnySystem, data: Interactions, tmp_path: Path
) -> None:
    """In the trial, between it and the training, and in the training."""
    whole = Counted()
    expected = suited(system, data, counted=whole)
    stop_at = 1 + round(share * (whole.num_rounds - 1))
    with pytest.raises(StopError):
        suited(system, data, folder=tmp_path / "run", counted=Counted(stop_at))
    with pytest.raises(HushrecError, match="holds a run already; add --resume"):
        suited(system, data, folder=tmp_path / "run")
    rest = Counted()
    done = suited(system, data, folder=tmp_path / "run", resume=True, counted=rest)
    assert timeless(done) == timeless(expected)
    assert timeless(read_run(tmp_path / "run")) == timeless(expected)
    assert rest.num_rounds == whole.num_rounds - stop_at + 1  # no finished round is run again
    again = Counted()
    assert timeless(suited(system, data, folder=tmp_path / "run", resume=True, counted=again)) == timeless(done)
    assert again.num_rounds == 0


def test_a_run_goes_on_as_it_began_and_not_otherwise(
    system: AnySystem, data: Interactions, tmp_path: Path
) -> None:
    done = suited(system, data, folder=tmp_path)
    rounds = done.config["num_rounds"]
    with pytest.raises(HushrecError, match=f"holds a run with num_rounds {rounds}, not 3"):
        suited(system, data, SMALL | {"num_rounds": 3}, tmp_path, resume=True)
    with pytest.raises(HushrecError, match=f"holds a run with num_rounds {rounds}, not 40"):
        suited(system, data, folder=tmp_path, resume=True, stop_early=False)
    with pytest.raises(HushrecError, match=r"holds a run with regularization 0\.002, not 0\.001"):
        suited(system, data, SMALL | {"preset": "paper"}, tmp_path, resume=True)


def test_a_run_from_before_there_was_a_choice_goes_on(
    system: AnySystem, data: Interactions, tmp_path: Path
) -> None:
    config = system.configure(SMALL | {"num_rounds": 3})
    begun = run(system, config, data, RunSettings(), ONE_THREAD, tmp_path)
    assert suited(system, data, SMALL | {"num_rounds": 3}, tmp_path, resume=True).config == begun.config
    with pytest.raises(HushrecError, match="holds a run without --stop-early; leave it out"):
        suited(system, data, SMALL | {"num_rounds": 3}, tmp_path, resume=True, stop_early=True)


def test_a_folder_that_holds_something_else_stays_as_it_is(
    system: AnySystem, data: Interactions, tmp_path: Path
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(HushrecError, match="holds something that is not a run"):
        suited(system, data, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


# --- Learning rates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_early", [True, False])
def test_a_rate_that_diverges_is_halved_until_it_learns(
    stop_early: bool, data: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = with_general(num_rounds=20, learning_rate=40.0)
    monkeypatch.setitem(SYSTEMS._loaded, "fedrec", system)
    told = list[str]()
    done = suited(system, data, folder=tmp_path, told=told, stop_early=stop_early)
    rate = done.config["learning_rate"]
    assert rate in [40 / 2**halvings for halvings in range(1, 11)]
    assert done.mean["RMSE"] < 1.1
    assert told[0] == (
        f"learning rate 40 diverges on {data.name}; {rate:g} was found on a validation part; "
        "learning_rate= fixes it"
    )
    assert len(told) == 1 + stop_early
    settings = ["preset", "learning_rate", *(["num_rounds"] if stop_early else [])]
    assert [choice.setting for choice in done.chosen] == settings
    flags = {choice.setting: choice.value for choice in done.chosen}
    plain = suited(system, data, SMALL | flags, stop_early=False)
    assert timeless(plain) == timeless(done) | {"chosen": ()}
    assert {path.name for path in tmp_path.iterdir()} - {"validation"} == {
        ".lock",
        "fold-1",
        "rounds.jsonl",
        "run.json",
    }


@pytest.mark.parametrize("stop_at", [3, 15, 30, 50, 55])
@pytest.mark.parametrize("stop_early", [True, False])
def test_a_search_that_was_interrupted_ends_the_same(
    stop_at: int, stop_early: bool, data: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = with_general(num_rounds=20, learning_rate=40.0)
    monkeypatch.setitem(SYSTEMS._loaded, "fedrec", system)
    whole = Counted()
    expected = suited(system, data, counted=whole, stop_early=stop_early)
    assert whole.num_rounds > 55
    with pytest.raises(StopError):
        suited(system, data, folder=tmp_path, counted=Counted(stop_at), stop_early=stop_early)
    done = suited(system, data, folder=tmp_path, resume=True, stop_early=stop_early)
    assert timeless(done) == timeless(expected)


@pytest.mark.parametrize(
    "values", [{"learning_rate": 40.0}, {"preset": "general"}, {"preset": "paper", "learning_rate": 40.0}]
)
def test_a_rate_that_was_named_is_not_changed(values: dict[str, Any], data: Interactions) -> None:
    system = with_general(num_rounds=20, learning_rate=40.0)
    with pytest.raises(DivergedError, match="the training diverges: use a learning_rate= below 40"):
        suited(system, data, SMALL | values)


def test_where_no_rate_learns_the_error_stays(data: Interactions, tmp_path: Path) -> None:
    system, told = with_general(num_rounds=20, learning_rate=1e30), list[str]()
    with pytest.raises(DivergedError, match=r"the training diverges: use a learning_rate= below 1e\+30"):
        suited(system, data, folder=tmp_path, stop_early=False, told=told)
    assert told == []
    assert (tmp_path / "run.json").exists()  # as after any other error


class Scripted:
    """Trials whose results are known."""

    metric, can_measure, folder = "RMSE", True, None
    data = SimpleNamespace(name="ratings.csv")

    def __init__(self, results: dict[float, float | None], curves: dict[float, list[float]]) -> None:
        self.results, self.curves, self.tried = results, curves, list[float]()

    def after_few_rounds(self, config: Any) -> float | None:
        self.tried.append(config.learning_rate)
        return self.results.get(config.learning_rate)

    def until_past_its_best(self, config: Any) -> list[float]:
        return self.curves[config.learning_rate]

    def is_far_off(self, score: float) -> bool:
        return score > 1.2


def plan_trained(trials: Scripted, told: list[str], diverges_from: float, **values: Any) -> Plan:
    def train(ready: Plan) -> Plan:
        if ready.config.learning_rate >= diverges_from:
            raise DivergedError("it diverges")
        return ready

    plan = plan_for(SYSTEMS["fedrec"], values, "ratings.csv", bool(trials.curves))
    return trained(plan, trials, train, told.append)  # type: ignore[arg-type]


def test_the_best_of_smaller_rates_is_taken() -> None:
    """0.4 diverges as well; 0.1 is better than 0.2, and 0.05 worse, where the search ends."""
    trials, told = Scripted({0.4: None, 0.2: 1.2, 0.1: 1.0, 0.05: 1.1, 0.025: 0.1}, {}), list[str]()
    ready = plan_trained(trials, told, diverges_from=0.8)
    assert trials.tried == [0.4, 0.2, 0.1, 0.05]
    assert ready.config.learning_rate == 0.1
    assert [choice.flag for choice in ready.chosen] == ["--preset general", "--learning-rate 0.1"]
    assert told == [
        "learning rate 0.8 diverges on ratings.csv; 0.1 was found on a validation part; learning_rate= fixes it"
    ]


def test_a_rate_that_diverges_late_is_made_smaller_again() -> None:
    trials, told = Scripted({0.4: 1.0, 0.2: 1.1, 0.1: 1.2}, {}), list[str]()
    ready = plan_trained(trials, told, diverges_from=0.3)
    assert ready.config.learning_rate == 0.2
    assert [choice.value for choice in ready.chosen] == ["general", 0.2]
    assert len(told) == 2


def test_a_model_far_worse_than_the_mean_gets_a_smaller_rate() -> None:
    curves = {0.8: [3.0, 2.0], 0.2: [1.0, 0.9, 0.95]}
    trials, told = Scripted({0.4: 2.5, 0.2: 1.1, 0.1: 1.15}, curves), list[str]()
    ready = plan_trained(trials, told, diverges_from=9.0)
    assert (ready.config.learning_rate, ready.config.num_rounds) == (0.2, 2)
    assert told == [
        "2 rounds: the best RMSE on a validation part, 2.0000, of 2 measured; num_rounds=2 fixes it",
        "learning rate 0.8 gives RMSE 2.0000, worse than the mean, on ratings.csv; 0.2 was found on a validation "
        "part; learning_rate= fixes it",
        "2 rounds: the best RMSE on a validation part, 0.9000, of 3 measured; num_rounds=2 fixes it",
    ]


def test_a_bad_model_stays_if_no_rate_is_better() -> None:
    ready = plan_trained(Scripted({0.4: 2.5, 0.2: 2.4}, {0.8: [3.0, 2.0]}), [], diverges_from=9.0)
    assert (ready.config.learning_rate, ready.config.num_rounds) == (0.8, 2)


def test_far_off_is_a_tenth_above_the_error_of_the_mean(data: Interactions) -> None:
    system = SYSTEMS["fedrec"]
    settings = RunSettings(split="random")
    trials = trials_of_run(system, system.config(), data, settings, ONE_THREAD, None, False, Counted().watching)
    inner = hushrec.random_share(hushrec.random_share(data).train)
    assert inner.train.ratings is not None
    assert inner.test.ratings is not None
    error = np.sqrt(np.mean((inner.test.ratings - inner.train.ratings.mean()) ** 2))
    assert not trials.is_far_off(1.09 * error)
    assert trials.is_far_off(1.11 * error)
    implicit = replace(trials, system=SYSTEMS["lightgcn"])
    assert not implicit.is_far_off(0.0)


def test_choices_are_kept_and_told(system: AnySystem, data: Interactions, tmp_path: Path) -> None:
    done = suited(system, data, folder=tmp_path)
    assert read_run(tmp_path).chosen == done.chosen
    said = done.summary()["chosen"]
    assert [entry["setting"] for entry in said] == ["preset", "num_rounds"]
    assert said[1]["flag"] == f"--rounds {done.config['num_rounds']}"
    assert to_dict(system.configure(done.config)) == done.config
    assert Choice("learning_rate", 0.003125, "").flag == "--learning-rate 0.003125"
