"""Machines made of network namespaces: each with its own network, its own home and none of the others' files.

All are plugged into a bridge that lies in a namespace of its own, so that the host's network is not touched.
Every command of a machine runs with that machine's folder mounted as its home, the folders of the others hidden.
"""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_NETWORK = "10.77.0"
# Mounts are seen by this command only: `ip netns exec` gives it a mount namespace.
_ENTER = 'mount --bind "$1" "$2" && mount -t tmpfs -o size=1m tmpfs "$3" && cd "$2" && shift 3 && exec "$@"'
_STOP_SECONDS = 30.0


def can_make_namespaces() -> bool:
    """Whether this is Linux, we are root, and the tools are there."""
    return os.name == "posix" and os.geteuid() == 0 and all(map(shutil.which, ("ip", "mount", "tcpdump")))


@dataclass
class Terminal:
    """A command that stays, and what it has printed so far."""

    process: subprocess.Popen[bytes]
    log: Path

    def printed(self) -> str:
        """Both its outputs, in the order in which they came."""
        return self.log.read_text(encoding="utf-8")

    def press_ctrl_c(self) -> int:
        """What the terminal's user does to end it; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(_STOP_SECONDS)

    def stop(self) -> None:
        """End it and all that it started, whatever it takes; its processes are a session of their own."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(how)
                try:
                    self.process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    continue


@dataclass(frozen=True)
class Machine:
    """One machine. `disk` is its home as the host sees it, `home` as its own commands see it."""

    name: str
    namespace: str
    disk: Path
    home: Path
    environment: Mapping[str, str]
    terminals: dict[str, Terminal] = field(default_factory=dict)

    def command(self, script: str, is_online: bool = False) -> list[str]:
        """The command that runs a script of the shell on this machine, or with its disk on the host's network."""
        network = ["unshare", "--mount"] if is_online else ["ip", "netns", "exec", self.namespace]
        enter = ["bash", "-c", _ENTER, "enter", str(self.disk), str(self.home), str(self.disk.parent)]
        return [*network, *enter, "bash", "-euo", "pipefail", "-c", script]

    def run(self, script: str, timeout_seconds: float = 300.0, is_online: bool = False) -> tuple[int, str]:
        """Run a script to its end: exit code, and both its outputs in the order in which they came."""
        done = subprocess.run(
            self.command(script, is_online),
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    def open_terminal(self, name: str, script: str) -> Terminal:
        """Start a script that stays; `exec` makes the shell become its last command, which gets the signals."""
        if name in self.terminals:
            self.terminals[name].process.wait(_STOP_SECONDS)
        log = self.disk.parent.parent / f"{self.name}-{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(f"exec {script}"),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.terminals[name] = Terminal(process, log)
        return self.terminals[name]

    def open_ports(self) -> set[int]:
        """TCP ports on which others can reach this machine: those that listen beyond the loopback."""
        listed = subprocess.run(
            ["ip", "netns", "exec", self.namespace, "ss", "-Hltn"], capture_output=True, text=True, check=True
        )
        addresses = [line.split()[3] for line in listed.stdout.splitlines()]
        return {
            int(address.rpartition(":")[2]) for address in addresses if not address.startswith(("127.", "[::1]"))
        }


@dataclass(frozen=True)
class Network:
    """Machines, and the namespace of the bridge that they are plugged into."""

    machines: dict[str, Machine]
    bridge_namespace: str

    def at_the_bridge(self) -> tuple[str, ...]:
        """What leads a command to the place that sees all packets."""
        return ("ip", "netns", "exec", self.bridge_namespace)


@contextmanager
def machines(names: Sequence[str], hosts: Mapping[str, str], folder: Path, path: str) -> Iterator[Network]:
    """Machines with these names; `hosts` says under which name others know each; all is gone in the end.

    `path` is the search path of their commands, where `~` is the machine's home.
    """
    token = f"hr-{secrets.token_hex(3)}"
    home, disks = folder / "home", folder / "disks"
    home.mkdir(parents=True)
    lines = ["127.0.0.1 localhost"]
    lines += [f"{_NETWORK}.{names.index(name) + 1} {host}" for host, name in hosts.items()]
    found: dict[str, Machine] = {}
    namespaces = [f"{token}-net"]
    try:
        _ip("netns", "add", namespaces[0])
        _ip("-n", namespaces[0], "link", "add", "br0", "type", "bridge")
        _ip("-n", namespaces[0], "link", "set", "br0", "up")
        for number, name in enumerate(names, 1):
            namespaces.append(f"{token}-{name}")
            _plug_in(namespaces[-1], namespaces[0], number, lines)
            (disks / name).mkdir(mode=0o700, parents=True)
            kept = {
                key: value
                for key, value in os.environ.items()
                if key.startswith(("PIP_", "HUSHREC_", "LANG", "PYTHONPATH"))
            }
            environment = kept | {
                "HOME": str(home),
                "PATH": path.replace("~", str(home)),
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": str(home),
            }
            found[name] = Machine(name, namespaces[-1], disks / name, home, environment)
        yield Network(found, namespaces[0])
    finally:
        for machine in found.values():
            for terminal in machine.terminals.values():
                terminal.stop()
        for namespace in namespaces:
            _end_stragglers(namespace)
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / namespace, ignore_errors=True)


def _plug_in(namespace: str, bridge_namespace: str, number: int, hosts: list[str]) -> None:
    """A namespace with a cable to the bridge, an address and a file of hosts, which `ip netns exec` mounts."""
    _ip("netns", "add", namespace)
    own = Path("/etc/netns") / namespace
    own.mkdir(parents=True)
    (own / "hosts").write_text("\n".join(hosts) + "\n")
    _ip("link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", f"port{number}",
        "netns", bridge_namespace)  # fmt: skip
    _ip("-n", bridge_namespace, "link", "set", f"port{number}", "master", "br0", "up")
    _ip("-n", namespace, "addr", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
    for interface in ("eth0", "lo"):
        _ip("-n", namespace, "link", "set", interface, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _end_stragglers(namespace: str) -> None:
    """End, by their ids, processes that still live in a namespace that we made."""
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    for pid in map(int, listed.stdout.split()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_until(is_so: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something, or fail with its name."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.3)
