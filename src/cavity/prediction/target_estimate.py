"""Quality of a regressor on new rows, from rows that did not train it.   [METHOD 13]

They come from fits without a part of the rows. If no hyper-parameter is learnt, they
come from leave-one-out: with Gaussian noise, sites do not depend on q, so removing one
is a fit without its row.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from cavity.common.scoring import Mean, average, count_effective
from cavity.common.tabular import Tabular
from cavity.common.types import Floats
from cavity.prediction.estimate import FULL_ROWS, WIDER

MOST_SCORES = 500  # quantiles of residuals that a model keeps


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
    """Quality expected on new rows, next to a normal distribution fitted to y.

    Standard errors are doubled up to 2,000 rows: another draw of so few rows makes
    another model.

    Attributes
    ----------
    how : str
        Where the rows come from: folds, rows held out, rows of eval_set, or
        leave-one-out.
    rows : int
        Number of rows.
    rmse : float
        Root mean squared error of predicted means, in the units of y.
    rmse_error : float
        Standard error of `rmse`.
    r2 : float
        Share of the variance of y that predicted means explain.
    r2_error : float
        Standard error of `r2`.
    log_density : float
        Mean log density of y, in nats.
    log_density_error : float
        Standard error of `log_density`.
    coverage_50 : float
        Share of rows inside normal intervals of 50%.
    coverage_50_error : float
        Standard error of `coverage_50`.
    coverage_95 : float
        Share of rows inside normal intervals of 95%.
    coverage_95_error : float
        Standard error of `coverage_95`.
    baseline_rmse : float
        Standard deviation of y: the error if its mean is predicted for every row.
    baseline_log_density : float
        Mean log density of y under a normal distribution with its mean and variance.
    scores : tuple of float
        Quantiles of |y − mean|/(s sd), ascending, for `GPRegressor.predict_interval`,
        where s is the local spread of residuals.
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
        """Warning that the model is not better than mean and variance of y, or None."""
        if self.log_density > self.baseline_log_density:
            return None

        return (
            "the model is not better than the mean and the variance of y: its "
            "negative log density on rows that it did not train "
            f"on is {-self.log_density:.3f} ± {self.log_density_error:.3f}, theirs "
            f"{-self.baseline_log_density:.3f} (estimate_). "
            "Look for columns that say more about y, or for a mistake in how rows and "
            "targets were joined."
        )

    @property
    def trust(self) -> str:
        """How far to trust normal intervals, in a sentence."""
        for level in (95, 50):
            found = getattr(self, f"coverage_{level}")
            error = getattr(self, f"coverage_{level}_error")
            if abs(found - level / 100) > 2 * max(error, 0.5 / self.rows):
                wrong = "narrow" if found < level / 100 else "wide"
                return (
                    f"Normal intervals of {level}% are too {wrong}; intervals that you "
                    "ask for by their coverage follow held-out residuals."
                )

        return "Normal intervals hold as many rows as they should."

    def find_half_width(self, coverage: float) -> float:
        """Return the half-width, in standard deviations, of intervals with a coverage.

        It is a conformal quantile: the ⌈(n + 1) coverage⌉-th smallest of n scores. With
        too few scores it is the largest one, or the half-width for a normal
        distribution if that is larger.
        """
        n = len(self.scores)
        exact = coverage * (self.rows + 1) * n / self.rows
        place = max(1, math.ceil(round(exact, 9)))  # 0.9 × 100 is 90, not a bit more
        if place <= n:
            return self.scores[place - 1]

        return max(find_normal_half_width(coverage), *self.scores[-1:])  # may be empty

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


def choose_half_width(estimate: TargetEstimate | None, coverage: float) -> float:
    """Return the half-width by held-out residuals, or else for a normal distribution."""
    if estimate is None:
        return find_normal_half_width(coverage)

    return estimate.find_half_width(coverage)


def find_normal_half_width(coverage: float) -> float:
    """Return the half-width, in standard deviations, for a normal distribution."""
    return NormalDist().inv_cdf(0.5 + 0.5 * coverage)


def estimate_targets(
    mean: Floats,
    sd: Floats,
    y: Floats,
    weight: Floats,
    of: int = 0,
    *,
    how: str = "leave-one-out",
    spread: Floats | None = None,
) -> TargetEstimate:
    """Score normal predictions of weighted rows, in the units of y.

    of: rows of the table, if these rows are a sample. spread: s of each row; None: 1.
    """
    share = weight / weight.sum()
    centre = float(share @ y)
    variance = float(share @ (y - centre) ** 2) or 1e-300
    sd = np.maximum(sd, 1e-150)
    score = np.abs(y - mean) / sd

    square = average((y - mean) ** 2, weight)
    rmse = math.sqrt(square.value)
    part = square.value / variance
    unexplained = average((y - mean) ** 2 - part * (y - centre) ** 2, weight)
    log_p = -0.5 * score**2 - np.log(sd) - 0.5 * math.log(2 * math.pi)
    log_density = average(log_p, weight)
    inside_50 = _count_inside(score, 0.5, weight)
    inside_95 = _count_inside(score, 0.95, weight)

    wider = 1 + WIDER * min(1.0, FULL_ROWS / (of or len(y)))
    return TargetEstimate(
        how=how,
        rows=len(y),
        rmse=rmse,
        rmse_error=wider * (square.error / (2 * rmse or 1.0)),
        r2=1 - part,
        r2_error=wider * (unexplained.error / variance),
        log_density=log_density.value,
        log_density_error=wider * log_density.error,
        coverage_50=inside_50.value,
        coverage_50_error=wider * inside_50.error,
        coverage_95=inside_95.value,
        coverage_95_error=wider * inside_95.error,
        baseline_rmse=math.sqrt(variance),
        baseline_log_density=-0.5 * math.log(2 * math.pi * math.e * variance),
        scores=_find_quantiles(score if spread is None else score / spread, share),
    )


def _count_inside(score: Floats, level: float, weight: Floats) -> Mean:
    """Return the share of rows inside normal intervals, and its standard error.

    The error is at least what is expected if the intervals are right: all of a few rows
    may be inside.
    """
    value, error = average(score <= find_normal_half_width(level), weight)
    expected = math.sqrt(level * (1 - level) / count_effective(weight))
    return Mean(value, max(error, expected))


def _find_quantiles(score: Floats, share: Floats) -> tuple[float, ...]:
    """Return weighted quantiles of the scores, at most MOST_SCORES of them."""
    n = min(len(score), MOST_SCORES)
    levels = np.arange(1, n + 1) / n
    order = np.argsort(score)
    place = np.searchsorted(np.cumsum(share[order]), levels - 1e-12)
    quantiles = score[order[np.minimum(place, len(score) - 1)]]
    return tuple(quantiles.tolist())
