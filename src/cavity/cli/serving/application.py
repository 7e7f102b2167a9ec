"""The FastAPI application: routes, checks and limits. Requests are JSON and are never executed."""

from __future__ import annotations

import asyncio
import hmac
import logging
import platform
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy
import torch
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cavity.cli.models import Extras, Model
from cavity.cli.serving import trial
from cavity.cli.serving.answers import Health, Refusal, Schema, format_refusal, make_answer_model
from cavity.cli.serving.batching import Full
from cavity.cli.serving.deadlines import make_answer
from cavity.cli.serving.metrics import COUNT, COUNTED, HEALTH
from cavity.cli.serving.requests import RowReader
from cavity.cli.serving.service import Service
from cavity.cli.serving.settings import HEADER_BYTES, Access, Limits
from cavity.common.text_tables import format_label
from cavity.common.version import __version__
from cavity.errors import CavityError

DRAINED = 16  # times the largest body: bytes that are read and dropped after a refusal
BODY_HEADERS = (b"content-length", b"transfer-encoding")
ASKS_HEALTH = re.compile(
    rb"(?P<method>GET|HEAD) /health HTTP/1\.[01]\r\n(?:[^\r\n]++\r\n)*?(?i:host): *(?P<host>[^\r\n]+?) *\r\n(?:[^\r\n]++\r\n)*+\r\n"
)
STOPPING = "stopping"  # key of a request's state: nobody waits for the rest of its body
CLIENT_CLOSED = 499  # status for the log: the client has disconnected
REFUSALS = {
    401: "The token is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request has too many bytes.",
    415: "The content type is not application/json.",
    422: "Rows or cells cannot be used.",
    431: "The header has too many bytes.",
    503: "The queue is full; Retry-After says when to try again.",
}


def make_app(
    model: Model,
    limits: Limits = Limits(),  # noqa: B008
    access: Access = Access(),  # noqa: B008
    digest: str = "unknown",
) -> FastAPI:
    service = Service(model, digest, limits)
    answers = "Means and intervals" if model.classes is None else "Class probabilities"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    health = Health(model=digest, versions=versions).model_dump_json().encode()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        # for connections, which answer /health and their own refusals
        yield {COUNT: service.metrics.count, HEALTH: partial(_answer_health, health, service, access)}
        service.close()

    app = FastAPI(
        title="cavity",
        version=__version__,
        description=f"{answers} of a Gaussian process.",
        lifespan=lifespan,
        openapi_url=None,  # these two are routes of our own, so that they ask for the token, too
        docs_url=None,
        redoc_url=None,
    )
    app.add_exception_handler(StarletteHTTPException, _format_http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _format_query_error)  # type: ignore[arg-type]
    _add_routes(app, service, access, health)
    app.add_middleware(Observer, service=service, access=access)
    return app


def _add_routes(app: FastAPI, service: Service, access: Access, answer: bytes) -> None:
    @app.head("/health", include_in_schema=False)  # as load balancers ask
    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Say that the server is running, and which model it serves. Needs no token."""
        return Response(answer, media_type="application/json")

    for name, kind in trial.KINDS.items():
        file = Response(trial.read_page_file(name), media_type=kind, headers=trial.PAGE_HEADERS)
        app.router.routes.append(Route("/" if name == "page.html" else f"/{name}", file, methods=["GET"]))
    checks = [] if access.token is None else [Depends(_make_token_check(access.token))]
    protected = APIRouter(dependencies=checks)
    _add_service(protected, service)
    _add_descriptions(protected, app, service, access)
    app.include_router(protected)


def _add_service(router: APIRouter, service: Service) -> None:
    model, limits, names = service.model, service.limits, service.reader.names
    refusals: dict[Any, Any] = {n: {"model": Refusal, "description": text} for n, text in REFUSALS.items()}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/PredictRequest"}}}

    @router.get("/schema")
    async def schema() -> Schema:
        """Describe the columns of a row, the classes and the limits."""
        return Schema(
            columns=len(names) if model.prepare is None else names,
            kinds=None if model.prepare is None else dict(model.prepare.describe()),
            classes=[] if model.classes is None else [format_label(c) for c in model.classes],
            most_rows=limits.rows,
            most_bytes=limits.bytes,
        )

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return numbers for Prometheus, of the process that answers."""
        return Response(service.metrics.format(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.post(
        "/predict",
        response_model=None,
        responses={200: {"model": make_answer_model(model), "description": "Predictions."}, **refusals},
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def predict(request: Request, uncertainty: bool = False, novelty: bool = False) -> Response:
        """Predict rows: labels and probabilities, or means and intervals of a regressor.

        With uncertainty=true, entropies, too; with novelty=true, how unlike the training rows each row is.
        """
        return await _answer(service, request, Extras(uncertainty, novelty))


def _add_descriptions(router: APIRouter, app: FastAPI, service: Service, access: Access) -> None:
    """Add what the page / needs to know, and what FastAPI would serve without a token."""
    about = trial.describe_model(service.model, service.limits)

    @router.get("/page.json", include_in_schema=False)
    async def page_description() -> dict[str, Any]:
        return about

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return describe(app, service.reader)

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = trial.make_docs(describe(app, service.reader), about, access.token is not None)
        return HTMLResponse(page, headers={"content-security-policy": trial.DOCS_POLICY})


async def _answer(service: Service, request: Request, extras: Extras) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send JSON with the header content-type: application/json.")
    try:
        return Response(await service.answer(request, extras), media_type="application/json")
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED)
    except asyncio.CancelledError:  # the server stops, and its deadline is over
        request.scope.setdefault("state", {})[STOPPING] = True
        raise HTTPException(503, "the server is stopping: try again.", {"retry-after": "1"}) from None
    except Full as error:
        raise HTTPException(503, str(error), {"retry-after": str(error.seconds)}) from None
    except CavityError as error:
        return Response(format_refusal(error), 422, media_type="application/json")
    except HTTPException:
        raise
    except Exception:  # formatted here, so that it is counted and names the model, as every answer does
        logging.getLogger("uvicorn.error").exception("a prediction failed")
        raise HTTPException(500, "the prediction failed: the log of the server says why.") from None


def _answer_health(answer: bytes, service: Service, access: Access, data: bytes) -> bytes | None:
    """Answer a whole request for /health; None if the bytes are something else, which the application reads."""
    found = ASKS_HEALTH.fullmatch(data)
    if found is None or not access.allows(found["host"].decode("latin-1")):
        return None
    service.metrics.count("/health", 200, 0.0)
    headers = b"".join(b"%s: %s\r\n" % pair for pair in make_headers(service.digest))
    whole = make_answer(200, answer, headers)
    return whole.removesuffix(answer) if found["method"] == b"HEAD" else whole


def _refuse(status: int, detail: str, headers: Any = None) -> Response:
    return Response(Refusal(detail=detail).model_dump_json(), status, headers, "application/json")


async def _format_http_error(_: Request, error: StarletteHTTPException) -> Response:
    return _refuse(error.status_code, str(error.detail), error.headers)


async def _format_query_error(_: Request, error: RequestValidationError) -> Response:
    name, text = error.errors()[0]["loc"][-1], error.errors()[0]["msg"]
    return _refuse(422, f"{name}: {text}.")


def _make_token_check(token: str) -> Any:
    """Make the dependency that compares the token of a request with the server's."""
    expected, scheme = token.encode(), HTTPBearer(auto_error=False)

    def check(given: HTTPAuthorizationCredentials | None = Depends(scheme)) -> None:  # noqa: B008
        if given is None or not hmac.compare_digest(given.credentials.encode(), expected):
            raise HTTPException(
                401,
                "send the server's token with the header authorization: Bearer TOKEN.",
                {"www-authenticate": "Bearer"},
            )

    return check


class Observer:
    """Middleware that checks hosts and headers, counts requests, and adds the model's identity to every answer."""

    def __init__(self, app: ASGIApp, service: Service, access: Access) -> None:
        self._app, self._metrics, self._access = app, service.metrics, access
        self._most = DRAINED * service.limits.bytes
        self._headers = make_headers(service.digest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun, more = time.perf_counter(), any(name in BODY_HEADERS for name, _ in scope["headers"])

        async def receive_observed() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        async def send_observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
                if COUNTED not in scope.get("state", ()):
                    self._metrics.count(scope["path"], message["status"], time.perf_counter() - begun)
            elif (
                more and STOPPING not in scope.get("state", ())
            ):  # the connection ends with the answer, and unread bytes would reset it before the answer arrives
                await send({**message, "more_body": True})
                size = 0
                while more and size < self._most:
                    size += len((await receive_observed()).get("body", b""))
                message = {"type": "http.response.body"}
            await send(message)

        # h11's own limit counts only headers that arrive in several pieces.
        fields = (part for pair in scope["headers"] for part in pair)
        head = (scope["raw_path"], scope["query_string"], *fields)
        app = self._app
        if sum(map(len, head)) > HEADER_BYTES:
            app = _refuse(431, f"the header is larger than {HEADER_BYTES} bytes: send a shorter one.")
        elif not self._access.allows(dict(scope["headers"]).get(b"host", b"").decode("latin-1")):
            app = _refuse(
                400, "the server does not answer under this host name: start it with --allowed-host."
            )
        await app(scope, receive_observed, send_observed)


def make_headers(digest: str) -> list[tuple[bytes, bytes]]:
    """Make the headers of every answer: the model's identity, and that a browser must not guess types."""
    version, model = __version__.encode(), digest.encode()
    return [(b"cavity-version", version), (b"cavity-model", model), (b"x-content-type-options", b"nosniff")]


def describe(app: FastAPI, reader: RowReader) -> dict[str, Any]:
    """Describe the application for OpenAPI, with the type of a request, which FastAPI does not read itself."""
    found = app.openapi()
    body = reader.Body.model_json_schema(ref_template="#/components/schemas/{model}")
    found["components"]["schemas"] |= {**body.pop("$defs", {}), "PredictRequest": body}
    return found
