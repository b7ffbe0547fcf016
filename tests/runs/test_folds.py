import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import hushrec
from hushrec.data import Interactions, k_folds
from hushrec.errors import DivergedError, HushrecError
from hushrec.evaluation.feedback import EXPLICIT
from hushrec.experiments.published import published_for
from hushrec.protocol import result_arrays
from hushrec.registry import SYSTEMS
from hushrec.report import findings
from hushrec.runs.folds import load_fold, run
from hushrec.runs.record import Run, SplitKind, alone_in, read_run, write_run
from hushrec.runs.run_settings import RunSettings, splits_for, splits_of
from hushrec.runs.watching import FoldProgress
from hushrec.runtime.checkpoint import Progress, read_arrays, save_train, write_arrays
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, prepared
from hushrec.settings import to_dict
from systems.runs import short

DATA = "synthetic:users=80,items=50,ratings=1500"
ONE_THREAD = RuntimeOptions(threads=1)
NAMES = list(SYSTEMS)


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load(DATA)


def go(data: Interactions, folder: Path | None = None, name: str = "fedrec", **options: Any) -> Run:
    """A short run; what is no setting of the system is a setting of the run."""
    system, resume, watch = SYSTEMS[name], options.pop("resume", False), options.pop("watch", None)
    own = {key: options.pop(key) for key in list(options) if key in system.config.__dataclass_fields__}
    config = system.configure(short(name, **own))
    chosen = RunSettings(**{"split": usual_split(name), **options})
    return run(system, config, data, chosen, ONE_THREAD, folder, resume, watch)


def usual_split(name: str) -> SplitKind:
    """Folds for all, so that systems can be compared; partners' data must be dealt."""
    return SYSTEMS[name].holders.usual_split or "folds"


# --- The contract of `run --json` --------------------------------------------------------------------------


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.parametrize("name", NAMES)
def test_summary_keeps_its_contract(name: str, data: Interactions) -> None:
    """The keys and types of DESIGN.md, as a reader of the JSON sees them."""
    done = go(data, name=name, num_folds=2)
    said = json.loads(msgspec.json.encode(done.summary()))
    assert list(said) == ["system", "data", "seed", "config", "folds", "mean", "std"]
    assert (said["system"], said["data"], said["seed"]) == (name, "synthetic", 0)
    config = SYSTEMS[name].configure(short(name))
    assert said["config"] == json.loads(json.dumps(to_dict(config)))
    assert set(said["config"]) == set(SYSTEMS[name].config.__dataclass_fields__)
    assert [fold["fold"] for fold in said["folds"]] == [1, 2]
    system, settings = SYSTEMS[name], RunSettings(split=usual_split(name))
    private = Job(system, config, 0, next(splits_for(system, data, settings)).train).start().private
    has_private_model, has_facts = bool(result_arrays(private)), bool(system.result.facts(private, config))
    assert has_private_model or name != "fedrec", "else this would ask for nothing"
    for fold in said["folds"]:
        keys = {"fold", "metrics", "model_sha256", "cpu_seconds", "wall_seconds", "sent_bytes"}
        more = {"clients_sha256": has_private_model, "facts": has_facts}
        assert set(fold) == keys | {key for key, is_told in more.items() if is_told}
        assert all(is_number(value) for value in fold.get("facts", {}).values())
        for key in ("model_sha256", "clients_sha256") if has_private_model else ("model_sha256",):
            assert re.fullmatch("[0-9a-f]{64}", fold[key])
        assert type(fold["fold"]) is int
        assert is_number(fold["cpu_seconds"])
        assert fold["cpu_seconds"] > 0
        assert is_number(fold["wall_seconds"])
        assert fold["wall_seconds"] > 0
        assert {"NDCG@10", "HR@10"} <= set(fold["metrics"])
        assert ({"MAE", "RMSE"} <= set(fold["metrics"])) == (SYSTEMS[name].feedback is EXPLICIT)
        assert all(is_number(value) for value in fold["metrics"].values())
        driving, party = ("orchestrator" if system.about.is_online else "server"), system.holders.word
        assert set(fold["sent_bytes"]) >= {f"{driving}->{party}", f"{party}->{driving}"}
        assert all(type(count) is int and count > 0 for count in fold["sent_bytes"].values())
    assert set(said["mean"]) == set(said["std"]) == set(said["folds"][0]["metrics"])


def test_mean_and_population_deviation_by_hand(data: Interactions) -> None:
    """1, 2 and 6: mean 3; deviations -2, -1 and 3, so the variance is 14/3."""
    done = go(data)
    folds = [
        replace(done.folds[0], fold=fold, metrics={"MAE": value}) for fold, value in enumerate((1.0, 2.0, 6.0))
    ]
    assert replace(done, folds=folds).mean == {"MAE": 3.0}
    assert replace(done, folds=folds).std["MAE"] == pytest.approx((14 / 3) ** 0.5)
    assert replace(done, folds=[]).mean == replace(done, folds=[]).std == {}


def test_one_fold_has_no_spread(data: Interactions) -> None:
    done = go(data)
    assert done.mean == done.folds[0].metrics
    assert set(done.std.values()) == {0.0}


def test_at_gives_the_lengths_of_lists(data: Interactions) -> None:
    metrics = go(data, at=(1, 5)).folds[0].metrics
    assert {"NDCG@1", "NDCG@5", "HR@1"} <= set(metrics)
    assert not [name for name in metrics if name.endswith("@10")]


def test_the_curve_has_a_value_per_round_and_ends_with_the_result(data: Interactions) -> None:
    seen: list[FoldProgress] = []
    done = go(data, num_folds=2, watch=seen.append)
    for fold in done.folds:
        told = [now for now in seen if now.fold == fold.fold]
        assert [now.round_number for now in told] == [1, 2, 3, 4]
        assert {(now.num_folds, now.num_rounds) for now in told} == {(2, 4)}
        for metric in ("MAE", "RMSE"):
            assert fold.curve[metric] == [now.metrics[metric] for now in told]
            assert fold.curve[metric][-1] == fold.metrics[metric]
        assert [now.sent_bytes for now in told] == sorted({now.sent_bytes for now in told})
        assert told[-1].sent_bytes == sum(fold.sent_bytes.values())


@pytest.mark.parametrize("name", NAMES)
def test_messages_add_up_to_the_bytes(name: str, data: Interactions) -> None:
    fold = go(data, name=name).folds[0]
    assert [count.type for count in fold.messages] == [kind.__name__ for kind in SYSTEMS[name].messages]
    ways: dict[str, int] = {}
    for count in fold.messages:
        way = f"{count.sender}->{count.receiver}"
        ways[way] = ways.get(way, 0) + count.bytes
    assert {way: total for way, total in ways.items() if total} == fold.sent_bytes


# --- Splits ------------------------------------------------------------------------------------------------


def test_folds_are_the_first_of_five(data: Interactions) -> None:
    all_splits = list(hushrec.k_folds(data, 5, seed=7))
    some = list(splits_of(data, RunSettings(seed=7, num_folds=3)))
    assert [split.fold for split in some] == [1, 2, 3]
    for one, other in zip(some, all_splits, strict=False):
        np.testing.assert_array_equal(one.test.items, other.test.items)
        np.testing.assert_array_equal(one.test.users, other.test.users)


def timed(data: Interactions) -> Interactions:
    return replace(data, timestamps=np.arange(len(data), dtype=np.int64))


@pytest.mark.parametrize(("split", "share"), [("random", 0.3), ("latest", 0.3), ("leave-one-out", 0.2)])
def test_other_splits_have_one_fold(split: Any, share: float, data: Interactions) -> None:
    done = go(timed(data), split=split, test_share=share)
    assert [fold.fold for fold in done.folds] == [1]
    assert done.provenance.split == split
    fold = done.folds[0]
    assert fold.num_train + fold.num_test == len(data)
    if split == "leave-one-out":
        assert fold.num_test == 80  # every user has ratings to spare
    else:
        assert done.provenance.test_share == 0.3
        assert fold.num_test == pytest.approx(0.3 * len(data), abs=40)  # rounded for each of 80 users
    with pytest.raises(HushrecError, match=rf"folds=2 with split='{split}': choose 1 to 1"):
        RunSettings(split=split, num_folds=2)


@pytest.mark.parametrize("split", ["folds", "random", "latest", "leave-one-out"])
def test_validation_never_looks_at_the_test_part(split: Any, data: Interactions) -> None:
    data = timed(data)

    def pairs(rows: Interactions) -> set[tuple[int, int]]:
        return set(zip(rows.users.tolist(), rows.items.tolist(), strict=True))

    (tested,) = splits_of(data, RunSettings(split=split))
    (validated,) = splits_of(data, RunSettings(split=split, measure="validation"))
    train, test = pairs(validated.train), pairs(validated.test)
    assert test
    assert not train & test
    assert train | test == pairs(tested.train)
    if split == "latest":
        last = {user: -1 for user, _ in train}
        for user, time in zip(validated.train.users.tolist(), validated.train.timestamps, strict=True):
            last[user] = max(last[user], time)
        times = zip(validated.test.users.tolist(), validated.test.timestamps, strict=True)
        assert all(time > last[user] for user, time in times)


def test_validation_is_told_with_the_run(data: Interactions) -> None:
    done = go(data, measure="validation")
    assert done.provenance.measure == "validation"
    assert published_for(done) is None
    assert findings.test_set(done) != findings.test_set(go(data))


def test_leave_one_out_takes_the_latest_where_there_are_times(data: Interactions) -> None:
    last = {int(user): int(item) for user, item in zip(data.users, data.items, strict=True)}
    for known in (timed(data), replace(data, order=np.arange(len(data), dtype=np.int32))):
        (split,) = splits_of(known, RunSettings(split="leave-one-out"))
        assert dict(zip(split.test.users.tolist(), split.test.items.tolist(), strict=True)) == last
    (split,) = splits_of(data, RunSettings(split="leave-one-out"))
    assert dict(zip(split.test.users.tolist(), split.test.items.tolist(), strict=True)) != last


def test_latest_without_times_is_refused(data: Interactions) -> None:
    with pytest.raises(HushrecError, match="no timestamps to split by; use a random split"):
        go(data, split="latest")


@pytest.mark.parametrize("num_folds", [-1, 0, 6])
def test_folds_out_of_range_are_refused(num_folds: int) -> None:
    with pytest.raises(HushrecError, match=rf"folds={num_folds} with split='folds': choose 1 to 5"):
        RunSettings(num_folds=num_folds)


@pytest.mark.parametrize("at", [(), (0,), (5, -1), (5, 5)])
def test_lists_of_no_length_are_refused(at: tuple[int, ...]) -> None:
    with pytest.raises(HushrecError, match="at= takes different list lengths"):
        RunSettings(at=at)


def test_seed_changes_the_split_and_the_model(data: Interactions) -> None:
    one, two = go(data).folds[0], go(data, seed=1).folds[0]
    assert one.model_sha256 != two.model_sha256
    assert one.metrics != two.metrics


# --- What is measured --------------------------------------------------------------------------------------


def ratings_of(text: str, path: Path) -> Interactions:
    path.write_text("user,item,rating,timestamp\n" + text)
    return hushrec.load(path, rating_range=(1, 5))


def test_cold_ratings_by_hand(tmp_path: Path) -> None:
    """The latest of each user's two ratings is the test: a's w, b's y, c's z. Training has x (a, c) and z (b).

    Nobody trains on w or y: two of three are cold. User d has one rating only, y, which stays in training: so
    y is known after all, and w alone is cold.
    """
    pairs = "a,x,5,1\na,w,4,2\nb,z,3,1\nb,y,5,2\nc,x,2,1\nc,z,5,2\n"
    settings = {"split": "latest", "test_share": 0.5, "relevant_from": 1.0}
    without_d = go(ratings_of(pairs, tmp_path / "pairs.csv"), rho=0, **settings).folds[0]
    assert (without_d.num_train, without_d.num_test, without_d.num_cold) == (3, 3, 2)
    with_d = go(ratings_of(pairs + "d,y,4,1\n", tmp_path / "more.csv"), rho=0, **settings).folds[0]
    assert (with_d.num_train, with_d.num_test, with_d.num_cold) == (4, 3, 1)


class Fixed:
    """A model that ranks the items by their number, the last first."""

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.full(len(users), 3.0, np.float32)

    def score(self, users: np.ndarray) -> np.ndarray:
        return np.tile(np.arange(4, dtype=np.float32), (len(users), 1))

    def fold_in(self, items: np.ndarray, ratings: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def test_relevant_is_the_upper_quarter_unless_told(tmp_path: Path) -> None:
    """Ratings of 1..5: relevant from 1 + 0.75 * 4 = 4 on.

    User a has trained on w; of x (5), y (4), z (3.9) the model ranks z, y, x. With two relevant items, x and y,
    Precision@1 is 0 and Recall@2 1/2. From 3 on all three are relevant: Precision@1 is 1, Recall@2 is 2/3. From
    4.5 on it is x alone: Recall@2 is 0. MAE of predicting 3 is (2 + 1 + 0.9) / 3 in any case.
    """
    data = ratings_of("a,w,3,1\na,x,5,2\na,y,4,3\na,z,3.9,4\n", tmp_path / "one.csv")
    train, test = data.select(np.array([0])), data.select(np.array([1, 2, 3]))
    expected: dict[float | None, tuple[float, float]] = {
        None: (0.0, 1 / 2), 4.0: (0.0, 1 / 2), 3.0: (1.0, 2 / 3), 4.5: (0.0, 0.0),
    }  # fmt: skip
    for relevant_from, (precision, recall) in expected.items():
        metrics = EXPLICIT.evaluate(Fixed(), train, test, (1, 2), relevant_from)
        assert metrics["Precision@1"] == precision
        assert metrics["Recall@2"] == pytest.approx(recall)
        assert metrics["MAE"] == pytest.approx(1.3)


def test_relevant_from_of_a_run_reaches_its_metrics(data: Interactions) -> None:
    default, four, five = (go(data, relevant_from=level).folds[0].metrics for level in (None, 4.0, 5.0))
    assert default == four  # synthetic ratings are 1..5
    assert default["Recall@10"] != five["Recall@10"]
    assert default["MAE"] == five["MAE"]


def test_a_split_with_nothing_relevant_has_no_ranking_metrics(data: Interactions) -> None:
    assert sorted(go(data, relevant_from=5.5).mean) == ["MAE", "RMSE"]


def test_other_training_rows_of_the_same_data_are_refused(data: Interactions, tmp_path: Path) -> None:
    """The digest leaves out the order of rows, which a split by time may depend on."""
    go(data, folder=tmp_path / "run")
    other = next(k_folds(data, 5, 1)).train
    save_train(tmp_path / "run" / "fold-1" / "train.npz", other, SYSTEMS["fedrec"])
    write_run(tmp_path / "run", replace(read_run(tmp_path / "run"), folds=[]))
    before = snapshot(tmp_path / "run" / "fold-1")
    for options in ({}, {"keeps_checkpoint": False}):
        with pytest.raises(
            HushrecError, match="was trained on other rows or owners of synthetic; choose another --out"
        ):
            looked_at(data, tmp_path / "run", **options)
    assert snapshot(tmp_path / "run" / "fold-1") == before


# --- Folders -----------------------------------------------------------------------------------------------


def timeless(done: Run) -> Run:
    """Without what may differ: times, and when it started."""
    folds = [replace(fold, cpu_seconds=0.0, wall_seconds=0.0) for fold in done.folds]
    return replace(done, folds=folds, provenance=replace(done.provenance, started=""))


def test_a_run_is_kept_as_it_came_out(data: Interactions, tmp_path: Path) -> None:
    done = go(data, tmp_path / "new" / "run", num_folds=2)
    assert read_run(tmp_path / "new" / "run") == done
    assert timeless(done) == timeless(go(data, num_folds=2))
    assert done.is_done
    files = sorted(str(path.relative_to(tmp_path / "new")) for path in tmp_path.rglob("*.*"))
    kept = [f"run/fold-{fold}/{part}.npz" for fold in (1, 2) for part in ("state", "train")]
    assert files == ["run/.lock", *kept, "run/rounds.jsonl", "run/run.json"]


def test_more_folds_are_added_to_a_kept_run(data: Interactions, tmp_path: Path) -> None:
    first = go(data, tmp_path / "run", num_folds=2)
    told: list[int] = []
    more = go(data, tmp_path / "run", num_folds=3, resume=True, watch=lambda now: told.append(now.fold))
    assert set(told) == {3}
    assert more.folds[:2] == first.folds
    assert timeless(more).folds == timeless(go(data, num_folds=3)).folds
    assert read_run(tmp_path / "run") == more


def test_fewer_folds_of_a_kept_run_change_nothing(data: Interactions, tmp_path: Path) -> None:
    whole = go(data, tmp_path / "run", num_folds=2)
    before = (tmp_path / "run" / "run.json").read_bytes()
    part = go(data, tmp_path / "run", num_folds=1, resume=True)
    assert part.folds == whole.folds[:1]
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_kept_run_is_not_overwritten(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path / "run")
    before = snapshot(tmp_path)
    with pytest.raises(
        HushrecError, match="holds a run already; add --resume to go on with it, or choose another"
    ):
        go(data, tmp_path / "run")
    assert snapshot(tmp_path) == before


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "fedrec++"}, "system fedrec, not fedrec\\+\\+"),
        ({"seed": 1}, "seed 0, not 1"),
        ({"rho": 1}, "rho 3, not 1"),
        ({"num_rounds": 5}, "num_rounds 4, not 5"),
        ({"at": (5,)}, "at \\(10,\\), not \\(5,\\)"),
        ({"relevant_from": 3.0}, "relevant_from None, not 3.0"),
        ({"split": "random"}, "split folds, not random"),
        ({"measure": "validation"}, "measure test, not validation"),
    ],
)
def test_another_run_is_not_resumed(
    changes: dict[str, Any], told: str, data: Interactions, tmp_path: Path
) -> None:
    go(data, tmp_path / "run")
    before = snapshot(tmp_path)
    with pytest.raises(HushrecError, match=rf"run holds a run with {told}; choose another --out"):
        go(data, tmp_path / "run", resume=True, **changes)
    assert snapshot(tmp_path) == before


def test_other_data_of_the_same_name_is_not_resumed(tmp_path: Path) -> None:
    go(hushrec.load(DATA), tmp_path / "run")
    with pytest.raises(HushrecError, match=r"holds a run with data_sha256 [0-9a-f]{64}, not [0-9a-f]{64}"):
        go(hushrec.load(DATA + ",seed=1"), tmp_path / "run", resume=True)


def test_another_share_is_not_resumed(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path / "run", split="random", test_share=0.2)
    with pytest.raises(HushrecError, match=r"holds a run with test_share 0\.2, not 0\.3"):
        go(data, tmp_path / "run", split="random", test_share=0.3, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_foreign_content_is_refused_and_untouched(
    resume: bool, data: Interactions, tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("all that I have")
    before = snapshot(tmp_path)
    with pytest.raises(HushrecError, match="holds something that is not a run; choose an empty or new --out"):
        go(data, tmp_path / "thesis", resume=resume)
    assert snapshot(tmp_path) == before


def test_an_empty_folder_is_used(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path)
    assert read_run(tmp_path).is_done


def test_a_file_in_place_of_the_folder_is_refused(data: Interactions, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(HushrecError, match="run"):
        go(data, tmp_path / "run")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: text[: len(text) // 2], id="cut"),
        pytest.param(lambda text: "[]", id="another shape"),
        pytest.param(lambda text: text.replace('"seed": 0', '"seed": "zero"'), id="another type"),
        pytest.param(lambda text: text.replace('"system"', '"sistem"'), id="another name"),
    ],
)
def test_a_damaged_description_is_refused_in_one_line(
    damage: Callable[[str], str], data: Interactions, tmp_path: Path
) -> None:
    go(data, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(damage(path.read_text()))
    for use in (read_run, load_fold, lambda folder: go(data, folder, resume=True)):
        with pytest.raises(
            HushrecError,
            match=r"run\.json (is damaged \(.*\); |was changed .* is damaged; .* or )delete its folder and run",
        ) as caught:
            use(tmp_path / "run")
        assert "\n" not in str(caught.value)


def test_a_description_that_is_no_text_is_refused(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"fedrec"', b'"fed\xff\xfe"'))
    with pytest.raises(HushrecError, match="is damaged"):
        read_run(tmp_path / "run")


def test_a_damaged_checkpoint_is_refused_in_one_line(data: Interactions, tmp_path: Path) -> None:
    stopped_in_fold_two(data, tmp_path / "run")
    path = tmp_path / "run" / "fold-2" / "state.npz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(HushrecError, match=r"state\.npz is damaged; delete its folder and run again"):
        go(data, tmp_path / "run", num_folds=2, resume=True)


class StopError(Exception):
    """Somebody pulls the plug."""


def stopped_in_fold_two(data: Interactions, folder: Path) -> None:
    def watch(now: FoldProgress) -> None:
        if (now.fold, now.round_number) == (2, 3):
            raise StopError

    with pytest.raises(StopError):
        go(data, folder, num_folds=2, watch=watch)


def test_an_interrupted_run_goes_on_with_the_same_curve(data: Interactions, tmp_path: Path) -> None:
    stopped_in_fold_two(data, tmp_path / "run")
    kept = read_run(tmp_path / "run")
    assert (len(kept.folds), kept.is_done) == (1, False)
    told: list[tuple[int, int]] = []
    done = go(
        data,
        tmp_path / "run",
        num_folds=2,
        resume=True,
        watch=lambda now: told.append((now.fold, now.round_number)),
    )
    assert told == [(2, 3), (2, 4)]
    assert timeless(done) == timeless(go(data, num_folds=2))
    assert done.provenance.started == kept.provenance.started


# --- What is looked at inside a run ------------------------------------------------------------------------


def looked_at(data: Interactions, folder: Path | None = None, **options: Any) -> Run:
    system = SYSTEMS["fedrec"]
    return run(system, system.configure(short("fedrec")), data, RunSettings(), ONE_THREAD, folder, True, **options)


def test_a_probe_sees_the_messages_of_a_round_and_what_it_finds_is_told(data: Interactions) -> None:
    """The last value is a metric; a value of every round is a curve."""
    rounds: list[set[int]] = []

    def probe(_job: Job, progress: Progress) -> dict[str, float]:
        rounds.append({sent.round_number for sent in progress.transcript.recorded})
        now = float(progress.round_number)
        return {"each": now} | ({"once": now} if now == 2 else {})

    done, plain = looked_at(data, probe=probe).folds[0], looked_at(data).folds[0]
    assert rounds == [{1}, {2}, {3}, {4}]
    assert done.metrics == plain.metrics | {"each": 4.0, "once": 2.0}
    assert done.curve == plain.curve | {"each": [1.0, 2.0, 3.0, 4.0]}
    assert done.model_sha256 == plain.model_sha256


@pytest.mark.parametrize(
    ("options", "first"),
    [({}, 3), ({"keeps_checkpoint": False}, 1), ({"probe": lambda _job, progress: {"now": 1.0}}, 1)],
)
def test_what_no_checkpoint_has_makes_a_fold_begin_again(
    options: dict[str, Any], first: int, data: Interactions, tmp_path: Path
) -> None:
    def stop(now: FoldProgress) -> None:
        if now.round_number == 3:
            raise StopError

    told: list[int] = []
    with pytest.raises(StopError):
        looked_at(data, tmp_path, watch=stop, **options)
    looked_at(data, tmp_path, watch=lambda now: told.append(now.round_number), **options)
    assert told == list(range(first, 5))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HushrecError("the disk is full; make room"), "the disk is full; make room"),
        (
            DivergedError("a loss is not finite"),
            "round 1: a loss is not finite; the training diverges: use .* below .*",
        ),
    ],
)
def test_only_what_diverges_is_said_to_when_a_round_is_measured(
    error: HushrecError, told: str, data: Interactions
) -> None:
    def fail(_state: Any, _private: Any, _rows: Any) -> float:
        raise error

    system = SYSTEMS["fedrec"]
    failing = replace(system, result=replace(system.result, losses={"loss": fail}))
    with pytest.raises(type(error), match=rf"\A{told}\Z"):
        run(failing, system.configure(short("fedrec")), data, RunSettings(), ONE_THREAD)


# --- Using a kept fold -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_fold_predicts_as_it_did(name: str, data: Interactions, tmp_path: Path) -> None:
    done = go(data, tmp_path / "run", name=name, num_folds=2)
    settings = RunSettings(num_folds=2, split=usual_split(name))
    for split, result in zip(splits_of(data, settings), done.folds, strict=True):
        job, progress = load_fold(tmp_path / "run", result.fold)
        tested, evaluate = prepared(job.system, split.test), job.system.feedback.evaluate
        found = evaluate(job.scorer(progress), job.train, tested, (10,))
        own = {name: value for name, value in result.metrics.items() if " " not in name or "held-back" in name}
        assert found == own
        for model, scorer_of in job.system.result.also.items():
            scorer = scorer_of(progress.state, progress.private, job.config)
            found = evaluate(scorer, job.train, tested, (10,))
            assert found == {metric: result.metrics[f"{model} {metric}"] for metric in found}
    first, _ = load_fold(tmp_path / "run")
    np.testing.assert_array_equal(first.train.items, next(splits_of(data, settings)).train.by_user().items)


@pytest.mark.parametrize(
    ("name", "num_items", "settings", "told"),
    [
        ("fcf", 1, {"split": "random"}, "no user has two rows, so that split='random' holds none back for a test; "
         "choose split='folds', or bring more rows"),
        ("fedrec", 1, {"split": "leave-one-out"}, "no user has two rows, so that split='leave-one-out' holds none "
         "back for a test; choose split='folds', or bring more rows"),
        ("fedrec", 1, {"measure": "validation"}, "no user has two rows, so that split='folds' holds none back for "
         "validation; choose measure='test', or bring more rows"),
        ("fedrec", 7, {"split": "random", "test_share": 0.01}, "test_share=0.01 of at most 7 rows a user is less "
         "than one, so that none is held back for a test; use test_share=0.08 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_leaves_no_folder(
    tmp_path: Path, name: str, num_items: int, settings: dict[str, Any], told: str
) -> None:
    """Systems that learn from ratings were trained first, and told of an empty test set."""
    rows = [(user, user + item, 1 + item % 5) for user in range(6) for item in range(num_items)]
    users, items, ratings = zip(*rows, strict=True)
    few = hushrec.load((list(users), list(items), list(ratings)))
    config = SYSTEMS[name].configure(short(name))
    with pytest.raises(HushrecError) as refused:
        run(SYSTEMS[name], config, few, RunSettings(min_raters=0, **settings), ONE_THREAD, tmp_path / "run")
    assert str(refused.value) == f"frame: {told}"
    assert not (tmp_path / "run").exists()


def test_what_is_no_finished_fold_is_refused(data: Interactions, tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match=r"is not a run; make one with: model\.save\('.*missing'\)"):
        load_fold(tmp_path / "missing")
    stopped_in_fold_two(data, tmp_path / "run")
    for fold in (0, 2, 7):
        with pytest.raises(HushrecError, match="has no finished fold"):
            load_fold(tmp_path / "run", fold)
    write_run(tmp_path / "begun", replace(read_run(tmp_path / "run"), folds=[]))
    with pytest.raises(HushrecError, match=r"has no finished fold 1; finish it with: hushrec run \.\.\. --resume"):
        load_fold(tmp_path / "begun")


def test_the_error_names_the_fold_that_was_asked_for(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path / "run")
    with pytest.raises(HushrecError, match="has no finished fold 3;"):
        load_fold(tmp_path / "run", 3)


def test_a_fold_without_its_files_is_refused(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path / "run")
    (tmp_path / "run" / "fold-1" / "state.npz").unlink()
    with pytest.raises(HushrecError, match=r"state\.npz is missing"):
        load_fold(tmp_path / "run")
    (tmp_path / "run" / "fold-1" / "train.npz").unlink()
    with pytest.raises(HushrecError, match=r"train\.npz is missing"):
        load_fold(tmp_path / "run")


def test_a_node_whose_vectors_are_of_another_run_is_refused(data: Interactions, tmp_path: Path) -> None:
    """One row is not repeated for all clients."""
    write_run(tmp_path / "run", replace(go(data, tmp_path / "run"), party="node"))
    path = tmp_path / "run" / "fold-1" / "state.npz"
    arrays = read_arrays(path)
    load_fold(tmp_path / "run")
    write_arrays(path, arrays | {"private.user_factors": arrays["private.user_factors"][:1]})
    with pytest.raises(HushrecError, match=r"state\.npz is not of this run; copy the folder again"):
        load_fold(tmp_path / "run")


def test_a_run_of_a_system_that_is_no_more_is_refused(data: Interactions, tmp_path: Path) -> None:
    write_run(tmp_path / "run", replace(go(data), system="fedrec-2000"))
    with pytest.raises(HushrecError, match="a run of fedrec-2000, which is not installed here"):
        load_fold(tmp_path / "run")


def test_a_saved_model_is_not_resumed_as_a_fold(data: Interactions, tmp_path: Path) -> None:
    hushrec.FedRec(num_rounds=4, num_factors=5).fit(data).save(tmp_path / "model")
    try:
        done = go(data, tmp_path / "model", resume=True)
    except HushrecError:
        return
    assert "MAE" in done.mean


# --- Privacy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_description_tells_no_id_no_rating_and_no_path(name: str, tmp_path: Path) -> None:
    """Ids and ratings that occur nowhere by chance: `PATIENT-0042`, `DRUG-07` and 2.953125 + n / 64."""
    source = tmp_path / "secret-ward" / "ratings.csv"
    source.parent.mkdir()
    synthetic = hushrec.load("synthetic:users=30,items=20,ratings=300")
    assert synthetic.ratings is not None
    ratings = 2.9453125 + np.round(synthetic.ratings) / 64  # on both sides of the middle
    lines = [
        f"PATIENT-{user:04},DRUG-{item:02},{rating}"
        for user, item, rating in zip(synthetic.users, synthetic.items, ratings, strict=True)
    ]
    source.write_text("\n".join(["user,item,rating", *lines]))
    data = hushrec.load(str(source), rating_range=(1, 5))
    relevant = {"relevant_from": 1.0} if SYSTEMS[name].feedback.needs_ratings else {}
    done = go(data, tmp_path / "run", name=name, num_folds=2, **relevant)
    for text in (
        (tmp_path / "run" / "run.json").read_text(),
        msgspec.json.encode(done.summary()).decode(),
        repr(done),
    ):
        assert "ratings.csv" in text  # the test sees what is there
        for secret in ("PATIENT", "DRUG", "secret-ward", str(tmp_path)):
            assert secret not in text
        for rating in np.unique(ratings):
            assert str(rating) not in text
    assert b"P\0\0\0A\0\0\0T\0\0\0I" in (tmp_path / "run" / "fold-1" / "train.npz").read_bytes()


def test_relevance_by_rating_is_refused_before_training_where_there_are_none(data: Interactions) -> None:
    told: list[FoldProgress] = []
    with pytest.raises(HushrecError, match=r"^fcf takes no ratings: .*; leave relevant_from= out$"):
        go(data, name="fcf", relevant_from=3.0, watch=told.append)
    assert not told


def test_two_processes_do_not_write_to_one_folder(data: Interactions, tmp_path: Path) -> None:
    go(data, tmp_path / "run")
    with (
        alone_in(tmp_path / "run"),
        pytest.raises(HushrecError, match=r"another process works on .*; stop it, or choose another out="),
    ):
        go(data, tmp_path / "run", resume=True, num_folds=2)
    assert len(go(data, tmp_path / "run", resume=True, num_folds=2).folds) == 2
