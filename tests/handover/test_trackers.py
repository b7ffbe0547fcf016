"""Trackers, by the packages themselves: local stores, read back by their own clients.

Packages that are not installed are skipped, aloud; `make test-trackers` has them all, and there nothing is.
"""

import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hushrec.audit.kept import KeptAudit, KeptFinding, write_audit
from hushrec.handover.tracking import FILE
from hushrec.runs.record import Run, read_run

SECRET = "her-clinic"  # in the name of a file, in ids of users and items
ROWS = [(user, item, 1 + (user * item) % 5) for user in range(20) for item in range(15) if (user + item) % 3]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of what their packages load
_BLOCK, _WHOLE, _LAST = 1 << 15, 1, 4  # of W&B's files


def needs(package: str) -> None:
    if find_spec(package) is None:
        if os.environ.get("HUSHREC_TRACKERS") == "all":
            pytest.fail(f"{package} is not installed, and make test-trackers wants all of them")
        pytest.skip(f"{package} IS NOT INSTALLED: its tracker is not tested here; run make test-trackers")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / f"{SECRET}.csv"
    rows = [f"{SECRET}-{user},{SECRET}-item-{item},{rating}" for user, item, rating in ROWS]
    file.write_text("user,item,rating\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return file


class Proxy:
    """What stands between a process and any network: it counts who calls, and answers nobody."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.calls: list[bytes] = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                caller, _ = self.socket.accept()
            except OSError:
                return
            with caller:
                self.calls.append(caller.recv(200))

    @property
    def variables(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return {name: address for upper in names for name in (upper, upper.lower())} | {
            "NO_PROXY": "",
            "no_proxy": "",
        }


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.socket.close()
    assert made.calls == [], "something called out"


def hushrec(proxy: Proxy, folder: Path, *words: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    variables = os.environ | proxy.variables | {"HOME": str(folder), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "-m", "hushrec", *words], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert done.returncode == exit_code, done.stderr
    return done


def run(proxy: Proxy, data: Path, track: str, *words: str, rounds: int = 4) -> Run:
    """A run in a folder beside its data."""
    out = data.parent / "one"
    usual = [
        "--preset",
        "paper",
        "--rounds",
        str(rounds),
        "--num-factors",
        "3",
        "--threads",
        "1",
        "--no-baselines",
    ]
    hushrec(
        proxy,
        data.parent,
        "run",
        "fedrec",
        "--data",
        str(data),
        *usual,
        "--track",
        track,
        "--out",
        str(out),
        *words,
    )
    return read_run(out)


def interrupted(proxy: Proxy, data: Path, track: str, is_killed: bool = True) -> None:
    """A run that is killed (or else: Ctrl-C) in its third round, which trackers were told of and no file has."""
    code = (
        "import os, sys\n"
        "from hushrec.runtime import training\n"
        "kept = training.save_progress\n"
        "def save(path, system, progress):\n"
        "    if progress.round_number == 3:\n"
        "        import time; time.sleep(1.5)\n"
        f"        {'os._exit(9)' if is_killed else 'raise KeyboardInterrupt'}\n"
        "    kept(path, system, progress)\n"
        "training.save_progress = save\n"
        "from hushrec.cli.app import main\n"
        "main()\n"
    )
    out = data.parent / "one"
    words = ["run", "fedrec", "--data", str(data), "--preset", "paper", "--rounds", "4", "--num-factors", "3",
             "--threads", "1", "--no-baselines", "--track", track, "--out", str(out)]  # fmt: skip
    variables = os.environ | proxy.variables | {"HOME": str(data.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=data.parent, env=variables, capture_output=True
    )
    assert done.returncode == (9 if is_killed else 130), done.stderr


def curve(done: Run, metric: str) -> list[float]:
    return done.folds[0].curve[metric]


def tells_nothing(folder: Path) -> None:
    """No file of a store holds an id, or the name of a file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path


def add_audit(folder: Path) -> None:
    found = KeptFinding("one upload", "server", "exact ratings", 0.75, 0.25, None, [0.75])
    write_audit(folder, KeptAudit(4, "2026-01-01", [found]))


# --- MLflow ------------------------------------------------------------------------------------------------------


def mlflow_run(place: Path) -> tuple[Any, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place}")
    experiment = client.get_experiment_by_name("hushrec")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    return client, found


def test_mlflow(proxy: Proxy, data: Path) -> None:
    needs("mlflow")
    place = data.parent / "store" / "runs.db"
    place.parent.mkdir()
    done = run(proxy, data, f"mlflow={place}")
    client, found = mlflow_run(place)
    assert found.info.status == "FINISHED"
    assert found.data.params["system"] == "fedrec"
    assert found.data.params["data"] == "data of its owner"
    assert found.data.params["num_rounds"] == "4"
    history = client.get_metric_history(found.info.run_id, "RMSE")
    assert [one.step for one in history] == [1, 2, 3, 4]
    assert [one.value for one in history] == pytest.approx(curve(done, "RMSE"))
    assert found.data.metrics["final/RMSE"] == pytest.approx(done.mean["RMSE"])
    assert found.data.metrics["bytes sent"] == sum(done.folds[0].sent_bytes.values())
    assert found.data.tags["model_sha256"] == done.folds[0].model_sha256
    tells_nothing(place.parent)


def test_mlflow_goes_on(proxy: Proxy, data: Path) -> None:
    needs("mlflow")
    place = data.parent / "runs.db"
    interrupted(proxy, data, f"mlflow={place}")
    done = run(proxy, data, f"mlflow={place}", "--resume")
    client, found = mlflow_run(place)
    history = client.get_metric_history(found.info.run_id, "RMSE")
    assert [one.step for one in history] == [1, 2, 3, 4]
    assert [one.value for one in history] == pytest.approx(curve(done, "RMSE"))


def test_an_audit_is_told_to_the_same_run(proxy: Proxy, data: Path) -> None:
    needs("mlflow")
    place = data.parent / "runs.db"
    run(proxy, data, f"mlflow={place}")
    told = hushrec(proxy, data.parent, "audit", str(data.parent / "one"), "--track", "--threads", "1")
    assert f"mlflow was told what attacks read, in sqlite:///{place}" in told.stderr
    _, found = mlflow_run(place)
    leakage = {name: value for name, value in found.data.metrics.items() if name.startswith("leakage/")}
    kept = json.loads((data.parent / "one" / "audit.json").read_text())["findings"]
    assert len(leakage) == 2 * len(kept) > 0
    assert any(math.isclose(value, kept[0]["score"]) for value in leakage.values())


# --- TensorBoard -------------------------------------------------------------------------------------------------


def board(place: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = place.iterdir()
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    return found


def scalars(found: Any, tag: str) -> list[tuple[int, float]]:
    from tensorboard.util import tensor_util

    return [(one.step, float(tensor_util.make_ndarray(one.tensor_proto))) for one in found.Tensors(tag)]


def test_tensorboard(proxy: Proxy, data: Path) -> None:
    needs("tensorboard")
    place = data.parent / "board"
    done = run(proxy, data, f"tensorboard={place}")
    found = board(place)
    assert [step for step, _ in scalars(found, "RMSE")] == [1, 2, 3, 4]
    assert [value for _, value in scalars(found, "RMSE")] == pytest.approx(curve(done, "RMSE"))
    assert scalars(found, "final/RMSE")[0][1] == pytest.approx(done.mean["RMSE"])
    (digest,) = found.Tensors("model_sha256")
    assert digest.tensor_proto.string_val[0].decode() == done.folds[0].model_sha256
    from tensorboard.plugins.hparams import metadata

    content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    told = metadata.parse_session_start_info_plugin_data(content).hparams
    assert told["system"].string_value == "fedrec"
    assert told["num_rounds"].number_value == 4
    tells_nothing(place)


def test_tensorboard_goes_on(proxy: Proxy, data: Path) -> None:
    needs("tensorboard")
    place = data.parent / "board"
    interrupted(proxy, data, f"tensorboard={place}")
    done = run(proxy, data, f"tensorboard={place}", "--resume")
    found = scalars(board(place), "RMSE")
    assert [step for step, _ in found] == [1, 2, 3, 4]
    assert [value for _, value in found] == pytest.approx(curve(done, "RMSE"))


# --- Weights & Biases --------------------------------------------------------------------------------------------


def test_wandb_is_offline_and_one_run(proxy: Proxy, data: Path) -> None:
    needs("wandb")
    place = data.parent / "board"
    interrupted(proxy, data, f"wandb={place}", is_killed=False)
    done = run(proxy, data, f"wandb={place}", "--resume")
    known = json.loads((data.parent / "one" / FILE).read_text())["wandb"]["id"]
    files = sorted((place / "wandb").glob(f"offline-run-*-{known}/run-{known}.wandb"))
    assert len(files) == 2  # sent, they are one run: they have one id
    rows = [row for file in files for row in wandb_rows(file)]
    values = {int(row["round"]): row["RMSE"] for row in rows}
    assert sorted(values) == [1, 2, 3, 4]
    assert [values[step] for step in sorted(values)] == pytest.approx(curve(done, "RMSE"))
    tells_nothing(place)


def wandb_rows(file: Path) -> list[dict[str, Any]]:
    """The rows that W&B keeps offline, by its own messages; their records are framed as in LevelDB's logs."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts, rows = file.read_bytes(), 7, b"", []
    assert data.startswith(b":W&B")
    while place + 7 <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if kind == 0:  # room that was not used when the process was killed
            break
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (_WHOLE, _LAST):
            record = Record.FromString(parts)
            parts = b""
            if record.HasField("history"):
                found = {
                    "".join(one.nested_key) or one.key: json.loads(one.value_json) for one in record.history.item
                }
                rows.append(found)
    return rows


# --- Trackio -----------------------------------------------------------------------------------------------------

READ_TRACKIO = """
import json, sys
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage
(run,) = Api().runs("hushrec")
print(json.dumps([run.config, SQLiteStorage.get_logs("hushrec", run.name)]))
"""


def test_trackio_goes_on(proxy: Proxy, data: Path) -> None:
    needs("trackio")
    place = data.parent / "board"
    interrupted(proxy, data, f"trackio={place}")
    done = run(proxy, data, f"trackio={place}", "--resume")
    variables = os.environ | {"TRACKIO_DIR": str(place), "HF_HUB_OFFLINE": "1"}
    read = subprocess.run([sys.executable, "-c", READ_TRACKIO], env=variables, capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    config, logs = json.loads(read.stdout.splitlines()[-1])
    assert config["system"] == "fedrec"
    rows = [row for row in logs if "RMSE" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["RMSE"] for row in rows] == pytest.approx(curve(done, "RMSE"))
    assert logs[-1]["model_sha256"] == done.folds[0].model_sha256
    assert logs[-1]["final/RMSE"] == pytest.approx(done.mean["RMSE"])
    tells_nothing(place)
