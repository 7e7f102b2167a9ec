"""The docstrings of the public interface are complete: tools/check_docstrings.py finds
nothing.
"""

import pytest

from support import load_script

pytest.importorskip("numpydoc")


@pytest.fixture(scope="module")
def tool():
    return load_script("tools/check_docstrings.py")


def test_the_public_docstrings_are_complete(tool, capsys):
    assert tool.main() == 0, capsys.readouterr().out
