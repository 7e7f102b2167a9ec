"""scikit-learn's view of the library."""

from cavity.estimators.classifier import GPClassifier
from cavity.estimators.regressor import GPRegressor
from cavity.estimators.saved import load

__all__ = ["GPClassifier", "GPRegressor", "load"]
