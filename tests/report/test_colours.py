"""A class has one colour everywhere, and colour-blind readers can tell the first eight
apart.
"""

import re
from itertools import combinations

import numpy as np
import pytest

from cavity.explain.partial_dependence import PartialDependence
from cavity.report.charts import MAX_SERIES, draw_dependence
from cavity.report.colours import COLOURS, ON_DARK, choose_colours
from cavity.report.templates import STYLE, TEMPLATES

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISIONS = {
    "all": np.eye(3),
    "no long cones": [
        [0.152, 1.053, -0.205],
        [0.115, 0.786, 0.099],
        [-0.004, -0.048, 1.052],
    ],
    "no medium cones": [
        [0.367, 0.861, -0.228],
        [0.280, 0.673, 0.047],
        [-0.012, 0.043, 0.969],
    ],
    "no short cones": [
        [1.256, -0.077, -0.179],
        [-0.078, 0.931, 0.148],
        [0.005, 0.691, 0.304],
    ],
}
XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)


def to_lab(colour, vision):
    """CIELAB of a colour as a reader with this vision sees it."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    t = XYZ @ np.clip(np.asarray(vision) @ linear, 0, 1) / XYZ.sum(1)
    x, y, z = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("palette", [COLOURS[:8], ON_DARK[:8]], ids=["light", "dark"])
def test_eight_classes_differ_for_every_reader(palette, vision):
    seen = [to_lab(colour, VISIONS[vision]) for colour in palette]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15


def test_no_class_is_faint_and_sixteen_classes_differ():
    assert (
        max(to_lab(colour, VISIONS["all"])[0] for colour in COLOURS) < 75
    )  # lightness of white: 100
    assert len(set(COLOURS)) == len(set(ON_DARK)) == 16
    assert choose_colours(20) == [*COLOURS, *COLOURS[:4]]


def test_the_page_has_the_colours_of_the_plots():
    for k, colour in enumerate(choose_colours(16)):
        assert STYLE.count(f"--c{k}:{colour};") == (2 if ON_DARK[k] == colour else 1)
        assert f".line.c{k}," in STYLE


def make_dependence(kind, classes, moving):
    """A column that moves some classes only, so that only these are drawn."""
    values = (
        np.array(["a", "b", "c"], dtype=object)
        if kind == "category"
        else np.arange(3.0)
    )
    mean = np.full((3, classes), 1 / classes)
    mean[:, moving] += np.arange(3)[:, None] * 0.01
    names = np.array([f"class {c}" for c in range(classes)])
    return PartialDependence(
        "column", kind, values, mean, mean - 0.01, mean + 0.01, names, 0.95, 30, 30
    )


@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize(
    ("classes", "moving"), [(3, [0, 2]), (9, [1, 3, 4, 5, 7, 8]), (2, [0, 1])]
)
def test_a_class_has_its_colour_in_every_panel(kind, classes, moving):
    drawn = draw_dependence(make_dependence(kind, classes, moving), 0, 0.5, "y")
    panel = TEMPLATES.get_template("macros.html").module.figure(drawn)
    legend = re.findall(r'class="key (c\d+)"></span>class (\d+)', panel)
    drawn = set(re.findall(r'class="dot (c\d+)"', panel))
    assert 0 < len(legend) <= MAX_SERIES
    assert (
        {name for name, _ in legend} == drawn == {f"c{number}" for _, number in legend}
    )
