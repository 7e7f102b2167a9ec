"""GPClassifier(mean=...): what a useful and a useless mean do, and what is refused."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier

import cavity
from cavity import GPClassifier
from cavity.errors import BadOption
from cavity.fitting.prior_mean import score_rows
from cavity.intake.tables import Table
from cavity.prior_mean import center_scores
from support import slow

pytestmark = pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")


class Shuffled(DecisionTreeClassifier):
    """Learns labels of other rows."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, np.random.default_rng(0).permutation(y), sample_weight)


def smooth(n, seed=0):
    """Three classes with smooth borders, which a Gaussian process learns well."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2], np.cos(X[:, 0] + X[:, 1])])
    return X, (f + 0.2 * rng.normal(size=f.shape)).argmax(1)


def stepped(n, seed=0, C=2):
    """Labels by 14 steps along one column of four, which trees learn sooner than a smooth kernel."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 4))
    y = np.random.default_rng(5).integers(C, size=14)[np.floor(14 * X[:, 0]).astype(int)]
    noisy = rng.random(n) < 0.05
    return X, np.where(noisy, rng.integers(C, size=n), y)


TREES = ExtraTreesClassifier(30, random_state=0)
BOOSTING = HistGradientBoostingClassifier(max_iter=30, early_stopping=False, random_state=0)


def fit(data, mean, **options):
    arguments = {"n_inducing": 30, "effort": "fast", "calibration": None, "random_state": 0} | options
    return GPClassifier(mean=mean, **arguments).fit(*data)


def nll(clf, data):
    return log_loss(data[1], clf.predict_proba(data[0]), labels=clf.classes_)


def test_a_useless_mean_gets_hardly_any_weight_and_nothing_is_lost():
    train, test = smooth(300), smooth(2000, 1)
    plain, leaning = fit(train, None), fit(train, Shuffled(max_leaf_nodes=20, random_state=0))
    scores = center_scores(leaning._fitted.prior_mean.members[0].log_proba(test[0]))
    added = np.abs(leaning.mean_weights_[0]) * scores.std()
    assert added < 0.05 * leaning.predict_latent(test[0])[0].std()
    assert nll(leaning, test) < 1.03 * nll(plain, test)


def test_a_mean_that_knows_more_gets_weight_and_helps():
    train, test = stepped(300), stepped(1000, 1)
    plain, leaning = fit(train, None), fit(train, BOOSTING)
    assert leaning.mean_weights_[0] > 0.05
    assert leaning.log_marginal_likelihood_ > plain.log_marginal_likelihood_ + 20
    assert nll(leaning, test) < 0.6 * nll(plain, test)


@pytest.mark.parametrize("method", ["ep", "vi", slow("sep"), slow("rep"), slow("gfitc")])
def test_every_method_but_laplace_learns_the_weight(method):
    epochs = 15 if method == "gfitc" else 80
    clf = fit(stepped(150), BOOSTING, method=method, n_inducing=10, max_epochs=epochs)
    assert clf.mean_weights_[0] > 0.02


def test_scores_of_a_row_do_not_depend_on_its_label():
    """They come from folds without the row; a tree that saw it would know."""
    X, y = stepped(100)
    config = GPClassifier(mean=DecisionTreeClassifier(random_state=0))._config()
    found = score_rows(config, Table(X, y, np.ones(100), 2), 0)
    own = found.scores[0, 0] * (2 * y - 1)
    seen = center_scores(found.members[0].log_proba(X))[:, 0] * (2 * y - 1)
    assert (seen > 0).all() and (own < 0).any()


def test_a_row_alone_in_its_class_has_no_score():
    X, y = stepped(40)
    y[7] = 2
    config = GPClassifier(mean=TREES)._config()
    scores = score_rows(config, Table(X, y, np.ones(40), 3), 0).scores
    assert scores.shape == (1, 3, 40) and (scores[0, :, 7] == 0).all() and (scores[0, :, 8] != 0).any()


def test_a_class_that_a_fold_lacks_gets_the_lowest_score():
    """Equal rows are in one fold, whatever their labels are: the others may lack a class."""
    X, y = stepped(30)
    X[:4], y[0], y[1:4] = X[0], 0, 2
    config = GPClassifier(mean=TREES)._config()
    scores = score_rows(config, Table(X, y, np.ones(30), 3), 0).scores
    assert (scores[0, 2, :4] < scores[0, :2, :4].min(0)).all()


@pytest.mark.parametrize("C", [2, 3])
def test_saved_and_pickled_models_predict_the_same_bits(tmp_path, C):
    train, (new, _) = stepped(150, C=C), stepped(40, 1, C)
    clf = fit(train, (BOOSTING, TREES))
    clf.save(tmp_path / "model")
    for again in (cavity.load(tmp_path / "model"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.predict_proba(new), clf.predict_proba(new))
        np.testing.assert_array_equal(again.predict_uncertainty(new), clf.predict_uncertainty(new))
        np.testing.assert_array_equal(again.mean_weights_, clf.mean_weights_)
        assert len(again.mean_weights_) == 2


def test_a_fit_without_a_mean_has_no_weights():
    data = stepped(80)
    clf = fit(data, TREES)
    assert hasattr(clf, "mean_weights_")
    assert not hasattr(clf.set_params(mean=None).fit(*data), "mean_weights_")


def test_calibration_selection_and_validation_rows_see_the_mean():
    """A full fit of method="auto": folds, candidates and their scores all lean on the same trees."""
    train, test = stepped(260), stepped(800, 1)
    clf = GPClassifier(mean=BOOSTING, n_inducing=20, random_state=0).fit(*train)
    assert clf.calibration_ == "2 of 3 folds" and clf.mean_weights_[0] > 0.02
    assert abs(clf.estimate_.log_loss - nll(clf, test)) < 3 * clf.estimate_.standard_error
    held = GPClassifier("ep", mean=BOOSTING, n_inducing=20, max_epochs=30, random_state=0)
    held.fit(*train, eval_set=test)
    assert min(row["validation_nll"] for row in held.history_) == pytest.approx(nll(held, test), rel=0.01)


def test_explanations_work_with_a_mean():
    X, y = stepped(120)
    clf = fit((X, y), BOOSTING)
    assert clf.feature_importance_[0] > 3 * clf.feature_importance_[1:].max()
    found = clf.partial_dependence(X, 0, n_values=5, n_rows=20)
    assert (found.low <= found.mean).all() and (found.mean <= found.high).all()


BAD = {
    "laplace": ({"method": "laplace", "mean": "trees"}, "laplace"),
    "fixed": ({"method": "ep", "mean": "trees", "learn": ()}, "weights of mean= at 0"),
    "name": ({"mean": "forest"}, "mean='forest'"),
    "class": ({"mean": ExtraTreesClassifier}, "give an instance"),
    "number": ({"mean": 3.0}, "not a classifier"),
    "none": ({"mean": []}, "no classifier"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_means_are_refused_before_any_row_is_read(name):
    options, text = BAD[name]
    with pytest.raises(BadOption, match=text):
        GPClassifier(**options).fit(None, None)


def test_what_a_mean_cannot_do_is_refused(tmp_path):
    X, y = stepped(60)
    with pytest.raises(BadOption, match="cannot be stored as arrays"):
        fit((X, y), LogisticRegression())
    with pytest.raises(BadOption, match="mean= fits other classifiers"):
        GPClassifier(mean=TREES).fit(lambda: iter([(X, y)]))
    with pytest.raises(BadOption, match="rows cannot be added"):
        GPClassifier("sep", mean=TREES).partial_fit(X, y)
    clf = fit((X, y), TREES)
    with pytest.raises(BadOption, match="fit with mean=None"):
        clf.diagnose(X, y)
    with pytest.raises(BadOption, match="fit with mean=None"):
        clf.sample_hyperparameters(X, y)
    with pytest.raises(BadOption, match="partial_fit cannot add rows"):
        clf.set_params(mean=None).partial_fit(X, y)
