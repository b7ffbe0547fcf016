from dataclasses import replace

import pytest

from hushrec.experiments import published
from hushrec.report.properties import digest_rows, provenance_rows, setting_rows
from hushrec.report.tables import (
    MetricCell,
    best_text,
    is_error,
    labels,
    main_metric,
    metric_rows,
    role_rows,
    traffic_rows,
    up_and_down,
)
from hushrec.runs.record import Run


def test_labels_tell_what_differs(runs: dict[str, Run]) -> None:
    assert labels([runs["plain"]]) == ["FedRec"]
    assert labels([runs["plain"], runs["noisy"]]) == ["FedRec rho 0", "FedRec rho 2"]
    assert labels([runs["plain"], runs["denoised"]], " with ") == ["FedRec with rho 0", "FedRec++ with rho 2"]
    assert labels([runs["pmf"], runs["noisy"]]) == ["PMF", "FedRec"]


def test_labels_are_distinct(runs: dict[str, Run]) -> None:
    one = runs["noisy"]
    assert labels([one, one, one]) == ["FedRec", "FedRec #2", "FedRec #3"]
    assert labels([one, replace(one, seed=1)]) == ["FedRec seed 0", "FedRec seed 1"]
    assert labels([one, replace(one, data="b.csv")]) == ["FedRec on synthetic", "FedRec on b.csv"]
    more = [
        replace(one, config=one.config | {"rho": rho, "decay": decay})
        for rho, decay in ((0, 0.5), (0, 0.9), (1, 0.9))
    ]
    assert labels(more) == ["FedRec rho 0, decay 0.5", "FedRec rho 0, decay 0.9", "FedRec rho 1, decay 0.9"]


def test_settings_that_only_follow_others_stay_out_of_labels(runs: dict[str, Run]) -> None:
    one = runs["noisy"]
    pair = [replace(one, config=one.config | {"rho": rho, "local_steps": 5 + rho}) for rho in (1, 2)]
    assert labels(pair) == ["FedRec rho 1", "FedRec rho 2"]


def test_metrics_of_one_fold_have_no_deviation(runs: dict[str, Run]) -> None:
    both, single = runs["plain"], replace(runs["plain"], folds=runs["plain"].folds[:1])
    rows = metric_rows([both, single])
    assert rows[0].cells["RMSE"].text == f"{both.mean['RMSE']:.4f} ± {both.std['RMSE']:.4f}"
    assert rows[1].cells["RMSE"].text == f"{single.mean['RMSE']:.4f}"
    assert [row.num_folds for row in rows] == [2, 1]
    assert rows[0].source is None
    assert rows[0].cells["RMSE"].difference is None


def test_published_values_stand_beside(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = runs["plain"]
    given = {"RMSE": [round(ours.mean["RMSE"] + 0.01, 4), 0.002], "MAE": [1.0]}
    row = published.Row("FedRec rho 0", "fedrec", ours.data, ours.config, given)
    table = published.Table("t", "Table 9", "paper", "accuracy", "", ["RMSE"], [row])
    monkeypatch.setattr(published, "tables", lambda: {("fedrec", "t"): table})
    found, other = metric_rows([ours, runs["noisy"]])
    assert found.source == "Table 9: FedRec rho 0"
    assert found.cells["RMSE"].published_std == 0.002
    assert found.cells["RMSE"].difference == pytest.approx(-0.01, abs=1e-4)
    assert found.cells["RMSE"].is_within_spread is False
    assert found.cells["MAE"].is_within_spread is None
    assert other.source is None


@pytest.mark.parametrize(("mean", "is_within"), [(0.94304, True), (0.9431, False), (0.9418, True)])
def test_within_the_spread_as_printed(mean: float, is_within: bool) -> None:
    assert MetricCell(mean, None, 0.9424, 0.0006).is_within_spread is is_within


def test_best_follows_the_metric(runs: dict[str, Run]) -> None:
    rows = metric_rows([runs["plain"], runs["noisy"]])
    assert best_text(rows, "RMSE") == f"{min(row.cells['RMSE'].mean for row in rows):.4f}"
    assert best_text(rows, "NDCG@10") == f"{max(row.cells['NDCG@10'].mean for row in rows):.4f}"
    assert best_text(rows[:1], "RMSE") is None
    assert main_metric([runs["plain"]]) == "RMSE"
    assert is_error("test loss")


def test_traffic_adds_up_to_the_bytes_of_the_run(runs: dict[str, Run]) -> None:
    run = runs["denoised"]
    rows = traffic_rows(run)
    fold = run.folds[0]
    users, rounds = run.provenance.num_users, fold.num_rounds
    total = sum(sum(fold.sent_bytes.values()) for fold in run.folds) / 2
    assert sum(row.bytes for row in rows) == total
    assert sum(up_and_down(run)) == pytest.approx(total / users / rounds)
    down = [way for way in fold.sent_bytes if way.startswith("server")]
    of_folds = [sum(fold.sent_bytes[way] for way in down) for fold in run.folds]
    assert up_and_down(run)[1] == pytest.approx(sum(of_folds) / 2 / users / rounds)
    assert [row.type for row in rows][:3] == ["ItemFactors", "ItemGradients", "Noise"]
    assert rows[2].way == "client → denoiser"
    assert all(row.messages for row in rows)
    assert "MaskedGradients" not in [row.type for row in rows]  # only with shares
    assert {row.role for row in role_rows(run)} == {"server", "client", "denoiser"}
    assert sum(row.sent for row in role_rows(run)) == sum(row.received for row in role_rows(run)) == total


def test_settings_side_by_side(runs: dict[str, Run]) -> None:
    rows = {row.name: row for row in setting_rows([runs["pmf"], runs["noisy"]])}
    assert rows["rho"].values == ["–", "2"]
    assert rows["rho"].meaning == "virtual items per rated item"
    assert rows["num_rounds"].is_shared
    assert not rows["rho"].is_shared


def test_provenance_names_what_is_needed(runs: dict[str, Run]) -> None:
    rows = {row.name: row.values for row in provenance_rows([runs["plain"]])}
    assert rows["data"] == ["synthetic"]
    assert rows["data SHA-256"] == [runs["plain"].provenance.data_sha256]
    assert rows["seed"] == ["0"]
    assert rows["folds done"] == ["2 of 2"]
    assert rows["hushrec"] == [runs["plain"].provenance.versions["hushrec"]]
    cold = [str(fold.num_cold) for fold in runs["plain"].folds]
    assert rows["cold test cases"] == [", ".join(dict.fromkeys(cold))]
    deployed = replace(runs["plain"], folds=[replace(fold, num_cold=None) for fold in runs["plain"].folds])
    assert {row.name: row.values for row in provenance_rows([deployed])}["cold test cases"] == ["–"]


def test_digests_fold_by_fold(runs: dict[str, Run]) -> None:
    rows = digest_rows([runs["plain"], replace(runs["pmf"], folds=runs["pmf"].folds[1:])])
    first = runs["plain"].folds[0].fold
    assert [row.name for row in rows][:2] == [f"fold {first}: driving side", f"fold {first}: clients"]
    assert rows[0].values == [runs["plain"].folds[0].model_sha256[:12], "–"]
    assert rows[3].values[1] == "–"
