"""Relevance of columns of a frame: one number per column of the table, whatever becomes
of it in the preparation.
"""

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier, GPRegressor
from cavity.kernels import RBF
from support import ALONE

LEVELS = list("abcdefgh")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame(
        {
            "signal": rng.choice(LEVELS, n),
            "number": rng.normal(size=n),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "noise": rng.choice(LEVELS, n),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    return frame, frame["signal"].isin(list("abcd")).to_numpy()


@pytest.mark.parametrize("kernel", [None, RBF()])
def test_one_number_per_column_and_the_category_that_decides_comes_first(table, kernel):
    X, y = table
    options = {"n_inducing": 20, "random_state": 0, "device": "cpu", **ALONE}
    clf = GPClassifier(kernel=kernel, **options).fit(X, y)
    relevance = dict(zip(clf.feature_names_in_, clf.feature_relevance_, strict=True))
    assert (
        len(clf.feature_relevance_) == clf.n_features_in_ == 5
        and len(clf.preparation_.names) > 20
    )
    assert clf.feature_relevance_.sum() == pytest.approx(1.0)
    assert relevance["signal"] > 2 * max(
        v for name, v in relevance.items() if name != "signal"
    )


def test_the_order_of_levels_and_columns_does_not_matter(table):
    X, _ = table
    y = X["number"].to_numpy() + (X["signal"] == "a")
    options = {"n_inducing": 10, "max_epochs": 3, "random_state": 0}
    one = GPRegressor("exact", **options).fit(X, y)
    names = dict(zip(LEVELS, LEVELS[::-1], strict=True))
    other = GPRegressor("exact", **options).fit(
        X.assign(noise=X["noise"].map(names)), y
    )
    np.testing.assert_allclose(
        other.feature_relevance_, one.feature_relevance_, rtol=1e-5
    )
