"""Run the jobs of a target: skip what is finished, write each result as soon as its fit
ends, report what is left.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments import workers
from experiments.jobs import ROOT, Context, Job, Row, current_commit
from experiments.sets import SIZES
from experiments.targets import Selection, Target

Echo = Callable[[str], None]
RESULTS = ROOT / "benchmarks" / "results"
SPARE = (
    3.0  # seconds at the end of a budget in which nothing runs: time to write and exit
)


@dataclass(frozen=True)
class RunOptions:
    """Resources of a run."""

    results: Path = RESULTS
    jobs: int = 1
    budget: float | None = None  # seconds
    data_home: str | None = None
    device: str = "cpu"
    threads: int = 1

    def context(self) -> Context:
        """What every worker process needs."""
        return Context(self.data_home, self.device, self.threads, current_commit())


@dataclass
class Tally:
    """Number of jobs by outcome."""

    ready: int = 0
    fitted: int = 0
    left: int = 0
    failures: list[str] = field(default_factory=list)


# ---------------------------------------------------------------- how long a fit takes
# Seconds of one update on one core: a constant, and a rate times C·B·M·(M + 5 D + 400).
# Fitted by eye to rows of EP.
CONSTANT, RATE = 0.015, 2.2e-10
TIMES_EP = {
    "gfitc": 3.0,
    "pep": 1.8,
    "vi_softmax": 1.3,
    "ep_outer": 5.0,
    "outer": 5.0,
    "inner-exact": 2.0,
}
QUADRATURE = 1.3e-4  # seconds per row of methods with numerical integrals
WITH_QUADRATURE = ("rep", "rep_tied", "rep_learnt", "vi", "vi_rate", "vi_natural")
DEFAULT_INDUCING, DEFAULT_UPDATES, DEFAULT_BATCH = 100, 500, 1000


def seconds_from_size(job: Job) -> float:
    """Estimate the seconds of a fit from the size of its table."""
    N, D, C = SIZES[job.dataset]
    size = job.n_inducing or DEFAULT_INDUCING
    M = max(1, round(size * N)) if isinstance(size, float) else size
    batch = (
        job.options.get("batch_size", None if N <= DEFAULT_BATCH else DEFAULT_BATCH)
        or N
    )
    updates = job.options.get("max_epochs", 0) * math.ceil(N / batch) or DEFAULT_UPDATES
    work = C * min(batch, N) * M
    times = TIMES_EP.get(job.method, 1.0)
    integrals = QUADRATURE * min(batch, N) if job.method in WITH_QUADRATURE else 0.0
    seconds = updates * (
        integrals + times * (CONSTANT + RATE * work * (M + 5 * D + 400))
    )
    return min(float(job.options.get("max_seconds", math.inf)), seconds)


def expected_seconds(jobs: list[Job], rows: list[Row]) -> dict[Job, float]:
    """Expected seconds of each job: the mean over other splits with the same settings,
    else an estimate from its size.
    """
    same: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.get("last", 1) == 1 and row["seconds"] > 0:
            same[row["settings"]].append(row["seconds"])
    means = {settings: sum(values) / len(values) for settings, values in same.items()}
    return {job: means.get(job.settings, seconds_from_size(job)) for job in jobs}


def format_duration(seconds: float) -> str:
    """1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# ---------------------------------------------------------------- running a target
def plan(
    target: Target, selection: Selection, options: RunOptions
) -> tuple[list[Job], dict[Job, float]]:
    """The jobs that are still to do, and their expected seconds."""
    file = target.result_file(options.results)
    done = file.finished()
    todo = [j for j in selection.apply(target) if j.key not in done]
    seconds = expected_seconds(todo, file.read())
    # with a budget every cell gets its first split before any gets its second; without
    # one the longest fits come first
    todo.sort(
        key=lambda job: (job.split if options.budget is not None else 0, -seconds[job])
    )
    return todo, seconds


def run_target(
    target: Target, selection: Selection, options: RunOptions, echo: Echo = print
) -> Tally:
    """Fit every selected job that has no result yet."""
    file, tally = target.result_file(options.results), Tally()
    file.repair()
    todo, seconds = plan(target, selection, options)
    selected = selection.apply(target)
    tally.ready = len(selected) - len(todo)
    begun = time.monotonic()
    deadline = None if options.budget is None else begun + options.budget - SPARE
    queue = workers.JobQueue(todo, seconds, deadline)
    echo(
        f"{target.title}: {len(todo)} fits to do, {tally.ready} done before; "
        f"about {sum(seconds.values()) / 60:.0f} core-minutes, {options.jobs} at a time"
    )
    progress = Progress(todo, seconds, options.jobs, begun)
    try:
        for done in workers.run_jobs(queue, options.jobs, options.context()):
            if done.failure:
                tally.failures.append(f"{done.job}: {done.failure}")
            else:
                file.append(done.rows)
                tally.fitted += 1
            queue.pace = progress.update(done)
    finally:
        progress.end()
        file.sort()
        tally.left = len(todo) - tally.fitted - len(tally.failures)
        _report(target, selected, tally, options, echo)
    return tally


def _report(
    target: Target, selected: list[Job], tally: Tally, options: RunOptions, echo: Echo
) -> None:
    """Report the outcome, and everything in which it is less than the whole target."""
    full = target.jobs()
    other = {job.settings for job in selected} - {job.settings for job in full}
    if len(selected) < len(full) or other:
        echo(
            f"Reduced: {len(selected)} of the {len(full)} fits of this target were "
            f"selected."
        )
    if other:
        echo(
            f"Reduced: fewer epochs in {len(other)} settings; the pages do not use "
            f"these rows."
        )
    if tally.left:
        why = (
            f"the budget of {options.budget:g} s is spent"
            if options.budget is not None
            else "interrupted"
        )
        echo(
            f"{tally.left} fits are still to do ({why}): run the same command again to "
            f"continue."
        )
    for failure in tally.failures:
        echo(f"failed: {failure}")
    path = options.results / f"{target.file}.csv"
    echo(f"{tally.fitted} fits added to {path}, {tally.ready} were done before.")


class Progress:
    """One line on stderr: fits done, time spent, time left."""

    def __init__(
        self, todo: list[Job], seconds: dict[Job, float], jobs: int, begun: float
    ) -> None:
        self.seconds, self.jobs, self.begun = (
            seconds,
            max(1, min(jobs, len(todo) or 1)),
            begun,
        )
        self.total, self.count = len(todo), 0
        self.waiting = sum(seconds[job] for job in todo)
        self.actual = self.expected = self.printed = 0.0

    def update(self, done: workers.Finished) -> float:
        """Count a finished job; return the ratio of actual to expected seconds so far."""
        self.count += 1
        self.waiting -= self.seconds[done.job]
        self.actual, self.expected = (
            self.actual + done.seconds,
            self.expected + self.seconds[done.job],
        )
        pace = self.actual / max(self.expected, 1e-9)
        spent, left = time.monotonic() - self.begun, pace * self.waiting / self.jobs
        line = (
            f"{self.count}/{self.total} fits, {format_duration(spent)} spent, about "
            f"{format_duration(left)} left; "
            f"{done.job}: {done.seconds:.0f} s"
        )
        tty = sys.stderr.isatty()
        if tty or time.monotonic() - self.printed > 5 or self.count == self.total:
            print(
                f"\r{line:100}" if tty else line,
                end="" if tty else "\n",
                file=sys.stderr,
                flush=True,
            )
            self.printed = time.monotonic()
        return pace

    def end(self) -> None:
        """End the line."""
        if sys.stderr.isatty() and self.count:
            print(file=sys.stderr)
