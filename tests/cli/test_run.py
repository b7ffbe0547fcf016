import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner, Result

import hushrec
import hushrec.cli.work.run
from hushrec.cli.declared import Declared
from hushrec.cli.run import command_of
from hushrec.cli.verbs import app
from hushrec.cli.work.run import print_run
from hushrec.data import Deal
from hushrec.errors import HushrecError
from hushrec.experiments.published import Published
from hushrec.registry import SYSTEMS
from hushrec.report.tables import shown_metrics
from hushrec.runs.beside import Beside
from hushrec.runs.folds import run
from hushrec.runs.record import Run, SplitKind, read_run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions
from systems.runs import as_options, short

DATA = "synthetic:users=80,items=50,ratings=1500"
SHORT = ["--data", DATA, "--rounds", "4", "--num-factors", "5"]
NAMES = list(SYSTEMS)


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["run", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def run_here(name: str, num_folds: int = 1, **settings: Any) -> Run:
    system = SYSTEMS[name]
    config = system.configure(short(name, **settings))
    chosen = settings_for(system, num_folds=num_folds, split=usual_split(name), min_raters=None)
    return run(system, config, hushrec.load(DATA), chosen, RuntimeOptions(threads=1), beside=Beside(False))


def typed(name: str) -> list[str]:
    """A short run of any system, as it is typed."""
    return ["--data", DATA, "--no-baselines", *as_options(name, short(name))]


def usual_split(name: str) -> SplitKind:
    """Folds for all, so that systems can be compared; partners' data must be dealt."""
    return "partners" if SYSTEMS[name].holders.usual_split == "partners" else "folds"


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    folds = [{key: value for key, value in fold.items() if "seconds" not in key} for fold in summary["folds"]]
    return {**summary, "folds": folds}


# --- Output ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_json_is_one_object_and_all_there_is_on_stdout(name: str) -> None:
    result = invoke(name, *typed(name), "--folds", "2", "--split", usual_split(name), "--json")
    assert len(result.stdout.splitlines()) == 1
    said = json.loads(result.stdout)
    assert without_times(said) == without_times(run_here(name, 2).summary())


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_every_metric_and_every_way(name: str) -> None:
    result = invoke(name, *typed(name), "--split", usual_split(name))
    done = run_here(name)
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == f"{name} on synthetic, seed 0, 1 fold(s)"
    shown = [line.split() for line in lines[1:] if line]
    assert ["metric", "mean", "std"] in [words[:3] for words in shown]
    for metric in shown_metrics([done]):
        assert [*metric.split(), f"{done.mean[metric]:.4f}", "–"] in [
            words[: 2 + len(metric.split())] for words in shown
        ]
    party = SYSTEMS[name].holders.word
    for way in done.folds[0].sent_bytes:
        assert [words[-4:] for words in shown if words[0] == way] == [["per", party, "and", "round"]]
    assert done.folds[0].model_sha256[:16] in result.stdout
    of_clients = done.folds[0].clients_sha256
    assert (f"digest of the {party}s" in result.stdout) == bool(of_clients)
    assert not of_clients or f"digest of the {party}s {of_clients[:16]}" in " ".join(result.stdout.split())
    assert "not kept; add --out DIR to keep it" in result.stderr


def test_bytes_per_client_and_round_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """8,000 bytes over 4 rounds and 80 clients are 25 each."""
    done = run_here("pmf")
    fold = replace(done.folds[0], sent_bytes={"client->server": 8000}, num_cold=3, cpu_seconds=1.26)
    print_run(replace(done, folds=[fold]))
    out = capsys.readouterr().out
    assert "25 B per client and round" in out
    assert "1.26 s of CPU, 3.94 ms per client and round\n" in out
    assert "3 test ratings have a user or item without training ratings (cold), 297 have not (warm)\n" in out
    print_run(replace(done, folds=[replace(fold, num_cold=None)]))
    assert "without training ratings" not in capsys.readouterr().out


def test_a_deployed_run_without_a_measure_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_here("pmf")
    print_run(replace(done, party="server", folds=[replace(done.folds[0], metrics={}, curve={})]))
    out = capsys.readouterr().out
    assert "accuracy was not measured: no node has both a model and test ratings\n" in out
    assert "metric" not in out
    assert "test ratings have" not in out


def test_baselines_and_lists_are_told() -> None:
    result = invoke("fedrec++", *SHORT, "--baselines", "--rho", "1")
    lines = result.stdout.splitlines()
    assert any(line.startswith("lists of 10 for 80 users: ") for line in lines)
    first = next(place for place, line in enumerate(lines) if line.startswith("beside centralised baselines"))
    assert lines[first].split()[3:] == ["RMSE", "NDCG@10", "HR@10"]
    rows = [line.split() for line in lines[first + 1 : first + 6]]
    assert [row[0] for row in rows] == ["fedrec++", "popularity", "biases", "item-kNN", "ALS"]
    ours, biases = float(rows[0][1]), float(rows[2][1])
    does_not_beat = [line for line in lines if line.startswith("fedrec++ does not beat ") and "RMSE" in line]
    assert bool(does_not_beat) == (biases <= ours)
    assert rows[1][1] == "–", "popularity predicts no rating"


def test_lists_that_are_alike_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke("fedrec", *SHORT, "--no-baselines", "--json")
    alike = json.loads(result.stdout)["lists"]["diversity"] < 0.5
    assert ("lists are alike for most people" in result.stderr) == alike
    monkeypatch.setattr(hushrec.evaluation.lists, "LEAST_DIVERSITY", 1.1)
    assert "lists are alike for most people: two of them share" in invoke("fedrec", *SHORT, "--json").stderr


def test_a_list_longer_than_the_items_with_ten_raters_falls_to_one() -> None:
    few = ["--data", "synthetic:users=30,items=40,ratings=200", "--rounds", "2", "--num-factors", "5", "--json"]
    assert (
        "fewer than 10 items have 10 raters in training: an item with 1 can be listed"
        in invoke("pmf", *few).stderr
    )
    assert "can be listed" not in invoke("pmf", *few, "--min-raters", "1").stderr
    assert "can be listed" not in invoke("pmf", *SHORT, "--json").stderr


def test_where_no_lists_are_measured_is_told(tmp_path: Path) -> None:
    """Five folds of six rows: some have no relevant row. Metrics of lists were left out without a word."""
    path = tmp_path / "six.csv"
    path.write_text(
        "user,item,rating\n"
        + "".join(f"{user},{item},{3 + (user + item) % 3}\n" for user in range(3) for item in (1, 2))
    )
    words = ["fedrec", "--data", str(path), "--folds", "5", "--rounds", "2", "--no-baselines"]
    told = "no lists are measured: in a fold no user has a test row rated 4.5 or more; --relevant-from lowers that"
    assert told in invoke(*words).stderr
    assert told not in invoke(*words, "--relevant-from", "1").stderr


def test_validation_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_here("pmf")
    print_run(replace(done, provenance=replace(done.provenance, measure="validation")))
    assert "1 fold(s), validation\n" in capsys.readouterr().out


def test_published_numbers_stand_beside_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Published("Table", "FedRec", {"MAE": [0.7418, 0.0048], "RMSE": [0.9424, 0.0064]})
    monkeypatch.setattr(hushrec.cli.work.run, "published_for", lambda _: row)
    done = run_here("fedrec")
    print_run(done)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["metric", "mean", "std", "published", "std"]
    assert lines[2].split() == ["MAE", f"{done.mean['MAE']:.4f}", "–", "0.7418", "0.0048"]
    assert lines[3].split()[-2:] == ["0.9424", "0.0064"]
    assert len(lines[4].split()) == 3  # the paper has no ranking metrics


def test_names_of_files_are_printed_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "ratings[red].csv"
    write_ratings(path)
    result = invoke("pmf", "--data", str(path), "--rounds", "2", "--num-factors", "5")
    assert "pmf on ratings[red].csv, seed 0" in result.stdout


# --- Options -----------------------------------------------------------------------------------------------


def test_options_are_the_settings_of_the_config() -> None:
    group: Any = typer.main.get_command(app).get_command(None, "run")  # type: ignore
    common = {
        "data", "folds", "seed", "split", "test_share", "at", "relevant_from", "columns", "duplicates",
        "rating_range", "out", "resume", "threads", "cohort_size", "as_json", "partners", "common_users",
        "common_items", "deals", "measure", "owners", "passed_over", "sampled", "min_raters", "baselines",
        "stop_early", "config", "save_config", "encoding", "decimal", "missing", "items", "split_at", "track",
    }  # fmt: skip
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        options = {entry.name: entry for entry in command.params if entry.name != "help"}
        fields = SYSTEMS[name].config.__dataclass_fields__
        presets = {"preset"} if SYSTEMS[name].about.presets else set()
        live = {"live", "until_end", "strict", "keep_every"} if name in ("drift", "saros") else set()
        assert set(options) - {"context"} == common | set(fields) | presets | live
        for field, declared in fields.items():
            assert f"--{field.replace('_', '-')}" in options[field].opts
            is_list = declared.type == tuple[int, ...]
            typed = ",".join(map(str, declared.default)) if is_list else declared.default
            assert options[field].default == typed
        if "num_rounds" in fields:
            assert {"--rounds", "--num-rounds"} <= set(options["num_rounds"].opts)
        contract = ("--seed", "--folds", "--threads", "--cohort-size", "--out", "--resume", "--json", "--data")
        assert set(contract) <= {flag for entry in options.values() for flag in entry.opts}


def test_only_forms_of_drift_run_live() -> None:
    """A system of another package may learn from a stream too, but in its own way."""
    others = replace(SYSTEMS["pmf"], about=replace(SYSTEMS["pmf"].about, is_online=True))
    for system, is_offered in ((SYSTEMS["drift"], True), (SYSTEMS["saros"], True), (others, False)):
        command = typer.main.get_command(command_of(Declared.of(system)))
        assert ("live" in {entry.name for entry in command.params}) == is_offered


def test_options_reach_the_config() -> None:
    result = invoke(
        "fedrec++", *SHORT, "--rho", "1", "--filling", "average", "--denoisers", "7", "--participation", "0.5",
        "--resample", "once", "--update", "sequential", "--seed", "9", "--at", "3,7", "--json",
    )  # fmt: skip
    said = json.loads(result.stdout)
    expected = {
        "rho": 1, "filling": "average", "denoisers": 7, "participation": 0.5, "resample": "once",
        "update": "sequential", "num_rounds": 4, "num_factors": 5,
    }  # fmt: skip
    assert {key: said["config"][key] for key in expected} == expected
    assert said["seed"] == 9
    assert {name.partition("@")[2] for name in said["mean"]} == {"", "3", "7"}


def test_a_preset_gives_way_to_what_is_typed() -> None:
    options = as_options("ptf-fedrec", short("ptf-fedrec", num_rounds=1, client_factors=8))
    said = [
        json.loads(invoke("ptf-fedrec", "--data", DATA, *options, *preset, "--json").stdout)["config"]
        for preset in ([], ["--preset", "paper"], ["--preset", "released"])
    ]
    assert said[0] == said[1]
    assert {name for name in said[0] if said[0][name] != said[2][name]} == {
        "client_batch", "swap_rounding", "repeats", "memory", "told_limit", "server_head", "unsampled",
    }  # fmt: skip
    assert [config["client_factors"] for config in said] == [8, 8, 8]
    with pytest.raises(HushrecError, match="no preset 'papr' of ptf-fedrec; choose from paper, released"):
        invoke("ptf-fedrec", "--data", DATA, "--preset", "papr")


def test_implicit_systems_split_at_random_and_take_lists_of_20() -> None:
    said = json.loads(invoke("fcf", *typed("fcf"), "--json").stdout)
    assert {name.partition("@")[2] for name in said["mean"]} == {"20"}
    with pytest.raises(HushrecError, match="--folds 2 with --split random: choose 1 to 1"):
        invoke("fcf", *typed("fcf"), "--folds", "2")


def test_threads_and_cohorts_change_no_number() -> None:
    said = [
        without_times(json.loads(invoke("fedrec++", *SHORT, "--baselines", *options, "--json").stdout))
        for options in (["--threads", "1"], ["--threads", "3"], ["--cohort-size", "1"], [])
    ]
    assert said[0] == said[1] == said[2] == said[3]


def test_splits_reach_the_run(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    write_ratings(path)
    options = ["--data", str(path), "--rounds", "2", "--num-factors", "5", "--relevant-from", "3"]
    for split in ("folds", "random", "latest", "leave-one-out"):
        out = tmp_path / split
        share = ["--test-share", "0.4"] if split in ("random", "latest") else []
        invoke("pmf", *options, "--split", split, *share, "--out", str(out))
        kept = read_run(out)
        assert kept.provenance.split == split
        assert kept.relevant_from == 3
        assert kept.provenance.test_share == (0.4 if share else 0.2)


# --- Files -------------------------------------------------------------------------------------------------


def write_ratings(path: Path, header: str = "user,item,rating,timestamp") -> np.ndarray:
    """Ratings with ids and values that occur nowhere by chance."""
    data = hushrec.load("synthetic:users=30,items=20,ratings=300")
    assert data.ratings is not None
    ratings = 3.140625 + data.ratings / 64
    rows = zip(data.users, data.items, ratings, range(len(data)), strict=True)
    lines = [f"PATIENT-{user:04},DRUG-{item:02},{rating},{time}" for user, item, rating, time in rows]
    path.write_text("\n".join([header, *lines]))
    return np.unique(ratings)


def test_a_file_of_ones_own_with_names_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "ward.csv"
    write_ratings(path, "who,what,how,when")
    result = invoke(
        "fedrec", "--data", str(path), "--columns", "user=who,item=what,rating=how,timestamp=when",
        "--rating-range", "1,5", "--split", "latest", "--relevant-from", "1",
        "--rounds", "2", "--num-factors", "5", "--json",
    )  # fmt: skip
    assert json.loads(result.stdout)["data"] == "ward.csv"


def test_duplicates_are_refused_or_accepted(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    write_ratings(path)
    path.write_text(path.read_text() + "\n" + path.read_text().splitlines()[1])
    options = ["--data", str(path), "--relevant-from", "1", "--rounds", "2", "--num-factors", "5"]
    with pytest.raises(HushrecError, match=r"twice\.csv, line 302: .* accept them with --duplicates last or"):
        invoke("pmf", *options)
    invoke("pmf", *options, "--duplicates", "mean")


def test_implicit_files_are_refused_where_ratings_are_needed(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("user,item\na,x\na,y\na,z\nb,x\nb,y\n")
    options = as_options("fcf", short("fcf", num_rounds=1))
    assert "Recall@20" in invoke("fcf", "--data", str(tmp_path / "clicks.csv"), *options).stdout
    with pytest.raises(HushrecError, match=r"pmf needs ratings, clicks\.csv has none"):
        invoke("pmf", "--data", str(tmp_path / "clicks.csv"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_what_is_printed_tells_no_id_no_rating_and_no_path(name: str, as_json: list[str], tmp_path: Path) -> None:
    path = tmp_path / "secret-ward" / "ratings.csv"
    path.parent.mkdir()
    ratings = write_ratings(path)
    relevant = ["--relevant-from", "1"] if SYSTEMS[name].feedback.needs_ratings else []
    result = invoke(
        name, "--data", str(path), *as_options(name, short(name, num_rounds=2)), *relevant, *as_json
    )  # fmt: skip
    said = result.stdout + result.stderr
    assert "ratings.csv" in said  # the test sees what is there
    assert not [secret for secret in ("PATIENT", "DRUG", "secret-ward") if secret in said]
    assert not [rating for rating in ratings if str(rating) in said]


# --- Folders -----------------------------------------------------------------------------------------------


def test_a_kept_run_can_be_resumed_and_is_not_overwritten(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    first = invoke("fedrec", *SHORT, "--out", out)
    assert f"kept in {out}" in first.stderr.replace("\n", "")
    before = (tmp_path / "run" / "run.json").read_bytes()
    again = invoke("fedrec", *SHORT, "--out", out, "--resume")
    assert again.stdout == first.stdout
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    with pytest.raises(HushrecError, match="holds a run already; add --resume"):
        invoke("fedrec", *SHORT, "--out", out)
    with pytest.raises(HushrecError, match="holds a run with rho 3, not 2; choose another --out"):
        invoke("fedrec", *SHORT, "--out", out, "--resume", "--rho", "2")


# --- Partners ----------------------------------------------------------------------------------------------


def test_a_deal_is_typed_and_reaches_the_run(tmp_path: Path) -> None:
    deal = ["--partners", "3", "--common-users", "0.4", "--common-items", "0.6"]
    deal += ["--deals", "one", "--measure", "validation"]
    options = as_options("fedcore", short("fedcore", num_rounds=1))
    result = invoke("fedcore", "--data", DATA, *deal, *options, "--json", "--out", str(tmp_path / "run"))
    assert "UNPROTECTED: with --privatizer none" in result.stderr
    said = json.loads(result.stdout)
    assert {name.split()[0] for name in said["mean"] if " own " in name} == {"a", "b", "c"}
    assert said["folds"][0]["facts"]["common users"] > 0
    assert set(said["folds"][0]["sent_bytes"]) == {"partner->partner", "partner->server", "server->partner"}
    made = read_run(tmp_path / "run").provenance
    assert (made.split, made.deal, made.measure) == ("partners", Deal(3, 0.4, 0.6, "one"), "validation")


def test_systems_for_partners_want_their_data_and_say_how() -> None:
    told = r"\Athis system needs data of partners, synthetic is in one piece: deal it \(--split partners, or .*\Z"
    with pytest.raises(HushrecError, match=told):
        hushrec.FedCORE(**short("fedcore")).fit(hushrec.load(DATA))
    with pytest.raises(HushrecError, match=r"\A--partners 1: choose 2 to 26\Z"):
        invoke("fedcore", "--data", DATA, "--partners", "1", *as_options("fedcore", short("fedcore")))


def test_a_system_of_users_takes_partners_data_in_one_piece_or_says_why_not() -> None:
    """pooled is for it; with partners every account is a user of its own, and that works as well."""
    for split in ("pooled", "partners"):
        said = json.loads(invoke("pmf", *SHORT, "--split", split, "--json").stdout)
        assert {"a own MAE", "a cold MAE"} <= set(said["mean"])


def test_sampled_metrics_stand_beside_the_full_ones() -> None:
    data = ["--data", DATA, "--rounds", "2", "--layers", "4,3", "--at", "5"]
    told = json.loads(invoke("neumf", *data, "--split", "leave-one-out", "--sampled", "20", "--json").stdout)
    mean = told["mean"]
    assert mean["sampled HR@5"] >= mean["HR@5"]
    assert 0 < mean["sampled NDCG@5"] <= mean["sampled HR@5"]
    refused = CliRunner().invoke(app, ["run", "neumf", *data, "--sampled", "20"])
    assert isinstance(refused.exception, HushrecError)
    assert str(refused.exception) == "--sampled 20 needs one test item per user: add --split leave-one-out"
