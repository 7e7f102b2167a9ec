"""Tables and lists as plain text."""

import numpy as np
import pytest

from cavity.common.text_tables import (
    format_grid,
    format_label,
    format_pairs,
    list_names,
    name_column,
    shorten,
)


def test_a_grid_aligns_its_columns():
    lines = [["name", "rows"], ["a", "7"], ["long", "1200"]]
    assert format_grid(lines) == "name  rows\na     7\nlong  1200"
    assert format_grid(lines, right=[1]) == "name  rows\na        7\nlong  1200"


def test_pairs_are_two_columns_on_one_line_each():
    assert format_pairs([("a", "x\ny"), ("bcd", "z")]) == "  a    x y\n  bcd  z"
    assert format_pairs([]) == ""


def test_long_lists_say_how_many_names_follow():
    assert list_names(["a", "b"], most=2) == "a, b"
    assert list_names(["a", "b", "c", "d"], most=2) == "a, b and 2 more"


def test_a_column_without_a_name_has_one_in_messages():
    assert name_column("") == "unnamed column"
    assert name_column("age") == "age"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("東京", 4, "東京"),
        ("東京都", 4, "東…"),
    ],
)
def test_texts_are_cut_to_a_width(text, width, expected):
    assert shorten(text, width) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [(2.0, "2"), (2.5, "2.5"), (np.float64(3), "3"), (True, "true"), ("x", "x")],
)
def test_labels_are_texts_as_in_arrow(label, expected):
    assert format_label(label) == expected
