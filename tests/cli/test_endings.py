"""How commands end: full disks, absurd numbers, too little memory, signals and odd terminals are one line each."""

import errno
import importlib.util
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import hushrec
from hushrec.cli.endings import exits_cleanly
from hushrec.cli.verbs import app
from hushrec.files import (
    check_file_to_write,
    check_folder_to_write,
    private_file,
    write_file,
    write_private_file,
)
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.record import Run, read_run, write_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build

ROOT = Path(__file__).parents[2]
DATA = "synthetic:users=40,items=30,ratings=500"
RUN = [
    "run",
    "fedrec",
    "--data",
    DATA,
    "--preset",
    "paper",
    "--num-factors",
    "3",
    "--rounds",
    "2",
    "--threads",
    "1",
]


def ends(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and standard error."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as exited:
        exits_cleanly(lambda: app(list(words), prog_name="hushrec", standalone_mode=False))
    return int(exited.value.code or 0), capfd.readouterr().err


def ends_by(error: BaseException, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as exited:
        exits_cleanly(command)
    return int(exited.value.code or 0), capfd.readouterr().err


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    system = SYSTEMS["fedrec"]
    config = build(system.config, {"num_rounds": 2, "num_factors": 3})
    run(system, config, hushrec.load(DATA), RunSettings(), RuntimeOptions(threads=1), folder)
    return folder


# --- Numbers and memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--num-factors", "999999999999"], "--num-factors 999999999999 is too large; use at most 2147483647"),
        (["--rounds", "99999999999999999999"], "--rounds 99999999999999999999 is too large"),
        (["--learning-rate", "nan"], "--learning-rate must be above 0 and finite"),
        (["--regularization", "1e9"], "the training diverges: use a --regularization below 1e+09"),
    ],
)
def test_absurd_numbers_are_refused_by_their_own_name(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, err = ends(capfd, *RUN, *words)
    assert code == 2
    assert told in err
    assert "--learning-rate" not in err or "learning-rate" in " ".join(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--data", "x.csv", "fedrec"], "--data here; options go behind the command, as in hushrec run "
         "NAME --data"),
        (["--json", "systems"], "--json here; options go behind the command, as in hushrec NAME --json"),
    ],
)  # fmt: skip
def test_an_option_before_its_command_is_told_its_place(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, err = ends(capfd, *words)
    assert code == 2
    assert err.startswith(f"hushrec: No such option: {told}; see hushrec ")


def test_vectors_that_cannot_be_compiled_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    code, err = ends(capfd, *RUN, "--num-factors", "1001")
    assert code == 2
    assert "vectors of 1001 numbers are too long to be compiled; --num-factors must be at most 1000" in err


def test_a_bug_is_not_taken_for_too_little_memory(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(np.exceptions.AxisError):
        ends_by(np.exceptions.AxisError("x"), capfd)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't allocate memory"),
        ValueError("Maximum allowed dimension exceeded"),
        ImportError("libarrow.so: failed to map segment from shared object"),
    ],
)
def test_too_little_memory_says_what_to_lower(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    code, err = ends_by(error, capfd)
    assert code == 2
    assert "too little memory" in err
    assert "lower --num-factors" in err


def test_an_array_that_does_not_fit_says_what_was_asked_for() -> None:
    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    done = hushrec_process(*RUN, "--num-factors", "2000000000", preexec=little_memory)
    assert done.returncode == 2
    assert "too little memory (Unable to allocate" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["systems"], RUN, ["recommend", "nosuch", "--user", "1"]])
def test_what_cannot_even_be_loaded_is_refused_before(words: list[str]) -> None:
    """NumPy, Arrow and LLVM would end the process in their own ways, or with a traceback."""

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))

    done = hushrec_process(*words, preexec=little_memory)
    assert done.returncode == 2
    assert done.stderr.startswith("hushrec: too little memory: this process may have 300 MB, and ")
    assert len(done.stderr.splitlines()) == 1


# --- Disks ---------------------------------------------------------------------------------------------------


def commands_that_write(folder: Path, kept: Path) -> list[list[str]]:
    place = str(folder / "below")
    return [
        [*RUN, "--out", place],
        ["reproduce", "fedrec++", "table2", "--out", place],
        ["deploy", "init", place, "--nodes", "2"],
        ["deploy", "local", "--system", "fedrec", "--data", DATA, "--out", place],
        ["deploy", "local", "--system", "fedrec", "--data", DATA, "--keep", place],
        ["recommend", str(kept), "--all-users", "--out", f"{place}.csv"],
        ["report", str(kept), "--out", f"{place}.html"],
        ["audit", "pmf", "--data", DATA, "--save-config", place],
        ["reproduce", "fedrec++", "table2", "--picture", f"{place}.png"],
        ["reproduce", "--all", "--data", "ml-100k", "--out", str(kept.parent / "all"), "--page", f"{place}.md"],
        ["compare", str(kept), "--picture", f"{place}.svg"],
    ]


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("where", ["below a file", "where nothing can be made"])
def test_nothing_is_begun_where_nothing_can_be_written(
    where: str, number: int, kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" if where == "below a file" else Path("/proc")
    code, err = ends(capfd, *commands_that_write(folder, kept)[number])
    assert code == 2
    assert str(folder) in err
    assert len([line for line in err.splitlines() if line.startswith("hushrec: ")]) == 1
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_full_and_read_only_disks_are_seen_before_the_work(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuses(**_options: object) -> io.BytesIO:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("hushrec.files.tempfile.TemporaryFile", refuses)
    code, err = ends(capfd, *RUN, "--out", str(tmp_path / "new"))
    assert code == 2
    assert f"{tmp_path / 'new'}: nothing can be written there ({os.strerror(number)}); choose another --out" in err


def test_a_disk_that_fills_up_names_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        with private_file(tmp_path / "state.npz"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SystemExit) as exited:
        exits_cleanly(command)
    assert exited.value.code == 2
    assert f"{tmp_path / 'state.npz'}: No space left on device; free some space" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_file, lambda path, data, _flag: write_private_file(path, data)])
def test_a_full_disk_leaves_the_file_before(
    write: Callable[[Path, bytes, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "page.html"
    write(path, b"before", "--out")
    monkeypatch.setattr("hushrec.files.os.fsync", refuses)
    with pytest.raises((hushrec.HushrecError, OSError), match="No space left on device"):
        write(path, b"after", "--out")
    assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_a_page_is_written_through_links_and_into_pipes_and_keeps_its_mode(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    write_file(page, b"one", "--out")
    assert page.stat().st_mode & 0o777 == 0o666 & ~_umask()
    page.chmod(0o640)
    link.symlink_to(page)
    write_file(link, b"two", "--out")
    assert (page.read_bytes(), link.is_symlink(), page.stat().st_mode & 0o777) == (b"two", True, 0o640)
    read, written = os.pipe()
    write_file(Path(f"/dev/fd/{written}"), b"three", "--out")
    os.close(written)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"three"


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path) -> None:
    with pytest.raises(hushrec.HushrecError, match="is a folder; name a file for --picture"):
        check_file_to_write(tmp_path, "--picture")
    (tmp_path / "file").touch()
    with pytest.raises(hushrec.HushrecError, match="is a file; choose a folder for --out"):
        check_folder_to_write(tmp_path / "file", "--out")


def test_a_new_folder_can_be_written(tmp_path: Path) -> None:
    check_folder_to_write(tmp_path / "a" / "b", "--out")
    check_file_to_write(tmp_path / "a" / "b", "--out")
    assert list(tmp_path.iterdir()) == []


# --- Signals -------------------------------------------------------------------------------------------------


def hushrec_process(
    *words: str,
    preexec: Callable[[], None] | None = None,
    stdout: int | io.IOBase = subprocess.PIPE,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hushrec.cli.app", *words]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace",
        env={**os.environ, **(environment or {})}, preexec_fn=preexec,
    )  # fmt: skip


INTERRUPTED_IN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
sys.argv = ["hushrec", *{words!r}]
from hushrec.cli.app import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "module", ["hushrec.cli.endings", "typer", "numpy", "numba", "rich.console", "hushrec.systems.pmf"]
)
def test_signals_while_modules_are_loaded(module: str, number: signal.Signals) -> None:
    code = INTERRUPTED_IN.format(module=module, number=int(number), words=["run", "pmf", "--data", DATA])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 128 + number
    said = done.stderr.strip().splitlines()
    if module == "hushrec.systems.pmf":  # the last one: the run may have begun when the signal is heeded
        said = [said[-1].partition(";")[0]]
    assert said == ["hushrec: interrupted"]


def test_hardly_anything_is_loaded_before_signals_are_heeded() -> None:
    """Until then, Ctrl-C is a traceback of Python's."""
    code = (
        "import os, signal, sys; before = {*sys.modules}; import hushrec.cli.app; print(*{*sys.modules} - before)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(Path(hushrec.__file__).parents[1])})  # fmt: skip
    assert set(done.stdout.split()) == {"hushrec", "hushrec.cli", "hushrec.cli.app", "hushrec.cli.signals"}


STARTED = """
import _signal, os, sys
_signal.signal(_signal.SIGINT, {handler})
class Finder:
    def find_spec(self, name, path=None, target=None):
        if {module!r} in (name, "any"):
            sys.meta_path.remove(self)
            os.kill(os.getpid(), _signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["hushrec", "--version"]
{start}
"""
STARTS = {
    "installed": f"exec(open({str(ROOT / 'bin' / 'hushrec')!r}).read())",
    "module": "import runpy; runpy.run_module('hushrec', run_name='__main__')",
}


def started(start: str, module: str, handler: str) -> subprocess.CompletedProcess[str]:
    """The command from its first line, with Ctrl-C when it begins to load this module."""
    code = STARTED.format(module=module, handler=handler, start=STARTS[start])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("start", "module"),
    [
        ("installed", "any"),  # the first that the command loads, whichever it is
        *[("installed", name) for name in ("hushrec", "hushrec.cli", "hushrec.cli.app", "hushrec.cli.signals")],
        *[("module", name) for name in ("hushrec.cli", "hushrec.cli.app", "hushrec.cli.signals")],
    ],
)
def test_ctrl_c_before_it_is_heeded_is_silent(start: str, module: str) -> None:
    done = started(start, module, "_signal.default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("start", STARTS)
def test_ctrl_c_is_ignored_where_the_shell_says_so(start: str) -> None:
    """As in the background of a script."""
    done = started(start, "hushrec.cli.app", "_signal.SIG_IGN")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hushrec {hushrec.__version__}\n", "")


SWALLOWED = """
import os, signal, sys, time
sys.path.insert(0, {folder!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from hushrec.cli.app import run_command
from hushrec.cli.signals import heed
def command():
    heed()
    import careless
    time.sleep(60)
run_command(command)
"""
CARELESS = """
import os
try:
    os.kill(os.getpid(), {number})
    [None for _ in range(10**6)]
except BaseException:
    pass
print("loaded", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_while_work_loads_a_module_come_after_it(number: signal.Signals, tmp_path: Path) -> None:
    """Half a module fails in its own way, and some catch everything: the interrupt would be lost."""
    (tmp_path / "careless.py").write_text(CARELESS.format(number=int(number)))
    code = SWALLOWED.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "loaded\n"
    assert (done.returncode, done.stderr.strip()) == (128 + number, "hushrec: interrupted")


HALF_MADE = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hushrec.cli.app import run_command
from hushrec.cli.signals import heed
class Engine:
    def __init__(self):
        if {number}:
            os.kill(os.getpid(), {number})
            [None for _ in range(10**6)]
        raise MemoryError
    def __del__(self):
        self.handle
def command():
    heed()
    Engine()
run_command(command)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_signal_leaves_half_made_is_thrown_away_in_silence(number: signal.Signals) -> None:
    """The compiler of kernels cannot close what it had not opened yet."""
    done = subprocess.run(
        [sys.executable, "-c", HALF_MADE.format(number=int(number))], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.strip()) == (128 + number, "hushrec: interrupted")


def test_without_a_signal_what_fails_unseen_is_told() -> None:
    done = subprocess.run([sys.executable, "-c", HALF_MADE.format(number=0)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "AttributeError: 'Engine' object has no attribute 'handle'" in done.stderr


def test_sigterm_ends_a_run_as_ctrl_c_does(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "hushrec.cli.app", *RUN, "--rounds", "5000", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not (out / "fold-1" / "state.npz").exists():
        pass
    process.terminate()
    told = process.communicate(timeout=60)
    assert (process.returncode, told[0]) == (143, "")
    last = told[1].splitlines()[-1]  # the first time, a line before it tells that kernels are compiled
    assert last == "hushrec: interrupted; the same command goes on with --resume"


# --- Outputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["systems"], ["systems", "--json"], ["--version"]])
def test_a_full_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = hushrec_process(*words, stdout=full)
    assert done.returncode == 2
    assert (
        done.stderr
        == "hushrec: standard output, or a file, cannot be written (No space left on device); free some space\n"
    )


@pytest.mark.parametrize("words", [["systems", "fedrec++"], ["--help"], ["run", "pmf", "--help"]])
def test_nobody_reads_any_more(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "hushrec.cli.app", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as said:
        assert said.read() == b""
    assert process.wait() == 141


ASCII = [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}]


@pytest.mark.parametrize("environment", ASCII, ids=["C", "ascii"])
def test_plain_terminals_get_plain_letters(environment: dict[str, str], kept: Path, tmp_path: Path) -> None:
    csv = tmp_path / "named.csv"
    rows = [
        f"{user},Amélie [red] :smile: {item},{1 + (user * item) % 5}" for user in range(8) for item in range(6)
    ]
    csv.write_text("user,item,rating\n" + "\n".join(rows) + "\n", encoding="utf-8")
    shown = hushrec_process("data", "describe", str(csv), environment=environment)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.isascii()
    assert "#" in shown.stdout
    assert hushrec_process("--help", environment=environment).stdout.isascii()
    out = tmp_path / "run"
    made = hushrec_process(
        "run", "pmf", "--data", str(csv), "--rounds", "1", "--num-factors", "2", "--min-raters", "0",
        "--no-stop-early", "--no-baselines", "--out", str(out), environment=environment,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    listed = hushrec_process("recommend", str(out), "--user", "1", "--include-seen", environment=environment)
    assert "Am\\u00e9lie [red] :smile: 0" in listed.stdout
    as_json = hushrec_process(
        "recommend", str(out), "--user", "1", "--include-seen", "--json", environment=environment
    )
    assert json.loads(as_json.stdout)[0]["item"].startswith("Amélie [red] :smile:")


def test_what_users_named_commands_no_terminal(tmp_path: Path) -> None:
    """Escape sequences, ends of lines and the like are written out; JSON has them as they are."""
    csv = tmp_path / "odd.csv"
    names = ["red\x1b[31m", '"two\nlines"', "bell\x07", "turned\u202e"]
    rows = [f"{user},{name},{1 + (user + place) % 5}" for user in range(8) for place, name in enumerate(names)]
    csv.write_text("user,item,rating\n" + "\n".join(rows) + "\n", encoding="utf-8")
    out = str(tmp_path / "run")
    short = ["--rounds", "1", "--num-factors", "2", "--min-raters", "0", "--no-stop-early", "--no-baselines"]
    assert hushrec_process("run", "pmf", "--data", str(csv), *short, "--out", out).returncode == 0
    listed = hushrec_process("recommend", out, "--user", "1", "--include-seen")
    for text in ("red\\u001b[31m", "two\\nlines", "bell\\u0007", "turned\\u202e"):
        assert text in listed.stdout
    assert len(listed.stdout.splitlines()) == 1 + len(names)
    as_json = hushrec_process("recommend", out, "--user", "1", "--include-seen", "--json")
    assert {entry["item"] for entry in json.loads(as_json.stdout)} >= {"red\x1b[31m", "two\nlines"}
    unknown = hushrec_process("recommend", out, "--user", "no\x1b[31m\nsuch")
    assert unknown.returncode == 2
    assert "\x1b" not in unknown.stderr
    assert len(unknown.stderr.splitlines()) == 1


def test_help_is_asked_for_by_the_commands_own_name() -> None:
    assert "; see hushrec run --help\n" in hushrec_process("run", "nosuch").stderr


# --- Others --------------------------------------------------------------------------------------------------


def test_a_run_of_a_system_from_elsewhere_says_so(kept: Path, tmp_path: Path) -> None:
    foreign: Run = read_run(kept)
    write_run(tmp_path / "foreign", Run(**{**vars(foreign), "system": "from-elsewhere"}))
    with pytest.raises(hushrec.HushrecError, match="from-elsewhere, which is not installed here"):
        hushrec.load_run(tmp_path / "foreign")


def wrong_commands() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wrong_commands", ROOT / "tools" / "wrong_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("number", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_wrong_command_lines_are_refused(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tool = wrong_commands()
    furnished = tool.furnish(tmp_path)
    drawer = tool.Drawer(number, tmp_path)
    drawn = [drawer.draw() for _ in range(number)]
    found = [(words, *tool.outcome(words)) for words in drawn]
    assert [one for one in found if not tool.is_refusal(*one[1:])] == []
    assert {path.name for path in tmp_path.iterdir()} == furnished
