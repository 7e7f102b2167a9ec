"""Equal rows of equal labels are trained on as one row of their common weight, and
nothing but the time shows it. [decision 65]
"""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from cavity import GPClassifier, Training
from cavity.errors import BadFile
from cavity.tables.table import Table
from support import slow

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
NEW = np.random.default_rng(9).uniform(-0.5, 3.5, size=(40, 2))


def cells(n, C, seed=0):
    """Rows of two categories with four and three levels, each level with its own share
    of the classes: a table of cells.
    """
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(4, size=n), rng.integers(3, size=n)])
    score = rng.normal(size=(4, 3, C))[X[:, 0], X[:, 1]]
    return X.astype(float), (1.5 * score + rng.gumbel(size=score.shape)).argmax(1)


def twins(n, C, seed=0):
    """Distinct rows, most of which were entered two or three times."""
    rng = np.random.default_rng(seed)
    X = rng.normal(1.5, 1.0, size=(n // 2, 2))
    y = (
        (X - 1.5) @ rng.normal(size=(2, C)) + 0.7 * rng.normal(size=(n // 2, C))
    ).argmax(1)
    rows = np.concatenate([np.arange(n // 2), rng.integers(n // 2, size=n - n // 2)])
    return X[rows], y[rows]


def fit(X, y, weight=None, **options):
    return GPClassifier(**{"effort": "fast", "random_state": 0} | options).fit(
        X, y, sample_weight=weight
    )


@pytest.fixture
def unmerged(monkeypatch):
    """Train on every row as it was given."""

    def fit_every_row(*args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(Table, "merge", lambda table, cells=False: table)
            return fit(*args, **options)

    return fit_every_row


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("C", [slow(2), 3])
def test_the_model_and_its_left_out_rows_are_those_of_every_row(C, unmerged):
    X, y = cells(120, C)
    merged = fit(X, y, max_epochs=8)
    every = unmerged(X, y, max_epochs=8)
    distinct = len(np.unique(np.column_stack([X, y]), axis=0))
    assert merged.plan_.training.distinct == distinct < 96
    assert every.plan_.training.distinct is None
    np.testing.assert_allclose(
        merged.predict_proba(NEW), every.predict_proba(NEW), atol=1e-6
    )
    alone = [
        f(X, y, ensemble=None, max_epochs=8).loo_log_proba_ for f in (fit, unmerged)
    ]
    np.testing.assert_allclose(*alone, atol=1e-6)
    assert alone[0].shape == (120, C)
    assert merged.log_marginal_likelihood_ == pytest.approx(
        every.log_marginal_likelihood_, abs=1e-6
    )
    assert merged.estimate_.log_loss == pytest.approx(
        every.estimate_.log_loss, abs=1e-5
    )
    np.testing.assert_array_equal(np.sort(merged.suspect_labels()), np.arange(120))


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("k, weight", [slow(3, 1.0), (2, 0.5)])
def test_a_table_repeated_k_times_is_the_table_with_k_times_the_weights(k, weight):
    X, y = twins(60, 3)
    repeated = fit(np.tile(X, (k, 1)), np.tile(y, k), np.full(60 * k, weight))
    weighted = fit(X, y, np.full(60, k * weight))
    assert repeated.plan_.training.distinct == weighted.plan_.training.distinct
    np.testing.assert_array_equal(
        repeated.predict_proba(NEW), weighted.predict_proba(NEW)
    )
    np.testing.assert_allclose(
        repeated.ensemble_weights_, weighted.ensemble_weights_, rtol=1e-6
    )


def test_training_works_on_distinct_rows_and_says_how_many_were_given():
    X, y = cells(3000, 2)
    clf = fit(X, y, warm_start=True)
    distinct = len(np.unique(np.column_stack([X, y]), axis=0))
    assert (
        len(clf._result.continuation.state.sites.tau)
        == clf.plan_.training.distinct
        == distinct
        <= 24
    )
    assert (
        clf.plan_.training.optimizer == "lbfgs"
        and clf.plan_.training.batch_size is None
    )
    assert str(clf.plan_).startswith(
        f"Plan for 3,000 rows ({distinct} distinct), 2 columns"
    )
    assert clf.estimate_.rows == 600 == len(clf.held_out_)
    assert len(clf._result.loo.y) == 3000


def test_merged_rows_give_back_the_table():
    X, y = cells(50, 3)
    weight = np.where(np.arange(50) % 2, 1.0, 2.5)
    merged = Table(X, y, weight, 3).merge()
    assert merged.weight.sum() == pytest.approx(weight.sum())
    np.testing.assert_array_equal(merged.X[merged.place], X)
    np.testing.assert_array_equal(merged.y[merged.place], y)
    np.testing.assert_allclose(np.bincount(merged.place, weight), merged.weight)


@pytest.mark.usefixtures("few_trees")
def test_a_checkpoint_belongs_to_the_distinct_rows_in_any_order(tmp_path):
    X, y = cells(300, 3)
    first = fit(
        X,
        y,
        max_epochs=3,
        training=Training(checkpoint=tmp_path / "run", checkpoint_every=1),
    )
    order = np.random.default_rng(1).permutation(300)
    kept = Training(checkpoint=tmp_path / "run", resume=True)
    again = fit(X[order], y[order], max_epochs=3, training=kept)
    assert [row["objective"] for row in again.history_] == [
        row["objective"] for row in first.history_
    ]
    with pytest.raises(BadFile):
        fit(X[:250], y[:250], max_epochs=3, training=kept)


@pytest.mark.usefixtures("few_trees")
def test_cells_of_large_tables_are_not_held_out_as_a_whole():
    X, y = cells(14_100, 2, seed=3)
    train = slice(10_100)
    new = slice(10_100, None)
    clf = GPClassifier(random_state=0, effort="fast").fit(X[train], y[train])
    loss = log_loss(y[new], clf.predict_proba(X[new]))
    assert (
        abs(clf.estimate_.log_loss - loss) < 0.03 and abs(clf.estimate_.rows - 2020) < 3
    )
