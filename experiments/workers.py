"""Worker processes: each takes a job, runs it, and sends back its rows."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from experiments.jobs import Context, Job, Row

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Finished(NamedTuple):
    """A job that ended, with its rows or with the reason of its failure."""

    job: Job
    rows: list[Row]
    failure: str
    seconds: float


class Worker:
    """A process and the pipe to it."""

    def __init__(self, context: Context) -> None:
        spawn = multiprocessing.get_context(
            "spawn"
        )  # a fork of a process that has used torch can hang
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, context), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.begun = 0.0

    def assign(self, job: Job) -> None:
        """Send a job to the process."""
        self.job, self.begun = job, time.monotonic()
        self.pipe.send(job)

    def collect(self) -> Finished:
        """The result of the job. If the process has died, the job has failed."""
        assert self.job is not None
        job = self.job
        self.job = None
        seconds = time.monotonic() - self.begun
        try:
            rows, failure = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(5)
            rows = []
            failure = (
                f"the process ended with code {self.process.exitcode} (out of memory?)"
            )
        return Finished(job, rows, failure, seconds)

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.join(5)
        self.pipe.close()


def _exit_with_parent() -> None:
    """Exit when the parent process ends, even in the middle of a fit."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _work(pipe: Connection, context: Context) -> None:
    from experiments import fits

    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: tuple[list[Row], str] = (fits.run_job(job, context), "")
        except KeyboardInterrupt:
            return
        except Exception as error:  # a failed job must not stop the others
            answer = ([], f"{type(error).__name__}: {error}")
        pipe.send(answer)


class JobQueue:
    """Waiting jobs in order; `pop` skips those that would not finish before the
    deadline.
    """

    def __init__(
        self, jobs: list[Job], expected: dict[Job, float], deadline: float | None
    ) -> None:
        self.jobs = list(jobs)
        self.expected = expected
        self.deadline = deadline
        self.pace = 1.0  # seconds that jobs take per expected second

    def pop(self) -> Job | None:
        """The next job that can finish in time; None if every waiting job would take
        too long.
        """
        for job in self.jobs:
            if (
                self.deadline is None
                or time.monotonic() + self.pace * self.expected[job] < self.deadline
            ):
                self.jobs.remove(job)
                return job
        return None


def run_jobs(queue: JobQueue, count: int, context: Context) -> Iterator[Finished]:
    """Run the jobs of a queue in `count` processes and yield each as it finishes; at
    the deadline, stop those that run.
    """
    workers: list[Worker] = []
    with _ThreadVariables(context.threads):
        try:
            while True:
                while len(workers) < count and (job := queue.pop()) is not None:
                    workers.append(Worker(context))
                    workers[-1].assign(job)
                if not workers:
                    return
                left = (
                    None
                    if queue.deadline is None
                    else queue.deadline - time.monotonic()
                )
                if left is not None and left <= 0:
                    return
                ready = wait([w.pipe for w in workers], left)
                for worker in [w for w in workers if w.pipe in ready]:
                    done = worker.collect()
                    yield done
                    following = None if not worker.process.is_alive() else queue.pop()
                    if following is None:
                        worker.stop()
                        workers.remove(worker)
                    else:
                        worker.assign(following)
        finally:
            for worker in workers:
                worker.stop()


class _ThreadVariables:
    """Set the number of threads in the environment that the workers inherit; restore it
    afterwards.
    """

    def __init__(self, threads: int) -> None:
        self.wanted = dict.fromkeys(THREAD_VARIABLES, str(threads))

    def __enter__(self) -> None:
        self.before = {name: os.environ.get(name) for name in self.wanted}
        os.environ.update(self.wanted)

    def __exit__(self, *error: Any) -> None:
        for name, value in self.before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(
                name, value
            )
