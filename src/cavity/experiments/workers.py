"""Worker processes: each takes a job, runs it in one thread, hands back its rows."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from cavity.experiments.jobs import Job
from cavity.experiments.provenance import Place
from cavity.experiments.rows import Row

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Done(NamedTuple):
    """A job that ended: with rows, or with the reason why not."""

    job: Job
    rows: list[Row]
    failure: str
    seconds: float


class Worker:
    """A process and the pipe to it."""

    def __init__(self, place: Place) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process that has used torch can hang
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, place), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.begun = 0.0

    def give(self, job: Job) -> None:
        self.job, self.begun = job, time.monotonic()
        self.pipe.send(job)

    def take(self) -> Done:
        """What it says of its job; its death is an answer too."""
        assert self.job is not None
        job, self.job = self.job, None
        seconds = time.monotonic() - self.begun
        try:
            rows, failure = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(5)
            rows, failure = [], f"its process ended with code {self.process.exitcode} (out of memory?)"
        return Done(job, rows, failure, seconds)

    def end(self) -> None:
        self.process.terminate()
        self.process.join(5)
        self.pipe.close()


def _follow_parent() -> None:
    """End with the process that asked, however it ends: a long fit would run on for nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _work(pipe: Connection, place: Place) -> None:
    from cavity.experiments import fits

    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: tuple[list[Row], str] = (fits.run(job, place), "")
        except KeyboardInterrupt:
            return
        except Exception as error:  # one job that fails must not cost the others
            answer = ([], f"{type(error).__name__}: {error}")
        pipe.send(answer)


class Queue:
    """Jobs that wait, in order; `next` passes over those that would not end before the deadline."""

    def __init__(self, jobs: list[Job], expected: dict[Job, float], deadline: float | None) -> None:
        self.jobs, self.expected, self.deadline = list(jobs), expected, deadline
        self.pace = 1.0  # seconds that a job takes for every second that was expected

    def next(self) -> Job | None:
        for job in self.jobs:
            if self.deadline is None or time.monotonic() + self.pace * self.expected[job] < self.deadline:
                self.jobs.remove(job)
                return job
        return None


def each(queue: Queue, count: int, place: Place, fresh: bool = False) -> Iterator[Done]:
    """Run the queue's jobs in `count` processes, in the order in which they end; `fresh`: a process for every job.

    Jobs under way at the deadline are stopped.
    """
    workers: list[Worker] = []
    with _Environment(place.threads):
        try:
            while True:
                while len(workers) < count and (job := queue.next()) is not None:
                    workers.append(Worker(place))
                    workers[-1].give(job)
                if not workers:
                    return
                left = None if queue.deadline is None else queue.deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                ready = wait([w.pipe for w in workers], left)
                for worker in [w for w in workers if w.pipe in ready]:
                    done = worker.take()
                    yield done
                    following = None if fresh or not worker.process.is_alive() else queue.next()
                    if following is None:
                        worker.end()
                        workers.remove(worker)
                    else:
                        worker.give(following)
        finally:
            for worker in workers:
                worker.end()


class _Environment:
    """The number of threads, in the environment that the workers inherit; put back afterwards."""

    def __init__(self, threads: int) -> None:
        self.wanted = dict.fromkeys(THREADS, str(threads))

    def __enter__(self) -> None:
        self.before = {name: os.environ.get(name) for name in self.wanted}
        os.environ.update(self.wanted)

    def __exit__(self, *error: Any) -> None:
        for name, value in self.before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
