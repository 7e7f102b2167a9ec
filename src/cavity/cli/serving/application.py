"""The FastAPI application: routes, checks and limits. Requests are JSON and are never executed."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import numpy
import torch
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cavity.cli.models import Extras, Model
from cavity.cli.serving import trial
from cavity.cli.serving.answers import Health, Refusal, format_refusal
from cavity.cli.serving.probe import answer_probes
from cavity.cli.serving.service import Service
from cavity.cli.serving.settings import Access, Limits
from cavity.common.version import __version__
from cavity.errors import CavityError

CLIENT_CLOSED = 499  # status for the log: the client has disconnected
MOST_DROPPED, DROP_SECONDS = 32 << 20, 5.0  # of the rest of a refused body, which is read and dropped
REFUSALS = {
    401: "The token is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The request has too many bytes.",
    415: "The content type is not application/json.",
    422: "Rows or cells cannot be used.",
    503: "The queue is full; Retry-After says when to try again.",
}
OPEN = ("/", "/page.js", "/page.css", "/health", "/openapi.json")  # hold nothing of the model: need no token
ROWS = {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "minItems": 1}}}


def make_app(
    model: Model,
    limits: Limits = Limits(),  # noqa: B008
    access: Access = Access(),  # noqa: B008
    digest: str = "unknown",
    probe: tuple[str, int] | None = None,
) -> FastAPI:
    """Make the application; `probe`: host and port where a thread answers /health, too."""
    service = Service(model, digest, limits)
    answers = "Means and intervals" if model.classes is None else "Class probabilities"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    health = Health(model=digest, versions=versions).model_dump_json().encode()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with nullcontext() if probe is None else answer_probes(*probe, health):
            yield
        service.close()

    app = FastAPI(
        title="cavity",
        version=__version__,
        description=f"{answers} of a Gaussian process.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_exception_handler(StarletteHTTPException, _format_http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _format_query_error)  # type: ignore[arg-type]
    _add_files(app, health)
    _add_service(app, service)
    app.add_middleware(Observer, service=service, access=access)
    return app


def _add_files(app: FastAPI, answer: bytes) -> None:
    @app.head("/health", include_in_schema=False)  # as load balancers ask
    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Say that the server is running, and which model it serves. Needs no token."""
        return Response(answer, media_type="application/json")

    for name, kind in trial.KINDS.items():
        file = Response(trial.read_page_file(name), media_type=kind, headers=trial.PAGE_HEADERS)
        app.router.routes.append(Route("/" if name == "page.html" else f"/{name}", file, methods=["GET"]))


def _add_service(app: FastAPI, service: Service) -> None:
    refusals: dict[Any, Any] = {n: {"model": Refusal, "description": text} for n, text in REFUSALS.items()}
    about = trial.describe_model(service.model, service.limits)

    @app.get("/schema")
    async def schema() -> dict[str, Any]:
        """Describe the model: the columns of a row with range and typical cell, classes, limits."""
        return about

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return numbers for Prometheus, of the process that answers."""
        return Response(service.metrics.format(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post(
        "/predict",
        response_model=None,
        responses=refusals,
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": ROWS}}}},
    )
    async def predict(request: Request, uncertainty: bool = False, novelty: bool = False) -> Response:
        """Predict rows: labels and probabilities, or means and intervals of a regressor.

        With uncertainty=true, entropies, too; with novelty=true, how unlike the training rows each row is.
        """
        return await _answer(service, request, Extras(uncertainty, novelty))


async def _answer(service: Service, request: Request, extras: Extras) -> Response:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send JSON with the header content-type: application/json.")
    try:
        return Response(await service.answer(request, extras), media_type="application/json")
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED)
    except asyncio.CancelledError:  # the server stops, and its deadline is over
        raise HTTPException(503, "the server is stopping: try again.", {"retry-after": "1"}) from None
    except CavityError as error:
        return Response(format_refusal(error), 422, media_type="application/json")
    except HTTPException:
        raise
    except Exception:  # formatted here, so that it is counted and names the model, as every answer does
        logging.getLogger("uvicorn.error").exception("a prediction failed")
        raise HTTPException(500, "the prediction failed: the log of the server says why.") from None


def _refuse(status: int, detail: str, headers: Any = None) -> Response:
    return Response(Refusal(detail=detail).model_dump_json(), status, headers, "application/json")


async def _format_http_error(_: Request, error: StarletteHTTPException) -> Response:
    return _refuse(error.status_code, str(error.detail), error.headers)


async def _format_query_error(_: Request, error: RequestValidationError) -> Response:
    name, text = error.errors()[0]["loc"][-1], error.errors()[0]["msg"]
    return _refuse(422, f"{name}: {text}.")


class Observer:
    """Middleware that checks host and token, counts requests, and adds to every answer the model's identity and that a browser
    must not guess types."""

    def __init__(self, app: ASGIApp, service: Service, access: Access) -> None:
        self._app, self._metrics, self._access = app, service.metrics, access
        version, model = __version__.encode(), service.digest.encode()
        self._headers = [(b"cavity-version", version), (b"cavity-model", model)]
        self._headers.append((b"x-content-type-options", b"nosniff"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun, status, arrives = time.perf_counter(), 0, True

        async def receive_observed() -> Message:
            nonlocal arrives
            message = await receive()
            arrives = message.get("more_body", False)
            return message

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
                status = message["status"]
                self._metrics.count(scope["path"], status, time.perf_counter() - begun)
            elif status in REFUSALS and arrives and not message.get("more_body"):
                # a connection that closes while the body still arrives loses the answer
                await send({**message, "more_body": True})
                with suppress(TimeoutError):
                    async with asyncio.timeout(DROP_SECONDS):
                        left = MOST_DROPPED
                        while arrives and left > 0:
                            left -= len((await receive_observed()).get("body", b""))
                message = {"type": "http.response.body"}
            await send(message)

        app, headers = self._app, dict(scope["headers"])
        if not self._access.allows(headers.get(b"host", b"").decode("latin-1")):
            app = _refuse(
                400, "the server does not answer under this host name: start it with --allowed-host."
            )
        elif scope["path"] not in OPEN and not self._access.opens(headers.get(b"authorization", b"")):
            text = "send the server's token with the header authorization: Bearer TOKEN."
            app = _refuse(401, text, {"www-authenticate": "Bearer"})
        await app(scope, receive_observed, send_observed)
