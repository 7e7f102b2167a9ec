"""Names that were removed say what to use instead."""

import importlib

import pytest

from cavity.common.removed import REMOVED


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_name_names_its_replacement(name):
    module, _, last = name.rpartition(".")
    with pytest.raises(ImportError) as error:
        getattr(importlib.import_module(module), last)
    assert REMOVED[name] in str(error.value)
    with pytest.raises(ImportError):
        exec(f"from {module} import {last}")


def test_other_names_are_unknown():
    for module in sorted({name.rpartition(".")[0] for name in REMOVED}):
        assert not hasattr(importlib.import_module(module), "nonsense")
