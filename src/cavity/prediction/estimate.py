"""Quality of a classifier on new rows.   [decision 48]

It is estimated from rows that neither hyper-parameters nor weights of the pool saw.

    error = (1 + m) max(s, s̃)
    s̃² = s²(H) + Σ_n ω_n² V_n
    V_n = Σ_c p_nc log² p_nc − H_n²
    H_n = −Σ_c p_nc log p_nc

s is the standard error of the mean loss, and ω are weights that sum to 1.

The factor 1 + m: folds share most of their training rows, and another draw of these
rows makes another model, which s does not include. m = min(1, 2000/n) for folds of n
cases, or a part of them; cases are rows, or groups of rows. m = 0 for rows of a large
table, or for validation rows of the user.

The bound s̃: losses have a long tail. A row predicted with 0.99 loses 0.01 or 4.6, and
a few rows may show no large loss. s̃ is the error that the probabilities expect.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from cavity.common.scoring import average, score_rows
from cavity.common.tabular import Tabular
from cavity.common.types import Floats, Ints

Origin = Literal["seen", "folds", "held out"]
FOLDS: Origin = "folds"
HELD_OUT: Origin = "held out"

# share by which the standard error grows on small tables
WIDER = 1.0
# smallest log-probability: smaller ones underflow
LEAST_LOG = -700.0
# from this many rows, another draw of them makes nearly the same model
FULL_ROWS = 2000

SEEN = (
    "From leave-one-out: hyper-parameters saw these rows, so the log loss of a small "
    "table is too small."
)
UNSEEN = "From rows that the models did not see."
ABSENT = " No row of {n} class{es} is among them: their loss is not known."


def format_loss(value: float, error: float | None = None) -> str:
    """Format a loss and its standard error with three decimals.

    A small loss has two digits instead.
    """
    decimals = 3
    if 0 < value < 0.01:
        decimals = min(9, 1 - math.floor(math.log10(value)))
    text = f"{value:.{decimals}f}"
    if error is not None:
        text += f" ± {error:.{decimals}f}"
    return text


class _Scores(NamedTuple):
    how: str
    rows: int
    log_loss: float
    standard_error: float
    accuracy: float
    baseline_log_loss: float
    baseline_accuracy: float
    true: tuple[float, ...]
    predicted: tuple[float, ...]
    seen: bool = False


class Estimate(Tabular, _Scores):
    """Quality expected on new rows, next to the quality of class frequencies.

    Attributes
    ----------
    how : str
        Where the rows come from: folds, rows held out, or leave-one-out.
    rows : int
        Number of rows.
    log_loss : float
        Mean negative log-probability of the true class, in nats.
    standard_error : float
        Standard error of `log_loss`. In 19 of 20 tables, the log loss of new rows of
        classes that are not `absent` is within two standard errors.
    accuracy : float
        Share of rows whose class is predicted.
    baseline_log_loss : float
        Log loss of a model that predicts class frequencies of the training rows.
    baseline_accuracy : float
        Accuracy of that model.
    true : tuple of float
        Total weight of the rows of each class.
    predicted : tuple of float
        Total weight of the rows predicted as each class.
    seen : bool
        Whether hyper-parameters saw the rows.
    """

    __slots__ = ()

    def _columns(self) -> dict[str, Any]:
        return {
            "score": ["log loss", "accuracy"],
            "value": [self.log_loss, self.accuracy],
            "standard_error": [self.standard_error, math.nan],
            "class_frequencies": [self.baseline_log_loss, self.baseline_accuracy],
        }

    def _heading(self) -> str:
        return f"estimated on {self.origin}. {self.trust}"

    @property
    def origin(self) -> str:
        """Number of the rows, and where they come from, in words."""
        if self.how.startswith(f"{self.rows} rows"):
            return self.how

        return f"{self.rows} rows ({self.how})"

    @property
    def trust(self) -> str:
        """How far to trust the estimate, in a sentence or two."""
        text = SEEN if self.seen else UNSEEN
        n = len(self.absent)
        if n > 0:
            text += ABSENT.format(n=n, es="es" if n > 1 else "")
        return text

    @property
    def verdict(self) -> str | None:
        """Warning that the model is not better than class frequencies, or None."""
        if self.log_loss < self.baseline_log_loss:
            return None

        return (
            "the model is not better than class frequencies: its log loss on rows "
            "that it did not train on is "
            f"{format_loss(self.log_loss, self.standard_error)}, theirs "
            f"{format_loss(self.baseline_log_loss)} (estimate_). "
            "Look for columns that say more about the labels, or for a mistake in how "
            "rows and labels were joined."
        )

    @property
    def absent(self) -> tuple[int, ...]:
        """Numbers of the classes without a row: a single row is never held out."""
        return tuple(c for c, rows in enumerate(self.true) if not rows)

    @property
    def never_predicted(self) -> tuple[int, ...]:
        """Numbers of the classes that have rows but are never predicted."""
        pairs = zip(self.true, self.predicted, strict=True)
        return tuple(
            c for c, (rows, found) in enumerate(pairs) if rows > 0 and found == 0
        )

    def __str__(self) -> str:
        return (
            f"Estimated on {self.origin}: log loss "
            f"{format_loss(self.log_loss, self.standard_error)} "
            f"(class frequencies {format_loss(self.baseline_log_loss)}), "
            f"accuracy {self.accuracy:.3f} (most frequent class "
            f"{self.baseline_accuracy:.3f}). {self.trust}"
        )


def estimate_quality(
    log_p: Floats,
    y: Ints,
    weight: Floats,
    prior: Floats,
    how: str,
    rows: Origin = "held out",
    *,
    unit: Ints | None = None,
) -> Estimate:
    """Score weighted rows, next to class frequencies of the training rows.

    log_p: log-probabilities [n C]. prior: class frequencies [C]. rows: "seen" by
    hyper-parameters, from "folds" or a part of a small table, or "held out". unit: the
    same number for rows that belong together [n].
    """
    scores = score_rows(log_p, y)
    predicted = log_p.argmax(1)
    loss = average(scores["nll"], weight, unit)
    with np.errstate(divide="ignore"):
        frequencies = -np.log(prior)

    cases = len(y if unit is None else np.unique(unit))
    error = max(loss.error, expect_error(log_p, weight, unit))
    return Estimate(
        how=how,
        rows=len(y),
        log_loss=loss.value,
        standard_error=find_wider(rows, cases) * error,
        accuracy=average(predicted == y, weight).value,
        baseline_log_loss=average(frequencies[y], weight).value,
        baseline_accuracy=average(y == prior.argmax(), weight).value,
        true=tuple(np.bincount(y, weight, len(prior)).tolist()),
        predicted=tuple(np.bincount(predicted, weight, len(prior)).tolist()),
        seen=rows == "seen",
    )


def find_wider(rows: Origin, cases: int) -> float:
    """Return 1 + m, by which standard errors grow: see the head of the module."""
    if rows == HELD_OUT:
        return 1.0

    return 1 + WIDER * min(1.0, FULL_ROWS / cases)


def expect_error(log_p: Floats, weight: Floats, unit: Ints | None = None) -> float:
    """Return s̃, the error of the mean loss if labels follow the probabilities."""
    log_p = np.maximum(log_p, LEAST_LOG)
    p = np.exp(log_p)
    H = -(p * log_p).sum(1)
    V = np.maximum((p * log_p**2).sum(1) - H**2, 0.0)
    sd = np.sqrt(V) * weight / weight.sum()
    if unit is not None:
        sd = np.bincount(unit, sd)
    return math.hypot(average(H, weight, unit).error, float(np.linalg.norm(sd)))
