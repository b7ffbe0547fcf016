import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hushrec.cli.verbs import app
from hushrec.cli.work.audit import parse_thetas
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.settings import setting

DATA = "synthetic:users=80,items=50,ratings=1500"
NAMES = ("listed items", "upload frequency")
SHORT = ["--data", DATA, "--rounds", "4", "--num-factors", "5"]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["audit", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def attacks(*arguments: str) -> dict[str, dict]:
    result = invoke(*arguments, "--json")
    assert len(result.stdout.splitlines()) == 1
    said = json.loads(result.stdout)
    assert list(said) == ["attacks"]
    for attack in said["attacks"]:
        assert list(attack) == ["name", "role", "measure", "score", "chance", "interval", "rounds"]
        assert attack["role"] in ("server", "client", "observer")
        low, high = attack["interval"]
        assert low <= attack["score"] <= high
    return {attack["name"]: attack for attack in said["attacks"]}


def test_virtual_items_hide_until_lists_are_compared() -> None:
    """rho 1: half of a list is rated, so F1 = 2/3 at most; rated items are in every list, others in some."""
    found = attacks("fedrec", *SHORT, "--rho", "1")
    assert 0.66 < found["listed items"]["score"] < 0.72
    frequency = found["upload frequency"]
    assert frequency["rounds"][0] == 0.5
    assert len(frequency["rounds"]) == 4
    assert frequency["score"] == frequency["rounds"][-1] > 0.8


def test_lists_drawn_once_cannot_be_compared() -> None:
    found = attacks("fedrec", *SHORT, "--rho", "1", "--resample", "once")
    assert found["upload frequency"]["rounds"] == [0.5] * 4


def test_without_virtual_items_the_list_is_the_truth() -> None:
    """Then counting how often an item is listed has nothing to tell apart, and is left out."""
    plain = ["fedrec", *SHORT, "--rho", "0", "--filling", "none"]
    found = attacks(*plain)
    assert "upload frequency" not in found
    assert found["listed items"]["score"] == 1.0
    assert "upload frequency: left out" in invoke(*plain).stderr


def test_a_round_without_uploads_does_not_lower_a_score() -> None:
    """PMF's clients hand over all ratings in round 1 and are not asked again."""
    found = attacks("pmf", *SHORT)["listed items"]
    assert found["score"] == 1.0
    assert found["rounds"] == [1.0, None, None, None]


def test_threads_change_nothing() -> None:
    one, two = (attacks("fedrec", *SHORT, "--threads", threads) for threads in ("1", "2"))
    assert one == two


def test_a_kept_run_is_made_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "one")
    result = CliRunner().invoke(app, ["run", "fedrec", *SHORT, "--rho", "1", "--out", folder])
    assert result.exit_code == 0
    assert attacks(folder) == attacks("fedrec", *SHORT, "--rho", "1")
    assert "other numbers" not in invoke(folder).stderr


def test_a_run_that_ends_elsewhere_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    CliRunner().invoke(app, ["run", "fedrec", *SHORT, "--out", str(folder)])
    kept = json.loads((folder / "run.json").read_text())
    kept["config"]["rho"] = 1
    del kept["checksum"]
    (folder / "run.json").write_text(json.dumps(kept))
    assert "ended in other numbers than those kept" in invoke(str(folder)).stderr


def test_table_has_a_line_and_a_sentence_for_each_attack() -> None:
    result = invoke("fedrec", *SHORT)
    lines = result.stdout.splitlines()
    assert lines[0] == "fedrec on synthetic, seed 0, 4 rounds"
    assert lines[1].split() == [
        *("attack", "by", "guesses", "measure", "score", "95%", "chance", "of", "round", "1", "last"),
    ]
    place = {name: lines.index(next(line for line in lines if line.startswith(name))) for name in NAMES}
    assert all(2 <= number < 2 + (len(lines) - 2) // 2 for number in place.values())
    for said in ("listed items: Taking every item", "upload frequency: Of one of the user's own items"):
        assert any(line.startswith(said) for line in lines)


def test_the_strongest_attack_is_first_and_the_verdict_names_it() -> None:
    """Verdicts: a line for each who attacks, with the numbers of the first line of the table."""
    lines = invoke("fedrec", *SHORT, "--rho", "1").stdout.splitlines()
    said = [line for line in lines if line.startswith("the server: ")]
    assert len(said) == 1
    rows = [re.split(r"  +", line) for line in lines[2:]]
    name = next(row[0] for row in rows if row[1:2] == ["server"])
    assert f"({name}: " in said[0]


def test_attacks_are_chosen_by_name() -> None:
    assert list(attacks("fedrec", *SHORT, "--attacks", "listed-items")) == ["listed items"]
    wrong = CliRunner().invoke(app, ["audit", "fedrec", *SHORT, "--attacks", "guessing"])
    assert isinstance(wrong.exception, HushrecError)
    assert "no attack guessing on fedrec; choose from" in str(wrong.exception)


def test_those_who_collude_are_named() -> None:
    words = ["fedrec++", *SHORT, "--denoisers", "3", "--attacks", "listed-items", "--json"]
    both = json.loads(invoke(*words, "--as", "server+denoiser+denoiser").stdout)["attacks"]
    assert [attack["role"] for attack in both] == ["server+denoiser+denoiser"]
    plain = json.loads(invoke(*words).stdout)["attacks"]
    assert both[0]["score"] == plain[0]["score"]
    for text, said in {
        "server+owner": "has no owner; join some of active-server, client, denoiser, observer, server by +",
        "server+server": "there is one server; name it once",
        "denoiser": "no attack here is made by these",
    }.items():
        wrong = CliRunner().invoke(app, ["audit", *words, "--as", text])
        assert isinstance(wrong.exception, HushrecError)
        assert said in str(wrong.exception)


def test_more_colluders_than_there_are_is_said() -> None:
    words = ["fedrec++", *SHORT, "--denoisers", "2", "--attacks", "listed-items"]
    result = invoke(*words, "--as", "server+denoiser+denoiser+denoiser")
    assert "there are no more than 2 with the role denoiser; name fewer in --as" in " ".join(result.stderr.split())


def test_a_stand_in_in_the_clear_is_labelled() -> None:
    words = ["fedmf", *SHORT[:2], "--rounds", "1", "--encryption", "none", "--variant", "part"]
    lines = invoke(*words).stdout.splitlines()
    assert "server (stand-in)" in lines[2]
    assert any(line.startswith("stand-in: sent in the clear here") for line in lines)


@pytest.mark.parametrize("name", ["drift", "saros"])
def test_who_asks_for_rounds_of_a_system_with_epochs_is_told(name: str) -> None:
    wrong = CliRunner().invoke(app, ["audit", name, "--data", DATA, "--rounds", "2"])
    assert f"{name} counts in epochs; write --epochs 2" in str(wrong.exception)


DRIFT = [
    *("drift", "--data", DATA, "--preset", "usual", "--split", "random"),
    *("--epochs", "1", "--parts", "2", "--window", "64"),
]


def test_owners_are_audited_by_the_orchestrator_and_an_observer() -> None:
    said = json.loads(invoke(*DRIFT, "--owners", "3", "--theta", "2", "--json").stdout)["attacks"]
    found = {attack["name"]: attack for attack in said}
    assert {attack["role"] for attack in said} == {"orchestrator", "observer"}
    assert found["gradient direction"]["score"] > 0.99 > found["gradient direction"]["chance"]
    assert found["flag reading"]["score"] == 1.0
    assert len(found["gradient sign"]["rounds"]) == 2
    lines = invoke(*DRIFT, "--owners", "3", "--theta", "2").stdout.splitlines()
    assert any(line.startswith("interactions read: What the threshold leaves open") for line in lines)


def test_where_events_are_drawn_flags_are_left_out_with_a_reason() -> None:
    words = [*DRIFT, "--unseen", "1", "--owners", "3"]
    result = invoke(*words)
    assert "flag reading" not in {
        attack["name"] for attack in json.loads(invoke(*words, "--json").stdout)["attacks"]
    }
    assert "drawn events (--unseen) are sent among real ones" in " ".join((result.stdout + result.stderr).split())


def test_thresholds_side_by_side() -> None:
    result = invoke(*DRIFT, "--thetas", "1,5")
    lines = result.stdout.splitlines()
    assert lines[0] == "drift on synthetic, seed 0, one epoch each"
    assert [line.split()[:3] for line in lines if line.startswith(("pairs", "literal"))] == [
        [reading, theta, counts]
        for reading in ("pairs", "literal") for theta in ("1", "5") for counts in ("blocks", "users")
    ]  # fmt: skip
    assert "a higher threshold blurs requests, but hides almost no interaction" in lines[-1]
    rows = json.loads(invoke(*DRIFT, "--thetas", "1,5", "--json").stdout)["thresholds"]
    assert [row["scores"]["request watching"] < 1 for row in rows] == 2 * [False, False, True, True]


def test_thresholds_that_nobody_reaches_tell_nothing() -> None:
    assert "nothing was asked for" in invoke(*DRIFT, "--thetas", "100000").stdout


@pytest.mark.parametrize("thetas", ["1,x", "0", "2,-1", ""])
def test_bad_thresholds(thetas: str) -> None:
    with pytest.raises(HushrecError, match="write --thetas 1,2,5,20"):
        invoke(*DRIFT, "--thetas", thetas)


@dataclass(frozen=True, kw_only=True)
class _WithTheta:
    """Settings of another system that calls something of its own theta."""

    theta: int = setting(1, "of its own")


def test_thresholds_and_owners_are_for_systems_that_have_them() -> None:
    with pytest.raises(HushrecError, match="pmf has no threshold"):
        invoke("pmf", *SHORT, "--thetas", "1,2")
    with pytest.raises(HushrecError, match="saros has no threshold"):
        parse_thetas("1,2", SYSTEMS["saros"])
    others = replace(SYSTEMS["pmf"], config=_WithTheta)
    with pytest.raises(HushrecError, match="pmf has no threshold"):
        parse_thetas("1,2", others)
    with pytest.raises(HushrecError, match="pmf knows no owners"):
        invoke("pmf", *SHORT, "--owners", "3")


def test_a_kept_run_with_owners_is_made_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "one")
    result = CliRunner().invoke(app, ["run", *DRIFT, "--out", folder])
    assert result.exit_code == 0
    again = invoke(folder, "--json")
    assert again.stdout == invoke(*DRIFT, "--json").stdout
    assert "other numbers" not in again.stderr


def test_a_live_run_cannot_be_made_again(tmp_path: Path) -> None:
    events, folder = tmp_path / "events", str(tmp_path / "one")
    events.write_text('{"user": 1, "item": 2, "positive": true}\n' * 3)
    live = ["run", "drift", "--live", str(events), "--until-end", "--out", folder]
    assert CliRunner().invoke(app, live).exit_code == 0
    with pytest.raises(HushrecError, match=r"one is of a live run, which cannot be made again .* with data$"):
        invoke(folder)


def test_no_attack_that_applies_is_no_proof() -> None:
    average = ["average", "--data", DATA]
    masked = ["fcf", "--data", DATA, "--rounds", "1", "--secure-sums", "--attacks", "dense-gradients"]
    assert attacks(*masked) == {}
    assert "that is no proof that they reveal nothing" in invoke(*masked).stdout
    with pytest.raises(HushrecError, match=r"^--threads 9999999 is too many"):
        invoke(*average, "--threads", "9999999")


@pytest.mark.parametrize(("system", "name"), [("fcf", "dense gradients"), ("metamf", "error signs")])
def test_gradients_tell_the_items(system: str, name: str) -> None:
    found = attacks(system, "--data", DATA, "--rounds", "3")
    assert name in found
    assert found[name]["score"] > 0.98
    assert found[name]["chance"] < 0.5


def test_ciphertexts_tell_by_their_places() -> None:
    """3,000 items of 8 lie in 6 blocks of 4,096 numbers. Without encryption a block is an item, and tells it."""
    data = "synthetic:users=20,items=3000,ratings=60"
    short = ["fedmf", "--data", data, "--rounds", "3", "--num-factors", "8", "--num-negatives", "1"]
    assert attacks(*short)["sent blocks"]["score"] == 0.5
    assert 0.7 < attacks(*short, "--variant", "part")["sent blocks"]["score"] < 0.99
    assert attacks(*short, "--encryption", "none")["sent blocks"]["score"] > 0.99


def test_a_kept_run_of_ciphertexts_is_made_again_without_a_word(tmp_path: Path) -> None:
    """Its ciphertexts are others; what is in them is the same."""
    ended = CliRunner().invoke(
        app,
        ["run", "fedmf", "--data", DATA, "--rounds", "2", "--num-factors", "4", "--out", str(tmp_path / "r")],
    )
    assert ended.exit_code == 0
    assert "other numbers than those kept" not in invoke(str(tmp_path / "r")).output


def test_neither_a_system_nor_a_folder(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match=r"nowhere is neither a system \(pmf, .*\) nor the folder of a run"):
        invoke("nowhere")
    with pytest.raises(HushrecError, match="is not a run"):
        invoke(str(tmp_path))


def test_help_lists_systems_and_no_placeholder() -> None:
    said = invoke("--help").stdout
    assert "fedrec++" in said
    assert "│ RUN" not in said


def test_examples_fit_the_system() -> None:
    assert "hushrec audit drift --data ml-100k --epochs 2" in " ".join(invoke("drift", "--help").stdout.split())
    assert "hushrec audit pmf --data ml-100k --rounds 5" in " ".join(invoke("pmf", "--help").stdout.split())


# --- Ctrl-C ----------------------------------------------------------------------------------------------------


def interrupted(*arguments: str) -> tuple[int, str, list[str]]:
    """Exit code, standard output and error of an endless audit that gets SIGINT in its third round or later."""
    every_round = "from hushrec.cli import app, console; console.SECONDS_BETWEEN_LINES = 0; app.main()"
    command = [sys.executable, "-c", every_round, "audit", *arguments, "--data", DATA, "--threads", "2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(r"round [3-9]/", line):
            break
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    return process.returncode, out, error.splitlines()


def test_ctrl_c_keeps_what_was_found() -> None:
    code, out, error = interrupted("fedrec", "--rounds", "1000000", "--num-factors", "5")
    assert code == 130
    assert (
        found := re.search(
            r"^(?:hushrec: )?interrupted after (\d+) of 1000000 rounds.*above is what was found$", error[-1]
        )
    )
    assert 3 <= int(found[1]) < 1000000
    assert out.splitlines()[0].endswith(f"seed 0, {found[1]} rounds")
    assert {line.split("  ")[0] for line in out.splitlines()} >= set(NAMES)
    assert not any("Traceback" in line or "--resume" in line for line in error)


def test_ctrl_c_keeps_what_was_found_as_json() -> None:
    code, out, error = interrupted("fedrec", "--rounds", "1000000", "--num-factors", "5", "--json")
    assert code == 130
    said = json.loads(out)
    assert {attack["name"] for attack in said["attacks"]} >= set(NAMES)
    after = said["interrupted_after"]
    assert all(after - 1 <= len(attack["rounds"]) <= after for attack in said["attacks"])
    assert f"interrupted after {after} of 1000000 rounds" in error[-1]


def test_an_active_server_is_named() -> None:
    """Its lies alone; what is refused is said, and in JSON too."""
    words = [
        "audit",
        "sdcf",
        "--data",
        "synthetic:users=20,items=40,ratings=200",
        "--rounds",
        "1",
        "--secure-sums",
    ]
    told = CliRunner().invoke(app, [*words, "--as", "active-server", "--json"])
    attacks = {one["name"]: one for one in json.loads(told.stdout)["attacks"]}
    assert set(attacks) >= {"large V", "large V (deployed)"}
    attack = attacks["large V"]
    assert attacks["large V (deployed)"]["refused"] == "item_factors is longer than 32"
    assert (attack["name"], attack["role"], attack["measure"]) == ("large V", "active-server", "F1")
    assert attack["score"] == attack["chance"]
    assert attack["refused"].startswith("the update of client")
    shown = CliRunner().invoke(app, [*words, "--attacks", "large-v"])
    assert "It was refused: the update of client" in shown.stdout
    wrong = CliRunner().invoke(app, [*words, "--attacks", "large-v", "--as", "server"])
    assert "there are some by active-server" in str(wrong.exception)


# --- Clients that lie ----------------------------------------------------------------------------------------


def test_lying_clients_beside_each_defence() -> None:
    words = ("fedrec", *SHORT, "--rho", "0", "--as", "client", "--malicious", "0.01,0.05")
    told = json.loads(invoke(*words, "--attacks", "explicit-boosting,sign-flipping", "--json").stdout)
    assert list(told) == ["target", "raters", "runs"]
    assert {run["attack"] for run in told["runs"]} == {"none", "explicit boosting", "sign flipping"}
    numbers = {run["liars"] for run in told["runs"]} - {0}
    assert len(told["runs"]) == 2 + 5 * len(numbers) + 2 * 7 * len(numbers)
    assert all(0 <= run["exposure"] <= 1 and run["RMSE"] > 0 for run in told["runs"])
    shown = invoke(*words, "--attacks", "sign-flipping").stdout
    lines = [line for line in shown.splitlines() if line.startswith("sign flipping")]
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert "lists of 10 with the target" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fedrec", "--malicious", "0.01"), "--malicious 0.01: clients lie with --as client"),
        (("fedrec", "--as", "client", "--malicious", "x"), "write shares of clients between 0 and 0.5"),
        (("ptf-fedrec", "--as", "client", "--attacks", "clustering"), "can do explicit boosting, sign flipping"),
        (
            ("drift", "--as", "client", "--malicious", "0.01"),
            "drift has no clients; one owner lies, so leave it out",
        ),
        (("metamf", "--as", "client"), "clients of metamf upload no rows and no scores"),
    ],
)
def test_what_lying_clients_cannot_do_is_said(words: tuple[str, ...], told: str) -> None:
    name, *others = words
    result = CliRunner().invoke(app, ["audit", name, "--data", DATA, *others])
    assert isinstance(result.exception, HushrecError)
    assert told in str(result.exception)
