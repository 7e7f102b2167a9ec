"""What the tests of Ray and Spark share: rows, an estimator, its fit in one process, and a rank of another version."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

from cavity import BadInput, BadOption, GPClassifier
from cavity.options import nest
from support import toy


def write_rows(folder):
    """Write 101 rows as two Parquet files of several row groups, and return the folder."""
    X, y = toy(101, 3, seed=2)
    for i, part in enumerate((slice(0, 60), slice(60, 101))):
        table = pa.table({"a": X[part, 0], "b": X[part, 1], "kind": np.array(["x", "y", "z"])[y[part]]})
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=25)
    return folder


def make(kind=GPClassifier, **more):
    return kind("ep", **nest(n_inducing=6, batch_size=40, max_epochs=3, random_state=0, **more))


def assert_equal(found, expected, rows):
    np.testing.assert_allclose(found.predict_proba(rows), expected.predict_proba(rows), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.log_marginal_likelihood_, expected.log_marginal_likelihood_, rtol=1e-8)


def check_default(fit, rows):
    """A classifier with default arguments, apart from its seed, is that of one process."""
    alone = GPClassifier(random_state=0).fit(rows, target="kind")
    assert alone.plan_.training.optimizer == "lbfgs"  # the path of small default fits
    assert_equal(fit(GPClassifier(random_state=0)), alone, rows)


def check_page(names, predictions, rows):
    """The page's model, and the frame that it predicted, are those of a fit in one process."""
    alone = clone(names["estimator"]).fit(rows, target="kind")
    assert_equal(names["clf"], alone, rows)
    found, given = (frame.sort_values(["a", "b"]) for frame in (predictions, pq.read_table(rows).to_pandas()))
    expected = alone.predict_proba(given[["a", "b"]])
    np.testing.assert_allclose(found[["p_x", "p_y", "p_z"]].to_numpy(dtype=float), expected, atol=1e-8)


def check_error_of_one_process(fit, rows, fault):
    """`fit(data, target)` raises what a fit in one process raises for a missing column, or for a path that is not there."""
    data = rows / "absent" if fault == "path" else rows
    target = "species" if fault == "column" else "kind"
    with pytest.raises(BadInput) as one:
        make().fit(data, target=target)
    with pytest.raises(BadInput) as two:
        fit(data, target)
    assert str(two.value) == str(one.value)


def check_refused(fit, rows, *cases):
    """Each pair has arguments and the word of the error; what is neither an estimator nor a table is refused, too."""
    for estimator, data, more, word in (
        ({}, rows, {}, "dict"),
        (make(), [1, 2], {}, "list"),
        *((make(), rows, *case) for case in cases),
    ):
        with pytest.raises((BadOption, BadInput), match=word):
            fit(estimator, data, target="kind", **more)


class Older(GPClassifier):
    """Of an older version on rank 1."""

    def fit(self, *args, **kwargs):
        if os.environ["RANK"] == "1":
            import cavity.fitting.request as request

            request.__version__ = "0.0.1"
        return super().fit(*args, **kwargs)


VERSIONS_DIFFER = r"version of cavity: 0\.0\.1"
