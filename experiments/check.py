"""Recompute rows at random and compare them with the stored ones."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.errors import BadInput
from experiments import workers
from experiments.jobs import Job, Row, describe_version, versions
from experiments.runner import Echo, RunOptions
from experiments.scores import mean_cell
from experiments.targets import TARGETS, Selection

# fits whose scores do not depend on time limits
CHECKED = ("table2", "flipped", "new_thyroid")
CHECK_COUNT = 3
# same code and versions: only rounding may differ, and rows keep ten digits
ROUNDING = 1e-6
# exit codes: a row disagrees; every row that ran agrees, but one could not run
DISAGREES, COULD_NOT_RUN = 1, 3


class Candidate(NamedTuple):
    """A stored row, the job that recomputes it, and two standard errors of its cell."""

    row: Row
    job: Job
    tolerance: float


def check_rows(
    options: RunOptions,
    selection: Selection,
    seed: int | None,
    seconds: float,
    echo: Echo = print,
) -> int:
    """Recompute three random rows of the selection, and return an exit code.

    By the same code and versions a row must come out to its rounding. By others its NLL
    may move by two standard errors of its cell.
    """
    pool = find_candidates(options, selection, seconds)
    seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
    count = min(CHECK_COUNT, len(pool))
    picked = np.random.default_rng(seed).choice(len(pool), count, replace=False)
    chosen = {pool[i].job: pool[i] for i in picked}
    limit = f"fits of at most {seconds:g} s"
    echo(f"{len(chosen)} of {len(pool)} rows ({limit}), --seed {seed}")
    queue = workers.JobQueue(list(chosen), dict.fromkeys(chosen, 0.0), None)
    found = []
    for done in workers.run_jobs(queue, options.jobs, options.context()):
        code, text = judge(chosen[done.job], done)
        found.append(code)
        echo(text)

    if DISAGREES in found:
        return DISAGREES
    return max(found)


def judge(candidate: Candidate, done: workers.Finished) -> tuple[int, str]:
    """Return the exit code of one recomputed row, and a line about it."""
    if done.failure:
        return COULD_NOT_RUN, f"could not run: {done.job}: {done.failure}"

    old, _, tolerance = candidate
    (new,) = done.rows
    wrong = find_disagreement(old, new, tolerance)
    change = f"NLL {old['nll']:.6f} → {new['nll']:.6f}"
    if old["versions"] == versions():
        code = "same code and versions"
    else:
        origin = f"{describe_version(old)} ({old['commit']})"
        code = f"row of {origin}: within {tolerance:.3f}"

    if wrong:
        return DISAGREES, f"DISAGREES: {done.job} ({code}, {change}): {wrong}"
    return 0, f"agrees: {done.job} ({code}, {change})"


def find_candidates(
    options: RunOptions, selection: Selection, seconds: float
) -> list[Candidate]:
    """Rows at full settings whose fit took at most this many seconds."""
    selection.check([job for name in CHECKED for job in TARGETS[name].jobs()])
    found = []
    for target in (TARGETS[name] for name in CHECKED):
        rows = target.select(target.result_file(options.results).read())
        errors = _standard_errors(rows)
        by_key = {(row["settings"], int(row["split"])): row for row in rows}
        for job in selection.pick(target.jobs()):
            row = by_key.get((job.settings, job.split))
            if row is not None and row["seconds"] <= seconds:
                found.append(Candidate(row, job, 2 * errors[row["settings"]]))

    if not found:
        raise BadInput(
            f"no rows of fits of at most {seconds:g} s in {options.results}: pass "
            "another --results, --sets or --seconds."
        )
    return found


def _standard_errors(rows: list[Row]) -> dict[str, float]:
    """Return the standard error of the NLL over the splits, by settings."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row["settings"], []).append(row["nll"])
    return {key: mean_cell(values).se for key, values in groups.items()}


def find_disagreement(old: Row, new: Row, tolerance: float) -> str:
    """Return the scores that differ by more than allowed; "" if all agree."""
    same = old["versions"] == new["versions"] and old["device"] == new["device"]
    allowed = {"nll": ROUNDING, "error": ROUNDING} if same else {"nll": tolerance}
    wrong = []
    for name, most in allowed.items():
        change = abs(new[name] - old[name])
        if math.isnan(change) or change > most:
            wrong.append(f"{name} moved by {change:.6f} (allowed {most:.3g})")

    return "; ".join(wrong)
