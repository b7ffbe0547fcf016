"""The HTTP interface: routes, what goes in, what comes out, and its description as OpenAPI."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.exceptions import HTTPException

import hushrec.serving.gate as gate
from hushrec.recommender import Recommendation
from hushrec.serving.model import RequestError, ServedModel, UnknownUserError, Wish

MAX_K = 1000
_PRIVATE_ANSWER = {"cache-control": "no-store"}

_K = Field(10, ge=1, le=MAX_K, description="How many items.")
_INCLUDE_SEEN = Field(False, description="Whether items that were already rated may be listed.")
_MIN_RATERS = Field(
    None, ge=0, le=10**9, description="Leave out items that fewer users have rated; unless told, as the run did."
)


class ListQuery(BaseModel):
    """What a list must be like."""

    model_config = ConfigDict(extra="forbid", strict=True)

    k: int = _K
    include_seen: bool = _INCLUDE_SEEN
    min_raters: int | None = _MIN_RATERS

    @field_validator("*", mode="before")
    @classmethod
    def _as_in_json(cls, value: object) -> object:
        """A value as JSON writes it; `yes`, `+1` and `1_0` stay texts, which are refused."""
        if isinstance(value, str) and re.fullmatch(r"true|false|0|-?[1-9][0-9]{0,17}", value):
            return msgspec.json.decode(value)
        return value


class Newcomer(BaseModel):
    """Someone's ratings, and what the list must be like."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: list[int | str] = Field(min_length=1, description="Ids of the rated items, each once.")
    ratings: list[Annotated[float, Field(allow_inf_nan=False)]] = Field(
        min_length=1, description="One rating per item, within the range that /v1/model tells."
    )
    k: int = _K
    include_seen: bool = _INCLUDE_SEEN
    min_raters: int | None = _MIN_RATERS


class Entry(BaseModel):
    """One recommended item."""

    item: int | str
    score: float
    title: str


class RecommendationList(BaseModel):
    """The best items, best first."""

    recommendations: list[Entry]


class ModelCard(BaseModel):
    """What is served."""

    system: str
    data: str
    num_items: int
    lowest_rating: float | None
    highest_rating: float | None
    config: dict[str, bool | int | float | str | None]


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


def build_app(model: ServedModel, needs_token: bool) -> FastAPI:
    """The application for one model, without its limits."""
    # The interactive pages load scripts from elsewhere; /openapi.json is all that is needed.
    app = FastAPI(
        title="hushrec",
        summary=f"Recommendations of {model.run.system}, trained on {model.run.data}.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    lowest, highest = model.ranker.train.rating_range or (None, None)
    card = ModelCard(
        system=model.run.system,
        data=model.run.data,
        num_items=model.ranker.train.num_items,
        lowest_rating=lowest,
        highest_rating=highest,
        config=model.run.config,
    )

    example = {"items": model.ranker.train.item_ids[:3].tolist(), "ratings": [highest or 1.0] * 3, "k": 5}

    @app.get("/health", responses=_refusals())
    async def health() -> Health:
        """Whether the server answers. Needs no token."""
        return Health(status="ok")

    @app.get("/v1/model", responses=_refusals(401))
    async def describe_model() -> ModelCard:
        """Which model is served, and the range that ratings must be in."""
        return card

    @app.get(
        "/v1/users/{user_id:path}/recommendations",
        response_model=RecommendationList,
        responses=_refusals(401, 404, 422),
    )
    async def recommend_to_user(
        user_id: Annotated[str, Path(description="The user's id in the data that the model was trained on.")],
        query: Annotated[ListQuery, Query()],
    ) -> Response:
        """The best items for a user of the training data."""
        return _answer(model.for_user(user_id, Wish(query.k, query.include_seen, query.min_raters)))

    @app.post(
        "/v1/recommendations",
        response_model=RecommendationList,
        responses=_refusals(401, 422),
    )
    def recommend_to_newcomer(newcomer: Annotated[Newcomer, Body(examples=[example])]) -> Response:
        """The best items for someone who is not in the training data. The ratings are neither kept nor logged."""
        wish = Wish(newcomer.k, newcomer.include_seen, newcomer.min_raters)
        return _answer(model.for_newcomer(newcomer.items, newcomer.ratings, wish))

    _refuse_in_json(app)
    _describe(app, needs_token)
    return app


def _answer(found: list[Recommendation]) -> Response:
    body = msgspec.json.encode({"recommendations": found})
    return Response(body, media_type="application/json", headers=_PRIVATE_ANSWER)


def _refuse_in_json(app: FastAPI) -> None:
    """Every refusal has one shape, and repeats nothing of what was sent."""

    def told(kind: type[Exception], reason: Callable[[Any], gate.Problem]) -> None:
        async def handler(_request: Request, error: Exception) -> Response:
            problem = reason(error)
            return Response(problem.body(), problem.status, dict(problem.all_headers()))

        app.add_exception_handler(kind, handler)

    told(Exception, lambda _: gate.fault())
    told(UnknownUserError, lambda _: gate.Problem(404, "there is no such user"))
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
                    response["content"] = {"application/problem+json": response["content"]["application/json"]}
            if needs_token and path.startswith(gate.PRIVATE):
                operation["security"] = [{"bearer": []}]
            elif not needs_token:
                operation["responses"].pop("401", None)
    if needs_token:
        described["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
