from dataclasses import replace

import pytest

from hushrec.report.findings import caveats, likeness, same_as, summary
from hushrec.runs.record import Run


def changed(run: Run, fold: int, **changes: str | None) -> Run:
    folds = list(run.folds)
    folds[fold] = replace(folds[fold], **changes)
    return replace(run, folds=folds)


def test_denoised_is_plain_to_the_last_bit(runs: dict[str, Run]) -> None:
    plain, noisy, denoised = runs["plain"], runs["noisy"], runs["denoised"]
    assert likeness(plain, denoised) == "identical"
    assert likeness(plain, noisy) == "different"
    assert same_as([plain, noisy, denoised]) == [[2], [], [0]]
    said = " ".join(summary([plain, noisy, denoised]))
    assert "FedRec++ with rho 2 gives the same model as FedRec with rho 0, bit for bit" in said
    assert "the digests of the server's and of all clients' arrays agree in both folds" in said


@pytest.mark.parametrize("digest", ["model_sha256", "clients_sha256"])
@pytest.mark.parametrize("fold", [0, 1])
def test_one_other_digest_takes_the_statement_away(runs: dict[str, Run], digest: str, fold: int) -> None:
    other = changed(runs["denoised"], fold, **{digest: "0" * 64})
    assert likeness(runs["plain"], other) == "different"
    said = " ".join(summary([runs["plain"], other]))
    assert "same model as" not in said
    assert "No two of these runs end with the same model." in said


def test_without_the_clients_digests_only_the_server_is_spoken_of(runs: dict[str, Run]) -> None:
    deployed = replace(
        runs["denoised"], folds=[replace(fold, clients_sha256=None) for fold in runs["denoised"].folds]
    )
    assert likeness(runs["plain"], deployed) == "same model"
    said = " ".join(summary([runs["plain"], deployed]))
    assert "bit for bit: the digests of the server's arrays agree in both folds" in said


def test_other_arrays_are_compared_by_metrics(runs: dict[str, Run]) -> None:
    assert likeness(runs["pmf"], runs["plain"]) == "incomparable"
    said = " ".join(summary([runs["pmf"], runs["plain"]]))
    assert "PMF and FedRec have the same metrics to the last digit" in said
    assert "same model as" not in said
    assert "to the last digit" not in " ".join(summary([runs["pmf"], runs["noisy"]]))


def test_folds_in_common(runs: dict[str, Run]) -> None:
    first = replace(runs["plain"], num_folds=1, folds=runs["plain"].folds[:1])
    second = replace(runs["plain"], num_folds=1, folds=runs["plain"].folds[1:])
    assert likeness(first, second) == "incomparable"
    assert likeness(first, runs["denoised"]) == "identical"
    assert "agree in all folds in common" in " ".join(summary([first, runs["denoised"]]))


def test_summary_names_best_and_dearest(runs: dict[str, Run]) -> None:
    said = " ".join(summary(list(runs.values())))
    assert said.startswith("Four runs of three systems on synthetic: 80 users, 50 items, 1,500 ratings.")
    assert "The data is synthetic" in said
    assert "Best RMSE: " in said
    assert "with FedRec++ with rho 2." in said
    assert summary([runs["pmf"]])[1].startswith("RMSE of PMF: ")


def test_caveats_are_said(runs: dict[str, Run]) -> None:
    plain, denoised = runs["plain"], runs["denoised"]
    assert caveats([plain, denoised]) == []
    begun = replace(denoised, folds=denoised.folds[:1])
    assert [line.partition(":")[0] for line in caveats([plain, begun])] == [
        "the runs have different numbers of folds",
        "FedRec++ rho 2",
    ]
    assert "1 of 2 folds finished" in caveats([plain, begun])[1]
    assert "differ in seed or split" in caveats([plain, replace(denoised, seed=3)])[0]
    elsewhere = replace(denoised, data="b.csv", provenance=replace(denoised.provenance, data_sha256="1"))
    assert caveats([plain, elsewhere])[0].startswith("the runs use different data (synthetic, b.csv)")
    assert not any("Best" in line for line in summary([plain, elsewhere]))
    fitted = replace(plain, folds=[replace(fold, metrics={}) for fold in plain.folds])
    assert "no accuracy" in caveats([fitted])[0]
