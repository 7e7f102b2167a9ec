"""Rows about the tables and figures of the experiments.

The line lists the fits; they take hours. The judge is the page of reproduction.
"""

from typing import Any, NamedTuple

from experiments.runner import RESULTS
from experiments.targets import TARGETS

from .rows import Row


class Experiments(NamedTuple):
    """The targets by name."""

    def names(self) -> dict[str, Any]:
        return {"find_target": TARGETS.__getitem__}


def missing(target):
    """Share of the target's fits without a stored row."""
    jobs = target.jobs()
    done = {job.key for job in jobs} & target.result_file(RESULTS).finished()
    return 1 - len(done) / len(jobs)


WHAT = {
    "table2": ("i table 2, t table 6.3", "test NLL on eight UCI sets"),
    "table3": ("i table 3, t table 6.2", "test error on eight UCI sets"),
    "fig1": ("i figure 1, t figure 5.1", "log Z_q against seconds, three schedules"),
    "fig3": ("i figure 3, t figure 6.1", "where inducing points end"),
    "fig4": ("i figure 4, t figure 6.2", "satellite: NLL against seconds"),
    "fig6": ("i figure 6, t figure 6.2", "satellite: error against seconds"),
    "fig5-mnist": ("i figure 5, t figure 6.3", "MNIST in mini-batches"),
    "fig5-airline": ("i figure 5, t figure 6.3", "flights in mini-batches"),
    "fig7": ("i figure 7, t figure 6.4", "E log p and log E p of VI"),
    "draws": ("t figures 2.1 to 2.3, s", "draws of the prior and the posterior"),
    "review-svi": (
        "r figures 3, 4",
        "four variants of stochastic variational inference",
    ),
    "review-collapsed": ("r figures 5, 6", "vi-means and svi-L-BFGS-B"),
    "review-big": ("r figure 7", "vi-means, svi-natural and svi-SAG on many rows"),
    "review-newton": ("r figures 8, 9", "means-PN and means-L-BFGS-B"),
}
ROWS = [
    Row(source, what, f"find_target({name!r})",
        f"`python -m experiments {name}`: share of the fits without a stored row",
        missing, 0.0, Experiments())
    for name, (source, what) in WHAT.items()
]  # fmt: skip
