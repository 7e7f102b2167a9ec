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


class Scaled:
    """A scale.

    Parameters
    ----------
    scale : float
        Its scale.

    Examples
    --------
    >>> Scaled(1.0)
    """

    __module__ = "cavity.example"

    def __init__(self, scale):
        pass


class Same(Scaled):
    """Its parameters are those of its base."""

    __module__ = "cavity.example"


class Shifted(Scaled):
    """A scale and a shift that it does not document."""

    __module__ = "cavity.example"

    def __init__(self, scale, shift):
        pass


@pytest.mark.parametrize("kind, complete", [(Same, True), (Shifted, False)])
def test_a_class_documents_only_the_parameters_that_its_base_does_not(tool, kind, complete):
    ignored = tool.ignored_codes(tool.Subject("x", kind))
    assert ("PR01" in ignored) is complete and "EX01" in ignored
