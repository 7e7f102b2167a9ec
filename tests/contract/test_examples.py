"""The examples in the docstrings of kernels, likelihoods and registries run as they stand."""

import doctest
import importlib
import pkgutil
import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity import factors, kernels
from registered import REGISTERED_KERNELS, REGISTERED_LIKELIHOODS

PACKAGES = [kernels, factors]
MODULES = [f"{p.__name__}.{m.name}" for p in PACKAGES for m in pkgutil.iter_modules(p.__path__)]


@pytest.mark.parametrize("name", [*MODULES, "cavity.registry"])
def test_examples_run(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", [*REGISTERED_KERNELS, *REGISTERED_LIKELIHOODS])
def test_every_registered_class_has_an_example_and_describes_its_arguments(name):
    kind = (REGISTERED_KERNELS | REGISTERED_LIKELIHOODS)[name]
    text = kind.__doc__
    assert "Examples\n" in text and ">>>" in text
    assert all(f"{name}" in text.split("Examples")[0] for name in kind.parameter_names())
    assert not kind.parameter_names() or "Parameters\n" in text
