"""scikit-learn's own checks of an estimator, whole: no expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cavity import GPClassifier


@parametrize_with_checks([GPClassifier(), GPClassifier("sep")])
def test_defaults(estimator, check):
    check(estimator)
