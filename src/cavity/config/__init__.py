"""Arguments, read before any row: one frozen configuration, and methods as objects."""

from cavity.config import classification_methods, variational_methods  # noqa: F401  register the methods
from cavity.config.configuration import ClassifierConfig, Config, RegressorConfig
from cavity.config.methods import METHODS, Method
from cavity.config.options import Options
from cavity.config.reading import read_classifier, read_regressor
from cavity.config.training import Training, flatten, nest, read_training

__all__ = [
    "METHODS",
    "ClassifierConfig",
    "Config",
    "Method",
    "Options",
    "RegressorConfig",
    "Training",
    "flatten",
    "nest",
    "read_classifier",
    "read_regressor",
    "read_training",
]
