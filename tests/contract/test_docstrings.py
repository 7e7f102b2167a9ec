"""The docstrings of the public interface are complete: tools/check_docstrings.py finds nothing."""

import pytest

from support import load_script

pytest.importorskip("numpydoc")


@pytest.fixture(scope="module")
def tool():
    return load_script("tools/check_docstrings.py")


class Base:
    """Base class.

    Attributes
    ----------
    size : int
        Its size.
    """

    __module__ = "cavity.example"
    size = 1

    def documented(self):
        """Return nothing."""

    def bare(self):
        pass


class Derived(Base):
    __module__ = "cavity.example"

    @property
    def size(self):
        return 2

    def documented(self):
        pass

    def bare(self):
        pass

    def new(self):
        """Return nothing."""


def test_the_public_docstrings_are_complete(tool, capsys):
    assert tool.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "name, inherited", [("documented", True), ("size", True), ("bare", False), ("new", False)]
)
def test_an_override_inherits_the_contract_that_its_base_documents(tool, name, inherited):
    assert tool.overrides_documented(Derived, name) is inherited
