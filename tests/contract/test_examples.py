"""The examples in the docstrings run as they stand."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import cavity
from cavity.errors import MissingExtra
from registered import REGISTERED_KERNELS, REGISTERED_LIKELIHOODS

FOLDER = Path(cavity.__file__).parent
MODULES = [
    ".".join(("cavity", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(
        ".__init__"
    )
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
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", [*REGISTERED_KERNELS, *REGISTERED_LIKELIHOODS])
def test_every_registered_class_has_an_example_and_describes_its_arguments(name):
    """Or a base class does it."""
    kind = (REGISTERED_KERNELS | REGISTERED_LIKELIHOODS)[name]
    texts = [
        base.__doc__ or ""
        for base in kind.__mro__
        if base.__module__.startswith("cavity")
    ]
    assert any("Examples\n" in text and ">>>" in text for text in texts)
    described = "".join(
        text.split("Examples\n")[0] for text in texts if "Parameters\n" in text
    )
    assert all(
        re.search(rf"^ +(.+, )?{name}(, .+)? : ", described, re.M)
        for name in kind.parameter_names()
    )
