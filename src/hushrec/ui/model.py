"""The model of a run: lists for its users, items that are alike, a newcomer typed in by hand, a map of the items.

Ratings of a newcomer are used for the answer and not kept.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hushrec.evaluation.scoring import item_vectors_of
from hushrec.runs.lists import Recommendation, title_of
from hushrec.serving.gate import Problem
from hushrec.serving.model import (
    RequestError,
    ServedModel,
    UnknownItemError,
    UnknownUserError,
    Wish,
    load_served,
)
from hushrec.ui.asking import Query
from hushrec.ui.audit import indexed
from hushrec.ui.site import Site, query_number, taking

_KEPT_MODELS = 2
_MOST_LISTED, _MOST_FOUND = 100, 30
_MOST_ON_MAP = 3000
_MOST_RATINGS = 500
_MOST_RUNS = 500


class Newcomer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Somebody's ratings."""

    id: str  # of the run
    items: list[int | str]
    ratings: list[float] | None = None
    k: int = 10


class Models:
    """The models of some runs, by folder and by when they were written."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[Path, int], ServedModel] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: Path) -> ServedModel:
        """The model of a run that is done, from memory if it was asked for before."""
        key = folder, (folder / "run.json").stat().st_mtime_ns
        with self._lock:
            if key not in self._loaded:
                # Whoever opens this page has the folder: nothing is shown that its files do not hold.
                self._loaded[key] = load_served(folder, is_simulation=True)
            self._loaded.move_to_end(key)
            while len(self._loaded) > _KEPT_MODELS:
                self._loaded.popitem(last=False)
            return self._loaded[key]


def _entries(found: list[Recommendation], why: bool) -> list[dict[str, Any]]:
    return [entry.told(why) for entry in found]


def item_map(vectors: NDArray[np.floating], weights: NDArray[np.int64]) -> tuple[NDArray[np.float64], list[float]]:
    """Items as points, by the two directions in which their vectors differ most, and the share of each.

    Principal components, by SVD. A direction has no sign of its own: here most of the well-known lie right and up.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    points[:, : min(2, len(directions))] = centred @ directions[:2].T
    signs = np.sign(weights @ points)
    points *= np.where(signs == 0, 1, signs)
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-30)
    return points, [float(share) for share in shares[:2]]


def _map_of(model: ServedModel) -> dict[str, Any]:
    ranker = model.ranker
    vectors = item_vectors_of(ranker.scorer)
    if vectors is None:
        raise Problem(422, "this model has no vectors of items; it has no map")
    train, raters = ranker.train, ranker.num_raters
    known = np.argsort(-raters, kind="stable")
    known = known[raters[known] > 0][:_MOST_ON_MAP] if len(train) else known[:_MOST_ON_MAP]
    usable = known[np.isfinite(vectors[known]).all(axis=1)]
    if len(usable) < 3:
        raise Problem(422, "fewer than three items have vectors; there is no map of them")
    points, shares = item_map(vectors[usable], raters[usable])
    genres = train.genres
    return {
        "items": [train.item_ids[number].item() for number in usable.tolist()],
        "titles": [title_of(train, number) for number in usable.tolist()],
        "genres": None if genres is None else [str(genres[number]).split("|")[0] for number in usable.tolist()],
        "raters": raters[usable].tolist(),
        "x": np.round(points[:, 0], 5).tolist(),
        "y": np.round(points[:, 1], 5).tolist(),
        "shares": shares,
        "num_left_out": int((raters > 0).sum()) - len(usable) if len(train) else 0,
    }


def routes(site: Site) -> list[Route]:
    """`/api/model/...`"""
    models = Models()

    def model_of(run_id: str | None) -> ServedModel:
        return models.of(site.folder_of(run_id))

    def asked(request: Request) -> tuple[ServedModel, int]:
        return model_of(request.query_params.get("id")), query_number(request, "k", 10, 1, _MOST_LISTED)

    def runs(_request: Request) -> Response:
        """Runs that are done, the newest first."""
        found = indexed(site).page(Query(filter="state=done", limit=_MOST_RUNS))
        shown = [{name: row[name] for name in ("id", "system", "data")} for row in found["rows"]]
        return site.answer({"runs": shown, "num_runs": found["total"]})

    def card(request: Request) -> Response:
        """What the model is."""
        model = model_of(request.query_params.get("id"))
        train = model.ranker.train
        scale = train.rating_range if train.signed_from is None else train.signed_from[:2]
        return site.answer(
            {
                "system": model.run.system,
                "data": model.run.data,
                "num_users": train.num_users,
                "num_items": train.num_items,
                "scale": scale,
                "steps": _steps(model),
                "takes_newcomers": model.takes_newcomers,
                "explains": model.ranker.explains,
                "is_of_users": bool(len(train)),
            }
        )

    def users(request: Request) -> Response:
        """Users whose ids begin so."""
        model, text = model_of(request.query_params.get("id")), request.query_params.get("q", "").strip()
        lengths = model.ranker.seen.lengths
        found = [(user, number) for user, number in model.users.items() if user.startswith(text)][:_MOST_FOUND]
        shown = [{"user": user, "num_ratings": int(lengths[number])} for user, number in found]
        return site.answer({"users": shown, "num_users": len(model.users)})

    def recommended(request: Request) -> Response:
        """The list of a user, and what the user has rated."""
        model, k = asked(request)
        why = model.ranker.explains
        try:
            found = model.for_user(request.query_params.get("user", ""), Wish(k, why=why))
        except UnknownUserError:
            raise Problem(404, "nobody in this run has that id; choose one from the list") from None
        except RequestError as error:
            raise Problem(422, str(error)) from None
        return site.answer({"list": _entries(found, why), "rated": _rated(model, request.query_params["user"])})

    def similar(request: Request) -> Response:
        """Items like one of them."""
        model, k = asked(request)
        try:
            return site.answer(
                {"list": _entries(model.similar(request.query_params.get("item", ""), Wish(k)), False)}
            )
        except UnknownItemError:
            raise Problem(404, "no item has that id; choose one from the list") from None
        except RequestError as error:
            raise Problem(422, str(error)) from None

    def search(request: Request) -> Response:
        """Items by words of their titles."""
        model = model_of(request.query_params.get("id"))
        text = request.query_params.get("q", "")[:100]
        return site.answer({"items": model.search(text, _MOST_FOUND)})

    def newcomer(asks: Newcomer) -> Response:
        """A list for somebody who is not in the data."""
        if not 1 <= asks.k <= _MOST_LISTED:
            raise Problem(422, f"k must be a whole number from 1 to {_MOST_LISTED}")
        if not 1 <= len(asks.items) <= _MOST_RATINGS:
            raise Problem(422, f"rate 1 to {_MOST_RATINGS} items")
        model = model_of(asks.id)
        why = model.ranker.explains
        try:
            return site.answer(
                {"list": _entries(model.for_newcomer(asks.items, asks.ratings, Wish(asks.k, why=why)), why)}
            )
        except RequestError as error:
            raise Problem(422, str(error)) from None

    def shown_map(request: Request) -> Response:
        """Items as points."""
        return site.answer(_map_of(model_of(request.query_params.get("id"))))

    return [
        Route("/api/model/runs", runs),
        Route("/api/model/card", card),
        Route("/api/model/users", users),
        Route("/api/model/list", recommended),
        Route("/api/model/similar", similar),
        Route("/api/model/search", search),
        Route("/api/model/newcomer", taking(Newcomer, newcomer), methods=["POST"]),
        Route("/api/model/map", shown_map),
    ]


def _steps(model: ServedModel) -> list[float]:
    """The ratings that a newcomer can choose from: those that occur, if they are few; else whole steps."""
    train = model.ranker.train
    if train.rating_range is None:
        return []
    low, high = train.rating_range if train.signed_from is None else train.signed_from[:2]
    if train.ratings is not None and train.signed_from is None:
        values = np.unique(train.ratings)
        if 2 <= len(values) <= 11:
            return [float(value) for value in values]
    return [float(value) for value in np.linspace(low, high, 5)]


def _rated(model: ServedModel, user: str) -> list[dict[str, Any]]:
    """What a user rated, the best first."""
    number, train = model.users[user], model.ranker.train
    rows = train.by_user()
    own = slice(rows.starts[number], rows.starts[number + 1])
    items, ratings = rows.items[own], None if rows.ratings is None else rows.ratings[own]
    order = np.arange(len(items)) if ratings is None else np.argsort(-ratings, kind="stable")
    return [
        {
            "item": train.item_ids[items[place]].item(),
            "title": title_of(train, int(items[place])),
            "rating": None if ratings is None else float(ratings[place]),
        }
        for place in order.tolist()
    ]
