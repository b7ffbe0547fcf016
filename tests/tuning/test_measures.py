"""What trials are judged by."""

from types import SimpleNamespace
from typing import Any

import pytest

import hushrec
import hushrec.tuning.measures
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for
from hushrec.tuning.measures import checked_measures, leakage


def test_measures_and_lengths() -> None:
    assert checked_measures([], SYSTEMS["pmf"], (10,)) == (("RMSE",), (10,))
    assert checked_measures(["mae", "bytes"], SYSTEMS["pmf"], (10,)) == (("MAE", "bytes"), (10,))
    assert checked_measures(["ndcg@5"], SYSTEMS["fedrec-bpr"], (10, 20)) == (("NDCG@5",), (5,))
    assert checked_measures([], SYSTEMS["fedrec-bpr"], (10, 20)) == (("NDCG@20",), (10, 20))


@pytest.mark.parametrize(
    ("system", "names", "told"),
    [
        ("pmf", ["nosuch"], "measure='nosuch': pmf is measured by MAE, RMSE, bytes, leakage"),
        ("pmf", ["NDCG@10"], "measure='NDCG@10': pmf is measured by MAE, RMSE, bytes, leakage"),
        ("fedrec-bpr", ["RMSE"], "fedrec-bpr is measured by Recall@20, NDCG@20, bytes, leakage"),
        ("fedrec-bpr", ["NDCG@0"], "lists have at least one item"),
        ("pmf", ["bytes"], "measure='bytes': name an accuracy first, such as RMSE"),
        ("pmf", ["RMSE", "rmse"], "name each measure once"),
    ],
)
def test_what_is_not_measured_is_refused(system: str, names: list[str], told: str) -> None:
    with pytest.raises(HushrecError) as caught:
        checked_measures(names, SYSTEMS[system], (20,))
    assert told in str(caught.value)


def test_leakage_is_that_of_the_best_attack_above_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """.9 where .8 is chance is worth less than .5 where .2 is; three rounds are looked at."""
    found = [(0.9, 0.8), (0.5, 0.2), (0.1, 0.4)]
    rounds = list[int]()

    def audit(job: Any, *_: object) -> SimpleNamespace:
        rounds.append(job.config.num_rounds)
        return SimpleNamespace(findings=[SimpleNamespace(score=score, chance=chance) for score, chance in found])

    monkeypatch.setattr(hushrec.tuning.measures, "audit", audit)
    system = SYSTEMS["pmf"]
    data = hushrec.load("synthetic:users=30,items=20,ratings=300")
    job = job_for(system, system.configure({"num_rounds": 50}), 0, data)
    assert leakage(job, RuntimeOptions(threads=1)) == pytest.approx(0.3)
    assert rounds == [3]
    found[:] = [(0.1, 0.4)]
    assert leakage(job, RuntimeOptions(threads=1)) == 0
    found.clear()
    assert leakage(job, RuntimeOptions(threads=1)) == 0
