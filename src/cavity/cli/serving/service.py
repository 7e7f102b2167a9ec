"""A served model: from the body of a request to the body of its answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Total
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from cavity.cli.models import Extras, Model
from cavity.cli.serving.requests import MOST_ERRORS, BadRows, CellError, RowReader
from cavity.cli.serving.server_settings import Limits
from cavity.common.types import Floats
from cavity.common.version import __version__
from cavity.prediction.decisions import Costs, choose

Answer = dict[str, Floats]  # columns of a prediction
SMALL_BYTES = 32 << 10  # of JSON: parsed within a few milliseconds
CELL_BYTES = 20  # a number in JSON
# about the time of a block; a new request waits for one block before its turn
BLOCK_SECONDS = 0.1
SMALLEST = 32  # rows of a block
FIRST = 128
LARGEST = 4096
THREADS = 2  # for predictions: one computes while the other is in Python
MOST_RETRY_SECONDS = 60
# other paths are counted as one
PATHS = "/ /page.js /page.css /predict /schema /health /metrics".split()
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Service:
    def __init__(
        self,
        model: Model,
        digest: str,
        limits: Limits,
        costs: Costs | None = None,
        largest: int = LARGEST,
    ) -> None:
        self.model = model
        self.digest = digest
        self.limits = limits
        self.largest = largest  # rows of a block
        self.costs: Floats | None = None  # [C A], by true class and action
        if costs is not None:
            self.costs = costs.matrix(model.labels)
        self.reader = RowReader(model, limits.rows)
        self.metrics = Metrics(lambda: self.waiting, digest, __version__)
        self.waiting = 0  # rows that are received but not yet predicted
        self._held = 0  # bytes that are received but not yet parsed
        self._rows_per_second = FIRST / BLOCK_SECONDS
        # more threads would only wait for each other
        self._formats = ThreadPoolExecutor(1, "cavity-json")
        self._predicts = ThreadPoolExecutor(THREADS, "cavity-predict")

    async def answer(self, request: Request, extras: Extras) -> bytes:
        notes = Counter[str]()
        parts = list[bytes]()
        try:
            await self._receive(request, parts)
            body = b"".join(parts)
            X = await self._call(len(body), self.reader.read, body, notes)
        finally:
            self._held -= sum(map(len, parts))

        found = await self._unless_left(request, self.predict(X, extras))
        self.metrics.rows.inc(len(X))
        size = CELL_BYTES * sum(column.size for column in found.values())
        answer: bytes = await self._call(
            size, format_answer, self.model, found, notes, self.digest, self.costs
        )
        return answer

    async def predict(self, X: Floats, extras: Extras) -> Answer:
        """Predict rows in blocks, which take turns with blocks of other requests.

        Too many waiting rows are refused.
        """
        if self.waiting and self.waiting + len(X) > self.limits.waiting:
            raise self._make_refusal(
                f"{self.waiting} rows wait, and the limit is {self.limits.waiting}"
            )

        self.waiting += len(X)
        found = list[Answer]()
        done = 0
        loop = asyncio.get_running_loop()
        predict = partial(self._predict_block, extras=extras)
        try:
            while done < len(X):
                size = BLOCK_SECONDS * self._rows_per_second
                end = done + int(np.clip(size, SMALLEST, self.largest))
                block = X[done:end]
                found.append(await loop.run_in_executor(self._predicts, predict, block))
                done += len(block)
                self.waiting -= len(block)
        finally:
            self.waiting -= len(X) - done

        first, *_ = found
        return {name: np.concatenate([part[name] for part in found]) for name in first}

    def _predict_block(self, block: Floats, extras: Extras) -> Answer:
        begun = time.perf_counter()
        found = self.model.predict(block, extras)
        if len(block) >= SMALLEST:  # with fewer rows, the call itself takes most time
            self._rows_per_second = len(block) / max(time.perf_counter() - begun, 1e-9)
        return found

    async def _call(self, size: int, work: Any, *args: Any) -> Any:
        """Parse or format `size` bytes.

        Few bytes are done at once, so that they do not wait for large ones in the thread.
        """
        if size <= SMALL_BYTES:
            return work(*args)

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._formats, work, *args)

    async def _receive(self, request: Request, parts: list[bytes]) -> None:
        """Receive a body in time, within the limits of one request and of all requests."""
        size = 0
        most = self.limits.bytes
        too_large = HTTPException(
            413, f"the request is larger than {most} bytes: send fewer rows at a time."
        )
        if int(request.headers.get("content-length", 0)) > most:
            raise too_large

        try:
            async with asyncio.timeout(self.limits.read_seconds):
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    self._held += len(part)
                    if size > most:
                        raise too_large
                    if self._held > self.limits.held_bytes:
                        raise self._make_refusal(
                            f"requests of {self._held} bytes are arriving"
                        )
        except TimeoutError:
            text = f"the body did not arrive within {self.limits.read_seconds:g} s."
            raise HTTPException(408, text) from None

    def _make_refusal(self, what: str) -> HTTPException:
        """Make the refusal of a busy server, with the time that the queue will take."""
        seconds = max(1, math.ceil(self.waiting / self._rows_per_second))
        seconds = min(MOST_RETRY_SECONDS, seconds)
        text = f"the server is busy: {what}. Try again in {seconds} s."
        return HTTPException(503, text, {"retry-after": f"{seconds}"})

    async def _unless_left(self, request: Request, work: Any) -> Any:
        """Return the result of `work`; cancel it if the client disconnects first."""
        result = asyncio.ensure_future(work)
        left = asyncio.ensure_future(_wait_until_left(request))
        try:
            await asyncio.wait((result, left), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise ClientDisconnect

            return result.result()
        finally:
            result.cancel()
            left.cancel()

    def close(self) -> None:
        for threads in (self._predicts, self._formats):
            threads.shutdown(wait=False, cancel_futures=True)


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def format_answer(
    model: Model,
    found: Answer,
    notes: Counter[str],
    digest: str,
    costs: Floats | None = None,
) -> bytes:
    """Format a prediction as JSON, with decisions if there are costs.

    Raises BadRows for rows without a finite prediction.
    """
    columns = [column.reshape(len(column), -1) for column in found.values()]
    finite = np.all([np.isfinite(column).all(1) for column in columns], axis=0)
    if not finite.all():
        message = (
            "the model has no finite prediction for this row: correct it, or leave it "
            "out."
        )
        wrong = np.flatnonzero(~finite)[:MOST_ERRORS].tolist()
        raise BadRows([CellError(i + 1, None, message) for i in wrong])

    answer: dict[str, Any] = {}
    if model.classes is not None:
        best = found["probabilities"].argmax(1)
        answer["labels"] = [model.labels[c] for c in best]
        answer["classes"] = model.labels
    if costs is not None:
        answer |= _decide(model, found["probabilities"], costs)

    for name, values in found.items():
        answer[name] = values.tolist()
    return to_json({**answer, "notes": notes, "model": digest})


def _decide(model: Model, P: Floats, costs: Floats) -> dict[str, list[Any]]:
    """Return the cheapest actions; null for refusing."""
    actions = [*model.labels, None]
    chosen = choose(P, costs)
    return {
        "decisions": [actions[a] for a in chosen.action],
        "expected_costs": chosen.cost.tolist(),
        "margins": chosen.margin.tolist(),
    }


class Metrics:
    """Metrics of one server process for Prometheus."""

    def __init__(self, waiting: Callable[[], float], digest: str, version: str) -> None:
        self._registry = registry = CollectorRegistry()
        count = partial(Total, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self._requests = count(
            "cavity_requests", "Answered requests.", ["path", "status"]
        )
        self._seconds = Histogram(
            "cavity_request_seconds",
            "Time to answer.",
            ["path"],
            registry=registry,
            buckets=SECONDS,
        )
        self.rows = count("cavity_rows", "Predicted rows.")
        gauge("cavity_waiting_rows", "Rows in the queue.").set_function(waiting)
        info = gauge(
            "cavity_model", "The served model; always 1.", ["digest", "version"]
        )
        info.labels(digest, version).set(1)

    def count(self, path: str, status: int, seconds: float) -> None:
        path = path if path in PATHS else "other"
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def format(self) -> bytes:
        return generate_latest(self._registry)
