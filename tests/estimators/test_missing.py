"""Missing cells: an indicator beside the mean, learnt, predicts better than a model of the complete rows alone."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from cavity import GPClassifier

SHARE = 0.2  # of the cells are removed
SEEDS = range(4)
COLUMNS = {"iris": (load_iris, 4), "wine": (load_wine, 8), "breast cancer": (load_breast_cancer, 8)}


def make_split(name, seed):
    """Return training rows and test rows with cells removed at random.

    Of wide tables the first columns: with 20 % of 13 or 30 cells removed, hardly a complete row is left to train on.
    """
    load, width = COLUMNS[name]
    rng = np.random.default_rng(seed)
    X, y = load(return_X_y=True)
    table = pd.DataFrame(np.where(rng.random((len(X), width)) < SHARE, np.nan, X[:, :width]))
    table.columns = [f"c{j}" for j in range(width)]
    order = rng.permutation(len(y))
    train, test = order[: 2 * len(y) // 3], order[2 * len(y) // 3 :]
    return table.iloc[train], y[train], table.iloc[test], y[test]


def nll(X, y, new, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPClassifier(effort="fast", random_state=0, device="cpu").fit(X, y)
        P = model.predict_proba(new)
    assert len(model.classes_) == len(set(labels))
    return -np.log(P[np.arange(len(labels)), labels]).mean()


@pytest.mark.slow
def test_indicators_beat_dropping_rows():
    """On the same test rows, which have gaps, too; a model of complete rows takes the mean for a missing cell."""
    gains = []
    for name in COLUMNS:
        for seed in SEEDS:
            X, y, new, labels = make_split(name, seed)
            complete = X.notna().all(axis=1).to_numpy()
            kept = nll(X, y, new, labels)
            dropped = nll(X[complete], y[complete], new, labels)
            gains.append(dropped - kept)
            print(
                f"{name} {seed}: {kept:.4f}, without incomplete rows {dropped:.4f} ({complete.sum()} of {len(y)} rows)"
            )
    each = np.array(gains).reshape(len(COLUMNS), -1)
    print("gain per table", each.mean(1).round(3))
    assert (each.mean(1) > 0).all()
    assert ttest_1samp(gains, 0.0, alternative="greater").pvalue < 0.01


def test_a_gap_that_says_something_is_learnt():
    """The label is whether a cell is missing: the mean alone could not tell."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    table = pd.DataFrame({"a": np.where(y == 1, np.nan, rng.normal(size=120)), "b": rng.normal(size=120)})
    fitted = GPClassifier(effort="fast", n_inducing=10, random_state=0, device="cpu").fit(table[:80], y[:80])
    assert fitted.score(table[80:], y[80:]) == 1.0
    assert nll(table[:80], y[:80], table[80:], y[80:]) < 0.1
