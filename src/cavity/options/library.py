"""The registry with all methods of the library in it."""

from cavity.options import classification_methods, regression_methods, variational_methods  # noqa: F401  each registers its classes
from cavity.options.method import METHODS as METHODS
from cavity.options.method import method_names as method_names
from cavity.options.method import read_method as read_method
