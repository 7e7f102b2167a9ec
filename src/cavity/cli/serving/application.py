"""The application: routes, checks and limits.

Requests are JSON and are never executed.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import numpy
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cavity.cli.models import Extras, Model
from cavity.cli.serving import trial
from cavity.cli.serving.probe import answer_probes
from cavity.cli.serving.requests import BadRows, CellError
from cavity.cli.serving.server_settings import Access, Limits
from cavity.cli.serving.service import Service
from cavity.common.version import __version__
from cavity.errors import CavityError

CLIENT_CLOSED = 499  # status for the log: the client has disconnected
# of the rest of a refused body, which is read and dropped
MOST_DROPPED = 32 << 20
DROP_SECONDS = 5.0
REFUSALS = (401, 408, 413, 415, 422, 503)  # that may come before the whole body
# hold nothing of the model: need no token
OPEN = ("/", "/page.js", "/page.css", "/health")
FLAGS = {"true": True, "1": True, "false": False, "0": False}


def make_app(
    model: Model,
    limits: Limits = Limits(),  # noqa: B008
    access: Access = Access(),  # noqa: B008
    digest: str = "unknown",
    probe: tuple[str, int] | None = None,
) -> Starlette:
    """Make the application; `probe`: host and port where a thread answers /health, too."""
    service = Service(model, digest, limits)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
    health = {
        "status": "ok",
        "version": __version__,
        "model": digest,
        "versions": versions,
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with (
            nullcontext()
            if probe is None
            else answer_probes(*probe, bytes(JSONResponse(health).body))
        ):
            yield
        service.close()

    async def metrics(_: Request) -> Response:
        return Response(
            service.metrics.format(),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )

    async def predict(request: Request) -> Response:
        return await _answer(service, request)

    answers: dict[str, Any] = {
        path: Response(
            trial.read_page_file(name), media_type=kind, headers=trial.PAGE_HEADERS
        )
        for path, (name, kind) in trial.PAGE.items()
    }
    answers |= {"/health": JSONResponse(health), "/metrics": metrics}
    answers["/schema"] = JSONResponse(trial.describe_model(model, limits))
    routes = [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]
    return Starlette(
        routes=[*routes, Route("/predict", predict, methods=["POST"])],
        lifespan=lifespan,
        exception_handlers={HTTPException: _format_http_error},
        middleware=[Middleware(Observer, service=service, access=access)],
    )


async def _answer(service: Service, request: Request) -> Response:
    """Predict rows: labels and probabilities, or means and intervals; with
    uncertainty=true, novelty=true, these, too.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(
            415, "send JSON with the header content-type: application/json."
        )
    extras = Extras(_read_flag(request, "uncertainty"), _read_flag(request, "novelty"))
    try:
        return Response(
            await service.answer(request, extras), media_type="application/json"
        )
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED)
    except asyncio.CancelledError:  # the server stops, and its deadline is over
        raise HTTPException(
            503, "the server is stopping: try again.", {"retry-after": "1"}
        ) from None
    except CavityError as error:
        return _refuse(
            422, str(error), errors=error.errors if isinstance(error, BadRows) else ()
        )
    except HTTPException:
        raise
    except Exception:  # formatted here, so that it is counted and names the model, as every answer does
        logging.getLogger("uvicorn.error").exception("a prediction failed")
        raise HTTPException(
            500, "the prediction failed: the log of the server says why."
        ) from None


def _read_flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in FLAGS:
        raise HTTPException(422, f"{name}={text:.40} must be true or false.")
    return FLAGS[text]


def _refuse(
    status: int, detail: str, headers: Any = None, errors: Sequence[CellError] = ()
) -> Response:
    return JSONResponse(
        {"detail": detail, "errors": [e._asdict() for e in errors]}, status, headers
    )


def _is_stopped() -> bool:
    """Return whether the server has cancelled this request because it stops: it no
    longer waits for anything.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _format_http_error(_: Request, error: Any) -> Response:
    return _refuse(error.status_code, str(error.detail), error.headers)


class Observer:
    """Middleware that checks host and token, counts requests, and adds to every answer
    the model's identity and that a browser
    must not guess types."""

    def __init__(self, app: ASGIApp, service: Service, access: Access) -> None:
        self._app = app
        self._metrics = service.metrics
        self._access = access
        version = __version__.encode()
        model = service.digest.encode()
        self._headers = [(b"cavity-version", version), (b"cavity-model", model)]
        self._headers.append((b"x-content-type-options", b"nosniff"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = time.perf_counter()
        status = 0
        arrives = True

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
            elif (
                status in REFUSALS
                and arrives
                and not message.get("more_body")
                and not _is_stopped()
            ):
                # a connection that closes while the body still arrives loses the answer
                await send({**message, "more_body": True})
                with suppress(TimeoutError):
                    async with asyncio.timeout(DROP_SECONDS):
                        left = MOST_DROPPED
                        while arrives and left > 0:
                            left -= len((await receive_observed()).get("body", b""))
                message = {"type": "http.response.body"}
            await send(message)

        app = self._app
        headers = dict(scope["headers"])
        if not self._access.allows(headers.get(b"host", b"").decode("latin-1")):
            app = _refuse(
                400,
                "the server does not answer to this host name: start it with "
                "--allowed-host.",
            )
        elif scope["path"] not in OPEN and not self._access.opens(
            headers.get(b"authorization", b"")
        ):
            text = (
                "send the server's token with the header authorization: Bearer TOKEN."
            )
            app = _refuse(401, text, {"www-authenticate": "Bearer"})
        await app(scope, receive_observed, send_observed)
