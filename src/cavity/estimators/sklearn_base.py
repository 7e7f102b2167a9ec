"""Base classes of scikit-learn, whose types are in the .pyi beside this file."""

from sklearn.base import BaseEstimator as BaseEstimator
from sklearn.base import ClassifierMixin as ClassifierMixin
from sklearn.base import RegressorMixin as RegressorMixin
