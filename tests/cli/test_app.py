import json
import re
import shlex
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import hushrec
from hushrec.cli.declared import Declared, declared, titles
from hushrec.cli.endings import exits_cleanly
from hushrec.cli.help_pages import flowing
from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build
from systems.runs import as_options, short

DATA = "synthetic:users=80,items=50,ratings=1500"
SHORT = ["--rounds", "3", "--num-factors", "5"]
RUNNER = CliRunner()
ROOT: Any = typer.main.get_command(app)


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FORCE_COLOR", "HUSHREC_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every group and command with the words that lead to it."""
    yield path, group
    if hasattr(group, "commands"):
        for name in group.list_commands(None):
            yield from commands(group.get_command(None, name), (*path, name))


ALL = dict(commands()) | {("audit", "RUN"): ROOT.get_command(None, "audit").get_command(None, "RUN")}
LEAVES = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}


def examples(command: Any) -> list[str]:
    """The example commands of a help text: those on lines of their own, then those of the epilog."""
    found = re.findall(r"^\s*(hushrec .*)$", command.help or "", re.MULTILINE)
    return found + re.findall(r"(?:Example|Start with|or): (hushrec .*)", _alternatives(command.epilog))


def _alternatives(epilog: str | None) -> str:
    """Each example on a line of its own."""
    return (epilog or "").replace(", or: ", "\nor: ")


# --- Help --------------------------------------------------------------------------------------------------


def test_verbs_are_those_of_the_contract() -> None:
    verbs = {"data", "systems", "run", "reproduce", "compare", "recommend", "report"}
    assert verbs <= set(ROOT.list_commands(None))
    assert set(ROOT.get_command(None, "data").commands) == {"list", "fetch", "describe"}
    assert ROOT.get_command(None, "run").list_commands(None) == list(SYSTEMS)


@pytest.mark.parametrize("group", [path for path, command in ALL.items() if hasattr(command, "commands")])
def test_what_is_listed_of_a_command_is_its_first_line(group: tuple[str, ...]) -> None:
    """Lists have lines of their own, so that nothing is loaded for them."""
    shown = RUNNER.invoke(app, [*group, "--help"], catch_exceptions=False).stdout
    listed = " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown.partition("Commands")[2]).split())
    inside = [path for path in ALL if path and path[:-1] == group and path != ("audit", "RUN")]
    assert inside
    for path in inside:
        line = (ALL[path].help or "").strip().partition("\n")[0]
        assert f"{path[-1]} {line}" in listed


HEAVY = {"numba", "numpy", "pyarrow", "scipy", "torch", "matplotlib", "nvflare", "narwhals", "cryptography"}
SAY_WHAT_IS_LOADED = """
import contextlib, io, json, sys
from hushrec.cli.endings import exits_cleanly
from hushrec.cli.help_pages import flowing
from hushrec.cli.verbs import app
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        exits_cleanly(lambda: app(words, prog_name="hushrec", standalone_mode=False))
    names = set(sys.modules)
    loaded = {name.partition(".")[0] for name in names} | {name for name in names if "cli.work" in name}
    print(json.dumps([words, len(out.getvalue()), sorted(loaded)]))
"""


def test_help_loads_nothing_that_takes_long() -> None:
    """Of no verb, so that it comes at once; a clock would be a matter of luck. All in one process: what one loads
    is there for the next, so the first that loads too much is the one to look at."""
    asked = [["--version"], *([*path, "--help"] for path in ALL)]
    done = subprocess.run(
        [sys.executable, "-c", SAY_WHAT_IS_LOADED, json.dumps(asked)], capture_output=True, text=True, check=True
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, *_ in told] == asked
    for words, length, loaded in told:
        assert length, words
        assert "typer" in loaded
        assert not HEAVY & set(loaded), words
        assert "hushrec.cli.work" not in loaded, words


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_is_declared_of_a_system_is_what_it_has(name: str) -> None:
    """The file from which help is made, beside the system itself."""
    assert declared(name) == Declared.of(SYSTEMS[name])
    assert titles()[name] == SYSTEMS[name].about.title


@pytest.mark.parametrize("path", ALL, ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_verb_explains_itself(path: tuple[str, ...], flag: str) -> None:
    result = RUNNER.invoke(app, [*path, flag], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr == ""
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stdout).split())
    assert f"Usage: {' '.join(['hushrec', *path])} [OPTIONS]" in shown
    for text in examples(ALL[path]):
        assert text in shown
    assert "\b" not in result.stdout


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_an_example_of_itself(path: tuple[str, ...]) -> None:
    """A word in capitals stands for any."""
    own = " ".join(["hushrec", *(r"\S+" if word.isupper() else re.escape(word) for word in path)])
    assert any(re.match(rf"{own}( |$)", text) for text in examples(LEAVES[path]))
    result = RUNNER.invoke(app, [*path, "--help"], catch_exceptions=False)
    assert "Example:" in result.stdout


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    options = [entry for entry in LEAVES[path].params if entry.name != "help"]
    assert options
    for entry in options:
        assert entry.help, f"{' '.join(path)} {entry.opts}"


@pytest.mark.parametrize("columns", [50, 80, 100, 120])
def test_no_name_of_an_option_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for path, command in LEAVES.items():
        shown = RUNNER.invoke(app, [*path, "--help"], catch_exceptions=False).stdout
        assert "…" not in shown, path
        names = [name for entry in command.params if not getattr(entry, "hidden", False) for name in entry.opts]
        for name in (name for name in names if name.startswith("-")):
            assert re.search(rf"{name}\b", shown), (path, name)


def test_paragraphs_of_help_have_no_line_breaks_of_the_source() -> None:
    assert (
        flowing("One.\n\nTwo and\nthree.\n\n\b\nExample:\n  four")
        == "One.\n\nTwo and three.\n\n\b\nExample:\n  four"
    )
    for path, command in LEAVES.items():
        paragraphs = (command.help or "").strip().split("\n\n")
        assert not any("\n" in one for one in paragraphs if not one.startswith("\b")), path


def test_nothing_said_shows_the_help() -> None:
    result = RUNNER.invoke(app, [])
    assert "hushrec run fedrec++ --data ml-100k --rho 3" in " ".join(result.output.split())


# --- Examples ----------------------------------------------------------------------------------------------


def kept_run(folder: Path) -> None:
    system = SYSTEMS["fedrec"]
    config = build(system.config, {"num_rounds": 3, "num_factors": 5})
    run(system, config, hushrec.load(DATA), RunSettings(), RuntimeOptions(threads=1), folder)


def small(text: str) -> list[str]:
    """An example's arguments, on little data and with few rounds."""
    arguments = shlex.split(text)[1:]
    if "--data" in arguments:
        arguments[arguments.index("--data") + 1] = DATA
    if "--trials" in arguments:
        arguments[arguments.index("--trials") + 1] = "1"
    is_run = arguments[0] in ("run", "audit", "tune") and arguments[1] in SYSTEMS
    return arguments + as_options(arguments[1], short(arguments[1], num_rounds=3)) if is_run else arguments


# The paper's data; networks; an end. They are only parsed here.
NEED_MORE = ("reproduce", "fetch", "serve", "ui", "deploy", "demo")
EXAMPLES = {text: None for command in ALL.values() for text in examples(command)}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_examples_work(path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    for text in examples(ALL[path]):
        if any(word in text.split() for word in NEED_MORE):
            continue
        for name in re.findall(r"(?<!--out )runs/(\w+)", text):
            if not Path("runs", name).exists():
                kept_run(Path("runs", name))
        if path == ("tune", "average"):  # the mean has no settings
            with pytest.raises(HushrecError, match="nothing of average is left to search"):
                RUNNER.invoke(app, small(text), catch_exceptions=False)
            continue
        result = RUNNER.invoke(app, small(text), catch_exceptions=False)
        assert result.exit_code == 0, f"{text}\n{result.output}"
        assert result.stdout


@pytest.mark.parametrize("text", [text for text in EXAMPLES if any(word in text.split() for word in NEED_MORE)])
def test_other_examples_parse(text: str) -> None:
    command, words = ROOT, shlex.split(text)[1:]
    while hasattr(command, "commands"):
        command = command.get_command(None, words.pop(0))
    assert command.make_context("example", words).params


# --- Errors ------------------------------------------------------------------------------------------------


def ends(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code and both outputs, as `hushrec` in a shell would give them."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as exited:
        exits_cleanly(lambda: app(list(arguments), prog_name="hushrec", standalone_mode=False))
    out, err = capfd.readouterr()
    return int(exited.value.code or 0), out, err


BAD_VALUES = {
    "unknown data": (["run", "pmf", "--data", "nosuch"], "nosuch is neither a file nor a known data set"),
    "no such file": (["run", "pmf", "--data", "./nosuch.csv"], "nosuch.csv"),
    "negative rho": (
        ["run", "fedrec", "--data", DATA, "--rho", "-1"],
        "--rho -1 is not within 0 to 10000; the paper uses 0 to 3",
    ),
    "resume without out": (["run", "fedrec", "--data", DATA, "--resume"], "--resume needs --out"),
    "no list length": (["run", "fedrec", "--data", DATA, "--at", "x"], "--at 'x' is not a list of whole numbers"),
    "list of no length": (["run", "fedrec", "--data", DATA, "--at", "0"], "--at takes different list lengths"),
    "too many folds": (["run", "fedrec", "--data", DATA, "--folds", "6"], "--folds 6 with --split folds: choose"),
    "too many denoisers": (
        ["run", "fedrec++", "--data", DATA, "--preset", "paper", "--denoisers", "41"],
        "41 denoisers for 80 clients leave some denoiser alone",
    ),
    "no threads": (["run", "pmf", "--data", DATA, "--threads", "0"], "--threads must be at least 1"),
    "no rounds": (["run", "pmf", "--data", DATA, "--rounds", "0"], "--rounds must be at least 1"),
    "negative seed": (["run", "pmf", "--data", DATA, "--seed", "-1"], "the seed is -1; use a number from 0 up"),
    "columns of known data": (
        ["run", "pmf", "--data", DATA, "--columns", "user=x"],
        "is known, and no file; leave --columns out",
    ),
    "divergence": (
        ["run", "fedrec", "--data", DATA, "--preset", "paper", "--learning-rate", "50"],
        "the training diverges: use a --learning-rate below 50",
    ),
    "missing run": (["recommend", "nosuch", "--user", "1"], "nosuch is not a run; make one with"),
    "nobody to recommend to": (["recommend", "nosuch"], "say for whom: --user ID, or --newcomer FILE"),
    "unknown system to show": (["systems", "nosuch"], "no system 'nosuch'; choose from pmf"),
    "unknown system to reproduce": (["reproduce", "nosuch", "table2"], "no system 'nosuch'"),
    "unknown table": (["reproduce", "fedrec++", "table9"], "no table 'table9' of fedrec++; choose from"),
    "unknown data of a table": (
        ["reproduce", "fedrec++", "table2", "--data", "x"],
        "table2 has no row on x; it has",
    ),
    "missing run to compare": (["compare", "nosuch"], "nosuch is not a run"),
    "missing run to report": (["report", "nosuch"], "nosuch is not a run"),
}


@pytest.mark.parametrize(("arguments", "told"), BAD_VALUES.values(), ids=list(BAD_VALUES))
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    told: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = ends(capfd, *arguments)
    assert code == 2
    assert out == ""
    assert told in err
    assert len(err.strip().splitlines()) == 1
    assert err.strip().startswith("hushrec: ")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


BAD_WORDS = {
    "unknown verb": ["nosuch"],
    "unknown system": ["run", "nosuch", "--data", DATA],
    "unknown option": ["run", "fedrec", "--data", DATA, "--bogus", "1"],
    "option of another system": ["run", "fedrec", "--data", DATA, "--denoisers", "1"],
    "no number": ["run", "fedrec", "--data", DATA, "--rho", "three"],
    "unknown split": ["run", "fedrec", "--data", DATA, "--split", "nosuch"],
    "no data": ["run", "fedrec"],
    "unknown choice": ["run", "fedrec", "--data", DATA, "--filling", "nosuch"],
}


@pytest.mark.parametrize("arguments", BAD_WORDS.values(), ids=list(BAD_WORDS))
def test_bad_words_are_exit_code_2_without_a_traceback(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ends(capfd, *arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    word = next((word for word in arguments if word in ("nosuch", "--bogus", "--denoisers")), "--")
    assert word in err


@pytest.mark.parametrize("arguments", BAD_WORDS.values(), ids=list(BAD_WORDS))
def test_bad_words_are_one_line(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    _, _, err = ends(capfd, *arguments)
    assert len(err.splitlines()) == 1


def test_a_system_that_is_nearly_spelled_is_suggested(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = ends(capfd, "run", "fedrex", "--data", DATA)
    assert code == 2
    assert "Did you mean 'fedrec'" in err


def test_errors_are_printed_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    """Brackets are no markup, and long lines are not broken."""
    text = "no user '[red]x[/nosuch]' in " + "a" * 300

    def command() -> None:
        raise HushrecError(text)

    with pytest.raises(SystemExit):
        exits_cleanly(command)
    assert capfd.readouterr().err == f"hushrec: {text}\n"


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_ends_from_outside_have_their_codes(error: type[BaseException], code: int) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as exited:
        exits_cleanly(command)
    assert exited.value.code == code


def test_a_bug_is_not_hidden() -> None:
    def command() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exits_cleanly(command)


# --- Real processes ----------------------------------------------------------------------------------------


def test_the_installed_command_ends_in_one_line() -> None:
    command = Path(sys.executable).with_name("hushrec")
    done = subprocess.run([command, "run", "pmf", "--data", "nosuch"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hushrec: nosuch is neither a file nor a known data set; see `hushrec data list`\n"


LONG = ["--data", DATA, "--preset", "paper", "--rounds", "250", "--num-factors", "5", "--threads", "2"]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run that got Ctrl-C after its first rounds."""
    out = tmp_path_factory.mktemp("interrupted") / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "hushrec.cli.app", "run", "fedrec", *LONG, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and not (out / "fold-1" / "state.npz").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out_text, err_text = process.communicate(timeout=60)
    return out, subprocess.CompletedProcess(process.args, process.returncode, out_text, err_text)


def test_ctrl_c_ends_with_130_and_the_run_goes_on(
    interrupted: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, process = interrupted
    assert (process.returncode, process.stdout) == (130, "")
    assert "Traceback" not in process.stderr
    assert not read_run(out).is_done
    result = RUNNER.invoke(app, ["run", "fedrec", *LONG, "--out", str(out), "--resume"], catch_exceptions=False)
    assert result.exit_code == 0
    whole = RUNNER.invoke(
        app, ["run", "fedrec", *LONG, "--out", str(out.with_name("whole"))], catch_exceptions=False
    )
    assert whole.exit_code == 0
    one, other = read_run(out).folds[0], read_run(out.with_name("whole")).folds[0]
    assert (one.model_sha256, one.clients_sha256) == (other.model_sha256, other.clients_sha256)
    assert (one.curve, one.sent_bytes) == (other.curve, other.sent_bytes)


def test_ctrl_c_says_how_to_go_on(interrupted: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, process = interrupted
    assert process.stderr.splitlines()[-1] == "hushrec: interrupted; the same command goes on with --resume"
