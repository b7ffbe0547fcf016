"""The HTTP interface: routes, what goes in, what comes out, and its description as OpenAPI."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import Body, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

import hushrec.serving.gate as gate
from hushrec.runs.lists import Recommendation
from hushrec.serving.metrics import CONTENT_TYPE, Meter
from hushrec.serving.model import RequestError, ServedModel, UnknownItemError, UnknownUserError, Wish
from hushrec.serving.page import build_page

MAX_K = 1000
_PRIVATE_ANSWER = {"cache-control": "no-store"}

_K = Field(10, ge=1, le=MAX_K, description="How many items.")
_ONLY = Field(None, description="Ids of items: no others are listed. Those that are not known are passed over.")
_NOT: list[Any] = Field([], alias="not", description="Ids of items that are not listed.")
_WHY = Field(False, description="Whether each entry says which of the person's own items it is near to.")
_INCLUDE_SEEN = Field(False, description="Whether items that were already rated may be listed.")
_MIN_RATERS = Field(
    None, ge=0, le=10**9, description="Leave out items that fewer users have rated; unless told, as the run did."
)


def _as_in_json(value: object) -> object:
    """A value as JSON writes it; `yes`, `+1` and `1_0` stay texts, which are refused."""
    if isinstance(value, str) and re.fullmatch(r"true|false|0|-?[1-9][0-9]{0,17}", value):
        return msgspec.json.decode(value)
    return value


_WrittenInt = Annotated[int, BeforeValidator(_as_in_json)]
_WrittenBool = Annotated[bool, BeforeValidator(_as_in_json)]


class SimilarQuery(BaseModel):
    """What a list of similar items must be like."""

    model_config = ConfigDict(extra="forbid", strict=True)

    k: _WrittenInt = _K
    min_raters: _WrittenInt | None = _MIN_RATERS
    only: list[str] | None = _ONLY
    leave_out: list[str] = _NOT


class ListQuery(SimilarQuery):
    """What a list for a user must be like."""

    include_seen: _WrittenBool = _INCLUDE_SEEN
    why: _WrittenBool = _WHY


class Newcomer(BaseModel):
    """Someone's ratings, and what the list must be like."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: list[int | str] = Field(min_length=1, description="Ids of the rated items, each once.")
    ratings: list[Annotated[float, Field(allow_inf_nan=False)]] | None = Field(
        None,
        min_length=1,
        description="One rating per item, within the range that /v1/model tells; not needed where it tells none.",
    )
    k: int = _K
    include_seen: bool = _INCLUDE_SEEN
    min_raters: int | None = _MIN_RATERS
    only: list[int | str] | None = _ONLY
    leave_out: list[int | str] = _NOT
    why: bool = _WHY


class ItemQuery(BaseModel):
    """Which items are looked for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    q: str = Field("", max_length=100, description="Words of a title, or an id; nothing: those with most raters.")
    limit: _WrittenInt = Field(20, ge=1, le=100, description="How many items at most.")


def _each_once(request: Request) -> None:
    """Of a value that is given twice nobody knows which one is meant; only lists may be."""
    names = [name for name, _ in request.query_params.multi_items() if name not in ("only", "not")]
    if len(set(names)) < len(names):
        raise RequestError("query: a parameter is given twice; only `only` and `not` take several values")


_EACH_ONCE = [Depends(_each_once)]


class Because(BaseModel):
    """The nearest of the person's own items, those that are liked before others."""

    item: int | str
    title: str
    similarity: float


class Entry(BaseModel):
    """One recommended item."""

    item: int | str
    score: float
    title: str
    because: Because | None = Field(None, description="Only where why is asked for; null: nothing liked is near.")


class RecommendationList(BaseModel):
    """The best items, best first."""

    recommendations: list[Entry]


class FoundItem(BaseModel):
    """An item of the catalogue."""

    item: int | str
    title: str


class ItemList(BaseModel):
    """Items that were looked for."""

    items: list[FoundItem]


class ModelCard(BaseModel):
    """What is served."""

    system: str
    data: str
    num_items: int
    lowest_rating: float | None
    highest_rating: float | None
    takes_newcomers: bool = Field(
        description="Whether ratings of people who are not in the training data are served."
    )
    explains: bool = Field(description="Whether it knows which items are alike: why, similar items.")
    model_sha256: str
    config: dict[str, JsonValue]


class Health(BaseModel):
    """Whether the server answers."""

    status: str


class Refusal(BaseModel):
    """Why a request was refused."""

    title: str
    status: int
    detail: str


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These, and those that any request can get."""
    return {status: {"model": Refusal} for status in sorted({400, 408, 413, 429, 431, *statuses})}


def build_app(model: ServedModel, needs_token: bool, meter: Meter | None = None) -> FastAPI:
    """The application for one model, without its limits."""
    # The usual interactive pages load scripts from elsewhere.
    app = FastAPI(
        title="hushrec",
        summary=f"Recommendations of {model.run.system}, trained on {model.run.data}.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_routes_for_all(app, needs_token, meter or Meter())
    _add_routes_of_catalogue(app, model)
    _add_routes_of_lists(app, model)
    _refuse_in_json(app)
    _describe(app, needs_token)
    return app


def _add_routes_for_all(app: FastAPI, needs_token: bool, meter: Meter) -> None:
    """What is told without a token."""
    page = build_page(needs_token)

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        """A page to try the model with."""
        return Response(page.body, media_type="text/html; charset=utf-8", headers=page.headers)

    @app.get("/health", responses=_refusals())
    async def health() -> Health:
        """Whether the server answers. Needs no token."""
        return Health(status="ok")

    @app.get("/metrics", response_class=PlainTextResponse, responses=_refusals())
    async def tell_metrics() -> Response:
        """Counts of requests and reloads, as Prometheus reads them. Needs no token, tells of nobody."""
        return Response(meter.text(), headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"})


def _add_routes_of_catalogue(app: FastAPI, model: ServedModel) -> None:
    """The model, and its items."""
    lowest, highest = model.ranker.train.rating_range or (None, None)
    card = ModelCard(
        system=model.run.system,
        data=model.run.data,
        num_items=model.ranker.train.num_items,
        lowest_rating=lowest,
        highest_rating=highest,
        takes_newcomers=model.takes_newcomers,
        explains=model.ranker.explains,
        model_sha256=model.digest,
        config=model.run.config,
    )

    @app.get("/v1/model", responses=_refusals(401))
    async def describe_model() -> ModelCard:
        """Which model is served, and the range that ratings must be in."""
        return card

    @app.get("/v1/items", response_model=ItemList, responses=_refusals(401, 422), dependencies=_EACH_ONCE)
    def search_items(query: Annotated[ItemQuery, Query()]) -> Response:
        """Items by the words of their titles, those with most raters first."""
        return _answer({"items": model.search(query.q, query.limit)})

    @app.get(
        "/v1/items/{item_id:path}/similar",
        response_model=RecommendationList,
        responses=_refusals(401, 404, 422),
        dependencies=_EACH_ONCE,
    )
    async def find_similar(
        item_id: Annotated[str, Path(description="The item's id in the data that the model was trained on.")],
        query: Annotated[SimilarQuery, Query()],
    ) -> Response:
        """The items most like one of them; scores are cosines."""
        wish = Wish(query.k, min_raters=query.min_raters, only=query.only, leave_out=query.leave_out)
        return _answer_list(model.similar(item_id, wish))


def _add_routes_of_lists(app: FastAPI, model: ServedModel) -> None:
    """Lists for users and newcomers."""
    highest = model.ranker.train.rating_range[1] if model.ranker.train.rating_range else 1.0
    example = {"items": model.ranker.train.item_ids[:3].tolist(), "ratings": [highest] * 3, "k": 5}

    @app.get(
        "/v1/users/{user_id:path}/recommendations",
        response_model=RecommendationList,
        responses=_refusals(401, 404, 422),
        dependencies=_EACH_ONCE,
    )
    async def recommend_to_user(
        user_id: Annotated[str, Path(description="The user's id in the data that the model was trained on.")],
        query: Annotated[ListQuery, Query()],
    ) -> Response:
        """The best items for a user of the training data."""
        return _answer_list(model.for_user(user_id, _wish(query)), query.why)

    @app.post(
        "/v1/recommendations",
        response_model=RecommendationList,
        responses=_refusals(401, 422),
    )
    def recommend_to_newcomer(newcomer: Annotated[Newcomer, Body(examples=[example])]) -> Response:
        """The best items for someone who is not in the training data. The ratings are neither kept nor logged."""
        found = model.for_newcomer(newcomer.items, newcomer.ratings, _wish(newcomer))
        return _answer_list(found, newcomer.why)


def _wish(asked: ListQuery | Newcomer) -> Wish:
    return Wish(asked.k, asked.include_seen, asked.min_raters, asked.only, asked.leave_out, asked.why)


def _answer_list(found: list[Recommendation], why: bool = False) -> Response:
    return _answer({"recommendations": [entry.told(why) for entry in found]})


def _answer(found: object) -> Response:
    return Response(msgspec.json.encode(found), media_type="application/json", headers=_PRIVATE_ANSWER)


def _refuse_in_json(app: FastAPI) -> None:
    """Every refusal has one shape, and repeats nothing of what was sent."""

    def told(kind: type[Exception], reason: Callable[[Any], gate.Problem]) -> None:
        async def handler(_request: Request, error: Exception) -> Response:
            problem = reason(error)
            return Response(problem.body(), problem.status, dict(problem.all_headers()))

        app.add_exception_handler(kind, handler)

    told(Exception, lambda _: gate.fault())
    told(UnknownUserError, lambda _: gate.Problem(404, "there is no such user"))
    told(UnknownItemError, lambda _: gate.Problem(404, "there is no such item"))
    told(RequestError, lambda error: gate.Problem(422, str(error)))
    told(RequestValidationError, lambda error: gate.Problem(422, _reasons(error)))
    told(HTTPException, lambda error: gate.Problem(error.status_code, str(error.detail), _headers(error)))


def _headers(error: HTTPException) -> tuple[tuple[str, str], ...]:
    return tuple((error.headers or {}).items())


def _reasons(error: RequestValidationError) -> str:
    """The first faults; the names of unknown fields were sent, so they are not repeated."""
    reasons = []
    for fault in error.errors()[:5]:
        is_unknown = fault["type"] == "extra_forbidden"
        where = ".".join(str(step) for step in (fault["loc"][:1] if is_unknown else fault["loc"][:3]))
        reasons.append(f"{where}: {'a field or parameter that does not exist' if is_unknown else fault['msg']}")
    return "; ".join(reasons)


def _describe(app: FastAPI, needs_token: bool) -> None:
    """Put into the OpenAPI description what the gate does, since FastAPI does not know it."""
    described = app.openapi()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    (described_as,) = response["content"].values()
                    response["content"] = {"application/problem+json": described_as}
            if needs_token and path.startswith(gate.PRIVATE):
                operation["security"] = [{"bearer": []}]
            elif not needs_token:
                operation["responses"].pop("401", None)
    if needs_token:
        described["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
