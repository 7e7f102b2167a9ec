"""How good a classifier is on new rows: an estimate from rows that neither its
hyper-parameters nor its pool's weights saw.

Folds share most of their training rows, and another draw of these makes another model;
the standard error s of their mean loss does not know it. The error of a small table is
therefore wider; its cases are rows, or groups of rows. Losses have a long tail: a row
that is predicted with .99 loses .01 or 4.6, and few rows show no large loss. So s is at
least what the probabilities expect, s̃:

    error = (1 + m) max(s, s̃)    s̃² = s²(H) + Σ_n ω_n² V_n    V_n = Σ_c p_nc log² p_nc − H_n²    H_n = −Σ_c p_nc log p_nc

with ω = weights that sum to 1, and m = min(1, 2000/n) for folds of n cases or a part of
them, 0 for rows of a large table or of your own. [decision 48]
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from cavity.common.scoring import average, score_rows
from cavity.common.tabular import Tabular
from cavity.common.types import Floats, Ints

Judges = Literal["seen", "folds", "held out"]
FOLDS: Judges = "folds"
HELD_OUT: Judges = "held out"

WIDER = 1.0  # share by which the standard error grows
LEAST_LOG = -700.0  # of a probability: below, it has no square
FULL_ROWS = 2000  # above, another draw of the rows makes nearly the same model

SEEN = "From leave-one-out: hyper-parameters saw these rows, so the log loss of a small table is too small."
UNSEEN = "From rows that the models did not see."
ABSENT = " No row of {n} class{es} is among them: their loss is not known."


def format_loss(value: float, error: float | None = None) -> str:
    """Format a loss and its standard error with three decimals, or with two digits of
    the loss if it is small.
    """
    decimals = 3
    if 0 < value < 0.01:
        decimals = min(9, 1 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}" + (
        "" if error is None else f" ± {error:.{decimals}f}"
    )


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
    """How good the fit is on new rows, and how good class frequencies alone would be.

    Attributes
    ----------
    how : str
        Where the rows come from: folds, rows held out, or leave-one-out.
    rows : int
        Number of rows.
    log_loss : float
        Mean negative log-probability of the true class, in nats.
    standard_error : float
        Standard error of `log_loss`. New rows of classes that are not `absent` are
        within two of them in 19 of 20 tables.
    accuracy : float
        Share of rows whose class is predicted.
    baseline_log_loss, baseline_accuracy : float
        The same for a model that predicts the class frequencies of the training rows
        for every row.
    true, predicted : tuple of float
        Sums of the weights of the rows of each class, and of those predicted to be.
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
        """Return how many rows there are and where they come from, in words."""
        if self.how.startswith(f"{self.rows} rows"):
            return self.how
        return f"{self.rows} rows ({self.how})"

    @property
    def trust(self) -> str:
        """Return how far to trust the estimate, in a sentence or two."""
        seen = SEEN if self.seen else UNSEEN
        n = len(self.absent)
        return seen + (ABSENT.format(n=n, es="es" * (n > 1)) if n else "")

    @property
    def verdict(self) -> str | None:
        """Return a warning in a sentence: the model is not better than class
        frequencies. None if it is.
        """
        if self.log_loss < self.baseline_log_loss:
            return None
        return (
            f"the model is not better than class frequencies: its log loss on rows "
            f"that it did not train on is "
            f"{format_loss(self.log_loss, self.standard_error)}, theirs "
            f"{format_loss(self.baseline_log_loss)} (estimate_). "
            "Look for columns that say more about the labels, or for a mistake in how "
            "rows and labels were joined."
        )

    @property
    def absent(self) -> tuple[int, ...]:
        """Return the numbers of the classes without a row here: a class with a single
        row is never held out.
        """
        return tuple(c for c, rows in enumerate(self.true) if not rows)

    @property
    def never_predicted(self) -> tuple[int, ...]:
        """Return the numbers of the classes that have rows but are never predicted."""
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
    rows: Judges = "held out",
    unit: Ints | None = None,
) -> Estimate:
    """Score log-probabilities [n C] of rows with weights, next to the class frequencies
    `prior` [C] of the training rows.

    `rows`: "seen" by hyper-parameters, of "folds" or of a part of a small table, or
    "held out"; `unit`: the same number for rows that belong together.
    """
    scores = score_rows(log_p, y)
    predicted = log_p.argmax(1)
    loss = average(scores["nll"], weight, unit)
    with np.errstate(divide="ignore"):
        frequencies = -np.log(prior)
    if unit is None:
        cases = len(y)
    else:
        cases = len(np.unique(unit))
    share = 0.0
    if rows != "held out":
        share = min(1.0, FULL_ROWS / cases)
    return Estimate(
        how=how,
        rows=len(y),
        log_loss=loss.value,
        standard_error=(1 + WIDER * share)
        * max(loss.error, expect_error(log_p, weight, unit)),
        accuracy=average(predicted == y, weight).value,
        baseline_log_loss=average(frequencies[y], weight).value,
        baseline_accuracy=average(y == prior.argmax(), weight).value,
        true=tuple(np.bincount(y, weight, len(prior)).tolist()),
        predicted=tuple(np.bincount(predicted, weight, len(prior)).tolist()),
        seen=rows == "seen",
    )


def expect_error(log_p: Floats, weight: Floats, unit: Ints | None = None) -> float:
    """Return the standard error of the mean loss of rows whose labels are drawn from
    these probabilities, s̃ above.
    """
    log_p = np.maximum(log_p, LEAST_LOG)
    p = np.exp(log_p)
    expected = -(p * log_p).sum(1)
    sd = (
        np.sqrt(np.maximum((p * log_p**2).sum(1) - expected**2, 0.0))
        * weight
        / weight.sum()
    )
    of_labels = np.linalg.norm(sd if unit is None else np.bincount(unit, sd))
    return math.hypot(average(expected, weight, unit).error, float(of_labels))
