"""Predictions for many requests at a time: rows of all waiting requests share blocks, and large requests take turns."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.cli.models import Extras
from cavity.errors import CavityError

Array = NDArray[np.float64]
Columns = dict[str, Array]  # of a prediction, one entry per row
Predict = Callable[[Array, Extras], Columns]

BLOCK_SECONDS = (
    0.1  # of CPU that a block takes at most, about; a new request waits for one block before its turn
)
SMALLEST, FIRST, LARGEST = 32, 128, 4096  # rows of a block
THREADS = 2  # blocks at a time: while one is in Python, the other is in torch
MOST_RETRY_SECONDS = 60


class Full(CavityError):
    """The queue is full. `seconds` says when to try again."""

    def __init__(self, what: str, seconds: int) -> None:
        super().__init__(f"the server is busy: {what}. Try again in {seconds} s.")
        self.seconds = seconds


class WaitingRows:
    """Rows of a request, and what is predicted of them so far."""

    def __init__(self, X: Array, extras: Extras) -> None:
        self.X, self.extras = X, extras
        self.begun = time.perf_counter()
        self.taken, self.missing = 0, len(X)  # rows in a block or predicted; rows not yet predicted
        self.found: dict[int, Columns] = {}  # by first row
        self.done: asyncio.Future[Columns] = asyncio.get_running_loop().create_future()

    @property
    def left(self) -> int:
        return len(self.X) - self.taken


class BlockPart(NamedTuple):
    job: WaitingRows
    first: int
    X: Array


class Batcher:
    """Queue of jobs, predicted by a few threads in blocks of rows.

    Everything but the prediction runs in the event loop, so it needs no locks.
    """

    def __init__(self, predict: Predict, most_rows: int) -> None:
        self._predict, self._most = predict, most_rows
        self._jobs: list[WaitingRows] = []
        self._threads = ThreadPoolExecutor(THREADS, "cavity-predict")
        self._running: set[asyncio.Task[None]] = set()
        self._rows_per_second = math.inf
        self.block = FIRST

    @property
    def waiting(self) -> int:
        return sum(job.left for job in self._jobs)

    async def predict(self, X: Array, extras: Extras) -> Columns:
        """Predict rows. Raises Full if too many rows wait; a cancelled call leaves the queue."""
        if self._jobs and self.waiting + len(X) > self._most:
            raise Full(f"{self.waiting} rows are waiting, and the limit is {self._most}", self.retry_seconds)
        job = WaitingRows(X, extras)
        self._jobs.append(job)
        if len(self._running) < THREADS:
            self._running.add(asyncio.create_task(self._run()))
        try:
            return await job.done
        finally:
            if job in self._jobs:
                self._jobs.remove(job)

    @property
    def retry_seconds(self) -> int:
        """Seconds until the rows in the queue are predicted, as far as known."""
        return min(MOST_RETRY_SECONDS, max(1, math.ceil(self.waiting / self._rows_per_second)))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            parts = take_parts(self._jobs, self.block)
            self._jobs = [job for job in self._jobs if job.left]
            begun = time.perf_counter()
            results, seconds = await loop.run_in_executor(self._threads, self._time_block, parts)
            rows = sum(len(part.X) for part in parts)
            self._rows_per_second = rows / max(time.perf_counter() - begun, 1e-9)
            self._adapt(rows, seconds)
            for part, result in zip(parts, results, strict=True):
                self._deliver(part, result)
                # requests that end together would begin together again, and /health wait for all
                await asyncio.sleep(0)
        # in this turn of the loop, because a job that arrives before a callback of the task would find nobody to run it
        self._running.discard(asyncio.current_task())

    def _deliver(self, part: BlockPart, result: Columns | Exception) -> None:
        job = part.job
        if job.done.done():  # the client has left, or another part failed
            return
        if isinstance(result, Exception):
            job.done.set_exception(result)
            self._jobs = [other for other in self._jobs if other is not job]
            return
        job.found[part.first] = result
        job.missing -= len(part.X)
        if not job.missing:
            found = [columns for _, columns in sorted(job.found.items())]
            job.done.set_result({name: np.concatenate([c[name] for c in found]) for name in result})

    def _time_block(self, parts: list[BlockPart]) -> tuple[list[Columns | Exception], float]:
        """Predict a block; return the results and its CPU seconds: on a busy machine a smaller block would not end sooner."""
        begun = time.thread_time()
        return self._predict_parts(parts), time.thread_time() - begun

    def _predict_parts(self, parts: list[BlockPart]) -> list[Columns | Exception]:
        """Predict a block. If that fails, predict each part alone, so that a bad row fails its own request only."""
        extras = parts[0].job.extras
        try:
            found = self._predict(np.concatenate([part.X for part in parts]), extras)
        except Exception as error:
            if len(parts) == 1:
                return [error]
            return [result for part in parts for result in self._predict_parts([part])]
        stops = np.cumsum([len(part.X) for part in parts])[:-1]
        split = {name: np.split(column, stops) for name, column in found.items()}
        return [{name: pieces[i] for name, pieces in split.items()} for i in range(len(parts))]

    def _adapt(self, rows: int, seconds: float) -> None:
        if seconds > BLOCK_SECONDS and rows > self.block // 2:
            self.block = max(SMALLEST, self.block // 2)
        elif seconds < BLOCK_SECONDS / 3 and rows == self.block:
            self.block = min(LARGEST, self.block * 2)


def take_parts(jobs: list[WaitingRows], room: int) -> list[BlockPart]:
    """Take the rows of a block from waiting jobs: half of it for the oldest, or a large job would wait for as long as small ones
    arrive, the rest in equal shares. Large jobs get what small ones leave.

    The first job decides which columns the block has. Afterwards the jobs that were served are the last in the queue, if rows of
    them are left. At most `room // 2` jobs are served, and each gets at least one row.
    """
    alike = [job for job in jobs if job.extras == jobs[0].extras]
    oldest = min(alike, key=lambda job: job.begun)
    others = sorted([job for job in alike if job is not oldest][: room // 2 - 1], key=lambda job: job.left)
    kept = min(oldest.left, room // 2)
    room -= kept
    parts = []
    for i, job in enumerate([*others, oldest]):
        count = min(job.left, kept + room if job is oldest else room // (len(others) - i))
        parts.append(BlockPart(job, job.taken, job.X[job.taken : job.taken + count]))
        job.taken += count
        room -= count
    served = {id(part.job) for part in parts}
    jobs.sort(key=lambda job: id(job) in served)  # stable: those that were not served come first
    return parts
