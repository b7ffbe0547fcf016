"""NVFlare as an engine: its kits, its jobs, its calls; and, slowly, real processes that are killed and refused."""

import base64
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

pytest.importorskip("nvflare")

import psutil
from nvflare.collab.api.exceptions import CollabCallError, RunAborted

from hushrec.deploy import nvflare_job
from hushrec.deploy.engines import JobState
from hushrec.deploy.local import free_port
from hushrec.deploy.nvflare_engine import NVFlareEngine, NVFlareSession, job_state, write_job
from hushrec.deploy.nvflare_job import PART_BYTES, CollabTransport, Node, NodeFailure
from hushrec.errors import HushrecError
from hushrec.runtime.transport import Delivery, Requests

ENGINE = NVFlareEngine()
NODES = ["node-1", "node-2"]


# --- Kits and jobs -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits") / "federation"
    ENGINE.provision(folder, NODES, "localhost", 18999)
    return folder


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_there_is_one_private_kit_per_machine_and_no_key_of_the_authority(kits: Path) -> None:
    assert {path.name for path in kits.iterdir()} == {"server", "admin", *NODES}
    for kit in kits.iterdir():
        assert stat.S_IMODE(kit.stat().st_mode) == 0o700
    keys = [path for path in kits.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(path.relative_to(kits).as_posix() for path in keys) == [
        "admin/startup/client.key",
        "node-1/startup/client.key",
        "node-2/startup/client.key",
        "server/startup/server.key",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_certificates_live_for_ten_years(kits: Path) -> None:
    for path in [*kits.glob("*/startup/*.crt"), *kits.glob("*/startup/rootCA.pem")]:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3640)


@pytest.mark.parametrize("name", ["server", *NODES])
def test_sites_build_our_components_only_and_take_no_code(kits: Path, name: str) -> None:
    resources = read_json(kits / name / "local" / "resources.json")
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert all(path.count(".") >= 3 and not path.endswith(".") for path in resources["class_allow_list"])
    assert sum(path.startswith("hushrec.deploy.nvflare_job.") for path in resources["class_allow_list"]) == 1
    assert len(resources["class_allow_list"]) == 2
    rights = read_json(kits / name / "local" / "authorization.json")["permissions"]
    assert list(rights) == ["project_admin"]
    assert rights["project_admin"]["byoc"] == rights["project_admin"]["shell_commands"] == "none"
    assert "log_stream" not in str(resources["components"])


def test_the_server_keeps_its_stores_in_its_kit_and_hears_of_lost_nodes_within_seconds(kits: Path) -> None:
    resources = read_json(kits / "server" / "local" / "resources.json")
    assert "/tmp" not in json.dumps(resources)
    assert str(kits) not in json.dumps(resources), "a kit must work wherever it is copied to"
    assert 20 <= resources["servers"][0]["heart_beat_timeout"] <= 60


@pytest.mark.parametrize("name", ["server", *NODES])
def test_messages_have_a_largest_size(kits: Path, name: str) -> None:
    sizes = read_json(kits / name / "local" / "comm_config.json")
    assert sizes["streaming_chunk_size"] < sizes["max_message_size"] < sizes["streaming_max_blob_size"] <= 1 << 30


def test_one_port_is_open(kits: Path) -> None:
    server = read_json(kits / "server" / "startup" / "fed_server.json")["servers"][0]
    assert server["admin_port"] == 18999
    assert server["service"]["target"] == "localhost:18999"
    assert server["connection_security"] == "mtls"


def test_a_name_that_nvflare_cannot_use_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="cannot use a name"):
        ENGINE.provision(tmp_path / "kits", ["node 1"], "localhost", 18999)


def test_commands_run_this_python_and_find_the_node_s_name_in_its_kit(kits: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(kits / "node-1", tmp_path / "elsewhere")
    command = ENGINE.node_command(moved)
    assert command[0] == sys.executable
    assert "uid=node-1" in command
    assert str(moved) in command
    assert "server.server_train" in ENGINE.server_command(kits)


def test_a_job_is_configuration_only(tmp_path: Path) -> None:
    job = bytes(range(256))
    write_job(tmp_path, job, NODES)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        "app_node/config/config_fed_client.json",
        "app_server/config/config_fed_server.json",
        "meta.json",
    ]
    meta = read_json(tmp_path / "meta.json")
    assert meta["deploy_map"] == {"app_server": ["server"], "app_node": NODES}
    assert meta["mandatory_clients"] == NODES
    server = read_json(tmp_path / "app_server" / "config" / "config_fed_server.json")
    assert base64.b64decode(server["components"][0]["args"]["job"]) == job


def test_a_job_names_allowed_classes_only(kits: Path, tmp_path: Path) -> None:
    write_job(tmp_path, b"", NODES)
    for kit, config in (("server", "app_server/config/config_fed_server.json"),
                        ("node-1", "app_node/config/config_fed_client.json")):  # fmt: skip
        allowed = read_json(kits / kit / "local" / "resources.json")["class_allow_list"]
        named = [line.split('"')[3] for line in (tmp_path / config).read_text().splitlines() if '"path"' in line]
        assert sorted(named) == sorted(allowed)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("SUBMITTED", JobState.WAITING),
        ("DISPATCHED", JobState.WAITING),
        ("RUNNING", JobState.RUNNING),
        ("FINISHED:COMPLETED", JobState.DONE),
        ("FINISHED:ABORTED", JobState.FAILED),
        ("FINISHED:EXECUTION_EXCEPTION", JobState.FAILED),
        ("FINISHED:CAN_NOT_SCHEDULE", JobState.FAILED),
    ],
)
def test_states_of_jobs(status: str, state: JobState) -> None:
    assert job_state(status) == state


def test_without_a_server_a_session_says_what_to_start(tmp_path: Path) -> None:
    ENGINE.provision(tmp_path, NODES, "localhost", free_port())
    with pytest.raises(HushrecError, match="start it with `hushrec deploy server`"):
        ENGINE.session(tmp_path, 0.1)


# --- Calls ---------------------------------------------------------------------------------------------------


@dataclass
class FakeNode:
    """A node as Collab shows it to the server."""

    answer: Callable[[bytes], Any]
    is_alive: Callable[[], bool] = lambda: True
    fetch: Callable[[int], Any] = lambda _start: b""
    brought: bytes = b""

    def __call__(self, timeout: float) -> "FakeNode":
        return self

    def bring(self, start: int, part: bytes) -> None:
        assert start == len(self.brought)
        self.brought += part

    def handle(self, packet: bytes, start: int) -> Any:
        assert start == len(self.brought)
        return self.answer(self.brought + packet)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def sleeping(seconds: float) -> Callable[..., bytes]:
    def sleep(packet: bytes) -> bytes:
        time.sleep(seconds)
        return packet

    return sleep


def call(
    nodes: dict[str, FakeNode],
    timeout: float = 5.0,
    is_aborted: Callable[[], bool] = lambda: False,
    packet: Callable[[str], bytes] = str.encode,
) -> Delivery:
    """A call whose replies have all been taken."""
    transport = CollabTransport(nodes, is_aborted)
    delivery = transport.call("ask", Requests(nodes, lambda name: iter([packet(name)])), 0, timeout)
    return Delivery({name: bytes(reply) for name, reply in delivery.arriving()}, delivery.lost)


def echo(packet: bytes) -> bytes:
    return b"from " + packet


def test_long_packets_travel_in_parts_of_one_node_at_a_time() -> None:
    reply, packet = os.urandom(2 * PART_BYTES + 5), os.urandom(2 * PART_BYTES + 3)
    seen: list[bytes] = []

    def take(packet: bytes) -> int:
        seen.append(packet)
        return len(reply)

    long = FakeNode(take, fetch=lambda start: reply[start : start + PART_BYTES])
    delivery = call({"a": long, "b": FakeNode(echo)}, packet=lambda name: packet if name == "a" else b"b")
    assert delivery.replies == {"a": reply, "b": b"from b"}
    assert seen == [packet]
    assert long.brought == packet


def test_a_reply_is_fetched_only_when_the_one_before_was_taken() -> None:
    fetched = list[str]()

    def node(name: str) -> FakeNode:
        def fetch(start: int) -> bytes:
            fetched.append(name)
            return name.encode()

        return FakeNode(lambda _packet: 1, fetch=fetch)

    transport = CollabTransport({name: node(name) for name in "abc"}, lambda: False)
    delivery = transport.call("ask", Requests("abc", lambda name: iter([b""])), 0, 5.0)
    for number, (name, _) in enumerate(delivery.arriving(), start=1):
        assert len(fetched) == number
        assert fetched[-1] == name


@pytest.mark.parametrize("claimed", [-1, 0, 2**40, True, 1.5, None, "x", [b"x"], {"a": 1}])
def test_what_is_no_reply_is_for_others_to_refuse(claimed: Any) -> None:
    """An empty packet is refused, and its sender blamed."""
    delivery = call({"a": FakeNode(lambda _packet: claimed), "b": FakeNode(echo)})
    assert delivery.replies == {"a": b"", "b": b"from b"}


@pytest.mark.parametrize("part", [b"", b"x" * (PART_BYTES + 1), 5, None])
def test_parts_that_are_none_end_a_reply(part: Any) -> None:
    node = FakeNode(lambda _packet: 10**9, fetch=lambda start: part)
    assert call({"a": node}).replies == {"a": b""}


def test_a_reply_that_breaks_off_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare_job, "ABORT_SECONDS", 0.1)
    node = FakeNode(lambda _packet: 10**9, fetch=raising(UNREACHABLE))
    delivery = call({"a": node, "b": FakeNode(echo)})
    assert delivery.replies == {"b": b"from b"}
    assert delivery.lost == {"a": "not reachable"}


UNREACHABLE = CollabCallError("b", "handle", "Message sending error to target b")


def test_every_node_gets_its_own_packet() -> None:
    delivery = call({"a": FakeNode(echo), "b": FakeNode(echo)})
    assert delivery.replies == {"a": b"from a", "b": b"from b"}
    assert delivery.lost == {}


def test_a_call_to_nobody_returns_at_once() -> None:
    assert call({}).replies == {}


def test_nodes_are_called_at_the_same_time() -> None:
    together = threading.Barrier(3)

    def meet(packet: bytes) -> bytes:
        together.wait(5)
        return packet

    assert len(call({name: FakeNode(meet) for name in "abc"}).replies) == 3


def test_a_slow_node_is_lost_and_costs_no_more_than_the_timeout() -> None:
    started = time.monotonic()
    delivery = call({"a": FakeNode(echo), "b": FakeNode(sleeping(1.5))}, timeout=0.3)
    assert time.monotonic() - started < 1.0
    assert delivery.replies == {"a": b"from a"}
    assert delivery.lost == {"b": "no reply within 0.3 s"}


def test_a_failure_on_a_node_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare_job, "ABORT_SECONDS", 60.0)
    error = CollabCallError("b", "handle", "NodeFailure: ValueError at site.py:1", cause_type="NodeFailure")
    delivery = call({"a": FakeNode(echo), "b": FakeNode(raising(error))})
    assert delivery.replies == {"a": b"from a"}
    assert delivery.lost == {"b": "ValueError at site.py:1"}


def test_a_node_that_cannot_be_reached_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare_job, "ABORT_SECONDS", 0.2)
    assert call({"b": FakeNode(raising(UNREACHABLE))}).lost == {"b": "not reachable"}
    too_long = CollabCallError("b", "handle", "Blob size 3 exceeds configured limit 2 (streaming_max_blob_size)")
    assert call({"b": FakeNode(raising(too_long))}).lost == {"b": "a message is too long"}


def test_a_dead_node_is_lost_before_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare_job, "ABORT_SECONDS", 0.1)
    monkeypatch.setattr(nvflare_job, "SIGN_SECONDS", 0.1)
    started = time.monotonic()
    dead = FakeNode(sleeping(2.0), raising(UNREACHABLE))
    slow = FakeNode(sleeping(0.6))
    delivery = call({"a": slow, "b": dead}, timeout=30.0)
    assert time.monotonic() - started < 1.5
    assert delivery.replies == {"a": b"a"}
    assert delivery.lost == {"b": "no sign of life"}


def test_when_the_job_is_ended_no_node_counts_as_lost() -> None:
    ended_at = time.monotonic() + 0.3
    with pytest.raises(RunAborted):
        call({"b": FakeNode(raising(UNREACHABLE))}, is_aborted=lambda: time.monotonic() > ended_at)


class FakeSite:
    """Answers, or fails with words that must not leave the node."""

    def handle(self, packet: bytes) -> bytes:
        if packet == b"fail":
            raise KeyError("user 4711")
        return packet


def test_a_node_opens_its_site_once_and_survives_exceptions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[Path] = []

    def open_site(kit: Path) -> FakeSite:
        opened.append(kit)
        return FakeSite()

    monkeypatch.setattr(nvflare_job, "open_site", open_site)
    monkeypatch.setenv("HUSHREC_KIT", str(tmp_path))
    node = Node()
    assert node.handle(b"one") == b"one"
    with pytest.raises(NodeFailure, match=r"KeyError at test_nvflare_engine\.py") as failure:
        node.handle(b"fail")
    assert "4711" not in str(failure.value)
    assert "4711" not in caplog.text
    assert failure.value.__cause__ is None
    assert node.handle(b"two") == b"two"
    assert opened == [tmp_path]
    node._held.close()


def test_two_workers_never_serve_one_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second waits for the first to end, and fails if it does not."""
    monkeypatch.setattr(nvflare_job, "open_site", lambda _kit: FakeSite())
    monkeypatch.setattr(nvflare_job, "WORKER_SECONDS", 0.3)
    monkeypatch.setenv("HUSHREC_KIT", str(tmp_path))
    first, second = Node(), Node()
    assert first.handle(b"one") == b"one"
    with pytest.raises(NodeFailure):
        second.handle(b"two")
    ending = threading.Timer(0.1, first._held.close)
    ending.start()
    assert second.handle(b"two") == b"two"
    ending.join()
    second._held.close()


def test_a_node_takes_long_packets_and_gives_long_replies_in_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvflare_job, "open_site", lambda _kit: FakeSite())
    monkeypatch.setattr(nvflare_job, "WHOLE_BYTES", 5)
    monkeypatch.setattr(nvflare_job, "PART_BYTES", 4)
    monkeypatch.setenv("HUSHREC_KIT", str(tmp_path))
    node = Node()
    node.bring(0, b"a packet of which the rest never comes")
    node.bring(0, b"1234")
    node.bring(4, b"5678")
    with pytest.raises(NodeFailure, match="do not fit"):
        node.bring(4, b"5678")
    assert node.handle(b"9", start=8) == 9
    assert [node.fetch(0), node.fetch(4), node.fetch(8), node.fetch(8)] == [b"1234", b"5678", b"9", b""]
    with pytest.raises(NodeFailure, match="do not fit"):
        node.handle(b"9", start=8)
    node.bring(0, b"left over")
    assert node.handle(b"short") == b"short"
    node._held.close()


def test_a_node_without_a_site_says_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare_job, "open_site", raising(HushrecError("/home/someone/ratings.csv is missing")))
    monkeypatch.setenv("HUSHREC_KIT", str(tmp_path))
    with pytest.raises(NodeFailure, match="see the node's log") as failure:
        Node().handle(b"one")
    assert "ratings.csv" not in str(failure.value)


# --- Real processes ------------------------------------------------------------------------------------------


DOUBLES = '''
    """Stand-ins for the driver and the site, in every Python process of the test's federation."""
    import os, sys, types

    def requests_of(packets):
        from hushrec.runtime.transport import Requests
        return Requests(packets, lambda node: iter([packets[node]]))

    def drive(transport, nodes, folder, job):
        import json, time
        with (folder / "log.jsonl").open("a") as log:
            def say(**entry):
                print(json.dumps(entry), file=log, flush=True)
            say(what="start", nodes=nodes)
            for step in json.loads(job):
                text = step.get("text", "").encode() or bytes(step.get("bytes", 1))
                packets = {node: text + node.encode() for node in nodes}
                for number in range(step.get("repeat", 1)):
                    delivery = transport.call("ask", requests_of(packets), number, step.get("timeout", 60))
                    replies = dict(delivery.arriving())
                    right = all(reply == packets[node] for node, reply in replies.items())
                    say(what="call", replies=sorted(replies), right=right, lost=delivery.lost)
                    time.sleep(step.get("every", 0))
            say(what="end")

    class Site:
        def handle(self, packet):
            import time
            if packet.startswith(b"sleep"):
                time.sleep(3)
            if packet.startswith(b"raise"):
                raise ValueError("secret")
            return packet

    parts = {"driver": {"drive": drive}, "site": {"Site": Site, "open_site": lambda kit: Site()}}
    for name, values in parts.items():
        module = types.ModuleType(f"hushrec.deploy.{name}")
        module.__dict__.update(values)
        sys.modules[module.__name__] = module
'''
STARTING_SECONDS = 120.0


@dataclass
class Federation:
    """A server and its nodes as processes."""

    folder: Path
    doubles: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    session: NVFlareSession | None = None

    def start(self, name: str, command: list[str] | None = None, kit: str | None = None) -> None:
        is_server = name == "server"
        kit_folder = self.folder / (kit or name)
        if command is None:
            command = ENGINE.server_command(self.folder) if is_server else ENGINE.node_command(kit_folder)
        own = {"HUSHREC_PROJECT": str(self.folder)} if is_server else {"HUSHREC_KIT": str(kit_folder)}
        with (self.folder / f"{name}.out").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(self.doubles), **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def worker(self, name: str) -> psutil.Process:
        return psutil.Process(self.processes[name].pid).children()[0]

    def connect(self) -> NVFlareSession:
        """The session; whoever wants to wait for a server that starts, asks again."""
        deadline = time.monotonic() + STARTING_SECONDS
        while self.session is None:
            try:
                self.session = ENGINE.session(self.folder, STARTING_SECONDS)
            except HushrecError:
                if time.monotonic() > deadline:
                    raise
        return self.session

    def all_connected(self, nodes: list[str]) -> bool:
        return wait_until(lambda: set(nodes) <= self.connect().connected())

    def submit(self, *steps: dict[str, Any]) -> str:
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        return self.connect().submit(json.dumps(steps).encode(), NODES)

    def end_of(self, job: str) -> JobState:
        assert wait_until(lambda: self.connect().state(job) in (JobState.DONE, JobState.FAILED))
        return self.connect().state(job)

    def log(self) -> list[dict[str, Any]]:
        path = self.folder / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log() if entry["what"] == "call"]

    def stop(self) -> None:
        if self.session is not None:
            self.session.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(30)


def wait_until(condition: Callable[[], bool], seconds: float = STARTING_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("nvflare")
    doubles = folder / "doubles"
    doubles.mkdir()
    (doubles / "sitecustomize.py").write_text(textwrap.dedent(DOUBLES))
    made = Federation(folder / "federation", doubles)
    ENGINE.provision(made.folder, NODES, "localhost", free_port())
    try:
        for name in ("server", *NODES):
            made.start(name)
        assert made.all_connected(NODES)
        yield made
    finally:
        made.stop()


@pytest.mark.slow
def test_calls_go_through(federation: Federation) -> None:
    steps = [
        {"bytes": 1_000, "repeat": 3}, {"bytes": 20_000_000}, {"text": "raise"}, {"text": "sleep", "timeout": 1},
        {"bytes": 10},
    ]  # fmt: skip
    job = federation.submit(*steps)
    assert federation.end_of(job) == JobState.DONE
    *whole, failing, late, last = federation.calls()
    for call in [*whole, last]:
        assert call == {"what": "call", "replies": NODES, "right": True, "lost": {}}
    for reason in failing["lost"].values():
        assert re.fullmatch(r"ValueError at sitecustomize\.py:\d+; see the node's log", reason)
    assert sorted(failing["lost"]) == NODES
    assert late["lost"] == dict.fromkeys(NODES, "no reply within 1 s")
    for path in federation.folder.rglob("*.txt"):
        assert "secret" not in path.read_text(errors="replace")


@pytest.mark.slow
def test_a_killed_worker_ends_the_job_without_a_false_loss_and_the_next_job_runs(federation: Federation) -> None:
    job = federation.submit({"bytes": 1_000, "repeat": 1_000, "every": 0.1})
    assert wait_until(lambda: len(federation.calls()) > 3)
    federation.worker("node-2").kill()
    assert federation.end_of(job) == JobState.FAILED
    assert all(not call["lost"] for call in federation.calls())
    assert federation.end_of(federation.submit({"bytes": 1_000})) == JobState.DONE


@pytest.mark.slow
def test_a_job_can_be_aborted(federation: Federation) -> None:
    job = federation.submit({"bytes": 1_000, "repeat": 1_000, "every": 0.1})
    assert wait_until(lambda: len(federation.calls()) > 3)
    federation.connect().abort(job)
    assert federation.connect().state(job) == JobState.FAILED
    num_calls = len(federation.calls())
    assert not federation.calls()[-1]["lost"]
    assert "end" not in {entry["what"] for entry in federation.log()}
    time.sleep(1)
    assert len(federation.calls()) == num_calls
    federation.connect().abort(job)


@pytest.mark.slow
def test_a_killed_node_is_lost_within_seconds_and_takes_part_in_the_next_job(federation: Federation) -> None:
    job = federation.submit({"bytes": 1_000, "repeat": 1_000, "every": 0.1, "timeout": 300})
    assert wait_until(lambda: len(federation.calls()) > 3)
    federation.kill("node-2")
    killed_at = time.monotonic()
    federation.start("node-2")
    assert wait_until(lambda: any(call["lost"] for call in federation.calls()))
    assert time.monotonic() - killed_at < 60
    lost = next(call["lost"] for call in federation.calls() if call["lost"])
    assert list(lost) == ["node-2"]
    assert lost["node-2"] in ("no sign of life", "not reachable")
    federation.connect().abort(job)
    assert federation.all_connected(NODES)
    assert federation.end_of(federation.submit({"bytes": 1_000})) == JobState.DONE


@pytest.mark.slow
def test_a_killed_server_comes_back_to_the_same_session(federation: Federation) -> None:
    job = federation.submit({"bytes": 1_000, "repeat": 1_000, "every": 0.1})
    assert wait_until(lambda: len(federation.calls()) > 3)
    worker = federation.worker("server")
    federation.kill("server")
    federation.start("server")
    assert federation.end_of(job) == JobState.FAILED
    assert wait_until(lambda: not worker.is_running())
    assert all(not call["lost"] for call in federation.calls())
    assert federation.all_connected(NODES)
    assert federation.end_of(federation.submit({"bytes": 1_000})) == JobState.DONE


def write_evil_job(folder: Path, marker: Path, is_shipped: bool) -> None:
    write_job(folder, b"[]", NODES)
    config = folder / "app_node" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    path, arguments = "subprocess.Popen", {"args": ["touch", str(marker)]}
    if is_shipped:
        (folder / "app_node" / "custom").mkdir()
        (folder / "app_node" / "custom" / "evil.py").write_text(
            f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nclass Evil: ...\n"
        )
        path, arguments = "evil.Evil", {}
    content["components"].append({"id": "evil", "path": path, "args": arguments})
    config.write_text(json.dumps(content))


@pytest.mark.slow
@pytest.mark.parametrize("is_shipped", [True, False], ids=["shipped code", "foreign class"])
def test_code_of_others_never_runs(federation: Federation, tmp_path: Path, is_shipped: bool) -> None:
    marker = tmp_path / "marker"
    write_evil_job(tmp_path / "job", marker, is_shipped)
    session: Any = federation.connect()
    job = session._ask_server(lambda inner: inner.submit_job(str(tmp_path / "job")))
    assert federation.end_of(job) == JobState.FAILED
    assert not marker.exists()
    assert federation.end_of(federation.submit({"bytes": 10})) == JobState.DONE


def knock(federation: Federation, kit: Path | None) -> bytes:
    """Speak to the server as a stranger, with a certificate or without; what it answers."""
    root = federation.folder / "server" / "startup" / "rootCA.pem"
    port = int(read_json(federation.folder / "server" / "startup" / "fed_server.json")["servers"][0]["admin_port"])
    context = ssl.create_default_context(cafile=str(root))
    context.set_alpn_protocols(["h2"])
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    with socket.create_connection(("localhost", port), timeout=10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
                return secured.recv(100)
        except OSError:
            return b""


@pytest.mark.slow
def test_strangers_are_refused_with_a_line_each(federation: Federation, kits: Path) -> None:
    output = federation.folder / "server.out"
    assert knock(federation, federation.folder / "node-1") != b"", "a known node is let in"
    for kit, word in ((None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"), (kits / "node-1", "CERTIFICATE_VERIFY_FAILED")):
        before = output.read_text().count(word)
        assert knock(federation, kit) == b""
        assert wait_until(lambda word=word, before=before: output.read_text().count(word) == before + 1, 10)


@pytest.mark.slow
def test_a_message_that_is_too_long_is_refused(federation: Federation) -> None:
    config = federation.folder / "node-2" / "local" / "comm_config.json"
    usual = config.read_text()
    config.write_text(json.dumps({**json.loads(usual), "streaming_max_blob_size": 1_000_000}))
    job = federation.submit({"bytes": 900_000}, {"bytes": 5_000_000, "timeout": 30}, {"bytes": 900_000})
    assert federation.end_of(job) == JobState.DONE
    config.write_text(usual)
    before, long, after = federation.calls()
    assert before["replies"] == after["replies"] == NODES
    assert long["replies"] == ["node-1"]
    assert long["lost"] == {"node-2": "a message is too long"}


@pytest.mark.slow
def test_a_node_cannot_take_the_name_of_another(federation: Federation) -> None:
    federation.kill("node-2")
    assert wait_until(lambda: federation.connect().connected() == {"node-1"})
    shutil.copytree(
        federation.folder / "node-1", federation.folder / "thief", ignore=shutil.ignore_patterns("*.txt")
    )
    command = ENGINE.node_command(federation.folder / "thief")
    federation.start("thief", ["uid=node-2" if part == "uid=node-1" else part for part in command])
    log = federation.folder / "server" / "log.txt"
    refusal = "authenticated as 'node-1' but claimed endpoint 'node-2'"
    assert wait_until(lambda: refusal in log.read_text())
    assert federation.connect().connected() == {"node-1"}
    federation.kill("thief")
    federation.start("node-2")
    assert federation.all_connected(NODES)


@pytest.mark.slow
def test_sigterm_ends_a_process_and_its_worker(federation: Federation) -> None:
    job = federation.submit({"bytes": 1_000, "repeat": 1_000, "every": 0.1})
    assert wait_until(lambda: len(federation.calls()) > 3)
    workers = [federation.worker(name) for name in ("server", *NODES)]
    for name in ("node-2", "node-1", "server"):
        federation.processes[name].send_signal(signal.SIGTERM)
        assert federation.processes[name].wait(10) == 0
    assert wait_until(lambda: not any(worker.is_running() for worker in workers), 5)
    for name in ("server", *NODES):
        federation.start(name)
    assert federation.end_of(job) == JobState.FAILED
    assert federation.all_connected(NODES)
