"""How long a fit will take: from rows of the same fit on other splits, else from its size."""

from __future__ import annotations

import math
from collections import defaultdict

from cavity.experiments.jobs import Job
from cavity.experiments.rows import Row
from cavity.experiments.sets import SIZES

# Seconds of one update on one core: a constant, and a rate times C·B·M·(M + 5 D + 400). Fitted by eye to rows of EP.
CONSTANT, RATE = 0.015, 2.2e-10
TIMES_EP = {"gfitc": 3.0, "pep": 1.8, "vi_softmax": 1.3, "ep_outer": 5.0, "outer": 5.0, "inner-exact": 2.0}
QUADRATURE = 1.3e-4  # seconds a row, of methods that integrate numerically
INTEGRATE = ("rep", "rep_tied", "rep_learnt", "vi", "vi_rate", "vi_natural")
USUAL_INDUCING, USUAL_UPDATES, USUAL_BATCH = 100, 500, 1000
PEERS = {  # seconds as a function of rows, columns, classes
    "logistic": lambda N, D, C: 1e-6 * N * D * C + 1,
    "sklearn_gp": lambda N, D, C: 8e-9 * C * N**3 + 5,
    "lightgbm": lambda N, D, C: 3e-6 * N * D * C + 5,
    "hist_boosting": lambda N, D, C: 3e-6 * N * D * C + 5,
    "gpflow": lambda N, D, C: 2 * 1500 * (0.03 + 3e-8 * C * min(N, 1000) * (500 + 5 * D)),
    "gpytorch": lambda N, D, C: 2 * 1500 * (0.03 + 3e-8 * C * min(N, 1000) * (500 + 5 * D)),
}


def from_size(job: Job) -> float:
    """Seconds by the formula."""
    N, D, C = SIZES[job.dataset]
    if job.method in PEERS:
        return float(PEERS[job.method](N, D, C))
    size = job.n_inducing or USUAL_INDUCING
    M = max(1, round(size * N)) if isinstance(size, float) else size
    batch = job.options.get("batch_size", None if N <= USUAL_BATCH else USUAL_BATCH) or N
    updates = job.options.get("max_epochs", 0) * math.ceil(N / batch) or USUAL_UPDATES
    work = C * min(batch, N) * M
    times = TIMES_EP.get(job.method, 1.0)
    integrals = QUADRATURE * min(batch, N) if job.method in INTEGRATE else 0.0
    seconds = updates * (integrals + times * (CONSTANT + RATE * work * (M + 5 * D + 400)))
    return min(float(job.options.get("max_seconds", math.inf)), seconds)


def expected(jobs: list[Job], rows: list[Row]) -> dict[Job, float]:
    """Seconds of each job: the mean of its own settings on other splits, or of another M scaled by the formula."""
    same: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.get("last", 1) == 1 and row["seconds"] > 0:
            same[row["settings"], row["dataset"]].append(row["seconds"])
    means = {key[0]: sum(values) / len(values) for key, values in same.items()}
    return {job: means.get(job.settings, from_size(job)) for job in jobs}


def clock(seconds: float) -> str:
    """1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
