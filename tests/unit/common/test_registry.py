"""Classes by name and by short name."""

import pytest

from cavity.common.registry import Registry
from cavity.errors import BadOption


@pytest.fixture
def shapes():
    registry = Registry("shape")

    @registry.register
    class Round:
        name = "round"

    @registry.register
    class Oval(Round):
        pass

    return registry, Round, Oval


def test_a_class_has_its_name_and_a_short_name_of_its_own(shapes):
    registry, Round, Oval = shapes
    assert registry["Round"] is registry["round"] is Round
    assert registry["Oval"] is Oval
    assert registry.short_names() == {"round": Round}  # a subclass inherits none
    assert list(registry) == ["Round", "Oval"]
    assert "round" in registry and "square" not in registry
    with pytest.raises(KeyError, match="square"):
        registry["square"]


def test_it_holds_instances_of_its_classes_but_not_of_subclasses(shapes):
    registry, Round, Oval = shapes

    class Ring(Round):
        pass

    assert registry.holds(Round()) and registry.holds(Oval())
    assert not registry.holds(Ring())


def test_another_class_of_the_same_name_is_refused(shapes):
    registry, Round, _ = shapes
    registry.register(Round)  # the class itself may come again
    other = type("Round", (), {"__module__": "elsewhere"})
    with pytest.raises(BadOption, match="'Round' is registered already"):
        registry.register(other)
