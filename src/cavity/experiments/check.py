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

# Other code or versions: a sum in another order moves the last bit, and 250 iterations of a rule that reads signs magnify it.
# With every entry of X changed by a factor of about 1 + 1e-10, the NLL of 16 fits moved by up to 0.14, and by up to 0.6
# standard deviations of its cell over the splits (decision 13). So: one standard deviation, and at least this.
LEAST = 0.02


class Choice(NamedTuple):
    """A committed row, the job that makes it again, and what it may differ by under other versions."""

    row: Row
    job: Job
    noise: float


def candidates(means: Means, seconds: float) -> list[Choice]:
    """Rows at full settings whose fit took at most so many seconds."""
    found = []
    for name in FILES:
        jobs = {job.key: job for job in TARGETS[name].jobs()}
        rows = [row for row in file_of(TARGETS[name], means.results).read() if key_of(row) in jobs]
        spread = _spreads(rows)
        found += [
            Choice(row, jobs[key_of(row)], max(LEAST, spread[row["settings"]]))
            for row in rows
            if row["seconds"] <= seconds
        ]
    if not found:
        raise BadInput(
            f"no rows of fits of at most {seconds:g} s in {means.results}: name another --results or --seconds."
        )
    return found


def _spreads(rows: list[Row]) -> dict[str, float]:
    """Standard deviation of the NLL over the splits, by settings."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row["settings"], []).append(row["nll"])
    return {key: float(np.std(values)) for key, values in groups.items()}


def disagreement(old: Row, new: Row, noise: float) -> str:
    """What differs by more than it may; empty where nothing does."""
    same = old["versions"] == new["versions"] and old["device"] == new["device"]
    allowed = {"nll": SAME, "error": SAME} if same else {"nll": noise}
    wrong = {name: most for name, most in allowed.items() if not abs(new[name] - old[name]) <= most}
    return "; ".join(
        f"{name} {new[name]:.6f}, the row has {old[name]:.6f} and may differ by {most:g}"
        for name, most in wrong.items()
    )


def run(means: Means, seed: int | None, seconds: float, echo: Callable[[str], None] = print) -> int:
    """Compute three random rows again; 1 where one disagrees or fails."""
    pool = candidates(means, seconds)
    seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
    picked = np.random.default_rng(seed).choice(len(pool), min(COUNT, len(pool)), replace=False)
    chosen = {pool[i].job: pool[i] for i in picked}
    echo(f"{len(chosen)} of {len(pool)} rows (those of fits of at most {seconds:g} s), --seed {seed}")
    place = Place(means.data_home, means.device, means.threads, commit())
    queue = workers.Queue(list(chosen), dict.fromkeys(chosen, 0.0), None)
    bad = 0
    for done in workers.each(queue, means.jobs, place):
        old, _, noise = chosen[done.job]
        wrong = done.failure or disagreement(old, done.rows[0], noise)
        alike = (
            "same code and versions"
            if old["versions"] == versions()
            else f"other code or versions: within {noise:.3f}"
        )
        gap = "" if done.failure else f", NLL {old['nll']:.6f} → {done.rows[0]['nll']:.6f}"
        echo(
            f"{'DISAGREES' if wrong else 'agrees'}: {done.job} ({alike}{gap}){': ' + wrong if wrong else ''}"
        )
        bad += bool(wrong)
    return 1 if bad else 0
