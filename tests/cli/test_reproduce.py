import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import hushrec
import hushrec.cli.work.reproduce
from hushrec.cli.verbs import app
from hushrec.data import Deal
from hushrec.errors import HushrecError
from hushrec.experiments.drift_time import STEPS
from hushrec.experiments.published import Claim, Row, Table
from hushrec.experiments.reproduction import Cell
from hushrec.experiments.summary import NOT_RUN, RowRecord, Summary, TableRecord
from hushrec.report.numbers import format_metric
from hushrec.runs import folds as runs
from hushrec.runs.record import read_run

DATA = "synthetic:users=80,items=50,ratings=1500"
TINY = {"num_rounds": 3, "num_factors": 5}


def table(**changes: Any) -> Table:
    published = {"MAE": [0.7418, 9.0], "RMSE": [0.9424, 0.0064]}
    rows = [
        Row("FedRec rho 0", "fedrec", "ml-100k", {**TINY, "rho": 0}, published),
        Row("FedRec++ rho 2", "fedrec++", "ml-100k", {**TINY, "rho": 2}, {"MAE": [0.7422]}, note="a remark [1]"),
        Row("FedRec rho 2", "fedrec", "ml-1m", {**TINY, "rho": 2}),
    ]
    paper = "Nobody: [Title] (2026)"
    whole = Table("table2", "A table [2]", paper, "accuracy", "as good as before", ["MAE", "RMSE"], rows)
    return replace(whole, **changes)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    hushrec.cli.work.reproduce._loaded.cache_clear()
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(hushrec.cli.work.reproduce, "table_named", lambda system, name: table())
    monkeypatch.setattr(hushrec.cli.work.reproduce, "load", lambda name, notify: hushrec.load(DATA))


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(
        app,
        ["reproduce", "fedrec++", "table2", "--data", "ml-100k", "--folds", "2", *arguments],
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    return result


def test_ours_stand_beside_the_published(tmp_path: Path) -> None:
    result = invoke("--out", str(tmp_path))
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[:2] == ["A table [2]", "Nobody: [Title] (2026)"]
    assert lines[2].split() == [
        "data", "row", "MAE", "ours", "published", "within", "RMSE", "ours", "published", "within",
    ]  # fmt: skip
    kept = {run.system: run for run in (read_run(path.parent) for path in tmp_path.glob("*/*/run.json"))}
    plain = kept["fedrec"]
    mae, rmse = (f"{plain.mean[name]:.4f} ± {plain.std[name]:.4f}" for name in ("MAE", "RMSE"))
    difference = f"{plain.mean['RMSE'] - 0.9424:+.4f}"
    cells = [mae, "0.7418 ± 9.0000", "yes", rmse, "0.9424 ± 0.0064", difference]
    assert lines[3].split() == " ".join(["ml-100k", "FedRec rho 0", *cells]).split()
    assert lines[4].split()[-3:] == [
        f"{kept['fedrec++'].mean['RMSE']:.4f}",
        "±",
        f"{kept['fedrec++'].std['RMSE']:.4f}",
    ]
    assert lines[5:] == [
        "note: a remark [1]",
        "ml-100k: FedRec++ rho 2 and FedRec rho 0: identical to the last bit: yes",
        "claim: as good as before",
    ]


def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 40 columns every number stands in a line that says what it is."""
    whole = invoke().stdout
    monkeypatch.setattr(hushrec.cli.console, "results", lambda: Console(highlight=False, width=40))
    narrow = invoke().stdout
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines()[2:6])) <= 40 < max(map(len, whole.splitlines()[2:6]))
    for number in re.findall(r"[0-9]\.[0-9]+(?: ± [0-9.]+)?", whole):
        assert number in narrow


def test_json_is_one_object_with_the_runs() -> None:
    result = invoke("--json")
    assert len(result.stdout.splitlines()) == 1
    said = json.loads(result.stdout)
    assert (said["table"], said["title"], said["claim"]) == ("table2", "A table [2]", "as good as before")
    plain, denoised = said["rows"]
    assert (plain["data"], plain["label"]) == ("ml-100k", "FedRec rho 0")
    assert [cell["metric"] for cell in plain["cells"]] == ["MAE", "RMSE"]
    mae, rmse = plain["cells"]
    assert mae["ours"] == plain["run"]["mean"]["MAE"]
    assert (mae["published"], mae["published_std"], mae["within"]) == (0.7418, 9.0, True)
    assert rmse["within"] is (abs(rmse["ours"] - 0.9424) <= 0.0064)
    assert denoised["cells"][1]["published"] is None
    assert denoised["cells"][1]["within"] is None
    assert [fold["model_sha256"] for fold in plain["run"]["folds"]] == [
        fold["model_sha256"] for fold in denoised["run"]["folds"]
    ]


def test_rows_have_folders_of_their_own_and_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = invoke("--out", str(tmp_path))
    assert len(list(tmp_path.glob("*/*/run.json"))) == 2

    def refuse(*_: object) -> None:
        raise AssertionError("a finished fold is run again")

    monkeypatch.setattr(runs, "run_job", refuse)
    assert invoke("--out", str(tmp_path)).stdout == first.stdout


def test_an_interrupted_table_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, run_job = list[str](), runs.run_job

    def stopping(job: Any, *more: Any) -> Any:
        trained.append(job.system.name)
        if trained == ["fedrec", "fedrec", "fedrec++", "fedrec++"]:
            raise KeyboardInterrupt
        return run_job(job, *more)

    monkeypatch.setattr(runs, "run_job", stopping)
    stopped = CliRunner().invoke(
        app, ["reproduce", "fedrec++", "table2", "--data", "ml-100k", "--folds", "2", "--out", str(tmp_path)]
    )
    assert stopped.exit_code == 130
    assert len(trained) == 4
    trained.clear()
    result = invoke("--out", str(tmp_path))
    assert trained == ["fedrec++"], "only what was not finished"
    assert result.stdout == invoke().stdout


def test_communication_has_whole_numbers_and_no_verdict_on_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        Row("eta 0", "fedrec", "ml-100k", {**TINY, "rho": 0}, {"client": [1234]}),
        Row("eta 1", "fedrec++", "ml-100k", {**TINY, "rho": 1}, {"client": [99999]}),
    ]
    changed = table(kind="communication", metrics=["client"], rows=rows, num_rounds=1)
    monkeypatch.setattr(hushrec.cli.work.reproduce, "table_named", lambda system, name: changed)
    lines = invoke().stdout.splitlines()
    assert lines[3].split()[-2] == "1,234"
    assert lines[4].split()[-2] == "99,999"
    assert lines[4].split()[-1].lstrip("-").isdigit()
    assert not any("last bit" in line for line in lines)


def test_rows_of_other_data_are_left_out() -> None:
    with pytest.raises(HushrecError, match="table2 has no row on steam-200k; it has ml-100k, ml-1m"):
        invoke("--data", "steam-200k")


def test_folds_out_of_range_are_refused() -> None:
    with pytest.raises(HushrecError, match="--folds 6: choose 1 to 5"):
        invoke("--folds", "6")


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "table.svg"
    result = invoke("--picture", str(picture))
    assert "<svg" in picture.read_text()
    assert f"picture: {picture}" in result.stderr.replace("\n", "")


def order_table() -> Table:
    """Published: PTF-FedRec above FCF; a third row is ours alone."""
    small = {"num_rounds": 2, "server_model": "neumf", "client_factors": 4, "server_factors": 4}
    rows = [
        Row("FCF", "fcf", "ml-100k", {"num_rounds": 2, "num_factors": 4}, {"NDCG@20": [0.1]}),
        Row("PTF", "ptf-fedrec", "ml-100k", small, {"NDCG@20": [0.2]}),
        Row("FCF, other", "fcf", "ml-100k", {"num_rounds": 1, "num_factors": 2}),
    ]
    paper = "Nobody: Title (2026)"
    return Table("t", "A table", paper, "ranking", "as said", ["NDCG@20"], rows, presets=["paper", "released"])


@pytest.fixture
def _with_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hushrec.cli.work.reproduce, "table_named", lambda system, name: order_table())


def reproduced(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", "ptf-fedrec", "t", *arguments])


@pytest.mark.usefixtures("_with_presets")
def test_presets_are_columns_and_the_order_is_the_verdict(tmp_path: Path) -> None:
    lines = [line.split() for line in reproduced("--out", str(tmp_path)).stdout.splitlines()]
    runs = [read_run(path.parent) for path in tmp_path.glob("*/*/run.json")]
    kept = {
        (run.system, run.config["num_rounds"], run.config.get("client_learning_rate")): run.mean["NDCG@20"]
        for run in runs
    }
    names = [("fcf", 2, None), ("ptf-fedrec", 2, 0.001), ("ptf-fedrec", 2, 0.01)]
    assert kept.keys() == {*names, ("fcf", 1, None)}
    fcf, paper, released = (f"{kept[name]:.4f}" for name in names)
    assert lines[2] == ["data", "row", "NDCG@20", "published", "paper", "released"]
    assert lines[3] == ["ml-100k", "FCF", "0.1000", fcf, fcf]
    assert lines[4] == ["ml-100k", "PTF", "0.2000", paper, released]
    said = {" ".join(line) for line in lines[6:]}
    expected = {
        f"order differs (ml-100k, NDCG@20, {preset}): FCF above PTF"
        for preset, ours in (("paper", paper), ("released", released))
        if fcf > ours
    }
    assert said == (expected or {"order of NDCG@20 as published"}) | {"claim: as said"}


@pytest.mark.usefixtures("_with_presets")
def test_parts_of_a_table_can_be_asked_for(tmp_path: Path) -> None:
    one = reproduced("--row", "ptf", "--preset", "released", "--out", str(tmp_path))
    assert one.exit_code == 0
    assert "order" not in one.stdout, "one row has no order"
    (kept,) = [read_run(path.parent) for path in tmp_path.glob("*/*/run.json")]
    assert (kept.system, kept.config["client_learning_rate"]) == ("ptf-fedrec", 0.01)
    for arguments, message in (
        (("--row", "zzz"), "no row of t is named 'zzz'; it has FCF, PTF, FCF, other"),
        (("--preset", "best"), "t has no preset 'best'; it has paper, released"),
    ):
        refused = reproduced(*arguments)
        assert isinstance(refused.exception, HushrecError)
        assert str(refused.exception) == message


@pytest.mark.usefixtures("_with_presets")
def test_several_seeds_give_a_mean_and_a_spread(tmp_path: Path) -> None:
    arguments = ("--row", "FCF", "--seeds", "2", "--seed", "3", "--out", str(tmp_path))
    lines = [line.split() for line in reproduced(*arguments).stdout.splitlines()]
    runs = [read_run(path.parent) for path in tmp_path.glob("*/*/run.json")]
    kept = sorted((run for run in runs if run.config["num_rounds"] == 2), key=lambda run: run.seed)
    assert [run.seed for run in kept] == [3, 4]
    one, other = (run.mean["NDCG@20"] for run in kept)
    ours = [f"{(one + other) / 2:.4f}", "±", f"{abs(one - other) / 2:.4f}"]
    assert lines[3] == ["ml-100k", "FCF", "0.1000", *ours, *ours]
    (row, _) = json.loads(reproduced(*arguments, "--json").stdout)["rows"]
    assert row["seeds"] == [3, 4]


def test_seeds_out_of_range_are_refused() -> None:
    with pytest.raises(HushrecError, match="--seeds 0: choose 1 to 1000"):
        invoke("--seeds", "0")


# --- Tables of partners ------------------------------------------------------------------------------------


def partner_table(metrics: list[str]) -> Table:
    deal = Deal(num_partners=3, common_users=0.4)
    plain = {**TINY, "inference": "none"}
    rows = [
        Row(
            "together",
            "fedcore",
            "ml-100k",
            plain,
            {"c cold MAE": [0.7, 9.0]},
            deal=deal,
            probes=["identification"],
        ),
        Row("the mean", "average", "ml-100k", {}, split="pooled", deal=deal),
    ]
    return Table("table-tiny", "Partners", "Nobody (2026)", "counts", "it holds", metrics, rows)


def test_rows_have_their_own_split_deal_and_probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Metrics that only such a deal has; with more than four of them, each has a line of its own."""
    metrics = ["a cold MAE", "b own RMSE", "c cold MAE", "c own MAE", "c own RMSE"]
    monkeypatch.setattr(hushrec.cli.work.reproduce, "table_named", lambda system, name: partner_table(metrics))
    result = invoke("--out", str(tmp_path))
    kept = {run.system: run for run in (read_run(path.parent) for path in tmp_path.glob("*/*/run.json"))}
    assert {name: run.provenance.split for name, run in kept.items()} == {
        "fedcore": "partners",
        "average": "pooled",
    }
    assert {run.provenance.deal for run in kept.values()} == {Deal(num_partners=3, common_users=0.4)}
    assert "top 5%" in kept["fedcore"].mean
    assert "top 5%" not in kept["average"].mean
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[2] == ["data", "row", "measure", "ours", "published", "within"]
    assert len(lines) == 3 + 2 * len(metrics) + 1
    together = kept["fedcore"]
    ours = [f"{together.mean['c cold MAE']:.1f}", "±", f"{together.std['c cold MAE']:.1f}"]
    assert ["ml-100k", "together", "c", "cold", "MAE", *ours, "0.7", "±", "9.0", "yes"] in lines


# --- DRIFT: published in words -----------------------------------------------------------------------------


def stream_table(kind: Any, metrics: list[str], claims: list[Claim]) -> Table:
    config = {"epochs": 2, "parts": 2, "num_factors": 3}
    plain = config | {"encryption": "none"}
    rows = [Row("one", "drift", DATA, config, owners="3"), Row("two", "drift", DATA, plain, owners="3")]
    return Table("figure0", "Streams", "Nobody (2026)", kind, "as said", metrics, rows, claims=claims)


def streamed(monkeypatch: pytest.MonkeyPatch, table: Table, *arguments: str) -> Result:
    monkeypatch.setattr(hushrec.cli.work.reproduce, "table_named", lambda system, name: table)
    result = CliRunner().invoke(app, ["reproduce", "drift", "figure0", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def test_curves_stand_side_by_side_with_the_verdict_on_each_claim(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Encryption changes no number: the two rows are equal, so nothing is above, and all is close."""
    claims = [
        Claim("ahead", "above", ["MAP@5, epoch 1"], ["one", "two"]),
        Claim("behind", "below", ["MAP@5, epoch 1", "MAP@5, end"], ["one", "two"]),
        Claim("close", "close", ["train loss, end", "test loss, end"], ["one", "two"]),
    ]
    names = [f"{name} loss, epoch {epoch}" for name in ("train", "test") for epoch in (1, 2)]
    names += ["test loss, end", "train loss, end"]
    picture = tmp_path / "losses.png"
    result = streamed(
        monkeypatch, stream_table("curve", names, claims), "--out", str(tmp_path), "--picture", str(picture)
    )
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    (curves,) = {str(read_run(path.parent).folds[0].curve) for path in tmp_path.glob("*/*/run.json")}
    curve = read_run(next(tmp_path.glob("*/*/run.json")).parent).folds[0].curve
    assert str(curve) == curves
    assert [line.split() for line in lines[2:4]] == [
        ("train loss " * 2 + "test loss " * 2).split(),
        [DATA, "one", "two", "one", "two"],
    ]
    for place in range(2):
        numbers = [f"{curve[name][place]:.4f}" for name in ("train loss", "test loss") for _ in range(2)]
        assert lines[4 + place].split() == ["epoch", str(place + 1), *numbers]
    first, last = (format_metric(curve["MAP@5"][place]) for place in (0, -1))
    assert lines[7:] == [
        f"{DATA}: ahead: no (MAP@5, epoch 1 {first}, {first})",
        f"{DATA}: behind: no, by none of 2 measures (MAP@5, epoch 1 {first}, {first}; MAP@5, end {last}, {last})",
        f"{DATA}: close: yes, by 2 of 2 measures",
        "claim: as said",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_times_are_printed_by_step_and_by_owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    claims = [Claim("cheap", "at most", ["security layer"], ["one", "two"], 1.0)]
    table = stream_table("time", list(STEPS), claims)
    result = streamed(monkeypatch, table, "--picture", str(tmp_path / "times.svg"))
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[2].split("  ")[0] == DATA
    assert [line.split("  ")[0] for line in lines[3:11]] == [*STEPS, "all"]
    shares = [float(line.split()[-1].rstrip("%")) for line in lines[3:10]]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert lines[11].split()[:3] == ["one,", "by", "owner"]
    assert [line.split()[0] for line in lines[12:15]] == ["owner1", "owner2", "owner3"]
    assert re.fullmatch(rf"{DATA}: cheap: yes \(-?[0-9.]+%, -?[0-9.]+ m?s\)", lines[15])


def test_costs_are_printed_a_line_per_row_and_claims_are_in_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [Claim("close", "close", ["NDCG@5, end"], ["one", "two"])]
    table = stream_table("cost", ["NDCG@10", "deliveries", "MB"], claims)
    lines = [line.split() for line in streamed(monkeypatch, table).stdout.splitlines()]
    assert lines[2] == ["data", "row", "NDCG@10", "deliveries", "MB"]
    assert [line[:2] for line in lines[3:5]] == [[DATA, "one"], [DATA, "two"]]
    assert lines[3][2:4] == lines[4][2:4]
    said = json.loads(streamed(monkeypatch, table, "--json").stdout)
    (claim,) = said["claims"]
    assert (claim["claim"], claim["data"]) == ("close", DATA)
    measure = claim["measures"]["NDCG@5, end"]
    assert measure["holds"] is True
    assert measure["ours"][0] == measure["ours"][1] > 0


# --- All tables of a dataset -------------------------------------------------------------------------------


def all_tables() -> dict[tuple[str, str], Table]:
    """Two tables that share a run; one has a figure, a claim that fails, and a row that cannot be run."""
    claims = [Claim("noise costs nothing", "identical", ["bits"], ["plain", "noisy"], why="noise stays in")]
    rows = [
        Row("plain", "fedrec", "ml-100k", {**TINY, "rho": 0}, {"MAE": [0.5]}, series="FedRec", x=0),
        Row("noisy", "fedrec", "ml-100k", {**TINY, "rho": 2}, series="FedRec", x=2),
        Row("wild", "fedrec", "ml-100k", {**TINY, "rho": 0, "learning_rate": 1e30}),
        Row("elsewhere", "fedrec", "ml-1m", {**TINY, "rho": 0}),
    ]
    one = table(name="figure1", rows=rows, claims=claims, x_label="rho")
    other = table(name="table9", rows=[replace(rows[0], label="again", published={"MAE": [0.5, 9.0]})])
    return {("fedrec++", "figure1"): one, ("ptf-fedrec", "table9"): other}


@pytest.fixture
def _all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hushrec.cli.work.reproduce, "tables", all_tables)


def everything(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", "--all", "--data", "ml-100k", "--folds", "1", *arguments])


@pytest.mark.usefixtures("_all")
def test_all_tables_end_in_one_summary_and_a_page(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "ml-100k.md"
    result = everything("--out", str(tmp_path / "kept"), "--page", str(page))
    assert result.exit_code == 0, result.exception
    assert len(list((tmp_path / "kept" / "runs").glob("*/run.json"))) == 3, "the shared run is kept once"
    lines = [line.strip() for line in result.stdout.splitlines()]
    for line in (
        "rows: 4", "rows with numbers: 3", "rows without a number: 1", "rows not run yet: 0", "cells: 6",
        "cells with a published spread or unit: 1", "of these within it: 1",
        "cells published without a spread: 1", "claims: 1", "claims that do not hold: 1", "why: noise stays in",
        "A table [2]: noise costs nothing", "ml-100k (bits)",
    ):  # fmt: skip
        assert line in lines, line
    assert any(line.startswith("A table [2], ml-100k, wild: diverged") for line in lines)
    text = page.read_text()
    assert "![A table [2]](ml-100k-fedrecpp-figure1.png)" in text
    assert (page.parent / "ml-100k-fedrecpp-figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "- A table [2]: noise costs nothing. Why: noise stays in.\n  - **no** · ml-100k (bits)" in text
    record = json.loads(page.with_suffix(".json").read_text())
    assert record["counts"]["rows"] == 4
    assert record["tables"][0]["rows"][0]["cells"][0]["near"] in (True, False)
    said = json.loads(everything("--out", str(tmp_path / "kept"), "--json").stdout)
    assert said["tables"] == record["tables"]


@pytest.mark.usefixtures("_all")
def test_a_budget_starts_no_further_row_and_the_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = everything("--out", str(tmp_path), "--hours", "0")
    assert "rows not run yet: 4" in nothing.stdout
    assert "the same command goes on with the rows that were not run yet" in nothing.stdout
    whole = everything("--out", str(tmp_path))
    assert "rows not run yet: 0" in whole.stdout

    def refuse(*_: object) -> None:
        raise AssertionError("a finished fold is run again")

    monkeypatch.setattr(runs, "run_job", refuse)
    assert everything("--out", str(tmp_path), "--hours", "0").stdout == whole.stdout


@pytest.mark.usefixtures("_all")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--all", "--data", "ml-100k"], "--all takes hours: add --out DIR"),
        (["--all", "--out", "x"], "--all needs a dataset"),
        (
            ["--all", "--data", "jester-1", "--out", "x"],
            "no table has a row on jester-1; there are rows on ml-100k",
        ),
        (["fedrec", "table2", "--all", "--data", "ml-100k"], "table2: --all runs every table whole"),
        (["--all", "--data", "ml-100k", "--row", "a"], "--row: --all runs every table whole"),
        (["fedrec++"], "name a system and a table"),
        (["fedrec++", "table2", "--hours", "1"], "--hours, --page and --unmeasured go with --all"),
        (["fedrec++", "table2", "--unmeasured"], "--hours, --page and --unmeasured go with --all"),
        (
            ["--all", "--data", "ml-100k", "--out", "x", "--unmeasured", "--folds", "1"],
            "--unmeasured: the record has the usual seed and folds; leave --seed and --folds out",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert isinstance(result.exception, HushrecError)
    assert message in str(result.exception)


@pytest.mark.usefixtures("_all")
def test_what_the_record_has_whole_is_taken_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record lacks a row of the first table; so that one is run, whole, and the second is not."""
    first, second = (
        TableRecord(
            system, name, "A table [2]", "Nobody", "accuracy", [RowRecord("ml-100k", *row) for row in rows], []
        )
        for (system, name), rows in {
            ("fedrec++", "figure1"): [("plain", ""), ("noisy", ""), ("wild", "", [], 0.0, NOT_RUN)],
            ("ptf-fedrec", "table9"): [("again", "", [Cell("MAE", 0.25, 0.0, 0.5, 9.0)], 7.0)],
        }.items()
    )
    record = {"ml-100k": Summary("ml-100k", "2026-01-02", "0", [first, second], 1000.0)}
    monkeypatch.setattr("hushrec.experiments.summary.measured_summaries", lambda: record)
    monkeypatch.setattr(hushrec.cli.work.reproduce, "measured_summaries", lambda: record)
    command = ["reproduce", "--all", "--data", "ml-100k", "--unmeasured", "--json", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert "table 2/2: A table [2]: taken from the record, 2026-01-02" in result.stderr
    said = json.loads(result.stdout)
    assert [row["missing"][:8] for row in said["tables"][0]["rows"]] == ["", "", "diverged"]
    assert said["tables"][1]["rows"][0]["cells"][0]["ours"] == 0.25
    assert [one["measured"] for one in said["tables"]] == ["", "2026-01-02"]
    assert 1000.0 < said["cpu_seconds"] < 1100.0


@pytest.mark.usefixtures("_all")
def test_figures_of_a_record_are_drawn_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    for (system, name), one in all_tables().items():
        rows = [row for row in one.rows if row.data == "ml-100k"]
        cells = [Cell("MAE", 0.25, 0.0, 0.5, None), Cell("RMSE", 0.5, 0.0, None, None)]
        kept.append(
            TableRecord(
                system,
                name,
                "T",
                "P",
                "accuracy",
                [RowRecord("ml-100k", row.label, "", cells) for row in rows],
                [],
            )
        )
    record = {"ml-100k": Summary("ml-100k", "2026-01-02", "0", kept)}
    monkeypatch.setattr("hushrec.experiments.summary.measured_summaries", lambda: record)
    monkeypatch.setattr(hushrec.cli.work.reproduce, "measured_summaries", lambda: record)
    monkeypatch.setattr(runs, "run_job", None)
    page = tmp_path / "page.md"
    command = [
        "reproduce",
        "--all",
        "--data",
        "ml-100k",
        "--unmeasured",
        "--out",
        str(tmp_path),
        "--page",
        str(page),
    ]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert (tmp_path / "ml-100k-fedrecpp-figure1.png").read_bytes().startswith(b"\x89PNG")
    assert page.read_text().count("Measured on 2026-01-02.") == 2


def test_a_row_whose_data_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(name: str, notify: Any) -> Any:
        if name == "ml-1m":
            raise HushrecError("ml-1m needs the raw files: put them in DIR")
        return hushrec.load(DATA)

    monkeypatch.setattr(hushrec.cli.work.reproduce, "load", few)
    result = CliRunner().invoke(app, ["reproduce", "fedrec++", "table2", "--folds", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "ml-1m, FedRec rho 2: ml-1m needs the raw files: put them in DIR" in result.stdout
    alone = CliRunner().invoke(app, ["reproduce", "fedrec++", "table2", "--data", "ml-1m"])
    assert isinstance(alone.exception, HushrecError)
    assert str(alone.exception) == "ml-1m needs the raw files: put them in DIR"
