"""The public names are all there, and none is loaded before it is asked for."""

import subprocess
import sys

import pytest

import cavity


def test_every_public_name_is_there_and_listed() -> None:
    for name in cavity.__all__:
        assert getattr(cavity, name) is not None
        assert name in dir(cavity)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        cavity.nothing_like_it


@pytest.mark.parametrize(
    "code",
    [
        "import cavity; cavity.GPClassifier; cavity.kernels.RBF()",
        "from cavity import *; GPClassifier(kernel=kernels.RBF())",
    ],
)
def test_every_way_to_the_names(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_package_alone_is_light() -> None:
    code = "import cavity.cli, sys; print([m for m in ('torch', 'numpy', 'sklearn') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
