"""The page of all runs: a list, groups, tags, and comparisons of many."""

from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hushrec.errors import HushrecError
from hushrec.runs.following import Followed
from hushrec.ui.asking import Query
from hushrec.ui.rows import is_better_low
from hushrec.ui.site import Site, query_number, taking

MOST_COMPARED = 500
_MOST_ROWS = 500  # of a list, at once
_MOST_POINTS = 120  # of a curve that is compared
_USUAL = ("RMSE", "MAE", "NDCG@10", "NDCG@20", "HR@10", "Recall@20")  # as in the list of runs


class Tagged(msgspec.Struct, frozen=True):
    """A run, and the tags that it gets."""

    id: str
    tags: list[str]


class Compared(msgspec.Struct, frozen=True):
    """Which runs are compared; without ids, those that fit the filter."""

    ids: list[str] = []
    filter: str = ""
    metric: str = ""


class _FoldCurve(msgspec.Struct, frozen=True):
    curve: dict[str, list[float | None]] = {}


class _Curves(msgspec.Struct, frozen=True):
    """As much of a `run.json` as its curves need."""

    folds: list[_FoldCurve] = []


def routes(site: Site) -> list[Route]:
    """What the page asks for."""

    def list_runs(request: Request) -> Response:
        site.index.look_soon()
        query = _query(request)
        return site.answer(
            {
                **site.index.page(query),
                "progress": site.index.progress(),
                "waiting": [
                    {"id": one.run_id, "is_running": state.is_running, "started": one.time}
                    for one in site.jobs.waiting()
                    if (state := site.jobs.state(one.run_id)) is not None
                ],
            }
        )

    def list_groups(request: Request) -> Response:
        by, metric = request.query_params.get("by", ""), request.query_params.get("metric", "")
        groups = site.index.groups(_query(request), by, metric)
        return site.answer({"groups": groups, "is_better_low": is_better_low(metric)})

    def tag(asked: Tagged) -> Response:
        site.folder_of(asked.id)
        return site.answer({"tags": site.index.tag(asked.id, asked.tags)})

    def compare(asked: Compared) -> Response:
        return site.answer(comparison(site, asked))

    return [
        Route("/api/runs/list", list_runs),
        Route("/api/runs/groups", list_groups),
        Route("/api/runs/tag", taking(Tagged, tag), methods=["POST"]),
        Route("/api/runs/compare", taking(Compared, compare), methods=["POST"]),
    ]


def _query(request: Request) -> Query:
    asked = request.query_params
    return Query(
        asked.get("filter", ""),
        asked.get("sort", "started"),
        asked.get("descending", "true") == "true",
        query_number(request, "limit", 100, 1, _MOST_ROWS),
        query_number(request, "offset", 0, 0, 10**9),
    )


def comparison(site: Site, asked: Compared) -> dict[str, Any]:
    """Rows of the index and curves of one metric, of up to 500 runs."""
    ids = asked.ids or site.index.ids(Query(asked.filter), MOST_COMPARED + 1)
    if len(ids) > MOST_COMPARED:
        raise HushrecError(f"{len(ids)} runs are too many to compare; choose at most {MOST_COMPARED}")
    rows = site.index.rows_of(ids)
    metrics = _common_metrics(rows)
    metric = asked.metric or (metrics[0] if metrics else "")
    curves = [curve_of(site.inside(row["id"]), metric) for row in rows]
    return {
        "rows": rows,
        "metrics": metrics,
        "metric": metric,
        "is_better_low": is_better_low(metric),
        "curves": curves,
    }


def _common_metrics(rows: list[dict[str, Any]]) -> list[str]:
    """Metrics that any of the runs has: those first that most have, and of these those that are usual."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in msgspec.json.decode(row["last"]):
            counts[name] = counts.get(name, 0) + 1
    usual = {name: place for place, name in enumerate(_USUAL)}
    return sorted(counts, key=lambda name: (-counts[name], usual.get(name, len(usual))))


def curve_of(folder: Path, metric: str) -> dict[str, list[float | None]]:
    """A learning curve: means over the folds that are as long as the first, at most so many points of it."""
    values: list[float | None] = []
    try:
        found = msgspec.json.decode((folder / "run.json").read_bytes(), type=_Curves).folds
        curves = [fold.curve[metric] for fold in found if fold.curve.get(metric)]
        values = _means([curve for curve in curves if len(curve) == len(curves[0])]) if curves else []
    except (OSError, msgspec.MsgspecError):
        pass
    if not values:
        followed = Followed(folder)
        followed.look()
        values = [one.metrics[metric] for one in followed.rounds if one.fold == 1 and metric in one.metrics]
    step = max(1, -(-len(values) // _MOST_POINTS))
    places = sorted({*range(0, len(values), step), len(values) - 1} - {-1})
    return {"x": [float(place + 1) for place in places], "y": [values[place] for place in places]}


def _means(curves: list[list[float | None]]) -> list[float | None]:
    if len(curves) == 1:
        return curves[0]
    return [
        None if any(value is None for value in column) else sum(value or 0.0 for value in column) / len(column)
        for column in zip(*curves, strict=True)
    ]
