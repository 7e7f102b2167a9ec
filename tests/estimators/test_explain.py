"""`explain`: a signal stands out, noise of every kind is near zero, and a column is
shuffled as a whole.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import permutation_importance

from cavity import BadInput, BadOption, GPClassifier, GPRegressor

N = 600


def make_table():
    """One signal, and noise of every kind: a number, a coin, 50 levels, a date, an
    identifier.
    """
    rng = np.random.default_rng(0)
    signal = rng.normal(size=N)
    table = pd.DataFrame(
        {
            "number": rng.normal(size=N),
            "signal": signal,
            "coin": rng.choice(["heads", "tails"], N),
            "levels": [f"level {i}" for i in rng.integers(0, 50, N)],
            "date": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 700, N), unit="D"),
            "key": [f"K-{i:05d}-{i * 7919 % 1000}" for i in range(N)],
        }
    )
    return (
        table,
        np.where(signal + 0.5 * rng.normal(size=N) > 0, "up", "down"),
        3 * signal + rng.normal(size=N),
    )


@pytest.fixture(scope="module")
def fitted():
    table, labels, _ = make_table()
    with pytest.warns(UserWarning, match="'key'"):
        clf = GPClassifier(
            n_inducing=30, max_epochs=60, effort="fast", random_state=0
        ).fit(table[::2], labels[::2])
    return clf, table[1::2], labels[1::2]


def test_a_signal_stands_out_among_noise_of_every_kind(fitted):
    clf, table, labels = fitted
    found = clf.explain(table, labels)
    assert found.names == tuple(table)
    importance, error = (
        dict(zip(found.names, v, strict=True))
        for v in (found.importance, found.standard_error)
    )
    assert importance["signal"] > 0.5 and importance["signal"] > 8 * error["signal"]
    for name in ("number", "coin", "levels", "date"):
        assert abs(importance[name]) < 0.03 < importance["signal"] / 10, (name, found)
    assert (importance["key"], error["key"]) == (0, 0)  # ignored by the model
    assert str(found).splitlines()[2].startswith("signal")
    own = clf.predict_log_proba(table)[
        np.arange(len(labels)), np.searchsorted(clf.classes_, labels)
    ]
    assert found.loss == pytest.approx(-own.mean())


def test_a_weight_is_a_number_of_rows_and_a_class_the_fit_did_not_have_is_refused(
    fitted,
):
    clf, table, labels = fitted
    some = clf.explain(
        table, labels, np.r_[np.ones(100), np.zeros(len(table) - 100)], n_repeats=2
    )
    same = clf.explain(table[:100], labels[:100], n_repeats=2)
    np.testing.assert_allclose(some.importance, same.importance)
    with pytest.raises(BadInput, match="sideways"):
        clf.explain(table, np.where(labels == "up", "sideways", labels))
    with pytest.raises(BadOption, match="n_repeats"):
        clf.explain(table, labels, n_repeats=0)


def test_it_is_scikit_learns_permutation_importance_of_raw_columns(fitted):
    clf, table, labels = fitted
    found = clf.explain(table, labels, n_repeats=20)
    theirs = permutation_importance(
        clf, table[["signal", "coin", "levels", "number", "date", "key"]], labels,
        scoring="neg_log_loss", n_repeats=20, random_state=1,
    )  # fmt: skip
    ours = dict(zip(found.names, found.importance, strict=True))
    spread = 4 * theirs.importances_std[0] / np.sqrt(20)
    assert ours["signal"] == pytest.approx(
        theirs.importances_mean[0], abs=spread + 0.02
    )
    assert ours["coin"] == pytest.approx(theirs.importances_mean[1], abs=0.01)


def test_regressors_explain_themselves_and_arrays_have_numbers_for_names():
    table, _, values = make_table()
    X = table[["number", "signal"]].to_numpy()
    gp = GPRegressor("vi", n_inducing=20, max_epochs=20, random_state=0).fit(
        X[::2], values[::2]
    )
    found = gp.explain(X[1::2], values[1::2])
    assert found.names == ("column 0", "column 1")
    assert found.importance[1] > 1 and abs(found.importance[0]) < 0.05


def test_columns_of_a_group_are_shuffled_together():
    table, labels, _ = make_table()
    X = np.column_stack([table["signal"], table["number"], table["signal"]])
    clf = GPClassifier(n_inducing=20, max_epochs=20, effort="fast", random_state=0).fit(
        X[::2], labels[::2]
    )
    rows = X[1::2], labels[1::2]
    alone = clf.explain(*rows)
    together = clf.explain(*rows, groups={"signal": [0, "column 2"]})
    assert (
        together.names == ("signal", "column 1") and abs(together.importance[1]) < 0.03
    )
    assert together.importance[0] > max(0.2, alone.importance[0], alone.importance[2])


def test_wrong_groups_say_what_is_wrong(fitted):
    clf, table, labels = fitted
    for groups, kind, words in (
        ("all", BadOption, "must be a dict of columns"),
        ({"a": ["signal", "sgnal"]}, BadInput, "no column 'sgnal'"),
        ({"a": ["signal"], "b": ["signal"]}, BadInput, "in two groups"),
    ):
        with pytest.raises(kind, match=words):
            clf.explain(table, labels, groups=groups)
