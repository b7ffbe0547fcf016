"""What is said of a run beside its baselines, by hand."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import hushrec
from hushrec.errors import HushrecError
from hushrec.registry import system_named
from hushrec.report.page import page
from hushrec.report.samples import sample_lists_of, spaced_users
from hushrec.report.verdict import (
    alike_line,
    is_beaten,
    judged_metrics,
    lists_line,
    shown_beside,
    unbeaten_lines,
    verdict_lines,
)
from hushrec.report.verdict_section import SampleList, verdict_section
from hushrec.runs.folds import run as run_folds
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build

MEASURES = {
    "users": 943.0, "lists": 943.0, "distinct items": 45.0, "coverage": 45 / 1682, "popularity": 0.122,
    "novelty": 3.64, "diversity": 0.3167, "most listed": 932 / 943,
}  # fmt: skip


def judged(run: Run, ours: dict[str, float], **baselines: dict[str, float]) -> Run:
    fold = replace(run.folds[0], metrics=ours, baselines=baselines, lists=MEASURES)
    return replace(run, folds=[fold], num_folds=1, at=(10,))


@pytest.fixture
def plain(runs: dict[str, Run]) -> Run:
    return runs["plain"]


def test_a_baseline_that_does_as_well_is_named(plain: Run) -> None:
    ours = {"RMSE": 0.938, "NDCG@10": 0.05, "HR@10": 0.35}
    run = judged(plain, ours, popularity={"NDCG@10": 0.1705}, biases={"RMSE": 0.935, "NDCG@10": 0.0474})
    assert unbeaten_lines(run) == [
        f"{run.system} does not beat biases: RMSE 0.9380 against 0.9350",
        f"{run.system} does not beat popularity: NDCG@10 0.0500 against 0.1705",
    ]
    more = judged(plain, ours, popularity={"NDCG@10": 0.17}, ALS={"NDCG@10": 0.33}, knn={"NDCG@10": 0.2})
    assert unbeaten_lines(more) == [
        f"{run.system} does not beat popularity, ALS and knn: NDCG@10 0.0500 against 0.3300 (ALS)"
    ]
    best = judged(plain, {"RMSE": 0.9, "NDCG@10": 0.5}, biases={"RMSE": 0.935, "NDCG@10": 0.0474})
    assert unbeaten_lines(best) == []
    assert unbeaten_lines(judged(plain, ours)) == []


def test_numbers_are_compared_as_they_are_printed() -> None:
    assert not is_beaten("RMSE", 0.93501, 0.93504)
    assert is_beaten("RMSE", 0.9349, 0.93501)
    assert is_beaten("NDCG@10", 0.1002, 0.1001)
    assert not is_beaten("NDCG@10", 0.1, 0.1001)


def test_what_judges(plain: Run) -> None:
    both = judged(plain, {"MAE": 1.0, "RMSE": 1.0, "HR@10": 0.1, "NDCG@10": 0.1})
    assert judged_metrics(both) == ["RMSE", "NDCG@10"]
    assert shown_beside(both) == ["RMSE", "NDCG@10", "HR@10"]
    assert judged_metrics(judged(plain, {"MAE": 1.0})) == []


def test_lists_in_a_line(plain: Run) -> None:
    assert lists_line(MEASURES, 10) == (
        "lists of 10 for 943 users: 45 distinct items (2.68% of all), diversity 0.3167, novelty 3.64 bits; "
        "a listed item is had by 12.2% of users; the most listed is in 98.8% of lists"
    )
    assert "diversity 0.3167 between lists and 0.8012 within, novelty" in lists_line(
        MEASURES | {"diversity within": 0.80123}, 10
    )
    assert lists_line(MEASURES | {"users": 105283.0}, 10).startswith(
        "lists of 10 for 943 users, drawn from 105,283:"
    )
    assert alike_line(judged(plain, {})) == (
        "lists are alike for most people: two of them share 68.3% of their items, one item is in 98.8% of them"
    )
    different = replace(plain.folds[0], lists=MEASURES | {"diversity": 0.9, "most listed": 0.3})
    assert alike_line(replace(plain, folds=[different])) is None
    assert alike_line(plain) is None


def test_by_how_much_and_for_whom_not(plain: Run) -> None:
    """0.9 is 10% below 1.0; of users with few ratings biases do better."""
    baselines = {"biases": {"RMSE": 1.0, "RMSE, few ratings": 1.1, "RMSE, many ratings": 0.9}}
    run = judged(plain, {"RMSE": 0.9, "NDCG@10": 0.1}, **baselines, popularity={"NDCG@10": 0.2})
    run = replace(run, folds=[replace(run.folds[0], thirds={"RMSE, few ratings": 1.2, "RMSE, many ratings": 0.8})])
    assert verdict_lines(run) == [
        "beats biases: RMSE 0.9000 against 1.0000 (10.0% lower)",
        "but not for the third of users with few ratings: RMSE 1.2000 against 1.1000 of biases",
        "does not beat popularity: NDCG@10 0.1000 against 0.2000",
    ]


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_section(plain: Run) -> None:
    ours = {"RMSE": 0.9, "NDCG@10": 0.1, "RMSE, warm": 0.8, "RMSE, cold": 2.5}
    run = judged(plain, ours, biases={"RMSE": 1.0, "NDCG@10": 0.05})
    run = replace(run, folds=[replace(run.folds[0], num_test=1300, num_cold=70)])
    said = words(verdict_section([run]))
    assert "FedRec: beats biases: RMSE 0.9000 against 1.0000 (10.0% lower)" in said
    assert "biases, centralised 1.0000 0.0500" in said
    assert "warm rows cold rows RMSE, warm RMSE, cold FedRec 1,230 70 0.8000 2.5000" in said
    assert "943 45 2.68% 12.2% 3.64 0.3167 – 98.8%" in said  # an older run, which has no diversity within
    assert "FedRec: lists are alike for most people" in said
    assert "RMSE, cold" not in words(page([run]).partition('id="accuracy"')[2].partition("</section>")[0])
    assert "no baseline was measured; hushrec run ... --baselines does" in words(verdict_section([plain]))


def test_lists_of_people_are_shown_only_if_given(plain: Run) -> None:
    without = page([plain])
    assert "a person with" not in without
    assert "Nothing here names a user or shows a rating.</footer>" in without
    shown = page(
        [plain], [SampleList("FedRec", 12, ("<b>Brazil</b>", "Alien")), SampleList("FedRec", 40, ("Heat",))]
    )
    assert "<b>Brazil" not in shown
    assert (
        "FedRec: a person with 12 ratings FedRec: a person with 40 ratings 1 <b>Brazil</b> Heat 2 Alien"
        in words(shown)
    )
    assert "The lists of some people are shown: they are private; mind who sees them." in shown


def test_samples_are_lists_of_recommend(tmp_path: Path) -> None:
    data, system = hushrec.load("synthetic:users=30,items=25,ratings=300"), system_named("pmf")
    config = build(system.config, {"num_rounds": 2, "num_factors": 2})
    run_folds(system, config, data, RunSettings(min_raters=None), RuntimeOptions(threads=1), tmp_path / "run")
    model = hushrec.load_run(tmp_path / "run")
    train = model.ranker().train
    num_rated = np.bincount(train.users, minlength=30)
    samples = sample_lists_of(tmp_path / "run", 3)
    assert len(samples) == 3
    assert [one.num_rated for one in samples] == sorted(one.num_rated for one in samples)
    users = spaced_users(num_rated, 3)
    for user, one in zip(users, samples, strict=True):
        (expected,) = model.recommend([train.user_ids[user]])
        assert one.entries == tuple(entry.title or str(entry.item) for entry in expected)
        assert one.num_rated == num_rated[user]


def test_people_are_spread_by_their_ratings() -> None:
    num_rated = np.array([5, 0, 1, 9, 7, 3, 8])
    assert spaced_users(num_rated, 3).tolist() == [5, 4, 3]  # places 1, 3 and 5 of 1 3 5 7 8 9
    assert spaced_users(num_rated, 99).tolist() == [2, 5, 0, 4, 6, 3]


def test_a_folder_without_ratings_has_no_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, system = hushrec.load("synthetic:users=30,items=25,ratings=300"), system_named("pmf")
    config = build(system.config, {"num_rounds": 1, "num_factors": 2})
    run_folds(system, config, data, RunSettings(), RuntimeOptions(threads=1), tmp_path / "run")
    model = hushrec.load_run(tmp_path / "run")
    bare = replace(model.ranker(), seen=model.ranker().seen.take(np.zeros(0, np.int64)))
    monkeypatch.setattr(type(model), "ranker", lambda _: bare)
    with pytest.raises(HushrecError, match="holds no user's ratings, so it has no lists to show"):
        sample_lists_of(tmp_path / "run", 3)
