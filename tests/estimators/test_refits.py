"""Fits after fits: one that fails leaves what was there, and one that goes on goes on
from the right place.
"""

import numpy as np
import pytest

from cavity import BadFile, BadOption
from cavity.callbacks import Callback
from cavity.kernels import RBF, Matern12
from support import classifier, toy, without_warnings

X, Y = toy(40, 3)
QUICK = {"n_inducing": 5, "max_epochs": 4, "random_state": 0}


@pytest.fixture(autouse=True)
def quiet():
    with without_warnings():
        yield


class Interrupt(Callback):
    def epoch(self, run, row):
        raise KeyboardInterrupt


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(
    "again",
    [
        lambda clf: clf.set_params(training__damping=7).fit(X, 10 + Y),
        lambda clf: clf.fit(X[:, :1] * np.nan, 10 + Y),
    ],
)
def test_a_refit_that_fails_leaves_the_older_model(again):
    clf = classifier(**QUICK).fit(X, Y)
    before = clf.predict_proba(X)
    with pytest.raises(ValueError):
        again(clf)
    assert clf.classes_.tolist() == [0, 1, 2] and clf.n_features_in_ == 2
    np.testing.assert_array_equal(clf.predict_proba(X), before)


def test_a_first_fit_that_fails_leaves_no_traces():
    clf = classifier(damping=7)
    with pytest.raises(BadOption):
        clf.fit(X, Y)
    assert not [name for name in vars(clf) if name.endswith("_")]


def test_an_interrupted_refit_is_what_partial_fit_goes_on_from():
    clf = classifier("sep", **QUICK).fit(X, Y)
    with pytest.raises(KeyboardInterrupt):
        clf.set_params(callbacks=[Interrupt()]).fit(X, Y > 0)
    clf.set_params(callbacks=()).partial_fit(X, Y > 0)
    assert clf.predict_proba(X).shape == (40, len(clf.classes_)) == (40, 2)


@pytest.mark.parametrize("q_update", ["natural", "gradient"])
def test_a_warm_start_with_other_points_is_a_cold_one_for_q(q_update):
    """VI's q would else start at the prior, where its bound has poor optima."""
    options = QUICK | {"method": "vi", "q_update": q_update}
    warm = (
        classifier(**options, warm_start=True)
        .fit(X, Y)
        .set_params(n_inducing=8)
        .fit(X, Y)
    )
    cold = classifier(**options | {"n_inducing": 8}).fit(X, Y)
    assert warm.elbo_ == pytest.approx(cold.elbo_, rel=1e-9)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    options = QUICK | {"checkpoint": tmp_path / "run", "method": "ep"}
    classifier(kernel=RBF(), **options).fit(X, Y)
    for other in (
        {"kernel": Matern12()},
        {"kernel": RBF(), "noise": 2.0},
        {"kernel": RBF(), "learn": ("noise",)},
    ):
        with pytest.raises(BadFile, match="another run"):
            classifier(**options | other, resume=True).fit(X, Y)
    longer = options | {"max_epochs": 6, "learning_rate": 0.02, "kernel": RBF()}
    assert classifier(**longer, resume=True).fit(X, Y).n_epochs_ == 6


def test_partial_fit_moves_what_learn_still_names():
    clf = classifier("sep", **QUICK).fit(X, Y)
    noise = clf.noise_.copy()
    points = clf.inducing_points_.copy()
    clf.set_params(training__learn=()).partial_fit(X, Y)
    np.testing.assert_array_equal(clf.noise_, noise)
    clf.set_params(training__learn=("noise",)).partial_fit(X, Y)
    assert not np.array_equal(clf.noise_, noise)
    np.testing.assert_array_equal(clf.inducing_points_, points)
