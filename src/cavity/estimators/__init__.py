"""The scikit-learn estimators."""

from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.estimators.regressor import GPRegressor
from cavity.saving.model_file import load

__all__ = ["GPClassifier", "GPRegressor", "load", "view_fit"]
