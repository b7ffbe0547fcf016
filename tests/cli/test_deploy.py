"""`hushrec deploy` as its users call it."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.files import locked

pytest.importorskip("nvflare")

RUNNER = CliRunner()
DATA = "synthetic:users=40,items=60,ratings=1200"


def ended(*words: str) -> str:
    """What an invocation that goes wrong says."""
    result = RUNNER.invoke(app, list(words))
    assert isinstance(result.exception, HushrecError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kits") / "fed"
    result = RUNNER.invoke(app, ["deploy", "init", str(folder), "--name", "shop-a", "--name", "shop-b"])
    assert result.exit_code == 0, result.output
    assert "hushrec deploy node shop-a --data RATINGS" in result.stdout
    return folder


def test_kits_are_private_and_complete(kits: Path) -> None:
    for name in ("server", "shop-a", "shop-b"):
        assert stat.S_IMODE((kits / name).stat().st_mode) == 0o700
    for name in ("rootCA.pem", "client.crt", "client.key", "nodes.json"):
        assert (kits / "shop-a" / "startup" / name).exists()
    assert stat.S_IMODE((kits / "shop-a" / "startup" / "client.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((kits / "authority" / "root.key").stat().st_mode) == 0o600
    assert [path.parent.name for path in kits.rglob("root.key")] == ["authority"]


def test_status_without_a_server(kits: Path) -> None:
    result = RUNNER.invoke(app, ["deploy", "status", str(kits), "--json"])
    told = json.loads(result.stdout)
    assert told["server"]["is_up"] is False
    assert told["nodes"] == {"shop-a": False, "shop-b": False}
    assert told["runs"] == {}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("init", "new", "--nodes", "0"), "--nodes 0 is not within 1 to 10000; without it, nodes join later"),
        (("init", "new", "--name", "../x"), "cannot be a node's name"),
        (("init", "new", "--name", "server"), "cannot be a node's name"),
        (("init", "new", "--nodes", "2", "--port", "0"), "--port 0 is not within 1 to 65535"),
        (("server", "nowhere"), "nowhere holds no federation; make one with: hushrec deploy init nowhere"),
        (("node", "nowhere", "--data", "x.csv"), "nowhere is no node's kit"),
        (("status", "nowhere"), "holds no federation"),
        (("local", "--system", "fedrek", "--data", DATA), "no system 'fedrek'"),
        (("local", "--system", "pmf", "--data", DATA, "--rho", "3"), "unknown setting rho"),
        (("local", "--system", "fedrec", "--data", DATA, "--nodes", "0"), "--nodes must be at least 1"),
        (("local", "--system", "fedrec", "--data", DATA, "--nodes", "2", "--min-nodes", "3"), "has 2 nodes"),
        (("local", "--system", "fedrec", "--data", DATA, "--timeout", "-5"), "--timeout -5 leaves no time"),
        (("local", "--system", "fedrec", "--data", DATA, "--timeout", "nan"), "--timeout nan leaves no time"),
        (("run", "fedrec", "fed", "--patience", "-1"), "--patience -1 is no time to wait"),
        (("run", "fedrec", "fed", "--patience", "inf"), "--patience inf is no time to wait"),
        (("local", "--system", "fedcore", "--data", DATA, "--nodes", "1"), "--nodes must be at least 2"),
        (("run", "fedrec", "fed"), "fedrec needs --items, a file with all items that its nodes know"),
        (("run", "fedcore", "fed", "--items", "x"), "partners of fedcore have items of their own; leave it out"),
    ],
)
def test_bad_input_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in ended("deploy", *words)
    assert not list(tmp_path.iterdir())


def test_kits_are_not_overwritten(kits: Path) -> None:
    assert "is not empty" in ended("deploy", "init", str(kits), "--nodes", "2")


def test_a_run_needs_items_and_a_server(kits: Path, tmp_path: Path) -> None:
    (tmp_path / "items.tsv").write_text("")
    words = ["deploy", "run", "fedrec++", str(kits), "--items", str(tmp_path / "items.tsv")]
    assert "is no list of items" in ended(*words)
    (tmp_path / "items.tsv").write_text("1\tOne\n")
    assert "say their scale on all nodes, as in --rating-range 1,5" in ended(*words)
    assert not (kits / "runs").exists()


def test_a_port_that_is_taken_is_refused(kits: Path, tmp_path: Path) -> None:
    shutil.copytree(kits, tmp_path / "fed")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = int(other.getsockname()[1])
        known = json.loads((kits / "federation.json").read_text())
        (tmp_path / "fed" / "federation.json").write_text(json.dumps(known | {"port": port}))
        said = ended("deploy", "server", str(tmp_path / "fed"))
    assert said.startswith(f"port {port} of this machine cannot be used (Address already in use); end the process")


def test_a_kit_runs_once(kits: Path, tmp_path: Path) -> None:
    """Two with one name would push each other out of every run."""
    (tmp_path / "ratings.csv").write_text("user,item,rating\n1,2,3\n")
    node = ["deploy", "node", str(kits / "shop-a"), "--data", str(tmp_path / "ratings.csv")]
    with locked(kits / "shop-a" / "lock", "taken"), locked(kits / "server" / "lock", "taken"):
        assert ended(*node) == f"shop-a runs already from {kits / 'shop-a'}; end that process first"
        assert ended("deploy", "server", str(kits)) == f"the server of {kits} runs already; end that process first"
    assert not (kits / "shop-a" / "private" / "node.json").exists()


def test_a_node_looks_at_its_ratings_before_it_starts(kits: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("user,item,rating\n1,2,many\n")
    words = ["deploy", "node", str(kits), "--name", "shop-a"]
    assert "bad.csv" in ended(*words, "--data", str(tmp_path / "bad.csv"))
    (tmp_path / "good.csv").write_text("user,item,rating\n1,2,3\n")
    good = [*words, "--data", str(tmp_path / "good.csv")]
    assert "no such system" in ended(*good, "--allow", "fedrek")
    assert "write setting=value" in ended(*good, "--require", "rho")
    assert "did you mean num_rounds?" in ended(*good, "--require", "num-round=3")
    assert "no order of fedcore tells nodes of it" in ended(*good, "--allow", "fedcore", "--require", "rho=3")
    assert "--max-packet-mb -3 is not within 1 to 2048" in ended(*good, "--max-packet-mb", "-3")
    assert "shop-c" in ended("deploy", "node", str(kits / "shop-a"), "--name", "shop-c", "--data", str(good[-1]))
    assert "cannot read the visitors" in ended(*good, "--visitors", str(tmp_path / "missing"))
    (tmp_path / "items.tsv").write_text("1\tOne\n")
    assert "1 rated items are not in the catalogue" in ended(*good, "--items", str(tmp_path / "items.tsv"))
    (tmp_path / "test.csv").write_text("user,item,rating\n1,7,3\n8,2,3\n9,2,3\n")
    said = ended(*good, "--test", str(tmp_path / "test.csv"))
    assert said.startswith(
        "2 users of the test ratings are not clients of this node: they have no rating to train on"
    )


def test_local_gives_the_bits_of_run(tmp_path: Path) -> None:
    """Real processes, real TLS, two nodes; and nothing stays behind."""
    settings = ["--rounds", "3", "--num-factors", "5", "--rho", "2"]
    settings += ["--min-raters", "0"]  # nodes count raters among their own users
    before = {process.pid for process in psutil.process_iter()}
    command = [sys.executable, "-m", "hushrec.cli.app", "deploy", "local", "--nodes", "2", "--system", "fedrec++"]
    deployed = subprocess.run(
        [*command, "--data", DATA, *settings, "--json", "--out", str(tmp_path / "kept")],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert deployed.returncode == 0, deployed.stderr
    result = RUNNER.invoke(app, ["run", "fedrec++", "--data", DATA, *settings, "--json"])
    ours, theirs = json.loads(deployed.stdout), json.loads(result.stdout)
    assert ours["folds"][0]["model_sha256"] == theirs["folds"][0]["model_sha256"]
    for name, value in theirs["folds"][0]["metrics"].items():
        assert ours["folds"][0]["metrics"][name] == pytest.approx(value, rel=1e-9)
    assert ours["config"] == theirs["config"]
    assert ours["deployment"]["nodes"] == 2
    assert (tmp_path / "kept" / "run.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    left = [p for p in psutil.process_iter(["cmdline"]) if p.pid not in before and str(tmp_path) in str(p.info)]
    assert left == []


@pytest.mark.slow
def test_partners_on_nodes_give_the_bits_of_run(tmp_path: Path) -> None:
    """And each of them can recommend to its users and to visitors whom it asked about."""
    settings = ["--rounds", "2", "--num-factors", "4", "--batch-size", "64"]
    command = [sys.executable, "-m", "hushrec.cli.app", "deploy", "local", "--nodes", "2", "--system", "fedcore"]
    deployed = subprocess.run(
        [*command, "--data", DATA, *settings, "--json", "--keep", str(tmp_path / "fed")],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert deployed.returncode == 0, deployed.stderr
    result = RUNNER.invoke(app, ["run", "fedcore", "--data", DATA, *settings, "--json"])
    ours, theirs = json.loads(deployed.stdout), json.loads(result.stdout)
    assert ours["folds"][0]["model_sha256"] == theirs["folds"][0]["model_sha256"]
    for name in ("a", "b"):
        assert ours["folds"][0]["metrics"][f"{name} own RMSE"] == pytest.approx(
            theirs["folds"][0]["metrics"][f"{name} own RMSE"], rel=1e-6
        )
        [folder] = (tmp_path / "fed" / name / "private" / "runs").iterdir()
        train = tmp_path / "fed" / "shares" / name
        user, visitor = train.joinpath("ratings.csv").read_text().split()[1], train / "visitors.txt"
        for one in (user.split(",")[0].strip('"'), visitor.read_text().split()[0]):
            words = ["recommend", str(folder), "--user", f"{name}:{one}", "-k", "2", "--min-raters", "0", "--json"]
            assert len(json.loads(RUNNER.invoke(app, words).stdout)) == 2


@pytest.mark.slow
def test_local_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hushrec.cli.app", "deploy", "local", "--nodes", "2", "--system", "fedrec++"]
    process = subprocess.Popen(
        [*command, "--data", DATA, "--rounds", "2000"], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.rglob("progress.json")) and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert re.search("interrupted", said)
    assert list(tmp_path.iterdir()) == []
    assert [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(p.info)] == []
