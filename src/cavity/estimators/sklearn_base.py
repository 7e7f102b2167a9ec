"""The base classes of scikit-learn, which has no types: the .pyi beside this file
declares what the estimators use of them.
"""

from sklearn.base import BaseEstimator as BaseEstimator
from sklearn.base import ClassifierMixin as ClassifierMixin
from sklearn.base import RegressorMixin as RegressorMixin
