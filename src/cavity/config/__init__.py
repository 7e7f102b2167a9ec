"""Arguments, read before any row: one frozen configuration, and methods as objects."""

from cavity.config.methods import METHODS, Method
from cavity.config.options import Config, Options, read_classifier, read_regressor

__all__ = ["METHODS", "Config", "Method", "Options", "read_classifier", "read_regressor"]
