"""Sparse rows of SciPy: the model of the same rows as a dense array, and no table that
is dense as a whole above the limit.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from cavity import BadInput, GPClassifier, GPRegressor
from cavity.engine.batches import stream
from cavity.prediction import blocks
from cavity.tables import arrow_tables, pieces, survey
from cavity.tables.array_sources import Arrays
from support import classifier, regressor

SHORT = {"n_inducing": 10, "max_epochs": 2, "random_state": 0}
FORMATS = [sp.csr_array, sp.csc_matrix, sp.coo_array]


def draw(N=300, D=8, seed=0):
    """Rows of which a third of the cells are not 0, three classes and a real target."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 1 / 3)
    f = X[:, :3] + 0.3 * rng.normal(size=(N, 3))
    return X, np.array(["a", "b", "c"])[f.argmax(1)], f[:, 0]


@pytest.fixture
def few_dense_bytes(monkeypatch):
    """Let 300 × 8 cells be too many, and count the cells of each array that a sparse
    table becomes.
    """
    cells = []
    for kind in (sp.csr_array, sp.csr_matrix, sp.csc_matrix, sp.coo_array):
        whole = kind.toarray

        def counted(self, *args, whole=whole, **options):
            cells.append(np.prod(self.shape))
            return whole(self, *args, **options)

        monkeypatch.setattr(kind, "toarray", counted)
    monkeypatch.setattr(arrow_tables, "DENSE_BYTES", 8 * 2000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 8 * 800)
    defaults = stream.Stream._field_defaults | {"piece_bytes": 8 * 800}
    monkeypatch.setattr(stream.Stream.__new__, "__defaults__", (*defaults.values(),))
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8 * 400)
    return cells


@pytest.mark.usefixtures("few_trees")
def test_a_small_sparse_table_gives_the_default_of_the_dense_one():
    X, y, _ = draw(90)
    csr, csc, coo = (make(X) for make in FORMATS)
    dense = GPClassifier(**SHORT).fit(X, y, eval_set=(X[:30], y[:30]))
    model = GPClassifier(**SHORT).fit(csr, y, eval_set=(sp.coo_array(X[:30]), y[:30]))
    assert model.plan_ == dense.plan_ and model.score(csc, y) == dense.score(X, y)
    for predict in (
        "predict_proba",
        "predict_log_proba",
        "predict_latent",
        "predict_novelty",
        "predict_uncertainty",
    ):
        known = np.array(getattr(dense, predict)(X))
        for rows in (csr, csc, coo):
            assert np.abs(np.array(getattr(model, predict)(rows)) - known).max() < 1e-9
    found, known = (
        m.explain(rows, y, n_repeats=1) for m, rows in ((model, coo), (dense, X))
    )
    assert np.allclose(found.importance, known.importance)
    known = dense.explain_rows(X[:2], X, n_background=5).contributions
    assert np.allclose(
        model.explain_rows(csr[:2], csc, n_background=5).contributions, known
    )


@pytest.mark.parametrize("make", FORMATS)
def test_a_regressor_takes_sparse_rows(make):
    X, _, f = draw(90)
    dense = regressor(**SHORT).fit(X, f)
    model = regressor(**SHORT).fit(make(X), f)
    found = model.predict(make(X), return_std=True)
    known = dense.predict(X, return_std=True)
    assert np.abs(np.array(found) - np.array(known)).max() < 1e-9
    found, known = (
        m.predict(rows, return_cov=True)[1]
        for m, rows in ((model, make(X[:5])), (dense, X[:5]))
    )
    assert np.abs(found - known).max() < 1e-9
    assert model.score(make(X), f) == pytest.approx(dense.score(X, f), abs=1e-9)


@pytest.mark.parametrize("make", FORMATS)
def test_a_large_sparse_table_is_never_dense_as_a_whole(make, method, few_dense_bytes):
    X, y, f = draw()
    options = {"method": method, "batch_size": 50, **SHORT}
    weight = np.linspace(1, 2, len(y))
    dense, model = (classifier(**options).fit(rows, y, weight) for rows in (X, make(X)))
    assert np.abs(model.predict_proba(make(X)) - dense.predict_proba(X)).max() < 1e-9
    assert model.score(make(X), y, weight) == pytest.approx(
        dense.score(X, y, weight), abs=1e-12
    )
    regressor("svi", batch_size=50, **SHORT).fit(make(X), f).predict(make(X))
    assert 0 < max(few_dense_bytes) <= 800


def test_a_large_sparse_table_gives_the_model_of_the_dense_rows(
    few_dense_bytes, monkeypatch
):
    X, y, f = draw()
    monkeypatch.setattr(survey, "SAMPLE_BYTES", 8 * 8 * 90)
    options = {"batch_size": 50, **SHORT}
    cases = (
        (classifier(**options), y, "predict_proba"),
        (regressor("svi", **options), f, "predict"),
    )
    for model, target, predict in cases:
        known = getattr(model.fit(Arrays(X, target)), predict)(X)
        found = getattr(model.fit(sp.csc_array(X), target), predict)(sp.coo_matrix(X))
        assert np.abs(found - known).max() < 1e-9


@pytest.mark.parametrize("model", [GPClassifier(), GPRegressor()])
def test_too_many_columns_are_refused_with_advice(model):
    X = sp.random(20, 5001, density=0.01, format="csr", random_state=0)
    y = np.arange(20) % 2
    with pytest.raises(BadInput, match=r"5,001.*5,000"):
        model.fit(X, y)


def test_what_needs_all_rows_at_once_refuses_a_large_sparse_table(few_dense_bytes):
    X, y, _ = draw()
    rows = sp.csr_array(X)
    with pytest.raises(BadInput, match="dense"):
        classifier("laplace", **SHORT).fit(rows, y)
    with pytest.raises(BadInput, match="weight"):
        classifier("sep", **SHORT).fit(rows, y, sample_weight=np.r_[0.0, np.ones(299)])
    with pytest.raises(BadInput, match="eval_set"):
        classifier("sep", **SHORT).fit(X, y, eval_set=(rows, y))
    with pytest.raises(BadInput, match="fewer rows"):
        classifier("sep", **SHORT).fit(X, y).explain(rows, y)


def test_cells_and_shapes_that_no_model_can_read_are_refused():
    X, y, _ = draw(60)
    X[3, 2] = np.inf
    with pytest.raises(BadInput, match=r"column 2.*infinite"):
        classifier("sep", **SHORT).fit(sp.csr_array(X), y)
    model = classifier("sep", **SHORT).fit(np.where(np.isinf(X), 0.0, X), y)
    with pytest.raises(BadInput, match="NaN or infinity"):
        model.predict(sp.csr_array(X))
    with pytest.raises(BadInput, match="7 features, but GPClassifier is expecting 8"):
        model.predict(sp.csr_array(X[:, :7]))
    with pytest.raises(ValueError, match=r"[Cc]omplex"):
        model.fit(sp.csr_array(np.where(np.isinf(X), 0.0, X) + 1j), y)
