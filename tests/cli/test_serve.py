"""`hushrec serve` as a process of its own, asked over HTTP."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import hushrec
from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.runs.record import read_run

TOKEN = "0123456789abcdef-of-the-test"
DATA = "synthetic:users=80,items=50,ratings=1500"


@pytest.fixture(autouse=True)
def _no_token_of_the_tester(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHREC_TOKEN", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pmf"
    hushrec.PMF(num_rounds=10, num_factors=5).fit(hushrec.load(DATA)).save(folder, overwrite=True)
    return folder


class Running(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    notes: list[str]  # the lines of standard error so far

    def ask(
        self, target: str, token: str | None = TOKEN, body: Any = None, tls: ssl.SSLContext | None = None
    ) -> Any:
        """Status and JSON of one request."""
        kind = http.client.HTTPConnection if tls is None else http.client.HTTPSConnection
        connection = kind("127.0.0.1", self.port, timeout=20, **({} if tls is None else {"context": tls}))
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", target, data, headers)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def stop(self, with_signal: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """Exit code and the rest of both outputs."""
        self.process.send_signal(with_signal)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@contextmanager
def serving(folder: Path, *options: str, log: Path | None = None, **environment: str) -> Iterator[Running]:
    """A server on a free port; ended here if the test has not. Its log is read at the end, or is a file."""
    with ExitStack() as stack:
        out = subprocess.PIPE if log is None else stack.enter_context(log.open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", "hushrec.cli.app", "serve", str(folder), "--port", "0", *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
    try:
        assert process.stderr is not None
        notes: list[str] = []
        while not (notes and "; Ctrl-C stops" in notes[-1]):
            line = process.stderr.readline()
            assert line, f"ended with {notes}"
            notes.append(line.rstrip("\n"))
        found = re.search(r"at https?://[\d.]+:(\d+);", notes[-1])
        assert found
        yield Running(process, int(found[1]), notes)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(folder: Path, *options: str) -> str:
    """The error of a command that does not come to listen."""
    with pytest.raises(HushrecError) as caught:
        CliRunner().invoke(app, ["serve", str(folder), "--port", "0", *options], catch_exceptions=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- Serving -----------------------------------------------------------------------------------------------


def test_a_whole_session(folder: Path) -> None:
    model = hushrec.load_run(folder)
    with serving(folder, HUSHREC_TOKEN=TOKEN) as server:
        assert server.notes == [f"serving pmf on synthetic at http://127.0.0.1:{server.port}; Ctrl-C stops"]
        assert server.ask("/health", token=None) == (200, {"status": "ok"})
        assert server.ask("/v1/model", token=None)[0] == 401
        assert server.ask("/v1/model")[1]["num_items"] == 50
        status, found = server.ask("/v1/users/7/recommendations?k=3")
        assert status == 200
        assert [entry["item"] for entry in found["recommendations"]] == [e.item for e in model.recommend(7, 3)[0]]
        status, found = server.ask("/v1/recommendations", body={"items": [41, 42], "ratings": [5, 1], "k": 3})
        assert status == 200
        expected = model.recommend_newcomer([41, 42], [5, 1], 3)
        assert [entry["item"] for entry in found["recommendations"]] == [entry.item for entry in expected]
        assert server.ask("/v1/users/nobody/recommendations")[0] == 404
        code, out, err = server.stop()
    assert (code, err) == (0, "stopped\n")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["status"] for line in lines] == [200, 401, 200, 200, 200, 404]
    assert lines[3]["route"] == lines[5]["route"] == "/v1/users/{user_id}/recommendations"
    for private in (TOKEN, "nobody", "users/7", "127.0.0.1", "41"):
        assert private not in re.sub(r'"(time|milliseconds|bytes)":("[^"]*"|[\d.]+)', "", out)


def test_a_new_token_is_shown_once(folder: Path) -> None:
    with serving(folder) as server:
        token = server.notes[0].removeprefix("token, shown this once: ")
        assert len(token) == 43
        assert server.ask("/v1/model", token)[0] == 200
        assert server.ask("/v1/model", token[:-1] + "!")[0] == 401
        code, out, err = server.stop(signal.SIGTERM)
    assert code == 0
    assert token not in out + err


def test_tokens_of_a_file_and_https(folder: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    subprocess.run([*command, *files, *names], check=True, capture_output=True)
    file, other = tmp_path / "tokens", "of-the-environment"
    file.write_text(f"{TOKEN}\n{TOKEN}-2\n")
    file.chmod(0o644)
    options = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with serving(folder, "--token-file", str(file), *options, HUSHREC_TOKEN=other) as server:
        assert server.notes[0] == f"others may read {file}; make it yours with: chmod 600 {file}"
        assert "at https://127.0.0.1:" in server.notes[-1]
        trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        for token, status in ((TOKEN, 200), (f"{TOKEN}-2", 200), (other, 401)):
            assert server.ask("/v1/model", token, tls=trusting)[0] == status
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.ask("/v1/model")
        assert server.stop()[0] == 0


def asked_for(server: Running, *addresses: str) -> list[int]:
    """Statuses of requests that say to be forwarded for these addresses."""
    statuses = []
    for address in addresses:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/health", headers={"X-Forwarded-For": address})
        statuses.append(connection.getresponse().status)
        connection.close()
    return statuses


def test_limits_reach_the_server_and_a_proxy_tells_who_asks(folder: Path) -> None:
    options = ["--no-token", "--rate", "2/hour", "--max-request-bytes", "20", "--proxy", "127.0.0.1"]
    with serving(folder, *options) as server:
        status, said = server.ask("/v1/recommendations", None, {"items": [1], "ratings": [5]})
        assert (status, said["detail"]) == (413, "a body may have 20 bytes")
        assert server.ask("/v1/model", token=None)[0] == 200
        status, said = server.ask("/v1/model", token=None)
        assert (status, said["detail"]) == (429, "too many requests; try again in 1800 s")
        one, two = "198.51.100.1", "198.51.100.2"
        assert asked_for(server, one, two, one, one, two) == [200, 200, 200, 429, 200]
        server.stop()


def test_listening_to_everyone(folder: Path) -> None:
    with serving(folder, "--host", "0.0.0.0", "--rate", "1/hour", HUSHREC_TOKEN=TOKEN) as server:
        assert server.notes[0].startswith("tokens and ratings travel unencrypted; use --tls-cert")
        assert asked_for(server, "198.51.100.1", "198.51.100.2") == [200, 429], "no proxy, no belief in headers"
        server.stop()


# --- Newer runs --------------------------------------------------------------------------------------------


def fitted(folder: Path, seed: int) -> str:
    """A run of two, and the digest of its model."""
    hushrec.PMF(num_rounds=3, num_factors=5, seed=seed).fit(hushrec.load(DATA)).save(folder, overwrite=True)
    return read_run(folder).folds[0].model_sha256


def wait_for(server: Running, digest: str) -> None:
    """Until this model is served."""
    ends = time.monotonic() + 60
    while server.ask("/v1/model", None)[1]["model_sha256"] != digest:
        assert time.monotonic() < ends, "the newer run was not taken up"
        time.sleep(0.05)


def test_newer_runs_are_taken_up_and_no_request_is_dropped(tmp_path: Path) -> None:
    """Asked without a pause by four connections while a link moves, a run is written anew, a bad one comes."""
    digests = [fitted(tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]
    link, statuses, models, is_over = tmp_path / "current", list[int](), set[str](), threading.Event()
    link.symlink_to("one")

    def keep_asking(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        while not is_over.is_set():
            for target in ("/v1/users/7/recommendations?why=true", "/v1/model"):
                connection.request("GET", target)
                answer = connection.getresponse()
                found = json.loads(answer.read())
                statuses.append(answer.status)
            models.add(found["model_sha256"])
        connection.close()

    with serving(link, "--watch", "--no-token", "--rate", "999999999/second", log=tmp_path / "log") as server:
        askers = [threading.Thread(target=keep_asking, args=(server.port,)) for _ in range(4)]
        for asker in askers:
            asker.start()
        (tmp_path / "next").symlink_to("two")
        os.replace(tmp_path / "next", link)
        wait_for(server, digests[1])
        digests.append(fitted(tmp_path / "two", 2))
        wait_for(server, digests[2])
        (tmp_path / "two" / "run.json").write_text("{")
        ends = time.monotonic() + 60
        while b"the one before stays" not in (tmp_path / "log").read_bytes():
            assert time.monotonic() < ends
            time.sleep(0.05)
        wait_for(server, digests[2])
        is_over.set()
        for asker in askers:
            asker.join(30)
        assert not any(asker.is_alive() for asker in askers)
        assert server.stop()[0] == 0
    assert set(statuses) == {200}
    assert len(statuses) > 100
    assert models == set(digests)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    told = [(line["level"], line["message"]) for line in lines if "level" in line]
    assert [level for level, _ in told] == ["INFO", "INFO", "ERROR"]
    assert told[0][1] == "now serves pmf on synthetic"
    assert {line["status"] for line in lines if "status" in line} == {200}


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_a_signal_takes_up_a_newer_run(tmp_path: Path) -> None:
    old = fitted(tmp_path / "run", 0)
    with serving(tmp_path / "run", "--no-token") as server:
        wait_for(server, old)
        new = fitted(tmp_path / "run", 1)
        time.sleep(0.2)
        assert server.ask("/v1/model", None)[1]["model_sha256"] == old != new
        server.process.send_signal(signal.SIGHUP)
        wait_for(server, new)
        assert server.stop()[0] == 0


# --- Refusals ----------------------------------------------------------------------------------------------


def test_a_port_that_is_taken(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(folder, "--port", str(port))
    assert said == f"port {port} of 127.0.0.1 is taken; choose another --port"


def test_bad_options_are_one_line(folder: Path, tmp_path: Path) -> None:
    assert "lets everyone who reaches 0.0.0.0 ask" in refused(folder, "--no-token", "--host", "0.0.0.0")
    assert "--rate '9/day' is not a rate; write it as 50/second" in refused(folder, "--rate", "9/day")
    assert "go together; give both" in refused(folder, "--tls-cert", "x.pem")
    assert "cannot be read; give a file with one token per line" in refused(folder, "--token-file", str(tmp_path))
    (tmp_path / "empty").write_text("\n")
    assert "there is no token; write one per line" in refused(folder, "--token-file", str(tmp_path / "empty"))
    (tmp_path / "weak").write_text("hunter2\n")
    weak = refused(folder, "--token-file", str(tmp_path / "weak"))
    assert weak.startswith("a token needs at least 16 letters")
    assert "hunter2" not in weak
    assert "has no finished fold 3" in refused(folder, "--fold", "3")
    assert "is not a run; make one with" in refused(tmp_path)


def test_a_simulation_needs_to_be_called_one(tmp_path: Path) -> None:
    fitted = hushrec.FedRecPlusPlus(num_rounds=3, num_factors=5, denoisers=2).fit(hushrec.load(DATA))
    fitted.save(tmp_path / "run")
    assert refused(tmp_path / "run") == (
        "the server of fedrec++ cannot rank, users' vectors are their own; "
        "use `hushrec recommend` on a node, or --simulation to serve this simulation's vectors"
    )
    allowed = refused(tmp_path / "run", "--simulation", "--no-token", "--host", "0.0.0.0")
    assert allowed.startswith("--no-token lets everyone")


@pytest.mark.parametrize("name", ["uvicorn", "fastapi"])
def test_a_missing_extra_is_named(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("server", "http", "app"):
        monkeypatch.delitem(sys.modules, f"hushrec.serving.{module}", raising=False)
        monkeypatch.delattr(f"hushrec.serving.{module}", raising=False)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    assert refused(folder).startswith(f"serving needs {name}; install it with: pip install '.[serve]'")


# --- Fuzzing -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("user", [None, "7"], ids=["any user", "a known user"])
def test_no_request_that_the_description_leads_to_is_a_fault(
    folder: Path, tmp_path: Path, user: str | None
) -> None:
    """Schemathesis asks for what the schema allows and for what it does not; answers must be as described."""
    tool = shutil.which("schemathesis", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if tool is None:
        pytest.skip("needs schemathesis; install it with: pip install schemathesis")
    config = tmp_path / "schemathesis.toml"
    config.write_text("" if user is None else f'[parameters]\nuser_id = "{user}"\n')
    # What the schema cannot say, as one rating per item, makes some of what it allows a 422.
    options = ["--exclude-checks", "positive_data_acceptance", "--max-examples", "500", "--no-color"]
    with (
        serving(folder, "--rate", "999999999/second", HUSHREC_TOKEN=TOKEN) as server,
        (tmp_path / "log").open("w") as log,
    ):
        copying = subprocess.Popen(["cat"], stdin=server.process.stdout, stdout=log)
        done = subprocess.run(
            [tool, "--config-file", str(config), "run", f"http://127.0.0.1:{server.port}/openapi.json",
             "-H", f"Authorization: Bearer {TOKEN}", *options],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        server.process.send_signal(signal.SIGINT)
        server.process.wait(30)
        copying.wait(30)
    assert done.returncode == 0, done.stdout.partition("= FAILURES")[2][:3000]
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    statuses = [line["status"] for line in lines if "status" in line]
    assert len(statuses) > 1000
    assert {status for status in statuses if status >= 500} == set()
    assert not [line for line in lines if "error" in line]
    assert {200, 401, 405, 422} <= set(statuses)
