"""scikit-learn's view of the library."""

from cavity.estimators.classifier import GPClassifier

__all__ = ["GPClassifier"]
