"""Arguments, read before any row: one frozen configuration, and methods as objects."""

from cavity.options import classification_methods, variational_methods  # register the methods
from cavity.options.configuration import ClassifierConfig, Config, RegressorConfig
from cavity.options.method import METHODS, Method
from cavity.options.plan import Plan
from cavity.options.policy import Options
from cavity.options.reading import read_classifier, read_regressor
from cavity.options.training import Training, flatten, nest, read_training
