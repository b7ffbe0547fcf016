"""NVFlare as an engine: kits hardened for us, processes in the foreground, jobs without shipped code."""

import base64
import contextlib
import json
import logging
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.fuel.hci.client.api import AdminAPI
from nvflare.lighter.entity import Participant
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.spec import Project
from nvflare.lighter.utils import generate_keys

from hushrec.choices import EngineName
from hushrec.deploy.certificates import Authority, PrivateKey
from hushrec.deploy.engines import JobState
from hushrec.deploy.nvflare_process import OPERATOR, PROGRAMS
from hushrec.errors import HushrecError

PROJECT = "hushrec"
CERTIFICATE_DAYS = 3650
HEARTBEAT_SECONDS = 4
SILENCE_SECONDS = 20  # a node that sends no heartbeat for so long is gone
OPEN_SECONDS = 2.0  # a server whose port is closed for so long is not there: whoever wants to wait, asks again
POLL_SECONDS = 0.5  # how often workers look for NVFlare's own tasks; its 2 s delay every start and end of a job
MESSAGE_BYTES = 1 << 30  # a longer message is refused before it is read
CHUNK_BYTES = 4 << 20  # of a message per frame; NVFlare's 1 MB cost a seventh more time of the processor
FRAME_BYTES = 64 << 20
PROCESS = "hushrec.deploy.nvflare_process"
SCRIPT = "startup/sub_start.sh"
SERVER_CLASSES = ["hushrec.deploy.nvflare_job.Driver", "nvflare.collab.runtime.controller.CollabController"]
NODE_CLASSES = ["hushrec.deploy.nvflare_job.Node", "nvflare.collab.runtime.executor.CollabExecutor"]
DROPPED = (api_spec.NoConnection, api_spec.SessionClosed, api_spec.AuthenticationError, api_spec.NoReply)
# By this other nodes tell a node from the server and the operator, which have certificates of the same root.
_FOR_NODES = [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)]
Result = TypeVar("Result")


class NVFlareEngine:
    """NVFlare behind `hushrec deploy`."""

    name: EngineName = "nvflare"

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> Authority:
        """Make certificates and kits with NVFlare's own builders, then harden them."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kits = {host: "server", OPERATOR: "admin", **{node: node for node in nodes}}
        certificates = _LongLived(CERTIFICATE_DAYS + 1)
        with tempfile.TemporaryDirectory(dir=folder) as workspace:
            made = _build(Path(workspace), nodes, host, port, [certificates])
            for name, kit in kits.items():
                (made / name).chmod(0o700)
                shutil.move(made / name, folder / kit)
        _harden_server(folder / "server")
        for node in nodes:
            _harden_node(folder / node)
        return Authority(certificates.root_cert, certificates.pri_key)

    def new_key(self) -> PrivateKey:
        """An RSA key: NVFlare signs with no other kind."""
        key, _ = generate_keys()
        found: PrivateKey = key
        return found

    def fill_kit(self, kit: Path, name: str, host: str, port: int) -> None:
        """NVFlare's static files, made here: what the authority sends is data, and never a script or a policy."""
        with tempfile.TemporaryDirectory(dir=kit) as workspace:
            made = _build(Path(workspace), [name], host, port, [])
            shutil.copytree(made / name, kit, dirs_exist_ok=True)
        kit.chmod(0o700)
        _harden_node(kit)

    def admit(self, folder: Path, name: str, certificate: bytes) -> None:
        """Nothing: a certificate of the root, if it is not revoked, is all that NVFlare's server asks for."""

    def dismiss(self, folder: Path, name: str) -> None:
        """Nothing: the server's door (`nvflare_door`) looks at the list of revoked certificates."""

    def server_command(self, folder: Path) -> list[str]:
        """NVFlare's server process."""
        return _command("server", folder / "server", [])

    def node_command(self, kit: Path) -> list[str]:
        """NVFlare's client process."""
        name = json.loads((kit / "startup" / "fed_client.json").read_text())["client"]["fqsn"]
        return _command("client", kit, [f"uid={name}", f"heart_beat_interval={HEARTBEAT_SECONDS}"])

    def session(self, folder: Path, timeout_seconds: float) -> "NVFlareSession":
        """Log in at the server as the operator."""
        return NVFlareSession(folder / "admin", timeout_seconds)


class NVFlareSession:
    """The operator's connection. It logs in again when the server has come back after a failure."""

    def __init__(self, kit: Path, timeout_seconds: float) -> None:
        self._kit = kit
        self._timeout_seconds = timeout_seconds
        _wait_for_server(kit, time.monotonic() + min(timeout_seconds, OPEN_SECONDS))
        self._session = self._connect()

    def connected(self) -> set[str]:
        """Names of the nodes whose heartbeats arrive."""
        return {client.name for client in self._ask_server(lambda session: session.get_system_info().client_info)}

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        """Send a job that is configuration only."""
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / PROJECT
            write_job(folder, job, nodes)
            token = secrets.token_hex(16)  # a job that is sent again after a lost connection is not run twice
            return str(self._ask_server(lambda session: session.submit_job(str(folder), submit_token=token)))

    def state(self, job_id: str) -> JobState:
        """What the server knows of the job."""
        meta = self._ask_server(lambda session: session.get_job_meta(job_id))
        state = job_state(meta["status"])
        if meta["status"] in ("DISPATCHED", "RUNNING"):
            # A server that was killed does not note, when it is back, that its jobs went with it.
            system = self._ask_server(lambda session: session.get_system_info())
            is_running = job_id in {job.job_id for job in system.job_info}
            if not is_running and _begin(meta) < system.server_info.start_time:
                return JobState.FAILED
        return state

    def abort(self, job_id: str) -> None:
        """End the job and wait until it has ended."""
        deadline = time.monotonic() + self._timeout_seconds
        while self.state(job_id) in (JobState.WAITING, JobState.RUNNING):
            if time.monotonic() > deadline:
                raise HushrecError(
                    f"job {job_id} did not end within {self._timeout_seconds:g} s; restart the server"
                )
            with contextlib.suppress(HushrecError):  # it may have ended meanwhile
                self._ask_server(lambda session: session.abort_job(job_id))
            time.sleep(0.2)

    def close(self) -> None:
        """Log out; if the server is gone, that does not matter any more."""
        with contextlib.suppress(Exception):
            self._session.close()

    def _ask_server(self, command: Callable[[Any], Result]) -> Result:
        """Run a command; when the connection was lost, log in again and run it once more."""
        try:
            return command(self._session)
        except DROPPED:
            self.close()
            self._session = self._connect()
        except Exception as error:
            raise HushrecError(f"the NVFlare server refused: {_line(error)}") from None
        try:
            return command(self._session)
        except Exception as error:
            raise HushrecError(f"the NVFlare server does not answer: {_line(error)}") from None

    def _connect(self) -> Any:
        _silence()
        deadline = time.monotonic() + self._timeout_seconds
        _wait_for_server(self._kit, deadline)
        while True:
            try:
                return new_secure_session(OPERATOR, str(self._kit), timeout=self._timeout_seconds)
            except Exception as error:
                if time.monotonic() > deadline:
                    raise HushrecError(f"the server does not let the operator in: {_line(error)}") from None
                time.sleep(0.5)


def _wait_for_server(kit: Path, deadline: float) -> None:
    """Wait until the server's port is open: NVFlare itself tries more and more seldom."""
    admin = json.loads((kit / "startup" / "fed_admin.json").read_text())["admin"]
    while True:
        try:
            socket.create_connection((admin["host"], admin["port"]), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                where = f"{admin['host']}:{admin['port']}"
                raise HushrecError(f"no server at {where}; start it with `hushrec deploy server`") from None
            time.sleep(0.2)


def _begin(meta: dict[str, Any]) -> float:
    """When the job began, in seconds; when it was submitted, if it has not begun."""
    began = meta.get("start_time")
    return datetime.fromisoformat(began).timestamp() if began else float(meta["submit_time"])


def job_state(status: str) -> JobState:
    """NVFlare's word for the state of a job in ours."""
    if status in ("SUBMITTED", "APPROVED", "DISPATCHED"):
        return JobState.WAITING
    if status == "RUNNING":
        return JobState.RUNNING
    return JobState.DONE if status == "FINISHED:COMPLETED" else JobState.FAILED


def write_job(folder: Path, job: bytes, nodes: Sequence[str]) -> None:
    """A job folder without code: which installed components to build, and our own description of the run."""
    driver, controller = SERVER_CLASSES
    node, executor = NODE_CLASSES
    content: dict[str, dict[str, object]] = {
        "meta.json": {
            "name": PROJECT,
            "resource_spec": {},
            "min_clients": len(nodes),
            "mandatory_clients": list(nodes),
            "deploy_map": {"app_server": ["server"], "app_node": list(nodes)},
        },
        "app_server/config/config_fed_server.json": {
            "format_version": 2,
            "server": {"task_request_interval": POLL_SECONDS},
            "workflows": [{"id": "controller", "path": controller, "args": {"server_obj_id": "driver"}}],
            "components": [{"id": "driver", "path": driver, "args": {"job": base64.b64encode(job).decode()}}],
        },
        "app_node/config/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["*"], "executor": {"path": executor, "args": {"client_obj_id": "node"}}}],
            "components": [{"id": "node", "path": node, "args": {}}],
        },
    }
    for name, part in content.items():
        _write_json(folder / name, part)


def _build(workspace: Path, nodes: Sequence[str], host: str, port: int, signing: Sequence[CertBuilder]) -> Path:
    """The folder with the kits that NVFlare makes."""
    try:
        project = Project(PROJECT, PROJECT)
        project.set_server(host, PROJECT, {"fed_learn_port": port})
        for node in nodes:
            project.add_client(node, PROJECT, {})
        project.add_admin(OPERATOR, PROJECT, {"role": "project_admin"})
    except ValueError as error:
        raise HushrecError(f"NVFlare cannot use a name: {_line(error)}") from None
    files = StaticFileBuilder(config_folder="config", scheme="grpc")
    builders = [WorkspaceBuilder(), files, *signing]
    made = Provisioner(str(workspace), builders).provision(project, logger=_Silent())
    return Path(made["current_prod_dir"])


class _LongLived(CertBuilder):  # type: ignore[misc]
    """Under a CA of any age, NVFlare's certificates live for 360 days; ours live as long as their CA."""

    def get_pri_key_cert(self, participant: Participant) -> tuple[object, object]:
        """A new key, and the certificate for it."""
        key, public_key = generate_keys()
        certificate = self._generate_cert(
            participant.subject,
            participant.org,
            self.issuer,
            self.pri_key,
            public_key,
            valid_days=CERTIFICATE_DAYS,
            role=participant.get_prop("role"),
            server=participant if participant.type == "server" else None,
            extra_extensions=_FOR_NODES if participant.type == "client" else None,
        )
        return key, certificate


def _harden_server(kit: Path) -> None:
    """Only our job, stores inside the kit, and news of lost nodes within seconds."""
    resources = _resources(kit, SERVER_CLASSES, "ServerLauncher")
    resources["servers"][0] |= {"heart_beat_timeout": SILENCE_SECONDS, "check_engine_frequency": 0.5}
    storage = f"{PROCESS}.KitStorage"
    resources["snapshot_persistor"]["args"]["storage"] = {"path": storage, "args": {"folder": "store/snapshots"}}
    parts = {part["id"]: part for part in resources["components"]}
    parts["job_manager"]["args"]["uri_root"] = "store/jobs"
    parts["job_store"] |= {"path": storage, "args": {"folder": "."}}
    parts["job_scheduler"]["args"] |= {"min_schedule_interval": 1.0, "max_schedule_interval": 1.0}
    _write_local(kit, resources)


def _harden_node(kit: Path) -> None:
    """Only our job, and no log goes to the server."""
    resources = _resources(kit, NODE_CLASSES, "NodeLauncher")
    resources["allow_log_streaming"] = False
    _write_local(kit, resources)


def _resources(kit: Path, classes: list[str], launcher: str) -> dict[str, Any]:
    resources: dict[str, Any] = json.loads((kit / "local" / "resources.json.default").read_text())
    resources["class_allow_list"] = classes
    parts = [part for part in resources["components"] if part["id"] not in ("site_log_streamer", "log_receiver")]
    for part in parts:
        if part["id"] == "process_launcher":
            part["path"] = f"{PROCESS}.{launcher}"
    resources["components"] = parts
    return resources


def _write_local(kit: Path, resources: dict[str, Any]) -> None:
    """Beside the resources: nobody ships code or runs shell commands, no message is huge, the console is quiet."""
    policy = json.loads((kit / "local" / "authorization.json.default").read_text())
    rights = dict.fromkeys(("submit_job", "clone_job", "manage_job", "download_job", "view", "operate"), "any")
    rights |= {"shell_commands": "none", "byoc": "none", "server-predeployed-flwr": "none"}
    policy["permissions"] = {"project_admin": rights}
    logs = json.loads((kit / "local" / "log_config.json.default").read_text())
    logs["loggers"]["root"]["handlers"] = ["logFileHandler", "errorFileHandler"]
    logs["loggers"]["nvflare.collab"] = {"level": "WARNING"}
    logs["formatters"]["plain"] = {"format": "%(asctime)s %(message)s"}
    logs["handlers"] = {name: logs["handlers"][name] for name in ("logFileHandler", "errorFileHandler")}
    logs["handlers"]["console"] = {
        "class": "logging.StreamHandler",
        "formatter": "plain",
        "stream": "ext://sys.stdout",
    }
    logs["loggers"]["hushrec"] = {"level": "INFO", "handlers": ["console"]}
    sizes = {
        "max_message_size": FRAME_BYTES,
        "streaming_max_blob_size": MESSAGE_BYTES,
        "streaming_chunk_size": CHUNK_BYTES,
    }
    _write_json(kit / "local" / "resources.json", resources)
    _write_json(kit / "local" / "authorization.json", policy)
    _write_json(kit / "local" / "log_config.json", logs)
    _write_json(kit / "local" / "comm_config.json", sizes)
    # NVFlare's script, too, starts our process, which looks who comes.
    script = kit / SCRIPT
    script.write_text(script.read_text().replace(f"-m {PROGRAMS}.", f"-m {PROCESS} "))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def _command(kind: str, kit: Path, settings: list[str]) -> list[str]:
    fixed = ["secure_train=true", f"org={PROJECT}", "config_folder=config"]
    program = [sys.executable, "-m", PROCESS, f"{kind}.{kind}_train"]
    return [*program, "-m", str(kit.resolve()), "-s", f"fed_{kind}.json", "--set", *fixed, *settings]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _silence() -> None:
    """NVFlare prints and logs every try to connect; in the operator's process we say what matters ourselves."""
    AdminAPI._print_hci = lambda self, message: None
    logger = logging.getLogger("nvflare")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


class _Silent:
    """A log that nobody reads."""

    def debug(self, message: str) -> None:
        """Nothing."""

    info = warning = error = debug
