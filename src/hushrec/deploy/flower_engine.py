"""Flower as an engine: kits of our own making, a fenced server, nodes that run no code but ours.

Flower pins older releases of what hushrec uses elsewhere, so it lives in an environment of its own.
"""

import base64
import contextlib
import io
import json
import logging
import os
import secrets
import signal
import ssl
import sys
import time
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from hushrec.choices import EngineName
from hushrec.deploy.certificates import Authority, PrivateKey, issue, new_authority
from hushrec.deploy.engines import JobState
from hushrec.errors import HushrecError, MissingExtraError, how_to_install
from hushrec.files import last_holder, write_private_file

LOOPBACK = {"localhost", "127.0.0.1"}
KNOWN_JOBS = 1000
ENDING_SECONDS = 3.0  # from the end of a job's work to its last word
# No code is in the bundle: it names what is installed. Nodes do not even fetch it.
BUNDLE = b"""
[project]
name = "hushrec"
version = "1.0.0"
[tool.flwr.app]
publisher = "hushrec"
[tool.flwr.app.components]
serverapp = "hushrec.deploy.flower_job:server_app"
clientapp = "hushrec.deploy.flower_job:server_app"
[tool.flwr.app.config]
job = ""
nodes = ""
"""


class FlowerEngine:
    """Flower behind `hushrec deploy --engine flower`."""

    name: EngineName = "flower"

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> Authority:
        """Make certificates and kits."""
        authority, token = new_authority("hushrec"), secrets.token_urlsafe(32)
        certificate, key = issue(authority, host, [host, "localhost", "127.0.0.1"])
        address = _address(host, port)
        server = {
            "server.crt": certificate,
            "server.key": key,
            "address.json": address,
            "operator.sha256": sha256(token.encode()).hexdigest().encode(),
        }
        for name in nodes:
            certificate, key = issue(authority, name)
            server[f"nodes/{name}.crt"] = certificate
            _write_kit(
                folder / name,
                authority.root,
                {"client.crt": certificate, "client.key": key, "address.json": address},
            )
        _write_kit(folder / "server", authority.root, server)
        _write_kit(folder / "admin", authority.root, {"token": token.encode()})
        return authority

    def new_key(self) -> PrivateKey:
        """A key on the curve that Flower signs requests with."""
        return ec.generate_private_key(ec.SECP384R1())

    def fill_kit(self, kit: Path, name: str, host: str, port: int) -> None:
        """Where the server is."""
        write_private_file(kit / "startup" / "address.json", _address(host, port))

    def admit(self, folder: Path, name: str, certificate: bytes) -> None:
        """The server looks for new certificates here every second."""
        write_private_file(folder / "server" / "startup" / "nodes" / f"{name}.crt", certificate)

    def dismiss(self, folder: Path, name: str) -> None:
        """The server, which knows nodes by their keys, forgets one whose certificate is gone."""
        (folder / "server" / "startup" / "nodes" / f"{name}.crt").unlink(missing_ok=True)

    def server_command(self, folder: Path) -> list[str]:
        """Flower's SuperLink, fenced."""
        return _command("server", folder)

    def node_command(self, kit: Path) -> list[str]:
        """A node that asks Flower's SuperLink for packets."""
        return _command("node", kit)

    def session(self, folder: Path, timeout_seconds: float) -> "FlowerSession":
        """Connect to the server, on its own machine, as its operator."""
        _require_flower()
        session = FlowerSession(folder, timeout_seconds)
        try:
            session.connected()
        except HushrecError:
            session.close()
            raise
        return session


class FlowerSession:
    """The operator's connection. A server that was started anew is found again."""

    def __init__(self, folder: Path, timeout_seconds: float) -> None:
        self._folder = folder
        self._lock = folder / "server" / "job.lock"
        self._timeout_seconds = timeout_seconds
        self._client: Any = None

    def connected(self) -> set[str]:
        """Names of the nodes whose heartbeats arrive."""
        from flwr.proto.control_pb2 import ListNodesRequest

        nodes = self._ask_server("ListNodes", ListNodesRequest()).nodes_info
        return {info.name for info in nodes if info.status == "online"}

    def submit(self, job: bytes, nodes: Sequence[str]) -> str:
        """Start a job that is configuration only."""
        from flwr.common.serde import user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.fab_pb2 import Fab

        bundle = _bundle()
        config = {"job": base64.b64encode(job).decode(), "nodes": json.dumps(list(nodes))}
        request = StartRunRequest(
            fab=Fab(hash_str=sha256(bundle).hexdigest(), content=bundle),
            override_config=user_config_to_proto(config),
        )
        return str(self._ask_server("StartRun", request).run_id)

    def state(self, job_id: str) -> JobState:
        """What the server has noted of the job; it does not notice when a job's process is killed."""
        state = self._noted(job_id)
        if state is JobState.RUNNING and last_holder(self._lock) == (job_id, False):
            time.sleep(ENDING_SECONDS)
            state = self._noted(job_id)
            return JobState.FAILED if state is JobState.RUNNING else state
        return state

    def _noted(self, job_id: str) -> JobState:
        from flwr.proto.control_pb2 import ListRunsRequest

        runs = self._ask_server("ListRuns", ListRunsRequest(limit=KNOWN_JOBS)).run_dict
        if int(job_id) not in runs:
            return JobState.FAILED  # the server was started anew, and the job is gone
        status = runs[int(job_id)].status
        return job_state(status.status, status.sub_status)

    def abort(self, job_id: str) -> None:
        """End the job and wait until its process has ended."""
        from flwr.proto.control_pb2 import StopRunRequest

        with contextlib.suppress(HushrecError):  # it may have ended already
            self._ask_server("StopRun", StopRunRequest(run_id=int(job_id)))
        deadline = time.monotonic() + self._timeout_seconds
        while last_holder(self._lock) == (job_id, True):
            if time.monotonic() > deadline:
                raise HushrecError(f"job {job_id} did not end in {self._timeout_seconds:g} s; restart the server")
            time.sleep(0.1)

    def close(self) -> None:
        """Leave."""
        if self._client is not None:
            self._client.close()

    def _ask_server(self, method: str, request: Any) -> Any:
        import httpx

        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                if self._client is None:
                    self._client = _control_client(self._folder)
                return getattr(self._client, method)(request)
            except (httpx.TransportError, FileNotFoundError):
                self.close()
                self._client = None
                if time.monotonic() > deadline:
                    raise HushrecError("no server answers here; is `hushrec deploy server` running?") from None
                time.sleep(0.2)
            except httpx.HTTPStatusError as error:
                raise HushrecError(
                    f"the Flower server refused: {' '.join(error.response.text.split())[:200]}"
                ) from None


def job_state(status: str, sub_status: str) -> JobState:
    """Flower's words for a job's state in ours."""
    if status in ("pending", "starting"):
        return JobState.WAITING
    if status == "running":
        return JobState.RUNNING
    return JobState.DONE if sub_status == "completed" else JobState.FAILED


def _bundle() -> bytes:
    """What Flower wants a job to come in: an archive that lists its files, with their digests and bits."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pyproject.toml", BUNDLE)
        archive.writestr(".info/CONTENT", f"pyproject.toml,{sha256(BUNDLE).hexdigest()},{8 * len(BUNDLE)}")
    return file.getvalue()


def _control_client(folder: Path) -> Any:
    from flwr.supercore.control import ControlHttpClient

    token, port = ((folder / name).read_text() for name in ("admin/startup/token", "server/control.port"))
    tls = ssl.create_default_context(cafile=str(folder / "admin" / "startup" / "rootCA.pem"))
    return ControlHttpClient(f"https://127.0.0.1:{port}", interceptors=[_Bearer(token)], verify=tls)


class _Bearer:
    """Shows the operator's token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: Any, call_next: Any) -> Any:
        context.request.headers["authorization"] = f"Bearer {self._token}"
        return call_next(context)


def _address(host: str, port: int) -> bytes:
    return json.dumps({"host": host, "port": port}).encode()


def _write_kit(kit: Path, root: bytes, startup: dict[str, bytes]) -> None:
    kit.mkdir(mode=0o700, parents=True)
    for name, content in {"rootCA.pem": root, **startup}.items():
        write_private_file(kit / "startup" / name, content)


def _command(role: str, folder: Path) -> list[str]:
    _require_flower()
    return [sys.executable, "-m", "hushrec.deploy.flower_engine", role, str(folder.absolute())]


def _require_flower() -> None:
    if find_spec("flwr") is None:
        raise MissingExtraError(
            f"Flower is not installed here; {how_to_install('flower')}, in an environment of its own"
        )


def main(role: str, folder: Path) -> None:
    """Run a server or a node in this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("hushrec").addHandler(handler)
    logging.getLogger("hushrec").setLevel(logging.INFO)
    kit = folder / "server" if role == "server" else folder
    # Flower reads these when it is imported.
    os.environ |= {
        "FLWR_HOME": str(kit / "flower"),
        "FLWR_LOG_LEVEL": "ERROR",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    try:
        address = json.loads((kit / "startup" / "address.json").read_text())
        if role == "server":
            from hushrec.deploy import flower_server

            host = "127.0.0.1" if address["host"] in LOOPBACK else "0.0.0.0"
            flower_server.serve(kit, host, address["port"])
        else:
            from hushrec.deploy import flower_node

            flower_node.serve(kit, f"{address['host']}:{address['port']}")
    except (HushrecError, OSError) as error:
        print(f"hushrec: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
