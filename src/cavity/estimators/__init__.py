"""The scikit-learn estimators."""

from cavity.estimators.classifier import GPClassifier
from cavity.estimators.regressor import GPRegressor
from cavity.modelfile import load

__all__ = ["GPClassifier", "GPRegressor", "load"]
