"""How good a classifier is on new rows: an estimate from the rows of its own fit. [METHOD 13]"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import average, score_rows

Array = NDArray[np.float64]

SEEN = "Hyper-parameters saw these rows: on small tables the log loss is too small, by up to 0.2 nats."
UNSEEN = "From rows that the models did not see."


def format_loss(value: float, error: float | None = None) -> str:
    """Format a loss and its standard error with three decimals, or with two digits of the loss if it is small."""
    decimals = 3 if not 0 < value < 0.01 else min(9, 1 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}" + ("" if error is None else f" ± {error:.{decimals}f}")


class Estimate(NamedTuple):
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
        Standard error of `log_loss`, over an effective number of rows if they have weights.
    accuracy : float
        Share of rows whose class is predicted.
    baseline_log_loss, baseline_accuracy : float
        The same for a model that predicts the class frequencies of the training rows for every row.
    true, predicted : tuple of float
        Sums of the weights of the rows of each class, and of those predicted to be.
    """

    how: str
    rows: int
    log_loss: float
    standard_error: float
    accuracy: float
    baseline_log_loss: float
    baseline_accuracy: float
    true: tuple[float, ...]
    predicted: tuple[float, ...]

    @property
    def origin(self) -> str:
        """Return how many rows there are and where they come from, in words."""
        return self.how if self.how.startswith(f"{self.rows} rows") else f"{self.rows} rows ({self.how})"

    @property
    def trust(self) -> str:
        """Return how far to trust the estimate, in a sentence."""
        seen = self.how.startswith("leave-one-out") or "learnt hyper-parameters" in self.how
        return SEEN if seen else UNSEEN

    @property
    def never_predicted(self) -> tuple[int, ...]:
        """Return the numbers of the classes that have rows but are never predicted."""
        pairs = zip(self.true, self.predicted, strict=True)
        return tuple(c for c, (rows, found) in enumerate(pairs) if rows > 0 and found == 0)

    def __str__(self) -> str:
        return (
            f"log loss {format_loss(self.log_loss, self.standard_error)} (class frequencies {self.baseline_log_loss:.3f}), "
            f"accuracy {self.accuracy:.3f} (most frequent class {self.baseline_accuracy:.3f}), by {self.how}. {self.trust}"
        )


def estimate_quality(log_p: Array, y: NDArray[np.int64], weight: Array, prior: Array, how: str) -> Estimate:
    """Score log-probabilities [n C] of rows with weights, next to the class frequencies `prior` [C] of the training rows."""
    rows, predicted = score_rows(log_p, y), log_p.argmax(1)
    loss = average(rows["nll"], weight)
    with np.errstate(divide="ignore"):
        frequencies = -np.log(prior)
    return Estimate(
        how=how,
        rows=len(y),
        log_loss=loss.value,
        standard_error=loss.error,
        accuracy=1 - average(rows["error"], weight).value,
        baseline_log_loss=average(frequencies[y], weight).value,
        baseline_accuracy=average(y == prior.argmax(), weight).value,
        true=tuple(np.bincount(y, weight, len(prior)).tolist()),
        predicted=tuple(np.bincount(predicted, weight, len(prior)).tolist()),
    )
