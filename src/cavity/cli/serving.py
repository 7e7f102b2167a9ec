"""`cavity serve`: a saved model behind HTTP. Requests are JSON, checked and limited; nothing in them is run."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity._version import __version__
from cavity.cli.predicting import Model, spelt
from cavity.errors import BadInput, CavityError
from cavity.tabular.preparation import Preparation

WORKERS = (
    2  # predictions at a time, so that a short request need not wait for a long one; each has torch's threads
)
GONE = 499  # for the log: who asked does not listen any more


class Limits(NamedTuple):
    """Of a request."""

    rows: int = 10_000
    bytes: int = 16 << 20


def run(path: Path, host: str, port: int, limits: Limits, device: str | None = None) -> None:
    """Serve until interrupted."""
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise CavityError("serving needs FastAPI and uvicorn: pip install 'cavity[serve]'.") from None
    check_free(host, port)
    uvicorn.run(application(Model.open(path, device), limits), host=host, port=port, log_level="info")


def check_free(host: str, port: int) -> None:
    """Whether one can listen there, asked before the model is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise CavityError(
            f"cannot listen at {host}, port {port} ({error.strerror or error}): try another --port (0: any that is free) or --host."
        ) from error


def application(model: Model, limits: Limits = Limits()) -> Any:  # noqa: B008
    """The endpoints, as FastAPI has them."""
    from fastapi import FastAPI, HTTPException, Request, Response
    from starlette.requests import ClientDisconnect

    prepare = model.prepare
    workers, room = ThreadPoolExecutor(WORKERS, "cavity-predict"), asyncio.Semaphore(WORKERS)
    names = None if prepare is None else list(prepare.inputs)
    app = FastAPI(
        title="cavity", version=__version__, description="Class probabilities of a Gaussian process."
    )

    @app.get("/health")
    def health() -> dict[str, str]:
        """Whether the model answers."""
        return {"status": "ok", "version": __version__}

    @app.get("/schema")
    def schema() -> dict[str, Any]:
        """What a row has, and what is answered."""
        return {
            "columns": names or model.classifier.n_features_in_,
            "kinds": None if prepare is None else dict(prepare.describe()),
            "classes": [spelt(c) for c in model.classifier.classes_],
            "most_rows": limits.rows,
            "most_bytes": limits.bytes,
        }

    async def predict(request: Request, uncertainty: bool = False) -> Response:
        """Labels and probabilities of `rows`: objects by column name, or lists of numbers where the model has no names."""
        loop = asyncio.get_running_loop()
        try:
            body = await _body(request, limits.bytes)
            async with room:
                if await request.is_disconnected():
                    return Response(status_code=GONE)
                found = await loop.run_in_executor(workers, encoded, model, body, limits, uncertainty)
        except ClientDisconnect:
            return Response(status_code=GONE)
        except CavityError as error:
            raise HTTPException(422, str(error)) from None
        return Response(found, media_type="application/json")

    async def _body(request: Request, most: int) -> bytes:
        """The request, read no further than it may be long."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise HTTPException(413, f"a request may have {most} bytes: send fewer rows at a time.")
            parts.append(part)
        return b"".join(parts)

    # FastAPI looks annotations up by name, and Request is a name of this function only
    predict.__annotations__ |= {"request": Request, "return": Response}
    app.post("/predict", openapi_extra={"requestBody": _described(names)})(predict)
    return app


def encoded(model: Model, body: bytes, limits: Limits, uncertainty: bool) -> bytes:
    """An answer as JSON, made by the worker: the loop that listens to everyone else has nothing long to do."""
    return json.dumps(
        answer(model, body, limits, uncertainty), allow_nan=False, separators=(",", ":")
    ).encode()


def answer(model: Model, body: bytes, limits: Limits, uncertainty: bool) -> dict[str, Any]:
    """From the bytes of a request to what is sent back."""
    rows = _rows(body, limits.rows)
    notes: Counter[str] = Counter()
    found = model.outputs(_numbers(model, rows, notes), uncertainty)
    p = {name[2:]: found.pop(name) for name in list(found) if name.startswith("p_")}
    return {
        "labels": [spelt(label) for label in found.pop("label")],
        "classes": list(p),
        "probabilities": np.column_stack(list(p.values())).tolist(),
        **{name: column.tolist() for name, column in found.items()},
        "notes": dict(notes),
    }


def _rows(body: bytes, most: int) -> list[Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the request is no JSON ({error!s:.100}).") from None
    rows = given.get("rows") if isinstance(given, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadInput('the request has no rows: send {"rows": [...]}, an object or a list for each row.')
    if len(rows) > most:
        raise BadInput(f"the request has {len(rows)} rows, and {most} are allowed: send fewer at a time.")
    return rows


def _numbers(model: Model, rows: list[Any], notes: Counter[str]) -> Any:
    """Rows as the model takes them."""
    if all(isinstance(row, dict) for row in rows) and model.prepare is not None:
        return model.prepare.transform(_columns(model.prepare, rows), notes)
    width = model.classifier.n_features_in_
    numeric = model.prepare is None or model.prepare.inputs == model.prepare.names
    if not numeric or not all(isinstance(row, list) and len(row) == width for row in rows):
        what = f"a list of {width} numbers" if model.prepare is None else "an object by column name"
        raise BadInput(f"each row must be {what}; /schema says which columns there are.")
    for i, row in enumerate(rows):
        odd = next(
            (cell for cell in row if isinstance(cell, bool) or not isinstance(cell, int | float)), None
        )
        if odd is not None or None in row:
            raise BadInput(f"row {i + 1} has {odd!r:.60} where a number should be: lists hold numbers only.")
    try:
        X = np.array(rows, dtype=np.float64)
    except OverflowError:
        raise BadInput("a cell has a number above 1e308: mend it, or use other units.") from None
    if model.prepare is None:
        return X
    return model.prepare.transform(dict(zip(model.prepare.inputs, X.T, strict=True)), notes)


def _columns(prepare: Preparation, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Cells by column; an absent one is missing, but a column that no row has is a mistake."""
    known = set(prepare.inputs)
    present = {name for row in rows for name in row}
    prepare.check(sorted(present))
    for name in known:
        for i, row in enumerate(rows):
            if not isinstance(row.get(name), str | int | float | bool | None):
                raise BadInput(
                    f"row {i + 1} has {type(row[name]).__name__} in column {name!r}: give a text or a number."
                )
    return {name: [row.get(name) for row in rows] for name in prepare.inputs}


def _described(names: list[str] | None) -> dict[str, Any]:
    """The body for OpenAPI."""
    row = {"type": "object", "required": names} if names else {"type": "array", "items": {"type": "number"}}
    schema = {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": row}}}
    return {"required": True, "content": {"application/json": {"schema": schema}}}
