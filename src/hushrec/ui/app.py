"""The site: its files, the routes of its pages, and refusals in one shape."""

import threading
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hushrec.errors import HushrecError
from hushrec.serving.gate import Problem, fault
from hushrec.ui import audit, federation, model, privacy, run, runs
from hushrec.ui.address import STATE
from hushrec.ui.index import RunIndex
from hushrec.ui.jobs import Commands, Jobs
from hushrec.ui.site import Site

PRIVATE = "/api/"  # paths below it need a token, where one is asked for
# Each has `routes(site)`.
PAGES: tuple[Any, ...] = (
    runs,
    run,
    privacy,
    audit,
    model,
    federation,
)
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def create_app(
    runs_folder: Path,
    *,
    commands: Commands | None = None,
    federations: Sequence[Path] = (),
    ending: threading.Event | None = None,
) -> Starlette:
    """The application over the runs below a folder, and federations, without the gate before it.

    `commands`: what starts runs, see `jobs.Commands`; without it none can be started here. `ending` is set when
    the server is told to stop.
    """
    state = runs_folder / STATE
    site = Site(
        runs_folder,
        RunIndex(runs_folder, state),
        Jobs(runs_folder, state, commands),
        tuple(federations),
        ending or threading.Event(),
    )
    page_routes = [route for page in PAGES for route in page.routes(site)]
    return Starlette(
        routes=[*_file_routes(), *page_routes],
        exception_handlers={
            Problem: _told(lambda error: error),
            HushrecError: _told(lambda error: Problem(422, str(error))),
            HTTPException: _told(lambda error: Problem(error.status_code, str(error.detail))),
            Exception: _told(lambda _: fault()),
        },
    )


def _told(reason: Callable[[Any], Problem]) -> Callable[[Request, Exception], Response]:
    def handler(_request: Request, error: Exception) -> Response:
        problem = reason(error)
        return Response(problem.body(), problem.status, dict(problem.all_headers()))

    return handler


def _file_routes() -> list[Route]:
    """The files of the page, all of them from the package; they are read once."""
    folder = files("hushrec.ui") / "page_files"
    contents = {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in _KINDS}

    async def send_file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in contents:
            raise Problem(404, "there is no such file")
        kind = f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"
        return Response(contents[name], headers={"content-type": kind, "cache-control": "no-cache"})

    return [Route("/", send_file), Route("/page/{name}", send_file)]
