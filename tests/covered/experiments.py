"""Rows about the tables and figures of the experiments.

The line reads the stored rows of a target; its fits take hours. A figure is compared
with what its text claims, or with a number that the rows must have by themselves.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from experiments.draws import JITTER, SEEN, Y, read_draws
from experiments.runner import RESULTS
from experiments.scores import is_close, mean_cells, published
from experiments.sets import SIZES, TRAIN_FRACTION
from experiments.targets import TARGETS
from experiments.toy import measure_points, measure_start

from .rows import Row, gap

MISSING = float("inf")
CHARACTERISTICS = {  # instances, attributes, classes: table 6.1 of the thesis
    "glass": (214, 9, 6),
    "new_thyroid": (215, 5, 3),
    "satellite": (6435, 36, 6),
    "svmguide2": (391, 20, 3),
    "vehicle": (846, 18, 4),
    "vowel6": (540, 10, 6),
    "waveform": (1000, 21, 3),
    "wine": (178, 13, 3),
}


class Experiments(NamedTuple):
    """The stored rows of a target, by its name; [] if a fit has none."""

    def names(self) -> dict[str, Any]:
        return {"rows": read_rows, "sizes": SIZES}


def read_rows(name):
    target = TARGETS[name]
    file = target.result_file(RESULTS)
    missing = {job.key for job in target.jobs()} - file.finished()
    return [] if missing else target.select(file.read())


def complete(error):
    """The error of a target whose every fit has a row; infinite for other targets."""

    def measure(rows):
        return error(rows) if rows else MISSING

    return measure


def ends(rows, *names: str, score: str = "nll") -> dict[Any, float]:
    """Mean score at the end of the fits, by the columns."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        if row["last"] == 1:
            key = tuple(row[name] for name in names)
            found.setdefault(key, []).append(row[score])
    return {key: float(np.mean(values)) for key, values in found.items()}


def share_of_worse_cells(score):
    """Share of the published cells that ours exceed by over two standard errors."""

    def error(rows):
        theirs = published(score)
        ours = mean_cells(rows, score)
        worse = [not is_close(ours[key], theirs[key]) for key in ours if key in theirs]
        return np.mean(worse)

    return error


def schedules_differ(rows):
    """Gap per row of log Z_q between "inner-exact" and "outer", means over splits."""
    value = ends(rows, "method", score="log_evidence")
    return abs(value["inner-exact",] - value["outer",]) / SIZES["vehicle"][0]


def distance_left(rows):
    """The largest share of the first distance to the boundaries, M = 16."""
    _, start = measure_start(16)
    return max(measure_points(r)[1] for r in rows if r["inducing"] == "16") / start


def ep_against_gfitc(score):
    """The largest gap on satellite with 20 and 100 points."""

    def error(rows):
        end = ends(rows, "dataset", "inducing", "method", score=score)
        pairs = [
            [end["satellite", M, m] for m in ("ep", "gfitc")] for M in ("20", "100")
        ]
        return max(abs(a - b) for a, b in pairs)

    return error


def above_published_mnist(rows):
    """How far the best runs of SEP and VI with 200 points are above the paper's."""
    end = ends(rows, "method")
    excess = []
    for name in ("sep", "vi"):
        best = min(value for (method,), value in end.items() if method.startswith(name))
        excess.append(best - published("nll")["200", "mnist", name].mean)
    return max(excess)


def above_logistic(rows):
    """How far EP and SEP are above logistic regression, at most, in NLL."""
    end = ends(rows, "dataset", "method")
    cases = product(("flights_nyc2013", "flights_us2001"), ("ep_rate", "sep_rate"))
    return max(end[name, method] - end[name, "logistic"] for name, method in cases)


def above_jensen(rows):
    """How far E log p is above log E p, at most."""
    known = [row for row in rows if not np.isnan(row["expected_log_p"])]
    return max(row["expected_log_p"] + row["nll"] for row in known)


def conditional(rows):
    """Errors of the stored mean, and of the draws at the observations."""
    x, f, mean, _ = read_draws(rows, "posterior")
    K = np.exp(-0.5 * (x[:, None] - x) ** 2)
    seen = K[np.ix_(SEEN, SEEN)] + JITTER * np.eye(len(SEEN))
    expected = K[:, SEEN] @ np.linalg.solve(seen, Y)
    return max(gap(mean, expected), gap(f[SEEN], Y[:, None]))


def differ(first, second):
    """The largest gap between the R² of two methods on a set."""

    def error(rows):
        end = ends(rows, "dataset", "method", score="r2")
        names = {name for name, _ in end}
        return max(abs(end[name, first] - end[name, second]) for name in names)

    return error


def wrong_sizes(sizes):
    """How many numbers differ from table 6.1; rows to rounding of the training part."""
    wrong = 0
    for name, (rows, *rest) in CHARACTERISTICS.items():
        train, *ours = sizes[name]
        expected = TRAIN_FRACTION.get(name, 0.9) * rows
        wrong += (abs(train - expected) > 1) + (ours != rest)
    return wrong


class Comparison(NamedTuple):
    """A target, and what its rows are compared with."""

    source: str
    what: str
    target: str
    judge: str
    error: Callable[[Any], float]
    bound: float


COMPARISONS = [
    Comparison("i table 2, t table 6.3", "test NLL on eight UCI sets", "table2",
        "the papers' cells: share of ours above by over two standard errors",
        share_of_worse_cells("nll"), 0.07),
    Comparison("i table 3, t table 6.2", "test error on eight UCI sets", "table3",
        "the same of the errors", share_of_worse_cells("error"), 0.063),
    Comparison("i figure 1, t figure 5.1", "log Z_q against seconds, three schedules", "fig1",
        "\"outer\" and \"inner-exact\" end together: nats per row",
        schedules_differ, 0.005),
    Comparison("i figure 3, t figure 6.1", "where inducing points end", "fig3",
        "points move to the boundaries: share of the first distance, M = 16",
        distance_left, 0.6),
    Comparison("i figure 4, t figure 6.2", "satellite: NLL against seconds", "fig4",
        "EP ends where GFITC ends", ep_against_gfitc("nll"), 0.005),
    Comparison("i figure 6, t figure 6.2", "satellite: error against seconds", "fig6",
        "EP ends where GFITC ends", ep_against_gfitc("error"), 0.005),
    Comparison("i figure 5, t figure 6.3", "MNIST in mini-batches", "fig5-mnist",
        "the paper's NLL of SEP and VI: how far ours is above",
        above_published_mnist, 0.006),
    Comparison("i figure 5, t figure 6.3", "flights in mini-batches", "fig5-airline",
        "EP and SEP are below logistic regression", above_logistic, 0.0),
    Comparison("i figure 7, t figure 6.4", "E log p and log E p of VI", "fig7",
        "Jensen: E log p is below", above_jensen, 0.0),
    Comparison("t figures 2.1 to 2.3, s", "draws of the prior and the posterior", "draws",
        "the conditional by explicit matrices; draws meet the observations",
        conditional, 2e-4),
    Comparison("r figures 3, 4", "four variants of stochastic variational inference",
        "review-svi", "svi-natural and svi-L-BFGS-B end at one R²",
        differ("svi-natural", "svi-L-BFGS-B"), 0.005),
    Comparison("r figures 5, 6", "vi-means and svi-L-BFGS-B", "review-collapsed",
        "both end at one R²", differ("vi-means", "svi-L-BFGS-B"), 0.012),
    Comparison("r figure 7", "vi-means, svi-natural and svi-SAG on many rows", "review-big",
        "vi-means and svi-natural end at one R²", differ("vi-means", "svi-natural"), 0.01),
    Comparison("r figures 8, 9", "means-PN and means-L-BFGS-B", "review-newton",
        "both end at one R²", differ("means-PN", "vi-means"), 1e-3),
]  # fmt: skip
ROWS = [
    Row(each.source, each.what, f"rows({each.target!r})",
        f"`python -m experiments {each.target}`, stored; {each.judge}",
        complete(each.error), each.bound, Experiments())
    for each in COMPARISONS
]  # fmt: skip
ROWS.append(
    Row("t table 6.1", "instances, attributes and classes of the UCI sets", "sizes",
        "the table: how many numbers differ", wrong_sizes, 0.0, Experiments())
)  # fmt: skip
