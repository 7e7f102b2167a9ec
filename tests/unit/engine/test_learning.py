"""What is learnt, by path."""

import pytest

from cavity.engine.learning import freeze_rest, is_path, name_paths, selects
from cavity.errors import BadOption
from cavity.kernels import RBF, Constant, Linear


def bound(kernel, columns):
    kernel.bind(2, columns)
    return kernel


@pytest.fixture
def columns():
    import numpy as np

    from cavity.common.column_statistics import summarize

    X = np.random.default_rng(0).normal(size=(20, 2))
    return summarize(X, np.ones(20), np.random.default_rng(0))


def test_a_name_selects_a_path_or_its_beginning():
    assert selects(["kernel"], "kernel.0.lengthscale")
    assert selects(["noise", "kernel.0"], "kernel.0.lengthscale")
    assert not selects(["kernel.1"], "kernel.10.lengthscale")
    assert is_path("kernel.0") and not is_path("kernel") and not is_path(3)


def test_parts_of_sums_and_products_are_numbered_as_one_types_them(columns):
    one = name_paths(bound(RBF(), columns))
    assert set(one.values()) >= {"kernel.lengthscale"}
    several = name_paths(bound(RBF() + Constant() * Linear(), columns))
    assert {path.split(".")[1] for path in several.values()} == {"0", "1", "2"}
    assert "kernel.0.lengthscale" in several.values()


def test_what_is_not_named_is_frozen(columns):
    kernel = bound(RBF() + Linear(), columns)
    freeze_rest(kernel, ["noise", "kernel.0"])
    paths = name_paths(kernel)
    for name, parameter in kernel.named_parameters():
        assert parameter.requires_grad == paths[name].startswith("kernel.0.")
    with pytest.raises(BadOption, match=r"'kernel\.2'.*kernel\.0"):
        freeze_rest(kernel, ["kernel.2"])
