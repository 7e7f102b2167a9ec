"""Temperature, pool with trees and `effort`: what they promise."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import cavity
from cavity import GPClassifier
from cavity.errors import BadOption, NotPositiveDefinite
from cavity.fitting import calibration, leave_one_out, members
from cavity.fitting.classification_job import ClassifierFits
from cavity.fitting.leave_one_out import choose_sample
from cavity.fitting.members import make_members
from cavity.fitting.sklearn_trees import ExtraTrees, choose_columns
from cavity.options import nest, policy
from cavity.options.plan import TableSize
from cavity.prediction.model import predict_log_proba
from cavity.prediction.pool import Pool, fit_temperature
from cavity.rows.splitting import choose_folds
from cavity.training import loop

FIXED = " at the learnt hyper-parameters"


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(160, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0)
    return X[:110], y[:110], X[110:], y[110:]


@pytest.fixture(scope="module")
def easy():
    """Classes far apart: a short fit is less sure of them than it should be."""
    return make_blobs(240, 5, centers=6, cluster_std=1.0, center_box=(-4, 4), random_state=0)


@pytest.fixture(autouse=True)
def folds_of_larger_tables(monkeypatch):
    """Tables of this file are small, and stand for larger ones, whose folds keep the learnt hyper-parameters."""
    monkeypatch.setattr(policy, "RELEARN_ROWS", dict.fromkeys(policy.TREES, 50))


def model(**options):
    short = {"n_inducing": 8, "max_epochs": 6, "ensemble": None, "random_state": 0}
    return GPClassifier(**nest(**short | options))


@pytest.fixture(scope="module")
def calibrated(easy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model().fit(*easy)


def test_a_temperature_is_part_of_auto_and_of_nothing_else(table, easy, calibrated):
    (X, y), new = easy, table[2]
    plain, fitted = model(calibration=None).fit(X, y), calibrated
    assert (plain.temperature_, plain.calibration_) == (1.0, "none")
    assert fitted.calibration_ == f"3 folds{FIXED}" and fitted.temperature_ != 1.0
    logs = plain.predict_log_proba(new) / fitted.temperature_
    expected = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    np.testing.assert_allclose(fitted.predict_log_proba(new), expected, atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(new), plain.predict(new))
    assert model(method="ep").fit(X, y).temperature_ == 1.0
    assert (
        model(method="ep", calibration="temperature", effort="fast").fit(X, y).calibration_ == "leave-one-out"
    )


def test_the_weight_is_that_of_the_folds_or_of_leave_one_out(easy, monkeypatch):
    X, y = easy
    held, calibrate = [], calibration.Calibration._calibrate

    def keep(self, rows, *rest):
        held.append(rows)
        return calibrate(self, rows, *rest)

    monkeypatch.setattr(calibration.Calibration, "_calibrate", keep)
    fitted, plain, ones = model().fit(X, y), model(calibration=None).fit(X, y), np.ones(len(y))
    of_folds = fit_temperature(held[0].parts[0], held[0].y, held[0].weight)
    assert 1 / fitted.temperature_ == pytest.approx(of_folds)
    of_sites = fit_temperature(plain.loo_log_proba_, y, ones)
    fast = model(effort="fast").fit(X, y)
    assert of_sites > 1 and 1 / fast.temperature_ == pytest.approx(of_sites**0.75)


def test_folds_at_the_learnt_hyper_parameters_are_fits_without_the_fold(table, monkeypatch):
    """The same kernel, inducing points and noise as those of all rows, and sites of the other rows alone."""
    X, y, _, _ = table
    held = []
    monkeypatch.setattr(
        calibration.Calibration,
        "_calibrate",
        lambda self, rows, *rest: held.append(rows) or calibration.Calibrated(Pool(), "none"),
    )
    monkeypatch.setattr(policy, "FOLD_SWEEPS", 200)
    monkeypatch.setattr(policy, "FOLD_TOL", 1e-11)
    fitted = model().fit(X, y)
    fold = choose_folds(X, y, 3, np.random.RandomState(0).randint(2**31 - 1))
    options = {"kernel": fitted.kernel_, "inducing": fitted.inducing_points_, "noise": fitted.noise_}
    fixed = {"calibration": None, "learn": (), "tol": 1e-9, "max_epochs": 2000}
    other = GPClassifier(**nest(**fixed, **options))
    other.fit(X[fold != 0], y[fold != 0])
    first = held[0].rows[: np.sum(fold == 0)]
    np.testing.assert_array_equal(first, np.flatnonzero(fold == 0))
    np.testing.assert_allclose(held[0].parts[0][: len(first)], other.predict_log_proba(X[first]), atol=1e-4)


def test_folds_that_learn_again_leave_the_model_of_all_rows_alone(table, monkeypatch):
    """They begin at its first epochs, in hyper-parameters of their own."""
    X, y, new, _ = table
    monkeypatch.setattr(policy, "RELEARN_ROWS", dict.fromkeys(policy.TREES, 200))
    few = X[:60], y[:60]
    alone, fitted = model(calibration=None, max_epochs=3).fit(*few), model(max_epochs=3).fit(*few)
    assert fitted.calibration_ == "3 folds"
    np.testing.assert_array_equal(fitted.inducing_points_, alone.inducing_points_)
    np.testing.assert_array_equal(fitted.predict(new), alone.predict(new))


@pytest.mark.parametrize(("failing", "how"), [({1}, f"2 of 3 folds{FIXED}"), ({1, 2, 3}, "leave-one-out")])
def test_a_fold_that_cannot_be_fitted_is_left_out(table, monkeypatch, failing, how):
    X, y, new, _ = table
    fit_part, fits = ClassifierFits.fit_part, []

    def fail(self, *rest):
        fits.append(rest)
        if len(fits) in failing:
            raise NotPositiveDefinite("no factor")
        return fit_part(self, *rest)

    monkeypatch.setattr(ClassifierFits, "fit_part", fail)
    with pytest.warns(UserWarning, match="a fit on part of the rows could not be factorised"):
        fitted = model().fit(X, y)
    assert fitted.calibration_ == how and len(fits) == 3
    assert np.isfinite(fitted.predict_log_proba(new)).all()


@pytest.mark.parametrize(
    ("options", "fitted_folds", "how"),
    [
        ({}, [0, 1, 2], f"3 folds{FIXED}"),
        ({"effort": "best"}, [0, 1, 2], f"3 folds{FIXED}"),
        ({"ensemble": ExtraTreesClassifier(5, random_state=0)}, [0, 1, 2], f"3 folds{FIXED}"),
    ],
)
def test_the_estimate_has_the_rows_of_the_folds_that_were_fitted(table, options, fitted_folds, how):
    X, y, _, _ = table
    fitted = model(max_epochs=1, **options).fit(X, y)
    fold = choose_folds(X, y, policy.FOLDS, seed=0)
    held = np.isin(fold, fitted_folds)
    assert (fitted.calibration_, fitted.estimate_.how, fitted.estimate_.rows) == (how, how, held.sum())
    np.testing.assert_array_equal(fitted.estimate_.true, np.bincount(y[held]))


def test_fast_fits_once(table, monkeypatch):
    X, y, _, _ = table
    monkeypatch.setattr(calibration.Calibration, "_use_folds", None)
    assert model(effort="fast").fit(X, y).calibration_ == "leave-one-out"


@pytest.mark.parametrize(("effort", "parts"), [("balanced", 3), ("best", 4)])
def test_a_pool_is_saved_without_its_members_being_objects(table, tmp_path, effort, parts):
    X, y, new, labels = table
    fitted = model(effort=effort, ensemble="auto").fit(X, y)
    assert fitted.calibration_ == f"3 folds{FIXED}" and fitted.ensemble_weights_.shape == (parts,)
    alone = model(effort=effort).fit(X, y)
    assert log_loss(labels, fitted.predict_proba(new)) < 1.1 * log_loss(labels, alone.predict_proba(new))
    fitted.save(tmp_path / "pool.cavity")
    loaded = cavity.load(tmp_path / "pool.cavity")
    np.testing.assert_array_equal(loaded.predict_proba(new), fitted.predict_proba(new))
    assert loaded.calibration_ == fitted.calibration_
    np.testing.assert_array_equal(loaded.ensemble_weights_, fitted.ensemble_weights_)


def test_a_bootstrapped_forest_is_weighed_by_rows_that_its_trees_did_not_draw(table, monkeypatch):
    X, y, _, _ = table
    held, calibrate = [], calibration.Calibration._calibrate
    monkeypatch.setattr(
        calibration.Calibration,
        "_calibrate",
        lambda self, rows, *rest: held.append(rows) or calibrate(self, rows, *rest),
    )
    forest = ExtraTreesClassifier(60, bootstrap=True, oob_score=True, random_state=0)
    model(ensemble=forest).fit(X, y)
    columns = choose_columns(X, [forest])
    expected = forest.fit(X[:, columns], y).oob_decision_function_[held[0].rows]
    np.testing.assert_allclose(np.exp(held[0].parts[1]), np.maximum(expected, 1e-6), atol=1e-5)


@pytest.mark.parametrize(("first", "boosted"), [(0.0, 1), (0.2, 4)])
def test_members_that_do_not_count_are_not_stored(table, monkeypatch, first, boosted):
    """Boosting without weight in the first fold is not fitted again."""
    X, y, new, _ = table
    weights = iter([[0.9, first, 0.3], [0.9, 0.0, 0.3] if first else [0.9, 0.3]])
    monkeypatch.setattr(calibration, "fit_weights", lambda *_: np.array(next(weights)))
    fit_member, fits = members.fit_member, []
    for room in (members, calibration):
        monkeypatch.setattr(room, "fit_member", lambda m, *rest: fits.append(type(m)) or fit_member(m, *rest))
    fitted = model(ensemble="trees").fit(X, y)
    assert fits.count(HistGradientBoostingClassifier) == boosted and fits.count(ExtraTrees) == 4
    boosting, forest = fitted._fitted.pool.members
    assert len(boosting.feature) == 1 < len(forest.feature) and len(fitted.ensemble_weights_) == 3
    weighed = fitted._fitted._replace(pool=Pool(0.9, (forest,), (0.3,), fitted._fitted.pool.gate))
    np.testing.assert_array_equal(fitted.predict_log_proba(new), predict_log_proba(weighed, new)[0])


def plan_members(classes=3, alike=True, rows=100):
    config, size = model(ensemble="trees")._config(), TableSize(rows, 5, classes, classes, rows)
    planned = policy.plan_calibration(config, size, in_memory=True, alike=alike, held=None)
    return make_members("trees", planned, 0)


def test_many_classes_get_no_boosting():
    assert [len(plan_members(classes)) for classes in (20, 21)] == [2, 1]


def test_boosting_does_not_diverge_where_rules_decide_and_a_class_is_rare():
    """Unshrunk, a leaf whose rows are all certain divides by nearly 0: this table lost 5 nats, and the pool chose by luck."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 4))
    y = np.searchsorted([0.25, 1.04, 1.64, 2.3], X[:, 0])
    y = np.where((y < 3) & (X[:, 1] > 0) & (X[:, 2] > 0.5), (y + 1) % 3, y)
    y[X[:, 0] >= np.sort(X[:2000, 0])[-5]] = 5
    config, size = model(ensemble="trees")._config(), TableSize(2000, 4, 6, 6, 2000)
    plan = policy.plan_calibration(config, size, in_memory=True, alike=True, held=None)
    boosting = make_members("trees", plan, 0)[0].fit(X[:2000], y[:2000])
    assert log_loss(y[2000:], boosting.predict_proba(X[2000:])) < 0.1


def test_where_trees_do_not_help_and_the_model_is_far_from_sharp_its_run_goes_on(monkeypatch):
    """Middle tables train in fewer steps, because trees make up for them: where they do not, steps may be missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2001, 3))
    y = np.searchsorted([-1.5, -0.5, 0.5, 1.5], X.sum(1))

    def fit(weight, **limit):
        monkeypatch.setattr(calibration, "fit_weights", lambda parts, *_: weight * np.eye(len(parts))[0])
        return model(effort="balanced", ensemble="auto", n_inducing=4, max_epochs=2).fit(X, y, **limit)

    kept, limited, longer = fit(1.0), fit(2.0, time_limit=100), fit(2.0)
    for clf in (kept, limited):
        assert len(clf.history_) == 2 and len(clf.ensemble_weights_) == 4
    assert len(longer.history_) == 4 and len(longer.ensemble_weights_) == 1
    assert [row["objective"] for row in longer.history_[:2]] == [row["objective"] for row in kept.history_]


def test_a_forest_does_not_know_a_row_by_its_twin():
    large = [plan_members(alike=alike, rows=3000)[1] for alike in (True, False)]
    assert [forest.bootstrap for forest in large] == [True, False]
    assert isinstance(plan_members()[1], ExtraTrees)  # whose folds keep twins together


@pytest.fixture(scope="module")
def pooled(table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(ensemble="trees", max_epochs=None).fit(*table[:2])


def test_trees_count_at_rows_like_the_training_rows_and_not_far_away(table, pooled):
    X, _, new, _ = table
    gate, weights = pooled._fitted.pool.gate, pooled.ensemble_weights_
    g = lambda rows: gate.at(pooled.predict_latent(rows)[1])[:, 0]
    assert g(new).mean() > 0.95 and g(X).mean() > 0.95
    away = np.random.default_rng(0).normal(size=(10, 5))
    ray = np.array([g(s * away) for s in (0.0, 3.0, 10.0, 30.0, 1e3, 1e6)])
    assert (np.diff(ray, axis=0) <= 1e-9).all() and (ray[-2:] < 1e-12).all()
    plain = pooled._fitted._replace(pool=Pool(min(1.0, weights.sum())))
    far = 1e3 * away
    np.testing.assert_allclose(pooled.predict_log_proba(far), predict_log_proba(plain, far)[0], atol=1e-12)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("cell", [4e38, -1e300])
def test_a_cell_beyond_float32_is_fitted_and_predicted(table, cell):
    X, y, new, _ = table
    X, new = X.copy(), new.copy()
    X[3, 1] = new[0, 1] = cell
    fitted = model(ensemble="trees").fit(X, y)
    assert np.isfinite(fitted.predict_log_proba(new)).all()


@pytest.mark.usefixtures("few_trees")
def test_large_tables_get_no_trees_unless_they_are_asked_for(table, monkeypatch):
    X, y, _, _ = table
    monkeypatch.setattr(policy, "POOL_ROWS", 100)
    assert len(model(ensemble="auto").fit(X, y).ensemble_weights_) == 1
    assert len(model(ensemble="trees").fit(X, y).ensemble_weights_) == 3


def test_members_may_be_your_own(table):
    X, y, _, _ = table
    fitted = model(ensemble=[HistGradientBoostingClassifier(max_iter=5)]).fit(X, y)
    assert len(fitted.ensemble_weights_) == 2
    forest = ExtraTreesClassifier(5, random_state=0)  # iterable, though it is a single classifier
    assert len(model(effort="fast", ensemble=forest).fit(X, y).ensemble_weights_) == 2
    with pytest.raises(BadOption, match="LogisticRegression cannot be stored"):
        model(ensemble=[LogisticRegression()]).fit(X, y)
    with pytest.raises(BadOption, match="not a classifier of scikit-learn"):
        model(ensemble=[3]).fit(X, y)
    with pytest.raises(BadOption, match="effort='slow' is unknown"):
        model(effort="slow").fit(X, y)


def test_large_tables_hold_rows_out(table, monkeypatch):
    X, y, _, _ = table
    monkeypatch.setattr(policy, "FOLD_ROWS", 50)
    assert "at the learnt hyper-parameters, then a fit on all rows" in model().fit(X, y).calibration_
    monkeypatch.setattr(policy, "REFIT_ROWS", 60)
    monkeypatch.setattr(policy, "HELD_MOST", 20)
    fitted = model().fit(X, y)
    assert fitted.calibration_.endswith("rows held out")
    with pytest.raises(AttributeError, match="loo_log_proba_"):
        fitted.loo_log_proba_


def test_rows_sorted_by_class_are_held_out_from_every_class(monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) // 100
    found = []
    monkeypatch.setattr(policy, "HELD_MOST", 30)
    monkeypatch.setattr(policy, "FOLD_ROWS", 50)

    def keep(self, held, *rest):
        found.append(held)
        return calibration.Calibrated(Pool(), "none")

    monkeypatch.setattr(calibration.Calibration, "_calibrate", keep)
    model(max_epochs=1).fit(X, y)
    assert len(found[0].y) <= 33 and set(found[0].y) == {0, 1, 2}


@pytest.mark.usefixtures("few_trees")
def test_an_ensemble_that_is_named_is_never_ignored(table):
    X, y, _, _ = table
    assert len(model(effort="fast", ensemble="trees").fit(X, y).ensemble_weights_) == 3
    with pytest.raises(BadOption, match="ensemble= fits other classifiers to a table in memory"):
        model(ensemble="trees").fit([(X, y)])


def test_no_time_left_means_leave_one_out(table):
    X, y, _, _ = table
    assert model(max_seconds=1e-3).fit(X, y).calibration_ == "leave-one-out"


@pytest.fixture(scope="module")
def crowd():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 31
    return rng.normal(size=(31, 2))[y] + 0.1 * rng.normal(size=(200, 2)), y


def count_integrals(monkeypatch):
    """Return a list to which every call of `LeaveOneOut.log_proba` adds its rows."""
    rows, plain = [], leave_one_out.LeaveOneOut.log_proba

    def count(self, fitted):
        rows.append(len(self.y))
        return plain(self, fitted)

    monkeypatch.setattr(leave_one_out.LeaveOneOut, "log_proba", count)
    return rows


def test_the_temperature_of_many_classes_comes_from_some_rows(crowd, monkeypatch):
    X, y = crowd
    monkeypatch.setattr(policy, "LOO_ROWS_MANY", 50)
    rows = count_integrals(monkeypatch)
    many = model(effort="fast", max_epochs=1).fit(X, y)
    assert rows == [50] and many.calibration_ == "leave-one-out of 50 rows"
    assert many.estimate_.rows == 50 and rows == [50]  # computed once
    assert many.loo_log_proba_.shape == (200, 31)
    assert model(effort="fast", max_epochs=1).fit(X, y % 30).calibration_ == "leave-one-out"
    assert rows == [50, 200, 200]


def test_no_pass_over_a_large_table_follows_when_time_is_up(crowd, monkeypatch):
    X, y = crowd
    monkeypatch.setattr(policy, "LOO_ROWS_MANY", 50)
    monkeypatch.setattr(loop, "OVERTIME", (0.0, 0.0))  # any pass takes long
    late = model(effort="fast", batch_size=100, max_seconds=1e-3).fit(X, y)
    assert late.calibration_ == "leave-one-out of 50 rows" and late.history_[-1]["settling_sweeps"] == 0
    with pytest.raises(AttributeError, match="or time was up"):
        _ = late.loo_log_proba_


def test_rows_of_a_temperature_fall_with_the_classes():
    found = [policy.most_loo_rows(C) for C in (2, 30, 31, 500, 1000, 10_000)]
    assert found[0] == found[1] > 10**9 and found[2:] == [4000, 4000, 2097, 1000]


def test_random_rows_are_distinct_and_ascending():
    assert choose_sample(50, 50) is None
    chosen = choose_sample(10**9, 4000)
    assert len(chosen) == 4000 and (np.diff(chosen) > 0).all() and 0 <= chosen[0] and chosen[-1] < 10**9


@pytest.mark.parametrize("effort", ["fast", "balanced", "best"])
def test_points_grow_with_the_rows_within_the_effort(effort):
    config = lambda **o: GPClassifier(**nest(effort=effort, device="cpu", **o))._config()
    points = lambda config, n, C=3: policy.count_points(config, TableSize(n, 5, C, C, n))
    counts = [points(config(), n) for n in (100, 5_000, 20_000, 10**6)]
    assert counts == sorted(counts) and counts[0] == 100
    assert (counts[-1] == 100) == (effort == "fast")
    assert points(config(n_inducing=17), 10**6) == 17
    assert points(config(method="ep"), 10**6) == 100
    assert points(config(), 10**6, 1000) < 100


def test_onnx_has_the_temperature(table, calibrated):
    onnxruntime = pytest.importorskip("onnxruntime")
    new, fitted = table[2], calibrated
    from cavity import export

    made = export.onnx_model(fitted)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    found = session.run(["probabilities"], {"X": new})[0]
    np.testing.assert_allclose(found, fitted.predict_proba(new), atol=1e-6)


def test_partial_fit_keeps_the_temperature(easy):
    X, y = easy
    fitted = model(method="sep", calibration="temperature", effort="fast").fit(X, y)
    before = fitted.temperature_
    assert before != 1 and fitted.partial_fit(X[:20], y[:20]).temperature_ == before


@pytest.mark.parametrize(
    ("rows", "words"), [(110, "3 folds"), (109, "3 folds at the learnt hyper-parameters")]
)
def test_folds_of_small_tables_learn_again(table, monkeypatch, rows, words):
    X, y, _, _ = table
    monkeypatch.setattr(policy, "RELEARN_ROWS", dict.fromkeys(policy.TREES, rows))
    clf = model(max_epochs=2).fit(X, y)
    assert clf.calibration_ == words == clf.estimate_.how
    assert (clf.estimate_.optimism > 0) == (rows == 109)
