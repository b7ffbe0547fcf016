"""One run: what came of it, what it does now, and how to start, stop and resume one."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hushrec.audit.kept import read_audit
from hushrec.errors import HushrecError
from hushrec.runs.following import Followed, RoundTold
from hushrec.runs.record import VALIDATION, read_run
from hushrec.serving.gate import Problem
from hushrec.ui.rows import is_better_low, leakage_of
from hushrec.ui.site import Site, taking

_SECONDS_RUNNING, _SECONDS_IDLE = 0.4, 2.0  # between two looks
_PACE_ROUNDS = 20  # the last ones, by which the time left is told


class Wanted(msgspec.Struct, frozen=True):
    """What a form says."""

    system: str
    values: dict[str, str | bool | float | None]
    name: str = ""


class Named(msgspec.Struct, frozen=True):
    """A run."""

    id: str


def routes(site: Site) -> list[Route]:
    """What the page asks for."""

    def show(request: Request) -> Response:
        return site.answer(shown(site, request.query_params.get("id", "")))

    async def events(request: Request) -> Response:
        run_id = request.query_params.get("id", "")
        folder = await run_in_threadpool(_known_folder, site, run_id)
        return StreamingResponse(
            _told(site, run_id, folder), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    def list_systems(_request: Request) -> Response:
        commands = site.jobs.commands
        return site.answer({"systems": [] if commands is None else commands.systems()})

    def form(request: Request) -> Response:
        commands = site.jobs.commands
        if commands is None:
            raise HushrecError("no run can be started here; use the command line: hushrec run --help")
        return site.answer({"options": commands.form(request.query_params.get("system", ""))})

    def start(wanted: Wanted) -> Response:
        return site.answer({"id": site.jobs.start(wanted.system, wanted.values, wanted.name.strip())})

    def stop(named: Named) -> Response:
        _stop(site, named.id)
        return site.answer({"id": named.id})

    def resume(named: Named) -> Response:
        site.jobs.resume(named.id, read_run(site.folder_of(named.id)).command)
        return site.answer({"id": named.id})

    def forget(named: Named) -> Response:
        site.jobs.forget(named.id)
        return site.answer({"id": named.id})

    return [
        Route("/api/run/show", show),
        Route("/api/run/events", events),
        Route("/api/run/systems", list_systems),
        Route("/api/run/form", form),
        Route("/api/run/start", taking(Wanted, start), methods=["POST"]),
        Route("/api/run/stop", taking(Named, stop), methods=["POST"]),
        Route("/api/run/resume", taking(Named, resume), methods=["POST"]),
        Route("/api/run/forget", taking(Named, forget), methods=["POST"]),
    ]


def _known_folder(site: Site, run_id: str) -> Path:
    """The folder of a run, or of one that was started here and may become one."""
    folder = site.inside(run_id)
    if not (folder / "run.json").is_file() and site.jobs.state(run_id) is None:
        raise Problem(404, "there is no such run; it may have been moved or deleted")
    return folder


def shown(site: Site, run_id: str) -> dict[str, Any]:
    """All that is known of a run; of one that is not begun yet, how it was started."""
    folder, job = _known_folder(site, run_id), site.jobs.state(run_id)
    started = None if job is None else {"words": shlex.join(job.started.words), "values": job.started.values}
    if not (folder / "run.json").is_file():
        return {"id": run_id, "run": None, "started": started}
    run = read_run(folder)
    audit, audit_fault = None, ""
    try:
        audit = read_audit(folder)
    except HushrecError as error:  # the run itself can still be shown
        audit_fault = str(error)
    return {
        "id": run_id,
        "run": asdict(run),  # with what an older file does not have
        "mean": run.mean,
        "std": run.std,
        "is_done": run.is_done,
        "is_low_better": [name for name in run.mean if is_better_low(name)],
        "can_resume": not run.is_done and bool(run.command or job),
        "started": started,
        "leakage": leakage_of(folder),
        "audit": None if audit is None else {"date": audit.date, "num_rounds": audit.num_rounds},
        "audit_fault": audit_fault,
        "tags": next((row["tags"] for row in site.index.rows_of([run_id])), []),
    }


def _stop(site: Site, run_id: str) -> None:
    job = site.jobs.state(run_id)
    if job is not None and job.is_running:
        site.jobs.stop(job.started.process, job.started.mark)
        return
    followed = Followed(site.folder_of(run_id))
    followed.look()
    if followed.begun is None or not followed.is_running:
        raise HushrecError("this run has ended already")
    site.jobs.stop(followed.begun.process, followed.begun.mark)


# --- Live ----------------------------------------------------------------------------------------------------


class Live:
    """What a run tells while somebody looks on; each `look` gives what is new, or None."""

    def __init__(self, site: Site, run_id: str, folder: Path) -> None:
        self._site, self._run_id, self._folder = site, run_id, folder
        self._main = Followed(folder)
        self._trials: dict[str, Followed] = {}
        self._sent: list[RoundTold] = []
        self._last: dict[str, Any] = {}
        self.is_running = False

    def look(self) -> dict[str, Any] | None:
        """What is to be told now."""
        followed, phase = self._followed()
        job = self._site.jobs.state(self._run_id)
        self.is_running = followed.is_running or (job is not None and job.is_running)
        same = _length_of_common(self._sent, followed.rounds)
        fresh = followed.rounds[same:]
        now = {
            "state": self._state(),
            "phase": phase,
            "num_folds": followed.begun.num_folds if followed.begun else 1,
            "seconds_left": time_left(followed) if followed.is_running else None,
            "log": job.log if job else None,
        }
        if not fresh and same == len(self._sent) and now == self._last:
            return None
        before, self._sent, self._last = self._last, list(followed.rounds), now
        told = {name: value for name, value in now.items() if name != "log" or value != before.get("log")}
        return {**told, "kept": same if before else 0, "rounds": fresh}

    def _state(self) -> str:
        if self.is_running:
            return "running"
        try:
            return "done" if read_run(self._folder).is_done else "stopped"
        except HushrecError:
            return "failed"

    def _followed(self) -> tuple[Followed, str]:
        """The training, or what is tried before it on a part that is held back."""
        self._main.look()
        if self._main.rounds or self._main.is_running:
            return self._main, "training"
        for path in self._folder.glob(f"{VALIDATION}/*"):
            self._trials.setdefault(path.name, Followed(path)).look()
        begun = [one for one in self._trials.values() if one.begun is not None]
        if not begun:
            return self._main, "starting"
        return max(begun, key=lambda one: one.begun.time if one.begun else 0.0), "validation"


def _length_of_common(sent: list[RoundTold], now: list[RoundTold]) -> int:
    """How many rounds at the beginning are those that were sent already."""
    same = min(len(sent), len(now))
    while same and sent[same - 1] is not now[same - 1]:
        same -= 1
    return same


def time_left(followed: Followed) -> float | None:
    """Seconds to the last round of the last fold, by the pace of the last rounds; None: nobody can tell yet."""
    if not followed.rounds or followed.begun is None:
        return None
    last = followed.rounds[-1]
    recent = [one for one in followed.rounds[-_PACE_ROUNDS:] if one.fold == last.fold]
    if len(recent) < 2:
        return None
    pace = (last.seconds - recent[0].seconds) / (last.round_number - recent[0].round_number)
    folds_left = max(0, followed.begun.num_folds - last.fold)
    return pace * (last.num_rounds - last.round_number + folds_left * last.num_rounds)


async def _told(site: Site, run_id: str, folder: Path) -> AsyncIterator[bytes]:
    """Server-sent events, until the browser leaves or the server is told to stop."""
    live = Live(site, run_id, folder)
    idle = 0.0
    while not site.ending.is_set():
        told = await run_in_threadpool(live.look)
        if told is not None:
            yield b"data: " + msgspec.json.encode(told) + b"\n\n"
            idle = 0.0
        elif idle > 15:
            yield b": still here\n\n"  # so that a browser that is gone is noticed
            idle = 0.0
        pause = _SECONDS_RUNNING if live.is_running else _SECONDS_IDLE
        idle += pause
        waited = 0.0
        while waited < pause and not site.ending.is_set():
            await asyncio.sleep(0.2)
            waited += 0.2
