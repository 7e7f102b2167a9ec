"""A served model: from the body of a request to the body of its answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from cavity.cli.models import Extras, Model
from cavity.cli.serving.answers import format_answer, predict_block
from cavity.cli.serving.batching import Batcher, Full
from cavity.cli.serving.metrics import Metrics
from cavity.cli.serving.requests import RowReader
from cavity.cli.serving.settings import Limits
from cavity.common.version import __version__

SMALL_BYTES = 32 << 10  # of JSON: parsed within a few milliseconds
CELL_BYTES = 20  # of a number in JSON


class Service:
    def __init__(self, model: Model, digest: str, limits: Limits) -> None:
        self.model, self.digest, self.limits = model, digest, limits
        self.reader = RowReader(model, limits.rows)
        self.batcher = Batcher(partial(predict_block, model), limits.waiting)
        self.metrics = Metrics(lambda: self.batcher.waiting, digest, __version__)
        self._thread = ThreadPoolExecutor(1, "cavity-json")  # more would only wait for each other
        self._held = 0  # bytes that are received but not yet parsed

    async def answer(self, request: Request, extras: Extras) -> bytes:
        """Read a request, predict its rows, and return the answer as JSON."""
        notes, parts = Counter[str](), list[bytes]()
        try:
            await self._receive(request, parts)
            body = b"".join(parts)
            X = await self._call(len(body), self.reader.read, body, notes)
        finally:
            self._held -= sum(map(len, parts))
        found = await self._unless_left(request, self.batcher.predict(X, extras))
        self.metrics.rows.inc(len(X))
        size = CELL_BYTES * sum(column.size for column in found.values())
        answer: bytes = await self._call(size, format_answer, self.model, found, notes, self.digest)
        return answer

    async def _call(self, size: int, work: Any, *args: Any) -> Any:
        """Parse or format `size` bytes: at once if they are few, so that they do not wait for large ones in the thread."""
        if size <= SMALL_BYTES:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _receive(self, request: Request, parts: list[bytes]) -> None:
        """Receive the body of a request, within the limits of one request and of all together."""
        size, most = 0, self.limits.bytes
        too_large = HTTPException(413, f"the request is larger than {most} bytes: send fewer rows at a time.")
        if int(request.headers.get("content-length", 0)) > most:
            raise too_large
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            self._held += len(part)
            if size > most:
                raise too_large
            if self._held > self.limits.held_bytes:
                raise Full(f"requests of {self._held} bytes are arriving", self.batcher.retry_seconds)

    async def _unless_left(self, request: Request, work: Any) -> Any:
        """Return the result of `work`; cancel it if the client disconnects first."""
        tasks = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_left(request))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise ClientDisconnect
            return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Let the threads end after what they are doing."""
        self.batcher.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
