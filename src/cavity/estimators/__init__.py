"""scikit-learn's view of the library."""

from cavity.estimators.classifier import GPClassifier
from cavity.estimators.regressor import GPRegressor

__all__ = ["GPClassifier", "GPRegressor"]
