"""What is said of a run beside its baselines, by hand."""

from dataclasses import replace

import pytest

from hushrec.report.verdict import alike_line, is_beaten, judged_metrics, lists_line, shown_beside, unbeaten_lines
from hushrec.runs.record import Run

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
    assert lists_line(MEASURES | {"users": 105283.0}, 10).startswith(
        "lists of 10 for 943 users, drawn from 105,283:"
    )
    assert alike_line(judged(plain, {})) == (
        "lists are alike for most people: two of them share 68.3% of their items, one item is in 98.8% of them"
    )
    different = replace(plain.folds[0], lists=MEASURES | {"diversity": 0.9, "most listed": 0.3})
    assert alike_line(replace(plain, folds=[different])) is None
    assert alike_line(plain) is None
