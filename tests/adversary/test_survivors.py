"""Guards that no test missed when they were taken away: files on the disk, key cards, denoisers, locks, shapes."""

import asyncio
import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hushrec import files
from hushrec.data import synthetic
from hushrec.deploy.certificates import new_authority
from hushrec.deploy.driver import _ServerRun
from hushrec.deploy.identity import KeyCard
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.denoising import NoiseSums
from hushrec.protocol import Cohort, Handler, Ragged, Reply, Transcript
from hushrec.registry import system_named
from hushrec.runtime.calling import NodesLost
from hushrec.runtime.checkpoint import load_progress, read_arrays, save_progress, write_arrays
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.runtime.training import Job, prepared, run_job
from hushrec.serving.gate import Gate
from hushrec.serving.limits import Rate, RateLimit, Tokens
from hushrec.systems.drift.store import OwnerStore
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, Noise, released
from hushrec.testing.small_runs import settings_for

TOKEN = "0123456789abcdef-test"


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    fsync, move = os.fsync, os.replace
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: (done.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(files.os, "replace", lambda *names: (done.append("replace"), move(*names)))
    files.write_private_file(tmp_path / "state", b"all")
    assert done[:2] == ["fsync", "replace"]


# --- Key cards -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["node-1", "node-2"])
def test_the_server_believes_no_card_that_is_not_signed(tmp_path: Path, name: str) -> None:
    """Neither one of another's name, nor one whose certificate and signature are made up."""
    startup = tmp_path / "server" / "startup"
    startup.mkdir(parents=True)
    (startup / "rootCA.pem").write_bytes(new_authority("made up").root)
    run: Any = object.__new__(_ServerRun)
    run._folder, run._rounds_done = tmp_path / "runs" / "run", 0
    run._order = SimpleNamespace(run_id="00" * 16)
    with pytest.raises(NodesLost, match="lost node-1"):
        run._check_cards({"node-1": KeyCard(name, bytes(32), bytes(32), b"", b"", b"")}, {"node-1": [0]})


# --- Denoisers ---------------------------------------------------------------------------------------------------


def denoising(change: Any) -> Any:
    """A round of FedRec++ whose denoisers' sums are changed on their way."""
    system = system_named("fedrec++")
    config = system.configure(settings_for(system, 1, system.about.small))
    job = Job(system, config, 0, prepared(system, synthetic(24, 30, 288)))
    honest = system.handlers[DenoiserFactors]

    def lying(*asked: Any) -> Reply:
        reply = honest.answer(*asked)
        return Reply(change(reply.message), reply.mail)

    handlers = {**system.handlers, DenoiserFactors: Handler(lying, honest.reads)}
    start = job.start()
    options = RuntimeOptions(threads=1)
    runtime = InProcess(replace(system, handlers=handlers), config, Draws(0), start.private, Transcript(), options)
    return runtime.run_round(start.state, 1)


def test_a_denoiser_that_takes_out_more_than_came_in_is_noticed() -> None:
    def overdrawn(sums: Any) -> Any:
        return replace(sums, counts=Ragged(sums.counts.starts, sums.counts.values + np.int32(100)))

    denoising(lambda sums: sums)
    with pytest.raises(HushrecError, match=r"takes out more than came in|more raters"):
        denoising(overdrawn)


def noise_for(*denoisers: int) -> tuple[np.ndarray, Noise]:
    starts = np.arange(len(denoisers) + 1)
    items, rows = np.zeros(len(denoisers), np.int32), np.ones((len(denoisers), 2), np.float32)
    return np.array(denoisers, np.int32), Noise(Ragged(starts, items), Ragged(starts, rows))


def test_a_denoiser_without_mail_of_its_own_answers_nothing() -> None:
    """Noise came for another one."""
    inbox = NoiseSums(num_items=3, num_factors=2, num_denoisers=2)
    inbox.add(*noise_for(4))
    own = noise_for(5)[1]
    for denoiser, is_served in ((4, True), (5, False)):
        asked = np.array([denoiser], np.int32)
        cohort = Cohort(asked, np.zeros(1, np.int64), None, 1, {Noise: inbox})
        if is_served:
            assert released(cohort, own).message.items.values.tolist() == [0]
        else:
            with pytest.raises(HushrecError, match="got no noise"):
                released(cohort, own)


def test_two_threads_never_add_to_one_table_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits outside while the first is inside, however long that takes."""
    sums, inside, most = NoiseSums(3, 2, 1), [0], [0]
    is_inside, may_leave = threading.Event(), threading.Event()

    def slow(*_batch: Any) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        is_inside.set()
        may_leave.wait(5)
        inside[0] -= 1

    monkeypatch.setattr(sums, "_add", slow)
    threads = [threading.Thread(target=sums.add, args=noise_for(0)) for _ in range(2)]
    threads[0].start()
    assert is_inside.wait(5)
    threads[1].start()
    threads[1].join(0.3)
    may_leave.set()
    for thread in threads:
        thread.join(5)
    assert most == [1]


# --- What is kept ------------------------------------------------------------------------------------------------


def test_what_an_owner_has_learned_from_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "owners.sqlite"
    OwnerStore.create(path)
    store = OwnerStore(path)
    with closing(store._file) as file:
        assert isinstance(file, sqlite3.Connection)
        assert file.execute("PRAGMA secure_delete").fetchone() == (1,)


SHAPES = {
    "a longer result": ("server.item_factors", lambda array: array[:-1]),
    "a wider result": ("server.item_factors", lambda array: np.hstack([array, array])),
    "a result of another kind": ("server.item_factors", lambda array: array.astype(np.int64)),
    "a flat result": ("server.item_factors", lambda array: array.ravel()),
    "rounds in a table": ("server.counted_round", lambda array: array[:, None]),
    "a party less": ("private.user_factors", lambda array: array[:-1]),
    "a single party": ("private.user_factors", lambda array: array[:1]),
    "tallies of another width": ("tallies", lambda array: array[:, :4]),
    "a count below zero": ("tallies", lambda array: array - array.max() - 1),
    "rounds below zero": ("round_number", lambda array: array - 10),
    "rounds beyond all": ("round_number", lambda array: array + 2**40),
    "a flat curve": ("curve", lambda array: np.zeros(3)),
}


@pytest.mark.parametrize("wrong", SHAPES)
def test_a_checkpoint_of_another_shape_is_refused_in_one_line(tmp_path: Path, wrong: str) -> None:
    system, path = system_named("fedrec"), tmp_path / "state.npz"
    config = system.configure(settings_for(system, 1, system.about.small))
    job = Job(system, config, 0, prepared(system, synthetic(24, 30, 288)))
    save_progress(path, system, run_job(job, RuntimeOptions(threads=1)))
    load_progress(path, system, job.start())
    name, change = SHAPES[wrong]
    arrays = read_arrays(path)
    write_arrays(path, arrays | {name: change(arrays.get(name, np.zeros((1, 2))))})
    with pytest.raises(HushrecError, match=r"\A.*state\.npz is not of this run; choose another --out\Z"):
        load_progress(path, system, job.start())


# --- Tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [f"Bearer {TOKEN}", "Bearer another", "Basic eDp5"])
def test_two_authorization_headers_are_none(second: str) -> None:
    """Whoever stands between, a proxy perhaps, may have looked at the other one."""
    statuses: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    gate = Gate(app, RateLimit(Rate(100, 1.0)), Tokens([TOKEN]), 100, lambda line: None)
    given = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"authorization", second.encode())]
    for headers in (given[:1], given, given[::-1]):
        scope = {
            "type": "http", "method": "GET", "path": "/v1/x", "headers": headers, "client": ("192.0.2.1", 1),
        }  # fmt: skip
        asyncio.run(gate(scope, receive, send))
    assert statuses == [200, 401, 401]
