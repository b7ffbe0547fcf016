"""What is measured inside runs of partners: items found, vectors recovered, groups of test ratings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import hushrec
from hushrec.audit.inversion import cosines
from hushrec.data import Deal, Interactions, copies, join
from hushrec.data.holdings import PARTNERS
from hushrec.data.holdings.partners import rows_of_partners
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.experiments.fedcore_tables import identified, items_after, sample, twins_of
from hushrec.experiments.probes import PROBES, all_of
from hushrec.experiments.published import Row, Table, tables
from hushrec.experiments.reproduction import reproduce_row
from hushrec.protocol import Answer, Ask
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import load_fold, run
from hushrec.runs.record import Run, read_run
from hushrec.runs.run_settings import settings_for, splits_of
from hushrec.runs.watching import FoldProgress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.systems.fedcore.messages import UserGradients
from hushrec.systems.fedcore.partners import Partnership
from hushrec.systems.fedcore.system import Align
from systems.partner_runs import interactions, watched
from systems.runs import Ratings, settings_of

FEDCORE = SYSTEMS["fedcore"]
ONE_THREAD = RuntimeOptions(threads=1)
PLAIN = {"inference": "none", "num_factors": 8, "batch_size": 64}


@pytest.fixture(scope="module")
def data() -> Interactions:
    """Enough ratings of 200 items that vectors of the same item grow alike."""
    return hushrec.load("synthetic:users=150,items=200,ratings=9000,noise=0.1")


def go(data: Interactions, num_rounds: int, probes: list[str], folder: Path | None = None, **values: Any) -> Run:
    config = FEDCORE.configure({**PLAIN, "num_rounds": num_rounds, **values})
    settings = settings_for(FEDCORE)
    return run(FEDCORE, config, data, settings, ONE_THREAD, folder, probe=all_of(probes) if probes else None)


# --- Identification ----------------------------------------------------------------------------------------


def test_twins_are_the_items_that_both_have(data: Interactions) -> None:
    train = next(copies(data, Deal(), 0)).train
    at_a, at_b = twins_of(train)
    rows = rows_of_partners(train)
    names = rows.item_ids[rows.item_starts[0] :][at_a], rows.item_ids[rows.item_starts[1] :][at_b]
    assert names[0].tolist() == names[1].tolist()
    assert len(at_a) == 100
    assert len(np.unique(at_a)) == len(np.unique(at_b)) == 100


def test_identified_by_hand() -> None:
    """100 common items with b's vectors along the axes. Of a's, 60 point like their twins; 20 point more to three
    other items, so they are found among five, not among one; 20 are of no direction and found by nobody.
    """
    rated = {"x": {f"i{number:03}": 3.0 for number in range(100)}}
    train = join({"a": interactions(rated), "b": interactions(rated)})
    own, theirs = np.eye(100, dtype=np.float32), 7 * np.eye(100, dtype=np.float32)
    theirs[60:80, :3] = 9
    theirs[80:] = 0
    assert identified(train, theirs, own, FEDCORE.configure({})) == {"top 1%": 60.0, "top 5%": 80.0}


def test_counts_start_at_chance_from_the_start_vectors_and_rise(data: Interactions) -> None:
    """Of 100 common items, 5 of 150 are looked at for each: 3.3 are there by chance, above 12 once in 10,000 runs.
    A planted taste makes vectors alike. What is told of k=0 is what the vectors that partners start from give.
    """
    start = go(data, 1, ["identification, k=0"], batch_size=16).folds[0].metrics
    last = go(data, 20, ["identification"], batch_size=16).folds[0].metrics
    train = next(copies(data, Deal(), 0)).train
    starts: list[list[np.ndarray]] = []

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if isinstance(ask.request, Align) and int(ask.request.stage) == 2:
            starts.append([partner.item_factors.copy() for partner in private.partners])

    finished = watched(Ratings(rows_of_partners(train), train.num_items), look, num_rounds=1, **PLAIN)
    (first,) = starts
    expected = identified(train, first[0], first[1], finished.config)
    assert {name: start[name] for name in expected} == expected
    assert start["top 5%"] <= 12
    assert last["top 5%"] >= start["top 5%"] + 10
    assert last["top 5%"] >= last["top 1%"] >= 1


@pytest.mark.parametrize(
    ("num_partners", "values"),
    [(2, {"privatizer": "dp+average"}), (3, {"model": "neucf", "unaligned": 0.5}), (2, {"batch_size": 700})],
)
def test_steps_played_again_are_those_of_the_round(
    data: Interactions, num_partners: int, values: dict[str, Any]
) -> None:
    """None of them leads to the start, all of them to the end, to the last bit; the round's own result stays."""
    config = FEDCORE.configure({**PLAIN, "num_rounds": 1, **values})
    train = next(copies(data, Deal(num_partners), 0)).train
    progress = run_job(Job(FEDCORE, config, 3, train), ONE_THREAD)
    partners, num_steps = progress.private.partners, int(progress.state.num_steps)
    ends = [partner.item_factors.copy() for partner in partners]
    for played, start in zip(items_after(0, progress, config, Draws(3)), partners, strict=True):
        np.testing.assert_array_equal(played, start.before[1])
    for played, end in zip(items_after(num_steps, progress, config, Draws(3)), ends, strict=True):
        np.testing.assert_array_equal(played, end)
    if num_steps > 1:
        half = items_after(num_steps - 1, progress, config, Draws(3))
        assert all(
            (one != end).any() and (one != p.before[1]).any()
            for one, end, p in zip(half, ends, partners, strict=True)
        )
    for partner, end in zip(partners, ends, strict=True):
        np.testing.assert_array_equal(partner.item_factors, end)
    with pytest.raises(HushrecError, match=f"a round has {num_steps} steps, so none is step {num_steps + 1}; use"):
        items_after(num_steps + 1, progress, config, Draws(3))


def test_within_the_first_round_few_vectors_have_moved(data: Interactions) -> None:
    """5 of 20 and more steps; k=20 must be told of a round, too, however many follow."""
    config = {"batch_size": 16, "learning_rate": 0.4}
    names = ["identification, k=5", "identification, k=20"]
    told = [go(data, rounds, [name], **config).folds[0].metrics for rounds in (1, 2) for name in names]
    for one, two in zip(told[:2], told[2:], strict=True):
        assert {name: one[name] for name in ("top 1%", "top 5%")} == {
            name: two[name] for name in ("top 1%", "top 5%")
        }


def test_neucf_is_looked_at_in_both_branches(data: Interactions) -> None:
    metrics = go(data, 1, ["identification"], model="neucf", num_factors=4).folds[0].metrics
    told = {name for name in metrics if "top" in name}
    assert told == {f"{branch}top {percent}%" for branch in ("GMF ", "") for percent in (1, 5)}


# --- Similarity --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def similar(data: Interactions) -> dict[str, dict[str, float]]:
    """After 20 rounds, by what a does to gradients before b sees them."""
    names = [f"similarity {one}" for one in ("none", "average", "dp", "dp+average")]
    config = FEDCORE.configure({**PLAIN, "num_rounds": 20})
    job = Job(FEDCORE, config, 0, next(copies(data, Deal(), 0)).train)
    found: dict[str, dict[str, float]] = {}

    def look(progress: Any) -> None:
        for name in names:
            told = PROBES[name](job, progress)
            assert bool(told) == (progress.round_number == 20)
            if told:
                found[name.removeprefix("similarity ")] = told

    run_job(job, ONE_THREAD, None, look)
    return found


def test_without_protection_vectors_are_recovered(similar: dict[str, dict[str, float]]) -> None:
    assert similar["none"]["Sim(1)"] == pytest.approx(1.0, abs=1e-5)
    for columns in similar.values():
        assert set(columns) == {
            "Sim(1)", "Sim(2)", "Sim(3)", "RMSE", "blind Sim(1)", "blind Sim(2)", "blind RMSE",
        }  # fmt: skip
        assert all(-1 <= value <= 1 + 1e-9 for name, value in columns.items() if "Sim" in name)


def test_every_protection_hides_something_and_both_most(similar: dict[str, dict[str, float]]) -> None:
    for defence in ("average", "dp", "dp+average"):
        assert similar[defence]["Sim(1)"] < 0.95
        assert similar[defence]["RMSE"] > similar["none"]["RMSE"]
    assert similar["dp+average"]["Sim(1)"] < min(similar["average"]["Sim(1)"], similar["dp"]["Sim(1)"])
    assert similar["none"]["Sim(2)"] == pytest.approx(similar["none"]["Sim(3)"], abs=1e-4), (
        "recovered is the truth"
    )


def test_a_sample_is_what_a_would_release_and_the_truth_beside_it(data: Interactions) -> None:
    """Rows 2 e V / 128 of single ratings, with b's own copy of each user's vector."""
    config = FEDCORE.configure({**PLAIN, "num_rounds": 2})
    job = Job(FEDCORE, config, 0, next(copies(data, Deal(), 0)).train)
    progress = run_job(job, ONE_THREAD)
    found = sample(job.train, progress.private, config, "none", Draws(0))
    assert np.bincount(found.owners).tolist() == [5] * len(found.user_vectors)
    errors = np.sum(found.user_vectors[found.owners] * found.vectors, axis=1) - found.ratings
    np.testing.assert_allclose(found.errors, errors, atol=1e-5)
    np.testing.assert_allclose(found.rows, 2 * errors[:, None] * found.vectors / config.batch_size, atol=1e-6)
    averaged = sample(job.train, progress.private, config, "average", Draws(0))
    assert len(averaged.rows) == len(averaged.user_vectors)
    np.testing.assert_array_equal(averaged.row_of, averaged.owners)


def test_data_with_nothing_to_attack_are_refused() -> None:
    little = hushrec.load("synthetic:users=20,items=30,ratings=60")
    with pytest.raises(HushrecError, match="no common user has 5 ratings of common items; nothing to attack"):
        go(little, 20, ["similarity none"])


def test_cosines_by_hand() -> None:
    found = cosines(np.array([[1, 0], [1, 1], [0, 0]]), np.array([[2, 0], [1, -1], [1, 1]]))
    np.testing.assert_allclose(found, [1, 0, 0], atol=1e-12)


# --- Communication -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("privatizer", ["none", "dp", "average", "dp+average"])
def test_rows_are_one_per_rating_of_a_common_user_or_averaged_one_per_user(
    data: Interactions, privatizer: str
) -> None:
    """Both partners' rows are counted from what was sent in each step, by hand."""
    config = FEDCORE.configure({**PLAIN, "num_rounds": 3, "privatizer": privatizer})
    job = Job(FEDCORE, config, 0, next(copies(data, Deal(), 0)).train)
    found: dict[str, float] = {}
    progress = run_job(
        job,
        RuntimeOptions(threads=1, keep_payloads=True),
        None,
        lambda now: found.update(PROBES["communication"](job, now)),
    )
    sent = [one for one in progress.transcript.recorded if isinstance(one.message, UserGradients)]
    users = [part for one in sent for part in np.split(one.message.users.values, one.message.users.starts[1:-1])]
    assert found["steps"] == len(users) / 2 == 3 * int(progress.state.num_steps)
    assert found["rows"] == sum(map(len, users)) / 2
    last = users[2 * len(users) // 3 :]
    num_rows, num_different = sum(map(len, last)), sum(len(set(numbers.tolist())) for numbers in last)
    assert found["rows per common user"] == num_rows / num_different
    if "average" in privatizer:
        assert found["rows per common user"] == 1
        assert found["rows per rating"] < 1
    else:
        assert found["rows per rating"] == 1
        assert found["rows per common user"] > 1
    assert found["letters sent per visitor"] == 0, "nobody was served"


def test_for_a_visitor_two_letters_are_sent_and_two_received(data: Interactions) -> None:
    pytest.importorskip("tenseal")
    values = {"inference": "ckks", "num_asked": 1}
    assert go(data, 1, ["communication"], **values).folds[0].metrics["letters sent per visitor"] == 2


# --- Groups of test ratings --------------------------------------------------------------------------------


def test_groups_are_measured_by_themselves_and_kept(data: Interactions, tmp_path: Path) -> None:
    go(data, 2, [], tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "run.json").read_text())["folds"][0]["metrics"]
    split = next(splits_of(data, settings_for(FEDCORE)))
    job, progress = load_fold(tmp_path / "run")
    predicted = job.scorer(progress).predict(split.test.users, split.test.items)
    assert list(split.groups) == ["a own", "a cold", "b own", "b cold"]
    for name, is_in in split.groups.items():
        errors = (predicted - split.test.ratings)[is_in].astype(np.float64)
        assert metrics[f"{name} MAE"] == pytest.approx(np.abs(errors).mean(), rel=1e-6)
        assert metrics[f"{name} RMSE"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-6)
    assert len({metrics[f"{name} MAE"] for name in split.groups}) == 4
    facts = read_run(tmp_path / "run").folds[0].facts
    assert facts["common users"] == 75 - count_unrated(job.train)


def count_unrated(train: Interactions) -> int:
    """Common users that have no training rating at one of the partners."""
    rows = rows_of_partners(train)
    rated = [
        set(rows.user_ids[rows.user_starts[p] :][rows.users[rows.starts[p] : rows.starts[p + 1]]].tolist())
        for p in (0, 1)
    ]
    return 75 - len(rated[0] & rated[1])


@pytest.mark.parametrize("name", ["average", "pmf", "neucf"])
def test_baselines_on_pooled_data_are_measured_in_the_same_groups(name: str, data: Interactions) -> None:
    system = SYSTEMS[name]
    config = system.configure({"num_rounds": 1, **settings_of(name, {"num_factors": 4})})
    settings = settings_for(system, split="pooled")
    metrics = run(system, config, data, settings, ONE_THREAD).folds[0].metrics
    assert {
        f"{who} {kind} {metric}" for who in "ab" for kind in ("own", "cold") for metric in ("MAE", "RMSE")
    } <= set(metrics)
    if name == "average":
        split = next(copies(data, settings.deal, 0, is_pooled=True))
        cold = split.test.select(split.groups["a cold"]).ratings.astype(np.float64)
        mean = split.train.ratings.astype(np.float64).mean()
        assert metrics["a cold MAE"] == pytest.approx(np.abs(cold - mean).mean(), rel=1e-5)


def test_the_deal_is_kept_and_another_is_refused(data: Interactions, tmp_path: Path) -> None:
    config = FEDCORE.configure({**PLAIN, "num_rounds": 1})
    three = settings_for(FEDCORE, deal=Deal(num_partners=3))
    done = run(FEDCORE, config, data, three, ONE_THREAD, tmp_path / "run")
    assert read_run(tmp_path / "run").provenance.deal == Deal(num_partners=3)
    assert {name.split()[0] for name in done.folds[0].metrics if " own " in name} == {"a", "b", "c"}
    with pytest.raises(HushrecError, match="deal"):
        run(FEDCORE, config, data, settings_for(FEDCORE), ONE_THREAD, tmp_path / "run", resume=True)
    with pytest.raises(HushrecError, match=r"folds=6 with split='partners': choose 1 to 5"):
        settings_for(FEDCORE, num_folds=6)


# --- Tables ------------------------------------------------------------------------------------------------


def test_rows_of_tables_have_a_split_a_deal_and_probes() -> None:
    text = b"""
        name = "tiny"
        title = "A tiny table"
        paper = "Nobody (2026)"
        kind = "counts"
        claim = "it holds"
        metrics = ["top 1%"]

        [[rows]]
        label = "one"
        system = "fedcore"
        data = "synthetic"
        config = { num_rounds = 1 }
        probes = ["identification"]
        split = "partners"
        deal = { num_partners = 3, common_users = 0.3 }
    """
    (row,) = msgspec.toml.decode(text, type=Table).rows
    assert (row.split, row.probes) == ("partners", ["identification"])
    assert row.deal == Deal(3, 0.3, 0.5)
    for right, wrong in (
        (b"num_partners = 3", b"num_partners = 1.5"),
        (b'["identification"]', b'"identification"'),
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.toml.decode(text.replace(right, wrong), type=Table)


def test_published_tables_name_probes_that_there_are() -> None:
    rows = [row for (system, _), table in tables().items() for row in table.rows if system == "fedcore"]
    assert len(rows) > 20
    for row in rows:
        assert set(row.probes) <= PROBES.keys()
        assert row.split in (None, "pooled")
        assert row.split == "pooled" or SYSTEMS[row.system].holders is PARTNERS
        assert row.split is None or not row.probes, "there is nobody to attack"


class StopError(Exception):
    """Somebody pulls the plug."""


def test_a_table_with_probes_goes_on_where_it_stopped(data: Interactions, tmp_path: Path) -> None:
    """What a probe found is not in a checkpoint: the fold that was broken off begins again, the others stay."""
    row = Row("plain", "fedcore", "synthetic", {**PLAIN, "num_rounds": 5}, probes=["identification"])
    table = Table("tiny", "A tiny table", "Nobody (2026)", "counts", "it holds", ["top 1%", "top 5%"], [row])
    settings = settings_for(FEDCORE, num_folds=2)
    whole = reproduce_row(table, row, "", data, settings, ONE_THREAD, None, None)
    seen: list[tuple[int, int]] = []

    def stop(now: FoldProgress) -> None:
        if (now.fold, now.round_number) == (2, 3):
            raise StopError

    with pytest.raises(StopError):
        reproduce_row(table, row, "", data, settings, ONE_THREAD, tmp_path / "row", stop)
    watch = lambda now: seen.append((now.fold, now.round_number))  # noqa: E731
    again = reproduce_row(table, row, "", data, settings, ONE_THREAD, tmp_path / "row", watch)
    assert seen == [(2, number) for number in range(1, 6)]
    assert again.cells == whole.cells
    for one, other in zip(again.run.folds, whole.run.folds, strict=True):
        timeless = {"cpu_seconds": 0.0, "wall_seconds": 0.0}
        assert replace(one, **timeless) == replace(other, **timeless)
    kept = reproduce_row(table, row, "", data, settings, ONE_THREAD, tmp_path / "row", watch)
    assert len(seen) == 5, "a row that is done is not run again"
    assert kept.cells == whole.cells
