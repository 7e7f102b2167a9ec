"""`GPClassifier(order=...)`: ordered classes from arguments to files and the command
line.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import cavity
from cavity import BadOption, GPClassifier, Training
from cavity.likelihoods import Ordinal
from cavity.methods import EP, VI
from registered import assert_same_elsewhere
from support import slow, without_warnings

ORDER = ["low", "mid", "high"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    f = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=120)
    return X, np.array(ORDER)[np.digitize(f, [-0.6, 0.7])]


def small(**options):
    options = {"n_inducing": 12, "max_epochs": 15, "random_state": 0, **options}
    return GPClassifier(options.pop("method", "ep"), **options)


@pytest.fixture(scope="module")
def fitted(rows):
    with without_warnings():
        return small(order=ORDER).fit(*rows)


def test_classes_stay_sorted_and_f_has_thresholds(rows, fitted):
    X, y = rows
    assert fitted.classes_.tolist() == sorted(ORDER)
    assert fitted.inducing_points_.shape == (1, 12, 2)
    assert fitted.noise_.shape == (1,)
    assert fitted.score(X, y) > 0.8
    assert isinstance(fitted._fitted.likelihood, Ordinal)
    mean, _ = fitted.predict_latent(X)
    found = [mean[y == label].mean() for label in ORDER]
    assert mean.shape == (120,) and found == sorted(found)


def test_the_middle_class_is_between_the_others(rows, fitted):
    """Along the line of the latent function: low, then mid, then high."""
    line = np.linspace(-3, 3, 60)[:, None] * [[1.0, -0.5]]
    said = fitted.predict(line)
    places = [ORDER.index(label) for label in said]
    assert places == sorted(places) and set(places) == {0, 1, 2}


def test_it_is_saved_loaded_and_exported(rows, fitted, tmp_path):
    X, _ = rows
    assert_same_elsewhere(fitted, X, tmp_path)
    loaded = cavity.load(tmp_path / "m.cavity")
    assert loaded.order == ORDER
    again = loaded._fitted.likelihood.state()["0"]
    assert again.tolist() == fitted._fitted.likelihood.state()["0"].tolist()
    parts = loaded.predict_uncertainty(X[:5])
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total)


def test_the_reversed_order_is_the_same_model(rows):
    """f changes its sign; nothing is learnt, the thresholds neither."""
    fixed = {"training": Training(learn=(), tol=1e-9), "max_epochs": 300}
    with without_warnings():
        up = small(order=ORDER, **fixed).fit(*rows)
        down = small(order=ORDER[::-1], **fixed).fit(*rows)
    assert not up._fitted.likelihood.parameters
    np.testing.assert_allclose(
        up.predict_proba(rows[0]), down.predict_proba(rows[0]), atol=1e-6
    )


def test_numbers_and_two_classes(rows, tmp_path):
    X, y = rows
    number = np.array([ORDER.index(label) for label in y])
    with without_warnings():
        by_text = small(order=("0", "1", "2")).fit(X, number)
        two = small(order=["rest", "high"]).fit(
            X, np.where(number == 2, "high", "rest")
        )
    assert by_text.score(X, number) > 0.8
    assert two.predict_proba(X).shape == (120, 2)
    assert_same_elsewhere(two, X, tmp_path)


def test_levels_without_rows_are_left_out(rows):
    with without_warnings():
        clf = small(order=["lowest", *ORDER], max_epochs=2).fit(*rows)
    assert clf.classes_.tolist() == sorted(ORDER)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_the_pool_has_an_ordered_member(rows, effort):
    X, y = rows
    clf = GPClassifier(effort=effort, order=ORDER, random_state=0).fit(X, y)
    assert clf.inducing_points_.shape[0] == 1 and clf.plan_.training.latent == 1
    plain = GPClassifier(effort=effort, random_state=0).fit(X, y)
    assert clf.plan_.members == plain.plan_.members
    assert clf.estimate_.log_loss < plain.estimate_.log_loss + 0.05


def test_the_default_trains_one_function_as_long_as_one_for_each_class():
    """Six classes by a product of four of twenty columns.

    Trained for the epochs of one function per class, it had .33, and those have .34; now it has .23.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 3, size=(2600, 20))
    f = X[:, 0] / X[:, 1] * X[:, 2] ** 0.5 * X[:, 3] ** 2
    y = np.searchsorted(np.quantile(f, [0.2, 0.4, 0.6, 0.8, 0.95]), f)
    losses = []
    plans = []
    for order in (None, list(range(6))):
        clf = GPClassifier(order=order, effort="fast", ensemble=None, random_state=0)
        clf.fit(X[:480], y[:480])
        log_p = clf.predict_log_proba(X[480:])
        losses.append(-log_p[np.arange(2120), y[480:]].mean())
        plans.append(clf.plan_.training)

    free, ordered = plans
    assert ordered.max_epochs == 6 * free.max_epochs
    assert ordered.patience == 6 * free.patience
    assert losses[1] < losses[0]


@pytest.mark.slow
def test_sep_weights_and_partial_fit(rows):
    X, y = rows
    weight = np.where(y == "mid", 0.5, 1.0)
    most = max(np.mean(y == label) for label in ORDER)
    with without_warnings():
        clf = small(method="sep", order=ORDER).fit(X, y, weight)
        grown = small(method="sep", order=ORDER).partial_fit(X[:60], y[:60])
        grown.partial_fit(X[60:], y[60:])
    assert clf.score(X, y) > most + 0.1 and grown.score(X, y) > most + 0.1
    assert grown.inducing_points_.shape[0] == 1


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (["low", "mid"], "'high'"),
        (["low", "mid", "high", "low"], "'low' twice"),
        ("low,mid,high", "list"),
    ],
)
def test_a_wrong_order_names_the_class(rows, order, said):
    with pytest.raises(BadOption, match=f"order=.*{said}"):
        small(order=order).fit(*rows)


@pytest.mark.parametrize(
    "method", ["vi", "rep", "gfitc", VI(), EP(likelihood="probit")]
)
def test_other_methods_are_refused(rows, method):
    with pytest.raises(BadOption, match="order="):
        small(method=method, order=ORDER).fit(*rows)


def test_the_likelihood_alone_leads_to_order(rows):
    with pytest.raises(BadOption, match=r"Ordinal.*order="):
        small(method=EP(likelihood=Ordinal())).fit(*rows)


@pytest.mark.usefixtures("few_trees")
def test_the_command_line(rows, tmp_path):
    from typer.testing import CliRunner

    from cavity.cli.app import app

    X, y = rows
    lines = ["a,b,size", *(f"{a},{b},{c}" for (a, b), c in zip(X, y, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    model = tmp_path / "t.cavity"
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "size", "--effort", "fast"]
    arguments += ["--order", "low, mid,high", "--out", str(model), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["classes"] == sorted(ORDER)
    loaded = cavity.load(model)
    assert loaded.order == ORDER and loaded.inducing_points_.shape[0] == 1


@pytest.mark.parametrize("kind", [np.array, pd.Series, pd.Index, pd.Categorical])
def test_an_array_of_texts_survives_saving(kind, rows, tmp_path):
    clf = small(order=kind(ORDER), max_epochs=2)
    with without_warnings():
        clf.fit(*rows).save(tmp_path / "m")
    assert cavity.load(tmp_path / "m").order == ORDER
