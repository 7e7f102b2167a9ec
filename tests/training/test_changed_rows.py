"""A run notices that its rows are not the ones it began with: between two runs."""

import numpy as np
import pytest

from cavity import BadFile, BadInput, GPClassifier, GPRegressor
from cavity.options import nest
from cavity.rows.batches.checksums import hash_labels, sum_rows
from cavity.rows.batches.source import Piece
from support import toy, without_warnings

QUICK = dict(method="sep", n_inducing=4, max_epochs=3, tol=0.0, random_state=0, device="cpu")


def fit(*data, **options):
    with without_warnings():
        return GPClassifier(**nest(**QUICK | options)).fit(*data)


def test_a_run_does_not_resume_on_other_rows_however_few(tmp_path):
    """B6: 25,000 rows with every second label flipped were resumed."""
    X, y = toy(25_000, 2)
    weight = np.ones(len(y))
    options = dict(n_inducing=2, batch_size=5000, max_epochs=1, checkpoint=tmp_path / "run")
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


# ---------------------------------------------------------------- checksums
def piece(X, y, weight=None, first=0):
    return Piece(np.arange(first, first + len(X)), X, y, weight)


def test_a_checksum_depends_on_every_number_and_on_no_order():
    rng = np.random.default_rng(0)
    X, y, weight = rng.integers(3, size=(50, 4)).astype(float), rng.integers(3, size=50), rng.random(50)
    words = hash_labels([0, 1, 2])
    whole = piece(X, y, weight)
    total = sum_rows(whole, words[y])
    order = rng.permutation(50)
    assert sum_rows(whole.at(order), words[y[order]]) == total
    parts = [whole.at(slice(0, 20)), whole.at(slice(20, 50))]
    assert sum(sum_rows(p, words[p.y]) for p in parts) % 2**64 == total
    seen = {total}
    for i in range(50):
        for change in range(6):
            X2, y2, w2 = X.copy(), y.copy(), weight.copy()
            if change < 4:
                X2[i, change] += 1
            elif change == 4:
                y2[i] = (y2[i] + 1) % 3
            else:
                w2[i] *= 2
            seen.add(sum_rows(piece(X2, y2, w2), words[y2]))
    assert len(seen) == 301


@pytest.mark.parametrize("kind", [np.int64, np.float64, bool, str, np.uint8])
def test_labels_have_one_word_whatever_their_type(kind):
    values = np.array([1, 0, 1]).astype(kind)
    np.testing.assert_array_equal(
        hash_labels(values.tolist()), hash_labels([values[0].item(), *values[1:].tolist()])
    )
    if kind is not str:
        np.testing.assert_array_equal(hash_labels(values.tolist()), hash_labels([1, 0, 1]))
    else:
        assert hash_labels(["1"]) != hash_labels([1])


# ---------------------------------------------------------------- masked arrays
@pytest.mark.parametrize("where", ["X", "y", "sample_weight", "a batch", "prediction", "a regressor's y"])
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
        "sample_weight": lambda: fit(X, y, np.ma.masked_array(np.ones(30), mask=np.arange(30) == 2)),
        "a batch": lambda: fit([(masked, y)]),
        "prediction": lambda: fit(X, y).predict_proba(masked),
        "a regressor's y": lambda: GPRegressor().fit(X, some),
    }
    with pytest.raises(BadInput, match="1 masked cells, which are missing values"):
        cases[where]()
