"""The scikit-learn estimators."""

from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.estimators.loading import load
from cavity.estimators.regressor import GPRegressor

__all__ = ["GPClassifier", "GPRegressor", "load", "view_fit"]
