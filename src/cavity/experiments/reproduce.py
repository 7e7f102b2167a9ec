"""Run a target's jobs: what is finished is skipped, every finished fit is a row at once, and what was left out is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cavity.experiments import workers
from cavity.experiments.cost import clock, expected
from cavity.experiments.jobs import Job
from cavity.experiments.methods import missing
from cavity.experiments.provenance import Place, commit
from cavity.experiments.rows import File
from cavity.experiments.targets import Target, Wanted

Echo = Callable[[str], None]
IN_CLONE, ELSEWHERE = Path("benchmarks/results"), Path("cavity-results")
SPARE = 3.0  # seconds before the end of a budget in which nothing runs: time to write and leave


@dataclass(frozen=True)
class Means:
    """What a run may use."""

    results: Path
    jobs: int = 1
    budget: float | None = None  # seconds
    data_home: str | None = None
    device: str = "cpu"
    threads: int = 1


class Tally:
    """What became of the jobs."""

    def __init__(self) -> None:
        self.ready = self.fitted = self.left = 0
        self.failures: list[str] = []


def default_results() -> Path:
    """The committed rows in a clone, a folder of its own elsewhere."""
    return IN_CLONE if IN_CLONE.is_dir() else ELSEWHERE


def file_of(target: Target, results: Path) -> File:
    """Where a target's rows are."""
    return File(results / f"{target.file}.csv", target.columns)


def plan(target: Target, wanted: Wanted, means: Means) -> tuple[list[Job], dict[Job, float]]:
    """The jobs that are still to do, and how long each may take."""
    file = file_of(target, means.results)
    done = file.finished()
    todo = [job for job in wanted.of(target) if job.key not in done and not missing(job.method)]
    seconds = expected(todo, file.read())
    # with a budget all cells get their first split before any gets its second; without one the longest come first
    todo.sort(key=lambda job: (job.split if means.budget is not None else 0, -seconds[job]))
    return todo, seconds


def run(target: Target, wanted: Wanted, means: Means, echo: Echo = print) -> Tally:
    """Fit what is missing."""
    file, tally = file_of(target, means.results), Tally()
    file.mend()
    todo, seconds = plan(target, wanted, means)
    asked = wanted.of(target)
    absent = {job.method: missing(job.method) for job in asked if missing(job.method)}
    for method, package in absent.items():
        echo(f"{method} is left out: {package} is not installed (pip install {package}).")
    asked = [job for job in asked if job.method not in absent]
    tally.ready = len(asked) - len(todo)
    begun = time.monotonic()
    deadline = None if means.budget is None else begun + means.budget - SPARE
    place = Place(means.data_home, means.device, means.threads, commit())
    queue = workers.Queue(todo, seconds, deadline)
    echo(
        f"{target.title}: {len(todo)} fits to do, {tally.ready} are there; about {sum(seconds.values()) / 60:.0f} core-minutes, "
        f"{means.jobs} at a time"
    )
    progress = Progress(todo, seconds, means.jobs, begun)
    try:
        for done in workers.each(queue, means.jobs, place, fresh=target.name == "compare"):
            if done.failure:
                tally.failures.append(f"{done.job}: {done.failure}")
            else:
                file.add(done.rows)
                tally.fitted += 1
            queue.pace = progress.after(done)
    finally:
        progress.end()
        file.sort()
        tally.left = len(todo) - tally.fitted - len(tally.failures)
        report(target, asked, tally, means, echo)
    return tally


def report(target: Target, asked: list[Job], tally: Tally, means: Means, echo: Echo) -> None:
    """What was done, and every way in which it is less than the target."""
    full = target.jobs()
    if len(asked) < len(full) or {j.settings for j in asked} - {j.settings for j in full}:
        echo(f"Reduced: {len(asked)} of the target's {len(full)} fits were asked for.")
    short = len({j.settings for j in asked} - {j.settings for j in full})
    if short:
        echo(
            f"Reduced: fewer epochs than the papers' in {short} settings; such rows are not used by the page."
        )
    if tally.left:
        why = f"the budget of {means.budget:g} s is spent" if means.budget is not None else "interrupted"
        echo(f"{tally.left} fits are still to do ({why}): the same command goes on there.")
    for failure in tally.failures:
        echo(f"failed: {failure}")
    echo(f"{tally.fitted} fits added to {means.results / target.file}.csv, {tally.ready} were there before.")


class Progress:
    """One line on the error stream: how far, how long still."""

    def __init__(self, todo: list[Job], seconds: dict[Job, float], jobs: int, begun: float) -> None:
        self.seconds, self.jobs, self.begun = seconds, max(1, min(jobs, len(todo) or 1)), begun
        self.total, self.count = len(todo), 0
        self.waiting = sum(seconds[job] for job in todo)
        self.taken = self.thought = 0.0
        self.said = 0.0

    def after(self, done: workers.Done) -> float:
        """Count a job; the factor by which jobs take longer than expected."""
        self.count += 1
        self.waiting -= self.seconds[done.job]
        self.taken, self.thought = self.taken + done.seconds, self.thought + self.seconds[done.job]
        pace = self.taken / max(self.thought, 1e-9)
        gone, left = time.monotonic() - self.begun, pace * self.waiting / self.jobs
        line = f"{self.count}/{self.total} fits, {clock(gone)} gone, about {clock(left)} left; {done.job}: {done.seconds:.0f} s"
        tty = sys.stderr.isatty()
        if tty or time.monotonic() - self.said > 5 or self.count == self.total:
            print(f"\r{line:100}" if tty else line, end="" if tty else "\n", file=sys.stderr, flush=True)
            self.said = time.monotonic()
        return pace

    def end(self) -> None:
        if sys.stderr.isatty() and self.count:
            print(file=sys.stderr)
