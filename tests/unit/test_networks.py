"""Networks as arrays predict what scikit-learn's predict."""

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from cavity.fitting import networks
from cavity.fitting.networks import Networks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n_classes):
    rng = np.random.default_rng(0)
    X = 5 + 3 * rng.normal(size=(90, 4))
    return X, np.arange(90) % n_classes


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_mean_of_the_scores_counts(n_classes, monkeypatch):
    fitted, fit = [], MLPClassifier.fit
    monkeypatch.setattr(
        MLPClassifier, "fit", lambda self, *rows: fitted.append(fit(self, *rows)) or fitted[-1]
    )
    X, y = draw(n_classes)
    found = np.exp(Networks(2, 0).fit(X, y).log_proba(X))
    Z = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    mean = np.exp(sum(np.log(network.predict_proba(Z)) for network in fitted) / 2)
    np.testing.assert_allclose(found, mean / mean.sum(1, keepdims=True), atol=2e-6)


def test_rows_without_weight_change_nothing_but_columns_and_every_class_is_drawn():
    _, y = draw(3)
    weight = np.where(y == 2, 0.0, 1.0)
    rows = networks._draw_rows(y, weight, np.random.default_rng(0))
    assert set(y[rows]) == {0, 1, 2} and (y[rows] == 2).sum() == 1


def test_an_emptied_network_keeps_its_classes():
    X, y = draw(3)
    small = Networks(2, 0).fit(X, y).emptied()
    assert small.log_proba(X).shape == (90, 3) and small.first.size == 1
