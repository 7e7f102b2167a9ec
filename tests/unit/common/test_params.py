"""Objects whose constructor stores its arguments."""

import numpy as np
import pytest

from cavity.common.params import Parameters, brief
from cavity.errors import BadOption


class Point(Parameters):
    def __init__(self, x=0.0, y=0.0):
        self.x = x
        self.y = y


class Segment(Parameters):
    def __init__(self, start, end=None):
        self.start = start
        self.end = end


def test_parameters_are_the_arguments_in_order():
    assert Segment.parameter_names() == ("start", "end")
    segment = Segment(Point(1.0), 3)
    assert segment.get_params(deep=False) == {"start": segment.start, "end": 3}
    assert segment.get_params()["start__x"] == 1.0


def test_parameters_of_inner_objects_are_set_by_path():
    segment = Segment(Point())
    assert segment.set_params(start__y=2.0, end=5) is segment
    assert (segment.start.y, segment.end) == (2.0, 5)
    with pytest.raises(BadOption, match=r"Point has no parameter 'z'; it has x, y"):
        segment.set_params(start__z=1)


def test_the_text_of_an_object_makes_it_again():
    segment = Segment(Point(1.0, 2.0))
    assert repr(segment) == "Segment(start=Point(x=1.0, y=2.0), end=None)"
    assert repr(eval(repr(segment))) == repr(segment)


def test_long_arrays_are_abridged():
    assert brief(np.array([0.5, 1 / 3])) == "[0.5, 0.3333]"
    assert brief(np.arange(100.0)) == "[0, 1, ..., 98, 99]"
    assert brief(np.zeros(0)) == "array([], dtype=float64)"
