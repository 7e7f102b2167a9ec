"""The examples in the docstrings run as they stand."""

import doctest
import importlib
import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

import cavity
from cavity.errors import MissingExtra
from registered import REGISTERED_KERNELS, REGISTERED_LIKELIHOODS

FOLDER = Path(cavity.__file__).parent
MODULES = [
    ".".join(("cavity", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(FOLDER.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    try:
        module = importlib.import_module(name)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", [*REGISTERED_KERNELS, *REGISTERED_LIKELIHOODS])
def test_every_registered_class_has_an_example_and_describes_its_arguments(name):
    kind = (REGISTERED_KERNELS | REGISTERED_LIKELIHOODS)[name]
    text = kind.__doc__
    assert "Examples\n" in text and ">>>" in text
    assert all(f"{name}" in text.split("Examples")[0] for name in kind.parameter_names())
    assert not kind.parameter_names() or "Parameters\n" in text
