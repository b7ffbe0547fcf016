import asyncio
import copy
import json
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hushrec.deploy import flower_engine
from hushrec.deploy.certificates import issue, new_authority
from hushrec.deploy.engines import JobState
from hushrec.deploy.flower_engine import FlowerEngine, job_state
from hushrec.errors import HushrecError

NODES = ["north", "south"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# --- Kits: without Flower ----------------------------------------------------------------------------------


def test_kits_are_for_their_user_only(tmp_path: Path) -> None:
    FlowerEngine().provision(tmp_path / "project", NODES, "shop.example", 8443)
    made = sorted((tmp_path / "project").rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}
    for node in NODES:
        kit = {path.name for path in (tmp_path / "project" / node / "startup").iterdir()}
        assert kit == {"rootCA.pem", "client.crt", "client.key", "address.json"}


def test_secrets_are_where_they_belong_and_nowhere_else(tmp_path: Path) -> None:
    """The server knows neither the nodes' keys nor the operator's token; nobody has the authority's key."""
    FlowerEngine().provision(tmp_path, NODES, "shop.example", 8443)
    content = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    keys = {path for path, data in content.items() if b"PRIVATE KEY" in data}
    assert keys == {tmp_path / "server/startup/server.key", *(tmp_path / f"{n}/startup/client.key" for n in NODES)}
    token = (tmp_path / "admin/startup/token").read_bytes()
    assert [path for path, data in content.items() if token in data] == [tmp_path / "admin/startup/token"]
    assert (tmp_path / "server/startup/operator.sha256").read_text() == sha256(token).hexdigest()


def test_without_flower_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_engine, "find_spec", lambda name: None)
    for use in (
        lambda: FlowerEngine().server_command(tmp_path),
        lambda: FlowerEngine().node_command(tmp_path),
        lambda: FlowerEngine().session(tmp_path, 1.0),
    ):
        with pytest.raises(HushrecError, match=r"pip install '\.\[flower\]'"):
            use()


@pytest.mark.parametrize(
    ("status", "sub_status", "state"),
    [
        ("pending", "", JobState.WAITING),
        ("starting", "", JobState.WAITING),
        ("running", "", JobState.RUNNING),
        ("finished", "completed", JobState.DONE),
        ("finished", "failed", JobState.FAILED),
        ("finished", "stopped", JobState.FAILED),
    ],
)
def test_states_of_jobs(status: str, sub_status: str, state: JobState) -> None:
    assert job_state(status, sub_status) is state


# --- The transport, over a server that is an object here -----------------------------------------------------


class FakeGrid:
    """As much of Flower's grid as the transport uses; a node answers in the moment that it is called."""

    def __init__(self, answers: dict[str, Callable[[Any], Any]]) -> None:
        from flwr.proto.node_pb2 import Node, NodeInfo

        self.node, self._runtime_client = Node(node_id=1), self
        self.infos = {
            name: NodeInfo(node_id=number, name=name, last_activated_at="first")
            for number, name in enumerate(answers, start=10)
        }
        self._numbers = {name: info.node_id for name, info in self.infos.items()}
        self._answers = {self._numbers[name]: answer for name, answer in answers.items()}
        self.withheld = ""  # whose reply stays without its parts
        self._parts: dict[str, bytes] = {}
        self._waiting: list[tuple[Any, Any]] = []
        self.sent: list[Any] = []

    def get_nodes(self) -> list[Any]:
        return [copy.deepcopy(info) for info in self.infos.values()]

    def push_messages(self, messages: list[Any]) -> list[str]:
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            reply = self._answers[message.metadata.dst_node_id](message)
            if reply is not None:
                reply.metadata.__dict__["_message_id"] = reply.object_id
                is_whole = message.metadata.dst_node_id != self._numbers.get(self.withheld)
                parts = get_all_nested_objects(reply).items()
                self._parts |= {key: part.deflate() if is_whole else b"" for key, part in parts}
                self._waiting.append(
                    (message_to_proto(remove_content_from_message(reply)), get_object_tree(reply))
                )
        self.sent += messages
        return [message.object_id for message in messages]

    def PullMessages(self, request: Any) -> Any:
        from flwr.proto.runtime_pb2 import PullAppMessagesResponse

        heads, trees = [head for head, _ in self._waiting], [tree for _, tree in self._waiting]
        self._waiting = []
        return PullAppMessagesResponse(messages_list=heads, message_object_trees=trees)

    def PullObject(self, request: Any) -> Any:
        from flwr.proto.message_pb2 import PullObjectResponse

        content = self._parts.get(request.object_id, b"")
        return PullObjectResponse(
            object_found=request.object_id in self._parts, object_available=bool(content), object_content=content
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        pass


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower builds messages inside a job only."""
    pytest.importorskip("flwr")
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def echo(message: Any) -> Any:
    from flwr.app import Message

    from hushrec.deploy.flower_job import packed, unpacked

    return Message(packed(unpacked(message)[::-1]), reply_to=message)


def silence(message: Any) -> None:
    return None


def call(grid: FakeGrid, requests: dict[str, bytes], timeout_seconds: float = 5.0) -> Any:
    from hushrec.deploy.flower_job import FlowerTransport
    from hushrec.runtime.transport import Delivery

    delivery = FlowerTransport(grid).call("echo", requests, 3, timeout_seconds)
    return Delivery(dict(delivery.arriving()), delivery.lost)


@pytest.mark.usefixtures("in_job")
@pytest.mark.parametrize("num_bytes", [0, 1, 1000, 4 * 2**20, 4 * 2**20 + 1, 10**7])
def test_packets_survive_messages(num_bytes: int) -> None:
    packet = os.urandom(num_bytes)
    assert call(FakeGrid({"north": echo}), {"north": packet}).replies == {"north": packet[::-1]}


@pytest.mark.usefixtures("in_job")
def test_each_node_gets_its_own_packet_under_an_id_that_differs_each_time() -> None:
    grid = FakeGrid({"north": echo, "south": echo})
    for _ in range(2):
        delivery = call(grid, {"north": b"one", "south": b"two"})
        assert (delivery.replies, delivery.lost) == ({"north": b"eno", "south": b"owt"}, {})
    assert len({message.object_id for message in grid.sent}) == 4
    assert len({message.metadata.group_id for message in grid.sent}) == 4
    assert {message.metadata.ttl for message in grid.sent} == {65.0}


@pytest.mark.usefixtures("in_job")
def test_losses_are_told_in_one_line_and_the_others_come_through() -> None:
    from flwr.app import ConfigRecord, Error, Message, RecordDict

    def fail(message: Any) -> Any:
        return Message(Error(2, "ValueError\n at x.py:1 " + "!" * 300), reply_to=message)

    def babble(message: Any) -> Any:
        return Message(RecordDict({"x": ConfigRecord({"y": 1})}), reply_to=message)

    grid = FakeGrid({"north": echo, "failing": fail, "babbling": babble, "silent": silence})
    delivery = call(grid, dict.fromkeys([*grid.infos, "absent"], b"packet"), timeout_seconds=0.3)
    assert delivery.replies == {"north": b"tekcap"}
    assert delivery.lost.pop("failing").startswith("ValueError at x.py:1 !")
    assert delivery.lost == {
        "absent": "not connected",
        "babbling": "sent something that is no message",
        "silent": "no reply in time",
    }


@pytest.mark.usefixtures("in_job")
def test_a_node_that_starts_anew_or_leaves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from hushrec.deploy import flower_job

    def start_anew(message: Any) -> None:
        grid.infos["restarted"].last_activated_at = "second"

    def leave(message: Any) -> None:
        del grid.infos["gone"]

    monkeypatch.setattr(flower_job, "PRESENCE_POLL_SECONDS", 0.1)
    grid = FakeGrid({"north": echo, "restarted": start_anew, "gone": leave})
    start = time.monotonic()
    delivery = call(grid, dict.fromkeys(grid.infos, b"packet"), timeout_seconds=60.0)
    assert time.monotonic() - start < 10
    assert delivery.replies == {"north": b"tekcap"}
    assert delivery.lost == {"restarted": "started anew during the call", "gone": "the connection broke"}


@pytest.mark.usefixtures("in_job")
def test_a_reply_that_breaks_off_costs_no_more_than_the_timeout() -> None:
    grid = FakeGrid({"breaking": echo, "north": echo})
    grid.withheld = "breaking"
    start = time.monotonic()
    delivery = call(grid, dict.fromkeys(grid.infos, b"packet"), timeout_seconds=0.5)
    assert time.monotonic() - start < 5
    assert delivery.replies == {"north": b"tekcap"}
    assert delivery.lost == {"breaking": "broke off while it sent its reply"}


# --- The fence ---------------------------------------------------------------------------------------------


def ask(path: str, length: bytes | None) -> int:
    """The status of a request through the fence, where an app behind it would say 200."""
    from hushrec.deploy.flower_server import fenced

    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if length is None else [(b"content-length", length)]
    scope = {"type": "http", "path": path, "headers": headers, "client": ("192.0.2.1", 5)}
    asyncio.run(fenced(app)(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/v1/fleet/pull-messages", b"10", 200),
        ("/v1/control/start-run", b"10", 404),
        ("/v1/runtime/acquire-task", b"10", 404),
        ("/v1/fleet", b"10", 404),
        ("/docs", b"0", 404),
        ("//v1/fleet/x", b"0", 404),
        ("/v1/fleet/push-object", None, 411),
        ("/v1/fleet/push-object", b"-1", 411),
        ("/v1/fleet/push-object", b"8388609", 413),
    ],
)
def test_nothing_but_the_nodes_part_is_behind_the_nodes_port(
    path: str, length: bytes | None, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("flwr")
    with caplog.at_level(logging.WARNING):
        assert ask(path, length) == status
    lines = [] if status == 200 else [f"refused 192.0.2.1: {status} to {path!r}"]
    assert caplog.messages == lines


def test_an_operator_is_who_has_the_token(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from hushrec.deploy.flower_server import _OperatorOnly

    operator = _OperatorOnly(sha256(b"token").hexdigest())
    assert operator.validate_tokens_in_metadata([("flwr-oidc-access-token", "token")])[0]
    for wrong in ([], [("flwr-oidc-access-token", "nekot")], [("other", "token")]):
        assert operator.validate_tokens_in_metadata(wrong) == (False, None)


def test_nodes_join_and_are_forgotten_while_the_server_runs(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from hushrec.deploy.flower_server import Members

    class State:
        """As much of Flower's state as knows nodes."""

        def __init__(self) -> None:
            self.nodes: dict[int, str] = {}
            self.num_made = 0

        def create_node(self, owner: str, account: str, key: bytes, seconds: float, *, name: str) -> int:
            self.num_made += 1
            self.nodes[self.num_made] = name
            return self.num_made

        def delete_node(self, owner: str, number: int) -> None:
            del self.nodes[number]

    state, engine, authority = State(), FlowerEngine(), new_authority("hushrec")
    members = Members(tmp_path / "server" / "startup" / "nodes", state)
    for name in ("north", "south"):
        engine.admit(tmp_path, name, issue(authority, name)[0])
    for _ in range(2):
        members.look()
        assert sorted(state.nodes.values()) == ["north", "south"]
    engine.dismiss(tmp_path, "north")
    members.look()
    assert list(state.nodes.values()) == ["south"]
    known = dict(members._known)
    engine.admit(tmp_path, "south", issue(authority, "south")[0])  # the same name with a new key
    members.look()
    assert list(state.nodes.values()) == ["south"]
    assert members._known.keys() != known.keys()
    engine.dismiss(tmp_path, "nobody")


def test_a_copy_of_a_kit_is_in_another_place(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from hushrec.deploy.flower_node import place_of

    (tmp_path / "kit").mkdir()
    shutil.copytree(tmp_path / "kit", tmp_path / "copy")
    assert place_of(tmp_path / "kit") == place_of(tmp_path / "kit")
    assert place_of(tmp_path / "kit") != place_of(tmp_path / "copy")


# --- Real processes ----------------------------------------------------------------------------------------

# The engines carry bytes: what drives a job and what answers on a node is put in their place here.
STAND_IN = """
import json, os, time
import hushrec.deploy.driver, hushrec.deploy.site

class Echo:
    def handle(self, packet):
        if packet.startswith(b"wait"):
            time.sleep(float(packet[4:]))
        if packet == b"fail":
            raise ValueError("private words")
        return packet[::-1]

def drive(transport, nodes, folder, job):
    for number, (packet, timeout_seconds) in enumerate(json.loads(job)):
        packet = os.urandom(packet) if isinstance(packet, int) else packet.encode()
        start = time.time()
        delivery = transport.call("echo", dict.fromkeys(nodes, packet), number, timeout_seconds)
        right = sorted(node for node, reply in delivery.arriving() if reply == packet[::-1])
        with (folder / "calls.jsonl").open("a") as log:
            line = {"right": right, "lost": delivery.lost, "seconds": time.time() - start, "process": os.getpid()}
            log.write(json.dumps(line) + chr(10))

hushrec.deploy.driver.drive = drive
hushrec.deploy.site.open_site = lambda kit: Echo()
"""
PATIENCE_SECONDS = 120.0


class Federation:
    """A server and its nodes as processes on the loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.engine = folder / "project", free_port(), FlowerEngine()
        self.engine.provision(self.folder, NODES, "localhost", self.port)
        (folder / "sitecustomize.py").write_text(STAND_IN)
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        is_server = name == "server"
        command = (
            self.engine.server_command(self.folder) if is_server else self.engine.node_command(self.folder / name)
        )
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(command, env=self._environment, stdout=out, stderr=out)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> int:
        process = self.processes.pop(name)
        process.send_signal(how)
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def finished(session: Any, job: str) -> JobState:
    until(lambda: session.state(job) not in (JobState.WAITING, JobState.RUNNING))
    state: JobState = session.state(job)
    return state


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    pytest.importorskip("flwr")
    federation = Federation(tmp_path_factory.mktemp("flower"))
    try:
        for name in ("server", *NODES):
            federation.start(name)
        yield federation
    finally:
        codes = {name: federation.stop(name) for name in list(federation.processes)}
    assert set(codes.values()) == {0}


@pytest.fixture
def session(federation: Federation) -> Iterator[Any]:
    session = federation.engine.session(federation.folder, PATIENCE_SECONDS)
    until(lambda: session.connected() == set(NODES))
    (federation.folder / "calls.jsonl").unlink(missing_ok=True)
    yield session
    session.close()


@pytest.mark.slow
def test_three_calls_and_a_failing_one(federation: Federation, session: Any) -> None:
    plan = [[1024, 60.0], [2**20, 60.0], [10 * 2**20, 60.0], ["fail", 60.0]]
    assert finished(session, session.submit(json.dumps(plan).encode(), NODES)) is JobState.DONE
    calls = federation.calls()
    assert [call["right"] for call in calls] == [NODES] * 3 + [[]]
    assert [call["lost"] for call in calls[:3]] == [{}] * 3
    for node in NODES:
        assert calls[3]["lost"][node].startswith("ValueError at sitecustomize.py:")
        assert "private words" not in federation.said(node)


@pytest.mark.slow
def test_a_node_killed_in_the_middle_of_a_call_is_lost_and_comes_back(
    federation: Federation, session: Any
) -> None:
    job = session.submit(
        json.dumps([[8, 60.0], ["wait4", 60.0], [8, 60.0], ["wait1", 60.0], [8, 60.0]]).encode(), NODES
    )
    until(lambda: len(federation.calls()) == 1)
    time.sleep(2)
    federation.stop("south", signal.SIGKILL)
    federation.start("south")
    assert finished(session, job) is JobState.DONE
    calls = federation.calls()
    assert calls[1]["right"] == ["north"]
    assert calls[1]["lost"]["south"] in ("started anew during the call", "the connection broke")
    assert calls[1]["seconds"] < 40
    assert calls[-1]["right"] == NODES


@pytest.mark.slow
def test_an_aborted_job_has_ended_and_the_next_one_runs(federation: Federation, session: Any) -> None:
    job = session.submit(json.dumps([["wait1", 60.0]] * 100).encode(), NODES)
    until(lambda: len(federation.calls()) >= 1)
    session.abort(job)
    assert session.state(job) is JobState.FAILED
    num_calls = len(federation.calls())
    time.sleep(3)
    assert len(federation.calls()) == num_calls
    session.abort(job)  # once more does no harm
    assert finished(session, session.submit(json.dumps([[8, 60.0]]).encode(), NODES)) is JobState.DONE
    assert federation.calls()[-1]["right"] == NODES


@pytest.mark.slow
def test_a_job_whose_process_is_killed_has_failed(federation: Federation, session: Any) -> None:
    job = session.submit(json.dumps([["wait1", 60.0]] * 100).encode(), NODES)
    until(lambda: len(federation.calls()) >= 1)
    os.kill(federation.calls()[0]["process"], signal.SIGKILL)
    start = time.monotonic()
    assert finished(session, job) is JobState.FAILED
    assert time.monotonic() - start < 30
    session.abort(job)
    assert finished(session, session.submit(json.dumps([[8, 60.0]]).encode(), NODES)) is JobState.DONE


@pytest.mark.slow
def test_a_killed_server_comes_back_and_finds_its_nodes(federation: Federation, session: Any) -> None:
    job = session.submit(json.dumps([["wait1", 60.0]] * 100).encode(), NODES)
    until(lambda: len(federation.calls()) >= 1)
    federation.stop("server", signal.SIGKILL)
    federation.start("server")
    assert finished(session, job) is JobState.FAILED
    session.abort(job)
    until(lambda: session.connected() == set(NODES))
    assert finished(session, session.submit(json.dumps([[8, 60.0]]).encode(), NODES)) is JobState.DONE
    assert federation.calls()[-1]["right"] == NODES


# --- Strangers ---------------------------------------------------------------------------------------------


def knock(federation: Federation, path: str, body: bytes, *certificate: Path) -> int:
    """The status of a request at the nodes' port."""
    import httpx

    tls = ssl.create_default_context(cafile=str(federation.folder / "north/startup/rootCA.pem"))
    if certificate:
        tls.load_cert_chain(*certificate)
    headers = {"content-type": "application/protobuf"}
    return httpx.post(
        f"https://localhost:{federation.port}{path}", content=body, headers=headers, verify=tls
    ).status_code


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_strangers_are_refused_in_one_line(federation: Federation, tmp_path: Path) -> None:
    import httpx

    before = len(federation.said("server").splitlines())
    foreign = tmp_path / "north.crt", tmp_path / "north.key"
    for path, content in zip(foreign, issue(new_authority("hushrec"), "north"), strict=True):
        path.write_bytes(content)
    with pytest.raises(httpx.TransportError):
        knock(federation, "/v1/fleet/pull-messages", b"")
    with pytest.raises(httpx.TransportError):
        knock(federation, "/v1/fleet/pull-messages", b"", *foreign)
    own = federation.folder / "north/startup/client.crt", federation.folder / "north/startup/client.key"
    assert knock(federation, "/v1/control/list-nodes", b"", *own) == 404
    assert knock(federation, "/v1/fleet/push-object", bytes(9 * 2**20), *own) == 413
    assert knock(federation, "/v1/fleet/pull-messages", b"", *own) == 401
    until(lambda: len(federation.said("server").splitlines()) == before + 5, 10)
    lines = federation.said("server").splitlines()[before:]
    for line, word in zip(lines, ("CERTIFICATE", "", "404", "413", "401"), strict=True):
        assert "refused" in line
        assert word in line


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_one_node_cannot_speak_as_another(federation: Federation) -> None:
    """The certificate of one, the proof of the same one, the number of the other."""
    import httpx
    from flwr.proto.fleet_pb2 import PullMessagesRequest
    from flwr.proto.node_pb2 import Node

    from hushrec.deploy import flower_node

    other = Node(node_id=int((federation.folder / "south/flower.id").read_text()))
    client, _ = flower_node._client(federation.folder / "north", f"localhost:{federation.port}")
    with client, pytest.raises(httpx.HTTPStatusError, match="401"):
        client.PullMessages(PullMessagesRequest(node=other))


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_a_kit_is_used_by_one_process(federation: Federation) -> None:
    done = subprocess.run(
        federation.engine.node_command(federation.folder / "north"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("is in use by another process; stop that one first")


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_the_wrong_token_opens_nothing(federation: Federation) -> None:
    token = federation.folder / "admin/startup/token"
    right = token.read_text()
    token.write_text("x" * len(right))
    try:
        with pytest.raises(HushrecError, match="refused"):
            federation.engine.session(federation.folder, 10.0)
    finally:
        token.write_text(right)
