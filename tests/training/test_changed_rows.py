"""A run notices that its rows are not the ones it began with: between two runs."""

import numpy as np
import pytest

from cavity import BadFile, BadInput, GPClassifier, GPRegressor
from cavity.fitting.options import nest
from support import toy, without_warnings

QUICK = dict(
    method="sep", n_inducing=4, max_epochs=3, tol=0.0, random_state=0, device="cpu"
)


def fit(*data, **options):
    with without_warnings():
        return GPClassifier(**nest(**QUICK | options)).fit(*data)


def test_a_run_does_not_resume_on_other_rows_however_few(tmp_path):
    """B6: 25,000 rows with every second label flipped were resumed."""
    X, y = toy(25_000, 2)
    weight = np.ones(len(y))
    options = dict(
        n_inducing=2, batch_size=5000, max_epochs=1, checkpoint=tmp_path / "run"
    )
    fit(X, y, weight, **options)
    fit(X, y, weight, **options, resume=True)
    flipped, cell, heavier = y.copy(), X.copy(), weight.copy()
    flipped[1::2] = 1 - flipped[1::2]
    cell[12_345, 1] += 1e-9
    heavier[12_345] = 2.0
    for changed in ((X, flipped, weight), (cell, y, weight), (X, y, heavier)):
        with pytest.raises(BadFile, match="another run"):
            fit(*changed, **options, resume=True)


def test_a_run_does_not_resume_on_other_names_of_classes(tmp_path):
    X, y = toy(60, 2)
    fit(X, np.array(["a", "b"])[y], checkpoint=tmp_path / "run")
    with pytest.raises(BadFile, match="another run: labels"):
        fit(X, np.array(["a", "c"])[y], checkpoint=tmp_path / "run", resume=True)


# ---------------------------------------------------------------- masked arrays
@pytest.mark.parametrize(
    "where", ["X", "y", "sample_weight", "a batch", "prediction", "a regressor's y"]
)
def test_masked_cells_are_missing_values(where):
    """B6: masks were ignored."""
    X, y = toy(30, 2)
    masked = np.ma.masked_array(X, mask=np.zeros_like(X, dtype=bool))
    fit(masked, y)  # nothing is masked
    masked[3, 1] = np.ma.masked
    some = np.ma.masked_array(y, mask=np.arange(30) == 4)
    cases = {
        "X": lambda: fit(masked, y),
        "y": lambda: fit(X, some),
        "sample_weight": lambda: fit(
            X, y, np.ma.masked_array(np.ones(30), mask=np.arange(30) == 2)
        ),
        "a batch": lambda: fit([(masked, y)]),
        "prediction": lambda: fit(X, y).predict_proba(masked),
        "a regressor's y": lambda: GPRegressor().fit(X, some),
    }
    with pytest.raises(BadInput, match="masked"):
        cases[where]()
