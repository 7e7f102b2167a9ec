"""Arrays of Arrow read and made by way of their buffers equal those of pyarrow's own
conversions.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.tables.columns import arrow_buffers


@given(st.lists(st.none() | st.floats(allow_nan=False)), st.integers(0, 12))
def test_numbers_of_arrow(values, start):
    column = pa.array(values, pa.float64()).slice(start)
    expected = [np.nan if v is None else v for v in values[start:]]
    np.testing.assert_array_equal(
        arrow_buffers.to_floats(column), np.array(expected, dtype=float)
    )
    assert arrow_buffers.find_present(column).tolist() == [
        v is not None for v in values[start:]
    ]


@given(st.lists(st.none() | st.booleans()), st.integers(0, 12))
def test_flags_of_arrow(values, start):
    assert arrow_buffers.to_flags(
        pa.array(values, pa.bool_()).slice(start)
    ).tolist() == [v is True for v in values[start:]]


@given(st.lists(st.none() | st.text(max_size=2)), st.integers(0, 12))
def test_places_of_a_dictionary(values, start):
    coded = pa.array(values, pa.string()).slice(start).dictionary_encode()
    known = coded.dictionary.to_pylist()
    expected = [0 if v is None else known.index(v) for v in values[start:]]
    assert arrow_buffers.to_places(coded.indices).tolist() == expected


@pytest.mark.parametrize(
    "kind", ["float64", "float32", "int64", "int8", "uint16", "bool"]
)
def test_numbers_to_arrow(kind):
    values = np.array([0, 1, 1, 0, 2, 1, 1, 0, 1], dtype=kind)
    assert arrow_buffers.from_array(values).equals(pa.array(values))
    assert arrow_buffers.from_array(values[::2]).equals(pa.array(values[::2]))


@given(st.lists(st.text()))
def test_texts_to_arrow(values):
    values = [v for v in values if v.isprintable()]
    assert arrow_buffers.from_texts(values).to_pylist() == values
    assert (
        arrow_buffers.from_array(np.array(values, dtype=object)).to_pylist() == values
    )
