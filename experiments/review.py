"""What the figures of the review compare, and the draws of the thesis, as jobs.

Rows are fewer than in the review, and every fit has a limit of a few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from experiments.jobs import Job

SMALL_SETS = ("gp_small", "diabetes")
MEDIUM_SETS, BIG_SETS = ("gp_medium",), ("gp_big",)
SECONDS = {"gp_small": 2.0, "diabetes": 2.0, "gp_medium": 4.0, "gp_big": 6.0}
POINTS = {"gp_big": "100"}  # inducing points; 50 for the other sets
SVI = ("svi-natural", "svi-L-BFGS-B", "svi-FG", "svi-SAG")


def _curves(sets: Sequence[str], methods: Sequence[str]) -> list[Job]:
    return [
        Job(
            "regression",
            name,
            0,
            method,
            POINTS.get(name, "50"),
            options={"max_seconds": SECONDS[name]},
        )
        for name, method in product(sets, methods)
    ]


def svi_variants() -> list[Job]:
    """Figures 3 and 4: stochastic variational inference, four ways to step."""
    return _curves((*SMALL_SETS, *MEDIUM_SETS), SVI)


def collapsed() -> list[Job]:
    """Figures 5 and 6: the collapsed bound against q as parameters."""
    sets = (*SMALL_SETS, *MEDIUM_SETS, *BIG_SETS)
    return _curves(sets, ("vi-means", "svi-L-BFGS-B"))


def big() -> list[Job]:
    """Figure 7: the collapsed bound against mini-batches."""
    return _curves(BIG_SETS, ("vi-means", "svi-natural", "svi-SAG"))


def newton() -> list[Job]:
    """Figures 8 and 9: two optimizers of the collapsed bound.

    The review's means-L-BFGS-B is vi-means.
    """
    sets = (*SMALL_SETS, *MEDIUM_SETS, *BIG_SETS)
    return _curves(sets, ("means-PN", "vi-means"))


def draws() -> list[Job]:
    """Figures 2.1 to 2.3 of the thesis: functions from the prior and the posterior."""
    return [Job("draws", "line", 0, method, "") for method in ("prior", "posterior")]
