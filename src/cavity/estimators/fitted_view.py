"""What the layers above need of an estimator beyond its public attributes: they take it
from here, not from private names.
"""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from cavity.estimators.base import GPEstimator
from cavity.prediction.result import Result
from cavity.saving import model_file


def view_fit(estimator: GPEstimator) -> Result:
    """Return what a fit left: model, features, units, classes, evidence, estimate.

    Raises NotFittedError.
    """
    check_is_fitted(estimator, "_fitted")
    return estimator._result


def describe_fit(estimator: GPEstimator) -> dict[str, object]:
    """Return what `cavity info` would print of the fit's file."""
    return model_file.describe(estimator._record())


def skip_importance(estimator: GPEstimator) -> None:
    """Let a fit keep no rows to compute `feature_importance_` from, which takes
    seconds.
    """
    estimator._result = view_fit(estimator)._replace(background=None)


def check_arguments(estimator: GPEstimator) -> None:
    """Check the arguments of an estimator before its rows are read.

    Raises BadOption.
    """
    estimator._config()
