"""How good a regressor is on new rows: an estimate from its own training rows, each
predicted without its own target. [METHOD 13]

With Gaussian noise, sites do not depend on q: removing one is leave-one-out at fixed
hyper-parameters, not an approximation of it.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from cavity.common.scoring import Mean, average
from cavity.common.tabular import Tabular
from cavity.common.types import Floats
from cavity.prediction.estimate import FULL_ROWS, WIDER

MOST_SCORES = 500  # quantiles of the residuals that a model keeps
LEVELS = (0.5, 0.95)  # of the intervals whose coverage is counted


class _TargetScores(NamedTuple):
    how: str
    rows: int
    rmse: float
    rmse_error: float
    r2: float
    r2_error: float
    log_density: float
    log_density_error: float
    coverage_50: float
    coverage_50_error: float
    coverage_95: float
    coverage_95_error: float
    baseline_rmse: float
    baseline_log_density: float
    scores: tuple[float, ...]


class TargetEstimate(Tabular, _TargetScores):
    """How good the fit is on new rows, and how good a normal distribution with the
    moments of y would be.

    Errors are standard errors. They are doubled up to 2,000 rows, because
    hyper-parameters saw these rows.

    Attributes
    ----------
    how : str
        Where the rows come from: leave-one-out.
    rows : int
        Number of rows.
    rmse, rmse_error : float
        Root mean squared error of the mean, in the units of y.
    r2, r2_error : float
        Share of the variance of y that means explain.
    log_density, log_density_error : float
        Mean log density of y, in nats.
    coverage_50, coverage_50_error, coverage_95, coverage_95_error : float
        Share of rows inside normal intervals of 50% and 95%.
    baseline_rmse, baseline_log_density : float
        The same for a normal distribution with mean and variance of y.
    scores : tuple of float
        Quantiles of |y − mean|/sd, ascending: `GPRegressor.predict_interval` reads
        them.
    """

    __slots__ = ()

    def _columns(self) -> dict[str, Any]:
        names = ("rmse", "r2", "log_density", "coverage_50", "coverage_95")
        baseline = {
            "rmse": self.baseline_rmse,
            "r2": 0.0,
            "log_density": self.baseline_log_density,
        }
        return {
            "score": list(names),
            "value": [getattr(self, name) for name in names],
            "standard_error": [getattr(self, f"{name}_error") for name in names],
            "normal_distribution": [baseline.get(name, math.nan) for name in names],
        }

    def _heading(self) -> str:
        return f"estimated on {self.rows} rows ({self.how}). {self.trust}"

    @property
    def verdict(self) -> str | None:
        """Return a warning in a sentence: the model is not better than the mean of y.

        None if it is.
        """
        if self.log_density > self.baseline_log_density:
            return None
        return (
            f"the model is not better than the mean and the variance of y: its "
            f"negative log density on rows that it did not train "
            f"on is {-self.log_density:.3f} ± {self.log_density_error:.3f}, theirs "
            f"{-self.baseline_log_density:.3f} (estimate_). "
            "Look for columns that say more about y, or for a mistake in how rows and "
            "targets were joined."
        )

    @property
    def trust(self) -> str:
        """Return what to think of the normal intervals, in a sentence."""
        for level in (95, 50):
            found = getattr(self, f"coverage_{level}")
            error = getattr(self, f"coverage_{level}_error")
            if abs(found - level / 100) > 2 * max(error, 0.5 / self.rows):
                wrong = "narrow" if found < level / 100 else "wide"
                return f"Normal intervals of {level}% are too {wrong}: use predict_interval, which learns from residuals."
        return "Normal intervals hold as many rows as they should."

    def find_half_width(self, coverage: float) -> float:
        """Return by how many standard deviations an interval must reach to hold this
        share of new rows: a conformal quantile.

        It is the ⌈(n + 1) coverage⌉-th smallest score of n rows. If there are too few
        for that, at least that of a normal.
        """
        n = len(self.scores)
        place = max(1, math.ceil(coverage * (1 + 1 / self.rows) * n))
        if place <= n:
            return self.scores[place - 1]
        return max(find_normal_half_width(coverage), *self.scores[-1:])

    def __str__(self) -> str:
        density = f"{-self.log_density:.3f} ± {self.log_density_error:.3f}"
        return (
            f"Estimated on {self.rows} rows ({self.how}): "
            f"root mean squared error {self.rmse:.4g} ± {self.rmse_error:.2g} (mean of "
            f"y {self.baseline_rmse:.4g}), "
            f"R² {self.r2:.3f} ± {self.r2_error:.3f}, "
            f"negative log density {density} (normal distribution "
            f"{-self.baseline_log_density:.3f}), "
            f"{self.coverage_50:.0%} and {self.coverage_95:.0%} of the rows inside 50% "
            f"and 95% intervals. {self.trust}"
        )


def find_normal_half_width(coverage: float) -> float:
    """Return by how many standard deviations an interval reaches that holds this share
    of a normal distribution.
    """
    return NormalDist().inv_cdf(0.5 + 0.5 * coverage)


def estimate_targets(
    mean: Floats, sd: Floats, y: Floats, weight: Floats, of: int = 0
) -> TargetEstimate:
    """Score normal predictions of rows with weights, in the units of y; `of`: rows of
    the table.
    """
    share = weight / weight.sum()
    centre = float(share @ y)
    variance = float(share @ (y - centre) ** 2) or 1e-300
    sd = np.maximum(sd, 1e-150)
    score = np.abs(y - mean) / sd
    wider = 1 + WIDER * min(1.0, FULL_ROWS / (of or len(y)))
    square = average((y - mean) ** 2, weight)
    log_density = average(
        -0.5 * score**2 - np.log(sd) - 0.5 * math.log(2 * math.pi), weight
    )
    inside = [
        average(score <= find_normal_half_width(level), weight) for level in LEVELS
    ]
    rmse = math.sqrt(square.value)
    found = (
        Mean(rmse, square.error / (2 * rmse or 1.0)),
        Mean(1 - square.value / variance, square.error / variance),
        log_density,
        *inside,
    )
    scores = [
        x for mean in found for x in (mean.value, wider * mean.error)
    ]  # in the order of the fields
    baseline = math.sqrt(variance), -0.5 * math.log(2 * math.pi * math.e * variance)
    order = np.argsort(score)
    levels = np.arange(1, min(len(y), MOST_SCORES) + 1) / min(len(y), MOST_SCORES)
    place = np.searchsorted(np.cumsum(share[order]), levels - 1e-12)
    quantiles = score[order[np.minimum(place, len(y) - 1)]]
    return TargetEstimate._make(
        ("leave-one-out", len(y), *scores, *baseline, tuple(quantiles.tolist()))
    )
