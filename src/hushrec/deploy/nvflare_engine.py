"""NVFlare as an engine: kits hardened for us, processes in the foreground, jobs without shipped code."""

import base64
import contextlib
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.spec import Project

from hushrec.deploy.engines import JobState
from hushrec.errors import HushrecError

PROJECT = "hushrec"
OPERATOR = "operator@hushrec.local"
CERTIFICATE_DAYS = 3650
HEARTBEAT_SECONDS = 5
SILENCE_SECONDS = 20  # a node that sends no heartbeat for so long is gone
POLL_SECONDS = 0.5  # how often a node's worker asks for NVFlare's own tasks; NVFlare's 2 s delay start and end
SERVER_CLASSES = ["hushrec.deploy.nvflare_job.Driver", "nvflare.collab.runtime.controller.CollabController"]
NODE_CLASSES = ["hushrec.deploy.nvflare_job.Node", "nvflare.collab.runtime.executor.CollabExecutor"]
LOST_CONNECTION = (api_spec.NoConnection, api_spec.SessionClosed, api_spec.SessionExpired, api_spec.AuthenticationError)
Result = TypeVar("Result")


class NVFlareEngine:
    """NVFlare behind `hushrec deploy`."""

    name = "nvflare"

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> None:
        """Make certificates and kits with NVFlare's own builders, then harden them."""
        project = Project(PROJECT, PROJECT)
        project.set_server(host, PROJECT, {"fed_learn_port": port})
        for node in nodes:
            project.add_client(node, PROJECT, {})
        project.add_admin(OPERATOR, PROJECT, {"role": "project_admin"})
        builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme="grpc"), CertBuilder(CERTIFICATE_DAYS)]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as workspace:
            made = Path(Provisioner(workspace, builders).provision(project, logger=_Silent()).get("current_prod_dir"))
            for name, kit in {host: "server", OPERATOR: "admin", **{node: node for node in nodes}}.items():
                shutil.move(made / name, folder / kit)
        _harden_server(folder / "server")
        for node in nodes:
            _harden_node(folder / node)
        for kit in ("server", "admin", *nodes):
            (folder / kit).chmod(0o700)

    def server_command(self, folder: Path) -> list[str]:
        """NVFlare's server process."""
        return _command("server", folder / "server", "server_train", [])

    def node_command(self, kit: Path) -> list[str]:
        """NVFlare's client process."""
        uid = json.loads((kit / "startup" / "fed_client.json").read_text())["client"]["fqsn"]
        return _command("client", kit, "client_train", [f"uid={uid}", f"heart_beat_interval={HEARTBEAT_SECONDS}"])

    def session(self, folder: Path, timeout_seconds: float) -> "NVFlareSession":
        """Log in at the server as the operator."""
        return NVFlareSession(folder / "admin", timeout_seconds)


class NVFlareSession:
    """The operator's connection. It logs in again when the server has come back after a failure."""

    def __init__(self, kit: Path, timeout_seconds: float) -> None:
        self._kit = kit
        self._timeout_seconds = timeout_seconds
        self._session = self._connect()

    def connected(self) -> set[str]:
        """Names of the nodes whose heartbeats arrive."""
        return {client.name for client in self._do(lambda session: session.get_system_info().client_info)}

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        """Send a job that is configuration only."""
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder) / PROJECT, job, nodes)
            return str(self._do(lambda session: session.submit_job(str(Path(folder) / PROJECT))))

    def state(self, job_id: str) -> JobState:
        """What the server has noted of the job."""
        return job_state(self._do(lambda session: session.get_job_status(job_id)))

    def abort(self, job_id: str) -> None:
        """End the job and wait until its processes have ended."""
        deadline = time.monotonic() + self._timeout_seconds
        while self.state(job_id) in (JobState.WAITING, JobState.RUNNING):
            if time.monotonic() > deadline:
                raise HushrecError(f"job {job_id} did not end within {self._timeout_seconds:g} s; restart the server")
            with contextlib.suppress(HushrecError):
                self._do(lambda session: session.abort_job(job_id))
            time.sleep(0.5)

    def close(self) -> None:
        """Log out; a server that is gone does not matter any more."""
        with contextlib.suppress(Exception):
            self._session.close()

    def _connect(self) -> Any:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    return new_secure_session(OPERATOR, str(self._kit), timeout=self._timeout_seconds)
            except Exception as error:
                if time.monotonic() > deadline:
                    raise HushrecError(f"no connection to the server ({error}); is `hushrec deploy server` running?") from None
                time.sleep(0.5)

    def _do(self, command: Callable[[Any], Result]) -> Result:
        try:
            return command(self._session)
        except LOST_CONNECTION:
            self.close()
            self._session = self._connect()
        try:
            return command(self._session)
        except Exception as error:
            raise HushrecError(f"the NVFlare server refused: {error}") from None


def job_state(status: str | None) -> JobState:
    """NVFlare's word for a job's state in ours."""
    if status in ("SUBMITTED", "APPROVED", "DISPATCHED"):
        return JobState.WAITING
    if status == "RUNNING":
        return JobState.RUNNING
    return JobState.DONE if status == "FINISHED:COMPLETED" else JobState.FAILED


def write_job(folder: Path, job: bytes, nodes: Sequence[str]) -> None:
    """A job folder without code: which installed components to build, and our own description of the run."""
    meta = {
        "name": PROJECT,
        "resource_spec": {},
        "min_clients": len(nodes),
        "mandatory_clients": list(nodes),
        "deploy_map": {"app_server": ["server"], "app_node": list(nodes)},
    }
    driver, controller = SERVER_CLASSES
    server = {
        "format_version": 2,
        "server": {"task_request_interval": POLL_SECONDS},
        "workflows": [{"id": "controller", "path": controller, "args": {"server_obj_id": "driver"}}],
        "components": [{"id": "driver", "path": driver, "args": {"job": base64.b64encode(job).decode()}}],
    }
    component, executor = NODE_CLASSES
    node = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {"path": executor, "args": {"client_obj_id": "node"}}}],
        "components": [{"id": "node", "path": component, "args": {}}],
    }
    _write_json(folder / "meta.json", meta)
    _write_json(folder / "app_server" / "config" / "config_fed_server.json", server)
    _write_json(folder / "app_node" / "config" / "config_fed_client.json", node)


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))


def _harden_server(kit: Path) -> None:
    resources = json.loads((kit / "local" / "resources.json.default").read_text())
    resources["class_allow_list"] = SERVER_CLASSES
    resources["servers"][0]["heart_beat_timeout"] = SILENCE_SECONDS
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit / "snapshots")
    resources["components"] = [part for part in resources["components"] if part["id"] != "log_receiver"]
    components = {component["id"]: component for component in resources["components"]}
    components["job_manager"]["args"]["uri_root"] = str(kit / "jobs")
    components["job_scheduler"]["args"] |= {"min_schedule_interval": 1.0, "max_schedule_interval": 1.0}
    _write_json(kit / "local" / "resources.json", resources)
    _harden(kit)


def _harden_node(kit: Path) -> None:
    resources = json.loads((kit / "local" / "resources.json.default").read_text())
    resources["class_allow_list"] = NODE_CLASSES
    resources["allow_log_streaming"] = False
    resources["components"] = [part for part in resources["components"] if part["id"] != "site_log_streamer"]
    _write_json(kit / "local" / "resources.json", resources)
    _harden(kit)


def _harden(kit: Path) -> None:
    """Nobody may ship code, whatever their role."""
    policy = json.loads((kit / "local" / "authorization.json.default").read_text())
    policy["permissions"]["project_admin"] = {
        "submit_job": "any", "clone_job": "any", "manage_job": "any", "download_job": "any",
        "view": "any", "operate": "any", "shell_commands": "none", "byoc": "none",
    }
    policy["permissions"]["lead"]["byoc"] = "none"
    _write_json(kit / "local" / "authorization.json", policy)


def _command(kind: str, kit: Path, module: str, settings: list[str]) -> list[str]:
    module = f"nvflare.private.fed.app.{kind}.{module}"
    fixed = ["-m", str(kit), "-s", f"fed_{kind}.json", "--set", "secure_train=true", f"org={PROJECT}", "config_folder=config"]
    return [sys.executable, "-m", module, *fixed, *settings]


class _Silent:
    """A log that nobody reads."""

    def debug(self, message: str) -> None: ...
    info = warning = error = debug
