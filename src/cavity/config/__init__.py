"""Arguments, read before any row: one frozen configuration, and methods as objects."""

from cavity.config.methods import METHODS, Method
from cavity.config.options import (
    ClassifierConfig,
    Config,
    Options,
    RegressorConfig,
    read_classifier,
    read_regressor,
)

__all__ = [
    "METHODS",
    "ClassifierConfig",
    "Config",
    "Method",
    "Options",
    "RegressorConfig",
    "read_classifier",
    "read_regressor",
]
