"""predict_uncertainty: entropy, noise and not knowing, for every likelihood; which rows
to label next.
"""

import numpy as np
import pytest

from cavity import BadInput, BadOption, GPClassifier
from cavity.prediction.ranked_rows import rank
from reference.information import monte_carlo
from support import classifier, latent_columns, toy

LATTICE = 0.004  # nats, beside the error of the Monte Carlo
MODELS = {
    "ep": {"method": "ep"},
    "gfitc": {"method": "gfitc"},
    "rep": {"method": "rep", "epsilon": 0.2},
    "vi": {"method": "vi", "likelihood": "robust-max"},
    "softmax": {"method": "vi", "likelihood": "softmax", "noise": 0.0},
}


def fitted(model: str, C: int, **options) -> GPClassifier:
    X, y = toy(60, C)
    settings = {
        "n_inducing": 8,
        "learn": (),
        "max_epochs": 5,
        "tol": 1.0,
        "random_state": 0,
        "noise": 0.2,
    }
    return classifier(**{**settings, **MODELS[model], **options}).fit(X, y)


def new_rows(n: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    return rng.normal(size=(n, 2)) * rng.uniform(0.3, 4.0, (n, 1))


@pytest.mark.parametrize("C", [2, 3, 10])
@pytest.mark.parametrize("model", MODELS)
def test_each_of_the_three_agrees_with_monte_carlo_on_the_latent_values(
    model, C
) -> None:
    clf, X = fitted(model, C), new_rows(8 if C < 10 else 4)
    mean, var = latent_columns(clf, X)
    epsilon = {"rep": 0.2, "vi": 1e-3}.get(model, 0.0)
    kind = "softmax" if model == "softmax" else "largest"
    expected = monte_carlo(mean, var - clf.noise_, clf.noise_, kind, epsilon, 1000)
    got = clf.predict_uncertainty(X)
    for value, (estimate, error) in zip(got, expected, strict=True):
        assert (
            np.abs(value - estimate) < 4.5 * error + (LATTICE if C > 2 else 1e-6)
        ).all()
    P = clf.predict_proba(X)
    np.testing.assert_allclose(got.total, -(P * np.log(P)).sum(1), rtol=1e-9)
    np.testing.assert_allclose(
        got.aleatoric + got.epistemic, got.total, atol=0.01 if C > 2 else 1e-8
    )
    assert (got.epistemic >= 0).all() and (got.aleatoric >= 0).all()


@pytest.mark.parametrize("C", [2, 3])
def test_the_epistemic_part_grows_away_from_the_data(C) -> None:
    clf = fitted("ep", C, max_epochs=50, tol=1e-3)
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    ray = np.column_stack([np.cos(angle), np.sin(angle)])
    rings = [
        clf.predict_uncertainty(r * ray).epistemic.mean()
        for r in (0.5, 2.0, 4.0, 8.0, 16.0)
    ]
    assert (np.diff(rings) > -1e-3).all() and rings[-1] > 5 * rings[0]


def test_rank_for_labeling_is_the_order_of_the_epistemic_part() -> None:
    clf, X = fitted("ep", 3), new_rows(25)
    order = clf.rank_for_labeling(X)
    assert sorted(order) == list(range(25))
    np.testing.assert_array_equal(
        order.scores, clf.predict_uncertainty(X).epistemic[order]
    )
    assert (np.diff(order.scores) <= 0).all()
    np.testing.assert_array_equal(clf.rank_for_labeling(X, 4), order[:4])
    with pytest.warns(UserWarning, match=r"n=100.*25"):
        np.testing.assert_array_equal(clf.rank_for_labeling(X, n=100), order)


def test_ranked_rows_stand_for_the_array_of_their_numbers() -> None:
    ranked = fitted("ep", 3).rank_for_labeling(new_rows(9), 4)
    assert ranked.shape == ranked.rows.shape == (4,)
    assert ranked.shape == np.shape(ranked)

    for dtype in (None, np.float32):
        array = np.asarray(ranked, dtype=dtype)
        np.testing.assert_array_equal(array, ranked.rows)
        assert array.dtype == (dtype or np.int64)

    copied = np.array(ranked)
    copied[:] = -1
    assert (ranked.rows >= 0).all()


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="older asarray has no copy="
)
def test_ranked_rows_refuse_an_array_without_the_copy_that_it_needs() -> None:
    ranked = fitted("ep", 3).rank_for_labeling(new_rows(9), 4)
    assert np.shares_memory(np.asarray(ranked, copy=False), ranked.rows)
    assert not np.shares_memory(np.asarray(ranked, copy=True), ranked.rows)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(ranked, dtype=np.float32, copy=False)


@pytest.mark.parametrize("n", [0, -1, 2.5, "all"])
def test_rank_for_labeling_needs_a_whole_number(n) -> None:
    with pytest.raises(BadOption, match="n="):
        fitted("ep", 2).rank_for_labeling(new_rows(3), n)


def test_rows_without_an_epistemic_part_are_not_ranked() -> None:
    part = np.array([0.1, np.nan, 0.3])
    with pytest.raises(BadInput, match="row 1"):
        rank(np.arange(3), part, 2)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("ensemble", [None, "trees"], ids=["temperature", "pool"])
def test_the_total_is_the_entropy_of_the_printed_probabilities_and_the_parts_add_up(
    ensemble,
) -> None:
    X, y = toy(90, 4)
    clf = GPClassifier(
        effort="fast",
        ensemble=ensemble,
        calibration="temperature",
        n_inducing=10,
        random_state=0,
    )
    clf.fit(X, y)
    assert clf.ensemble_weights_[0] != 1.0
    P, got = clf.predict_proba(new_rows(30)), clf.predict_uncertainty(new_rows(30))
    np.testing.assert_allclose(
        got.total, -(P * np.log(np.maximum(P, 1e-300))).sum(1), atol=1e-12
    )
    np.testing.assert_allclose(got.aleatoric + got.epistemic, got.total, atol=1e-12)
    assert (got.epistemic >= 0).all() and (got.aleatoric >= 0).all()
