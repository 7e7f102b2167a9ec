"""What the tests of Ray and Spark share: rows, an estimator, and how their models
compare with those of one process.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.base import clone

from cavity import GPClassifier
from cavity.fitting.options import nest
from cavity.kernels import Stationary
from support import toy


class Cauchy(Stationary):
    """A kernel that the library does not have."""

    @staticmethod
    def shape(xp, d2):
        return -xp.log1p(d2)


def write_rows(folder):
    """Write 101 rows as two Parquet files of several row groups, and return the folder."""
    X, y = toy(101, 3, seed=2)
    for i, part in enumerate((slice(0, 60), slice(60, 101))):
        table = pa.table(
            {
                "a": X[part, 0],
                "b": X[part, 1],
                "kind": np.array(["x", "y", "z"])[y[part]],
            }
        )
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=25)
    return folder


def write_groups(path):
    """Write 100 rows of 20 groups in random order: near copies with one label, which is
    drawn at random.
    """
    rng = np.random.default_rng(0)
    patient = rng.permutation(np.arange(20).repeat(5))
    X = rng.normal(size=(20, 2))[patient] + 1e-3 * rng.normal(size=(100, 2))
    names = {"kind": rng.choice(["x", "y", "z"], 20)[patient], "patient": patient}
    pq.write_table(
        pa.table({"a": X[:, 0], "b": X[:, 1]} | names), path, row_group_size=25
    )
    return path


def check_groups(fit, folder):
    """Whole groups judge the model, and both are those of one process."""
    rows, clf = write_groups(folder / "rows.parquet"), make(calibration="temperature")
    alone, found = clone(clf).fit(rows, target="kind", groups="patient"), fit(clf, rows)
    assert "groups kept together" in found.estimate_.how
    assert all(n % 5 == 0 for n in found.estimate_.true)
    np.testing.assert_allclose(
        found.estimate_.log_loss, alone.estimate_.log_loss, rtol=1e-8
    )
    assert_equal(found, alone, pq.read_table(rows).drop_columns(["kind", "patient"]))


def make(**more):
    return GPClassifier(
        "ep", **nest(n_inducing=6, batch_size=40, max_epochs=3, random_state=0, **more)
    )


def assert_equal(found, expected, rows):
    np.testing.assert_allclose(
        found.predict_proba(rows), expected.predict_proba(rows), rtol=1e-8, atol=1e-8
    )
    np.testing.assert_allclose(
        found.log_marginal_likelihood_, expected.log_marginal_likelihood_, rtol=1e-8
    )


def check_default(fit, rows):
    """A classifier with default arguments, apart from its seed, is that of one process."""
    alone = GPClassifier(random_state=0).fit(rows, target="kind")
    assert alone.plan_.training.optimizer == "lbfgs"  # the path of small default fits
    assert_equal(fit(GPClassifier(random_state=0)), alone, rows)


def check_page(names, predictions, rows):
    """The page's model, and the frame that it predicted, are those of a fit in one
    process.
    """
    alone = clone(names["estimator"]).fit(rows, target="kind")
    assert_equal(names["clf"], alone, rows)
    found, given = (
        frame.sort_values(["a", "b"])
        for frame in (predictions, pq.read_table(rows).to_pandas())
    )
    expected = alone.predict_proba(given[["a", "b"]])
    np.testing.assert_allclose(
        found[["p_x", "p_y", "p_z"]].to_numpy(dtype=float), expected, atol=1e-8
    )
    assert list(found["label"]) == list(alone.classes_[expected.argmax(1)])
