"""docs/deploy.md, followed to the letter on five machines made of network namespaces.

In the page, a block with the first line `# server` is run on that machine, `# shop-a, terminal node` stays in a
terminal of that machine, and `output` is what the block before it prints, or a terminal so far. Comments say what
people do in between: carry a file, copy a folder, press Ctrl-C, wait. Numbers may differ; a line `...` stands for
any lines.

The machines' virtual environment is that of the tests; with HUSHREC_GUIDE_INSTALL=1, one made as the page says.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from namespaces import Machine, Network, can_make_namespaces, machines, wait_until

BASE = Path(__file__).parents[2]
PAGE = BASE / "docs" / "deploy.md"
NAMES = ("office", "server", "shop-a", "shop-b", "shop-c")
SHOPS = ("shop-a", "shop-b")  # which are there all the time
FLAGS = {"install", "fails", "systemd", "titles"}
PORT = 8002
# What is said only on a machine that takes its time: how far a run is, for whom it waits.
WHEN_SLOW = re.compile(
    r"\S+ on \d+ nodes: round \d+/\d+, .* sent.*|waiting for .*, for up to \d+ s \(--patience\)"
)


# --- The page ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A block of the page, or what people do in between."""

    line: int
    kind: str  # sh, output or act
    text: str
    where: tuple[str, ...] = ()  # machines
    terminal: str = ""
    flags: frozenset[str] = frozenset()


def steps_of(text: str) -> Iterator[Step]:
    """The steps of the page, in its order."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if act := re.fullmatch(r"<!-- (.*) -->", line):
            yield Step(number, "act", act[1])
        elif fence := re.fullmatch(r"```(sh|output)(?: \{(.*)\})?", line):
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            yield _block(number, fence[1], fence[2] or "", body)
        else:
            assert not line.startswith("```"), f"line {number}: what kind of block is this?"


def _block(number: int, kind: str, marks: str, body: list[str]) -> Step:
    """A block of commands says in its first line where it is run, one of output perhaps in its marks."""
    flags, text = frozenset(marks.split(", ")) & FLAGS, "\n".join(body)
    if kind == "output":
        machine, _, terminal = marks.partition(": ")
        where = (machine,) if machine in NAMES else ()
        assert where or marks in ("", *FLAGS), f"line {number}: unknown marks {marks!r}"
        return Step(number, kind, text, where, terminal, flags)
    assert marks in ("", *FLAGS), f"line {number}: unknown marks {marks!r}"
    machines_named, _, terminal = body[0].removeprefix("# ").partition(", terminal ")
    where = tuple(machines_named.split(", "))
    assert set(where) <= set(NAMES), f"line {number}: where is this run?"
    return Step(number, kind, "\n".join(body[1:]), where, terminal, flags)


def plain(line: str) -> str:
    """A line without what may differ: numbers, sizes, digests, times, spaces."""
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "TIME", line)
    line = re.sub(r"\b[0-9a-f]{4}( [0-9a-f]{4}){7}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "DIGEST", line)
    line = re.sub(r"\d[\d,.]*( [KMGT]?B\b)?", "N", line)
    return " ".join(line.split())


def fits(expected: str, printed: str, any_titles: bool = False) -> bool:
    """Whether the lines are the same but for what may differ."""
    printed = "\n".join(line for line in printed.splitlines() if not WHEN_SLOW.fullmatch(line))
    wanted, came = ([plain(line) for line in text.strip().splitlines()] for text in (expected, printed))
    if any_titles:
        wanted, came = ([re.sub(r"^N N N .*", "ROW", line) for line in lines] for lines in (wanted, came))
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in came)) is not None


def test_lines_fit_but_for_numbers() -> None:
    shown = "shop-a: 472 clients\nmail key 5f1c 0a77 3b9e 0c55 9d1f 6f0a 2c44 e1b0\n...\nkept in fed/runs/first"
    came = "shop-a: 9 clients\nmail key aaaa bbbb cccc dddd eeee ffff 0000 1111\nx\ny\nkept in fed/runs/first\n"
    assert fits(shown, came)
    assert fits(shown, f"fedrec++ on 2 nodes: round 11/20, 547 MB sent, left 0:00:24\n{came}")
    assert fits(shown, f"waiting for shop-b, for up to 57 s (--patience)\n{came}")
    assert not fits(shown, came.replace("clients", "customers"))
    assert not fits(shown, came + "one more line\n")
    assert not fits(shown, came.replace("shop-a", "shop-b"))
    assert fits("1  50  4.4  Star Wars (1977)", "1  7  5.1  Fargo (1996)", any_titles=True)
    assert not fits("1  50  4.4  Star Wars (1977)", "1  7  5.1  Fargo (1996)")


def test_the_page_has_steps_for_all_machines() -> None:
    steps = list(steps_of(PAGE.read_text(encoding="utf-8")))
    assert {name for step in steps for name in step.where} == set(NAMES)
    assert sum(step.kind == "output" for step in steps) >= 25


# --- Following it ------------------------------------------------------------------------------------------


class Reader:
    """Somebody who does what the page says, on all machines at once."""

    def __init__(self, network: Network, wiretap: Any, folder: Path) -> None:
        self._network, self._machines = network, network.machines
        self._wiretap, self._folder = wiretap, folder
        self._started, self._printed = time.monotonic(), ""
        self.captured_bytes = 0
        self.num_outputs = 0

    def follow(self, step: Step) -> None:
        """Do one step and compare what is printed."""
        print(f"{time.monotonic() - self._started:.0f} s, line {step.line}: {step.text.partition(chr(10))[0]}")
        if step.kind == "act":
            self._act(step)
        elif step.kind == "output":
            self._compare(step)
        elif step.terminal:
            assert "\n" not in step.text, "what stays in a terminal is one command"
            self._machines[step.where[0]].open_terminal(step.terminal, step.text)
        elif "--run-name fourth" in step.text:
            self._run_captured(step)
        else:
            self._run(step)

    def _run(self, step: Step) -> None:
        self._printed = ""
        for name in step.where:
            machine = self._machines[name]
            if "install" in step.flags:
                _install(machine, step.text)
            elif "systemd" in step.flags:
                _check_unit(machine, step.text)
            else:
                code, printed = machine.run(step.text)
                self._printed += printed
                print(printed)
                expected = 2 if "fails" in step.flags else 0
                assert code == expected, f"line {step.line} on {name} ended with {code}:\n{printed}"
        if "python keys.py" in step.text:
            self._check_fingerprints()

    def _check_fingerprints(self) -> None:
        """What a shop's terminal showed at its start is what the other shop was told."""
        for shop in SHOPS:
            shown = self._machines[shop].terminals["node"].printed().partition("mail key ")[2].splitlines()[0]
            assert f"{shop} {shown}\n" in self._printed

    def _compare(self, step: Step) -> None:
        self.num_outputs += 1
        if not step.terminal:
            assert fits(step.text, self._printed, "titles" in step.flags), f"line {step.line}:\n{self._printed}"
            return
        terminal = self._machines[step.where[0]].terminals[step.terminal]
        wait_until(
            lambda: fits(step.text, terminal.printed()),
            240,
            f"line {step.line}: the terminal shows\n{terminal.printed()}",
        )

    def _act(self, step: Step) -> None:
        if match := re.fullmatch(r"carry: (\S+) from (\S+) to (\S+)", step.text):
            file, source, target = match.groups()
            shutil.copy2(self._machines[source].disk / file, self._machines[target].disk / file)
        elif match := re.fullmatch(r"copy: (\S+) from (\S+) to (\S+)", step.text):
            folder, source, target = match.groups()
            shutil.copytree(self._machines[source].disk / folder, self._machines[target].disk / folder)
        elif match := re.fullmatch(r"Ctrl-C: (\S+): (\S+)", step.text):
            code = self._machines[match[1]].terminals[match[2]].press_ctrl_c()
            assert code in (0, 130), f"line {step.line}: ended with {code}"
        elif match := re.fullmatch(r"wait: round (\d+) of (\S+)", step.text):
            progress = self._machines["server"].disk / "fed" / "runs" / match[2] / "progress.json"
            wait_until(lambda: _round_in(progress) >= int(match[1]), 120, step.text)
            self._check_open_ports()
        elif match := re.fullmatch(r"wait: (\S+) connected", step.text):
            server = self._machines["server"]
            wait_until(lambda: re.search(rf"{match[1]} +connected", _status(server)) is not None, 120, step.text)
        else:
            pytest.fail(f"line {step.line}: nobody knows how to {step.text}")

    def _check_open_ports(self) -> None:
        """One port on the server, none on the nodes."""
        found = {name: machine.open_ports() for name, machine in self._machines.items()}
        assert found == {name: {PORT} if name == "server" else set() for name in NAMES}

    def _run_captured(self, step: Step) -> None:
        """Run a block while all packets between the machines are recorded, and search these."""
        capture = self._folder / "bridge.pcap"
        with self._wiretap.capturing("br0", capture, self._network.at_the_bridge()):
            self._run(step)
        streams = self._wiretap.read_streams(capture)
        capture.unlink()
        assert all(stream.uses(PORT) for stream in streams)
        assert not any(stream.missing_bytes for stream in streams)
        whole = [stream for stream in streams if stream.is_whole]
        self.captured_bytes = sum(len(stream.data) for stream in streams)
        assert sum(len(stream.data) for stream in whole) > 0.9 * self.captured_bytes > 100e6
        for stream in whole:
            in_records, encrypted = self._wiretap.tls_bytes(stream)
            assert in_records == len(stream.data)
            assert encrypted > 0.5 * in_records
        hits = self._needles().hits(streams)
        assert not any(hits.values()), hits

    def _needles(self) -> Any:
        """Of the run named fourth: what both shops and the server have, and the marks of packets and frames."""
        from hushrec.runtime.wire import code_of
        from hushrec.systems.fedrec_plus_plus import SYSTEM

        run = self._machines["server"].disk / "fed" / "runs" / "fourth"
        run_id = json.loads((run / "order.json").read_text())["run_id"]
        rows_of = self._wiretap.rows_of
        kinds = {
            "headers": [b"HR\x01\x00" + code_of(kind).to_bytes(4, "little") for kind in SYSTEM.messages],
            "run id": [bytes.fromhex(run_id), run_id.encode()],
            "item factors": list(rows_of(np.load(run / "fold-1" / "state.npz")["server.item_factors"])),
        }
        for shop in SHOPS:
            private = self._machines[shop].disk / shop / "private"
            state = np.load(private / "runs" / run_id / "fold-1" / "state.npz")
            kinds[f"vectors of {shop}"] = list(rows_of(state["private.user_factors"]))
            kinds[f"mail key of {shop}"] = [(private / "mail.key").read_bytes()]
        needles = self._wiretap.Needles(kinds)
        assert all(needles.counts.values()), needles.counts
        return needles


def _round_in(progress: Path) -> int:
    return int(json.loads(progress.read_text())["round_number"]) if progress.exists() else 0


def _status(server: Machine) -> str:
    return server.run("hushrec deploy status fed")[1]


def _install(machine: Machine, script: str) -> None:
    """As the page says, once, on a machine with its own home but the host's network; the others get a copy."""
    if not os.environ.get("HUSHREC_GUIDE_INSTALL"):
        (machine.disk / "source").mkdir()
        (machine.disk / "venv").symlink_to(sys.prefix)
        return
    first = machine.disk.parent / NAMES[0]
    if machine.disk != first:
        shutil.copytree(first / "source", machine.disk / "source")
        subprocess.run(["cp", "-a", str(first / "venv"), str(machine.disk / "venv")], check=True)
        return
    leave_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", "build", ".*_cache")
    shutil.copytree(BASE, machine.disk / "source", ignore=leave_out)
    code, printed = machine.run(script, timeout_seconds=1_200, is_online=True)
    assert code == 0, printed


def _check_unit(machine: Machine, script: str) -> None:
    """Write the unit; have systemd judge it; what it starts was started by hand before."""
    kept = [line for line in script.splitlines() if not line.startswith(("systemctl", "loginctl"))]
    assert machine.run("\n".join(kept))[0] == 0
    [unit] = (machine.disk / ".config" / "systemd" / "user").glob("*.service")
    command = re.search(r"^ExecStart=%h/venv/bin/(.*)$", unit.read_text(), re.MULTILINE)
    assert command is not None
    assert f"\n{command[1]}\n```" in PAGE.read_text(encoding="utf-8")
    if shutil.which("systemd-analyze"):
        judge = "mkdir -p ~/.cache && XDG_RUNTIME_DIR=~/.cache systemd-analyze --user verify --man=no"
        code, printed = machine.run(f"{judge} ~/.config/systemd/user/{unit.name}")
        assert code == 0, printed
        assert unit.name not in printed, printed


@pytest.fixture
def wiretap() -> Iterator[Any]:
    """The program that reads captures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BASE)
        yield importlib.import_module("benchmarks.wiretap")


@pytest.mark.slow
@pytest.mark.skipif(not can_make_namespaces(), reason="needs root, ip and tcpdump")
def test_the_guide_works_as_it_is_written(wiretap: Any, tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    base = Path(sys.base_prefix) / "bin"
    search = f"~/venv/bin:{base}:/usr/sbin:/usr/bin:/sbin:/bin"
    with machines(NAMES, {"server.example": "server"}, tmp_path, search) as network:
        reader = Reader(network, wiretap, tmp_path)
        for step in steps_of(PAGE.read_text(encoding="utf-8")):
            reader.follow(step)
        for machine in network.machines.values():
            for name, terminal in machine.terminals.items():
                assert terminal.process.poll() is not None, f"{name} of {machine.name} still runs"
            left = {path.name for path in machine.disk.rglob("*") if path.is_file() and ".cache" not in path.parts}
            assert not left, f"left on {machine.name}: {left}"
    assert reader.num_outputs >= 25
    assert reader.captured_bytes > 100e6
