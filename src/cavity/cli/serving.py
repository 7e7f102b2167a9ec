"""`cavity serve`: serve a saved model over HTTP. Requests are JSON; they are checked, limited, and never executed."""

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
from cavity.cli.predicting import Model, format_label
from cavity.errors import BadInput, CavityError, missing_extra
from cavity.tabular.preparation import Preparation

WORKERS = 2  # concurrent predictions, so that a short request need not wait for a long one; each uses torch's threads
CLIENT_CLOSED = 499  # status for the log: the client has disconnected


class Limits(NamedTuple):
    """Limits of a request."""

    rows: int = 10_000
    bytes: int = 16 << 20


def run(path: Path, host: str, port: int, limits: Limits, device: str | None = None) -> None:
    """Serve until interrupted."""
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise missing_extra("uvicorn", "serve") from None
    check_port(host, port)
    uvicorn.run(make_app(Model.open(path, device), limits), host=host, port=port, log_level="info")


def check_port(host: str, port: int) -> None:
    """Check that the port is free, before the model is loaded."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise CavityError(
            f"cannot listen on {host}, port {port} ({error.strerror or error}): try another --port (0 for any free port) or --host."
        ) from error


def make_app(model: Model, limits: Limits = Limits()) -> Any:  # noqa: B008
    """Make the FastAPI application."""
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
        """Check that the server is running."""
        return {"status": "ok", "version": __version__}

    @app.get("/schema")
    def schema() -> dict[str, Any]:
        """Describe the columns of a row, the classes and the limits."""
        return {
            "columns": names or model.classifier.n_features_in_,
            "kinds": None if prepare is None else dict(prepare.describe()),
            "classes": [format_label(c) for c in model.classifier.classes_],
            "most_rows": limits.rows,
            "most_bytes": limits.bytes,
        }

    async def predict(request: Request, uncertainty: bool = False) -> Response:
        """Predict labels and probabilities of `rows`: objects by column name, or lists of numbers if the model has no names."""
        loop = asyncio.get_running_loop()
        try:
            body = await _read_body(request, limits.bytes)
            async with room:
                if await request.is_disconnected():
                    return Response(status_code=CLIENT_CLOSED)
                found = await loop.run_in_executor(workers, answer_json, model, body, limits, uncertainty)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)
        except CavityError as error:
            raise HTTPException(422, str(error)) from None
        return Response(found, media_type="application/json")

    async def _read_body(request: Request, most: int) -> bytes:
        """Read the request, up to the limit."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise HTTPException(
                    413, f"the request is larger than {most} bytes: send fewer rows at a time."
                )
            parts.append(part)
        return b"".join(parts)

    # FastAPI resolves annotations by name, and Request is a local name of this function
    predict.__annotations__ |= {"request": Request, "return": Response}
    app.post("/predict", openapi_extra={"requestBody": _describe_body(names)})(predict)
    return app


def answer_json(model: Model, body: bytes, limits: Limits, uncertainty: bool) -> bytes:
    """Answer a request as JSON. Runs in a worker thread, so that the event loop stays free."""
    return json.dumps(
        answer(model, body, limits, uncertainty), allow_nan=False, separators=(",", ":")
    ).encode()


def answer(model: Model, body: bytes, limits: Limits, uncertainty: bool) -> dict[str, Any]:
    """Answer a request, given as bytes."""
    rows = _parse_rows(body, limits.rows)
    notes: Counter[str] = Counter()
    found = model.predict_columns(_encode_rows(model, rows, notes), uncertainty)
    p = {name[2:]: found.pop(name) for name in list(found) if name.startswith("p_")}
    return {
        "labels": [format_label(label) for label in found.pop("label")],
        "classes": list(p),
        "probabilities": np.column_stack(list(p.values())).tolist(),
        **{name: column.tolist() for name, column in found.items()},
        "notes": dict(notes),
    }


def _parse_rows(body: bytes, most: int) -> list[Any]:
    """Parse the rows of a request."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the request is not valid JSON ({error!s:.100}).") from None
    rows = given.get("rows") if isinstance(given, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadInput('the request has no rows: send {"rows": [...]} with one object or list per row.')
    if len(rows) > most:
        raise BadInput(
            f"the request has {len(rows)} rows, but the limit is {most}: send fewer rows at a time."
        )
    return rows


def _encode_rows(model: Model, rows: list[Any], notes: Counter[str]) -> Any:
    """Encode rows as features."""
    if all(isinstance(row, dict) for row in rows) and model.prepare is not None:
        return model.prepare.transform(_collect_columns(model.prepare, rows), notes)
    width = model.classifier.n_features_in_ if model.prepare is None else len(model.prepare.inputs)
    numeric = model.prepare is None or model.prepare.inputs == model.prepare.names
    if not numeric or not all(isinstance(row, list) and len(row) == width for row in rows):
        what = f"a list of {width} numbers" if model.prepare is None else "an object by column name"
        raise BadInput(f"each row must be {what}; /schema lists the columns.")
    for i, row in enumerate(rows):
        odd = next(
            (cell for cell in row if isinstance(cell, bool) or not isinstance(cell, int | float)), None
        )
        if odd is not None or None in row:
            raise BadInput(
                f"row {i + 1} has {odd!r:.60} in place of a number: lists must contain numbers only."
            )
    try:
        X = np.array(rows, dtype=np.float64)
    except OverflowError:
        raise BadInput("a cell has a number above 1e308: correct it, or use other units.") from None
    if model.prepare is None:
        return X
    return model.prepare.transform(dict(zip(model.prepare.inputs, X.T, strict=True)), notes)


def _collect_columns(prepare: Preparation, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Collect the cells of each column. A row may lack a cell, but a column that no row has raises BadInput."""
    known = set(prepare.inputs)
    present = {name for row in rows for name in row}
    prepare.check(sorted(present))
    for name in known:
        for i, row in enumerate(rows):
            if not isinstance(row.get(name), str | int | float | bool | None):
                raise BadInput(
                    f"row {i + 1} has {type(row[name]).__name__} in column {name!r}: give text or a number."
                )
    return {name: [row.get(name) for row in rows] for name in prepare.inputs}


def _describe_body(names: list[str] | None) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI."""
    row = {"type": "object", "required": names} if names else {"type": "array", "items": {"type": "number"}}
    schema = {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": row}}}
    return {"required": True, "content": {"application/json": {"schema": schema}}}
