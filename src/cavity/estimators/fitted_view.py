"""Access to a fitted estimator for report, export, server and command line.

Other packages use these functions instead of private attributes.
"""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from cavity.estimators.base import GPEstimator
from cavity.prediction.result import Result
from cavity.saving import model_file


def view_fit(estimator: GPEstimator) -> Result:
    """Return the result of the fit; raise NotFittedError if there is none."""
    check_is_fitted(estimator, "_fitted")
    return estimator._result


def describe_fit(estimator: GPEstimator) -> dict[str, object]:
    """Return the facts that `cavity info` would print about the model file."""
    return model_file.describe(estimator._record())


def skip_importance(estimator: GPEstimator) -> None:
    """Drop the rows for `feature_importance_`, whose computation takes seconds."""
    estimator._result = view_fit(estimator)._replace(background=None)


def check_arguments(estimator: GPEstimator) -> None:
    """Check the arguments of an estimator before rows are read; raise BadOption."""
    estimator._config()
