"""What every page of the site is made with."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hushrec.serving.gate import Problem
from hushrec.ui.index import RunIndex
from hushrec.ui.jobs import Jobs

Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Site:
    """The folders that are shown, and what is known and done about them."""

    runs_folder: Path
    index: RunIndex
    jobs: Jobs
    federations: tuple[Path, ...] = ()
    ending: threading.Event = field(default_factory=threading.Event)  # set when the server is told to stop

    def folder_of(self, run_id: str | None) -> Path:
        """The folder of a run, by its path below the runs folder; nothing outside of that can be named."""
        folder = self.inside(run_id)
        if not (folder / "run.json").is_file():
            raise Problem(404, "there is no such run; it may have been moved or deleted")
        return folder

    def inside(self, run_id: str | None) -> Path:
        """A folder below the runs folder, which need not exist."""
        parts = Path(run_id or "").parts
        if not parts or any(part in ("..", "/") or part.startswith(".") or "\0" in part for part in parts):
            raise Problem(404, "there is no such run; it may have been moved or deleted")
        folder = self.runs_folder.joinpath(*parts)
        try:
            is_below = folder.resolve().is_relative_to(self.runs_folder.resolve())
            folder.exists()
        except (OSError, RuntimeError):  # a name that is too long, or leads in circles
            is_below = False
        if not is_below:
            raise Problem(404, "there is no such run below the folder that is shown")
        return folder

    @staticmethod
    def answer(value: object) -> Response:
        """A value as JSON."""
        return Response(
            msgspec.json.encode(value), media_type="application/json", headers={"cache-control": "no-store"}
        )


def taking(kind: type[Asked], work: Callable[[Asked], Response]) -> Callable[[Request], Awaitable[Response]]:
    """A handler of POST: its body is read as a value of this type, and worked on in a thread."""

    async def handler(request: Request) -> Response:
        try:
            value = msgspec.json.decode(await request.body(), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Problem(422, f"the request is not as expected: {error}") from None
        return await run_in_threadpool(work, value)

    return handler


def query_number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of a query, within bounds."""
    text: Any = request.query_params.get(name, str(default))
    # As long a number as the bound: Python refuses to read what has thousands of digits.
    if not text.isdecimal() or len(text) > len(str(high)) or not low <= int(text) <= high:
        raise Problem(422, f"{name} must be a whole number from {low} to {high}")
    return int(text)
