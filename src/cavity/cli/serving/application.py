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
from cavity.prediction.decisions import Costs

CLIENT_CLOSED = 499  # status for the log: the client has disconnected
MOST_DROPPED = 32 << 20  # bytes of a refused body that are read and dropped
DROP_SECONDS = 5.0  # time to read them
REFUSALS = (401, 408, 413, 415, 422, 503)  # may come before the whole body
# these paths show nothing of the model, and need no token
OPEN = ("/", "/page.js", "/page.css", "/health")
FLAGS = {"true": True, "1": True, "false": False, "0": False}


def make_app(
    model: Model,
    limits: Limits = Limits(),  # noqa: B008
    access: Access = Access(),  # noqa: B008
    digest: str = "unknown",
    probe: tuple[str, int] | None = None,
    *,
    costs: Costs | None = None,
) -> Starlette:
    """Make the application.

    `probe`: host and port where a thread answers /health as well. With `costs`,
    answers have decisions.
    """
    service = Service(model, digest, limits, costs)
    health = JSONResponse(
        {
            "status": "ok",
            "version": __version__,
            "model": digest,
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": numpy.__version__,
            },
        }
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        probes: Any = nullcontext()
        if probe is not None:
            probes = answer_probes(*probe, bytes(health.body))
        with probes:
            yield
        service.close()

    async def metrics(_: Request) -> Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(service.metrics.format(), media_type=kind)

    async def predict(request: Request) -> Response:
        return await _answer(service, request)

    answers: dict[str, Any] = {
        "/health": health,
        "/metrics": metrics,
        "/schema": JSONResponse(trial.describe_model(model, limits, costs)),
    }
    for path, (name, kind) in trial.PAGE.items():
        content = trial.read_page_file(name)
        answers[path] = Response(content, media_type=kind, headers=trial.PAGE_HEADERS)
    routes = [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]
    return Starlette(
        routes=[*routes, Route("/predict", predict, methods=["POST"])],
        lifespan=lifespan,
        exception_handlers={HTTPException: _format_http_error},
        middleware=[Middleware(Observer, service=service, access=access)],
    )


async def _answer(service: Service, request: Request) -> Response:
    """Predict rows: labels and probabilities, or means and intervals.

    The query may ask for more with uncertainty=true and novelty=true.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(
            415, "send JSON with the header content-type: application/json."
        )

    extras = Extras(_read_flag(request, "uncertainty"), _read_flag(request, "novelty"))
    try:
        content = await service.answer(request, extras)
        return Response(content, media_type="application/json")
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED)
    except asyncio.CancelledError:  # the server stops, and its deadline has passed
        raise HTTPException(
            503, "the server is stopping: try again.", {"retry-after": "1"}
        ) from None
    except BadRows as error:
        return _refuse(422, str(error), errors=error.errors)
    except CavityError as error:
        return _refuse(422, str(error))
    except HTTPException:
        raise
    except Exception:
        # formatted here, so that `Observer` counts the answer and adds its headers
        logging.getLogger("uvicorn.error").exception("a prediction failed")
        raise HTTPException(
            500, "the prediction failed: see the log of the server."
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
    """Whether the server has cancelled this request because it stops."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _format_http_error(_: Request, error: Any) -> Response:
    return _refuse(error.status_code, str(error.detail), error.headers)


class Observer:
    """Middleware that checks host and token, and counts requests.

    Headers of every answer name the model and forbid browsers to guess types.
    """

    def __init__(self, app: ASGIApp, service: Service, access: Access) -> None:
        self._app = app
        self._metrics = service.metrics
        self._access = access
        self._headers = [
            (b"cavity-version", __version__.encode()),
            (b"cavity-model", service.digest.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]

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
            whole = not message.get("more_body") and not _is_stopped()
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
                status = message["status"]
                self._metrics.count(scope["path"], status, time.perf_counter() - begun)
            elif status in REFUSALS and arrives and whole:
                # closing a connection while the body arrives would lose the answer
                await send({**message, "more_body": True})
                await drop_rest()
                message = {"type": "http.response.body"}

            await send(message)

        async def drop_rest() -> None:
            left = MOST_DROPPED
            with suppress(TimeoutError):
                async with asyncio.timeout(DROP_SECONDS):
                    while arrives and left > 0:
                        part = await receive_observed()
                        left -= len(part.get("body", b""))

        app = self._refuse_early(scope) or self._app
        await app(scope, receive_observed, send_observed)

    def _refuse_early(self, scope: Scope) -> Response | None:
        """Return the refusal of a wrong host name or token, if either is wrong."""
        headers = dict(scope["headers"])
        if not self._access.allows(headers.get(b"host", b"").decode("latin-1")):
            return _refuse(
                400,
                "the server does not answer to this host name: start it with "
                "--allowed-host.",
            )

        token = headers.get(b"authorization", b"")
        if scope["path"] not in OPEN and not self._access.opens(token):
            return _refuse(
                401,
                "send the server's token with the header authorization: Bearer TOKEN.",
                {"www-authenticate": "Bearer"},
            )

        return None
