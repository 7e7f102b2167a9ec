"""Are the committed rows what this code computes? Three random ones are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cavity.errors import BadInput
from cavity.experiments import workers
from cavity.experiments.jobs import Job
from cavity.experiments.provenance import Place, commit, versions
from cavity.experiments.reproduce import Means, file_of
from cavity.experiments.rows import Row, key_of
from cavity.experiments.targets import TARGETS

FILES = ("table2", "flipped", "new_thyroid")  # fits whose scores do not depend on the clock
COUNT = 3
SAME = 1e-6  # the same code and versions: rounding alone, and rows keep ten digits

# Other versions or other code: a sum in another order moves the last bit, and 250 iterations of a rule that reads signs, or of
# L-BFGS, magnify it. A change of 1e-10 in every column moved the NLL of a split by less than this (decision 13); a method
# that works differently moves it by more on most splits.
OTHER = {"nll": 0.02, "error": 0.06}


class Choice(NamedTuple):
    """A committed row, and the job that makes it again."""

    row: Row
    job: Job


def candidates(means: Means, seconds: float) -> list[Choice]:
    """Rows at full settings whose fit took at most so many seconds."""
    found = []
    for name in FILES:
        jobs = {job.key: job for job in TARGETS[name].jobs()}
        rows = file_of(TARGETS[name], means.results).read()
        found += [Choice(row, jobs[key_of(row)]) for row in rows if key_of(row) in jobs and row["seconds"] <= seconds]
    if not found:
        raise BadInput(f"no rows of fits of at most {seconds:g} s in {means.results}: name another --results or --seconds.")
    return found


def disagreement(old: Row, new: Row) -> str:
    """What differs by more than it may; empty where nothing does."""
    same = old["versions"] == new["versions"] and old["device"] == new["device"]
    parts = []
    for score, noise in OTHER.items():
        allowed = SAME if same else noise
        if not abs(new[score] - old[score]) <= allowed:
            parts.append(f"{score} {new[score]:.6f}, the row has {old[score]:.6f} (may differ by {allowed:g})")
    return "; ".join(parts)


def run(means: Means, seed: int | None, seconds: float, echo: Callable[[str], None] = print) -> int:
    """Compute three random rows again; 1 where one disagrees or fails."""
    pool = candidates(means, seconds)
    seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
    picked = np.random.default_rng(seed).choice(len(pool), min(COUNT, len(pool)), replace=False)
    chosen = {pool[i].job: pool[i].row for i in picked}
    echo(f"{len(chosen)} of {len(pool)} rows (those of fits of at most {seconds:g} s), --seed {seed}")
    place = Place(means.data_home, means.device, means.threads, commit())
    queue = workers.Queue(list(chosen), dict.fromkeys(chosen, 0.0), None)
    bad = 0
    for done in workers.each(queue, means.jobs, place):
        old = chosen[done.job]
        wrong = done.failure or disagreement(old, done.rows[0])
        alike = "same code and versions" if old["versions"] == versions() else "other code or versions"
        gap = "" if done.failure else f", NLL {old['nll']:.6f} → {done.rows[0]['nll']:.6f}"
        echo(f"{'DISAGREES' if wrong else 'agrees'}: {done.job} ({alike}{gap}){': ' + wrong if wrong else ''}")
        bad += bool(wrong)
    return 1 if bad else 0
