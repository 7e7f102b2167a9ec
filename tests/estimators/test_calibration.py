"""Temperature, pool and `effort`: what they promise."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import cavity
from cavity import GPClassifier
from cavity.errors import BadOption, NotPositiveDefinite
from cavity.fitting import folds, judges, planning
from cavity.fitting import left_out as leave_one_out
from cavity.fitting.options import nest
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.judging import plan_judging
from cavity.fitting.options.policy.training import LBFGS_EPOCHS, plan_training
from cavity.fitting.options.policy.work import (
    LEAST_M,
    LEAST_POINTS,
    STEP_COST,
    count_budget,
    count_points,
    count_seen,
)
from cavity.pool import boosting, members
from cavity.pool.member_rows import MemberTask
from cavity.pool.pool import Pool
from cavity.pool.sklearn_trees import TreeColumns
from cavity.pool.weights import fit_temperature
from cavity.prediction.predict import predict_log_proba
from cavity.tables.table import Table
from support import SlowRows, latent_columns, slow, toy, without_warnings


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(
        160, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0
    )
    return X[:110], y[:110], X[110:], y[110:]


@pytest.fixture(scope="module")
def easy():
    """Classes far apart: a short fit is less sure of them than it should be."""
    return make_blobs(
        240, 5, centers=6, cluster_std=1.0, center_box=(-4, 4), random_state=0
    )


def model(**options):
    short = {"n_inducing": 8, "max_epochs": 6, "ensemble": None, "random_state": 0}
    return GPClassifier(**nest(**short | options))


@pytest.fixture(scope="module")
def calibrated(easy):
    with without_warnings():
        return model().fit(*easy)


@pytest.fixture
def judged(monkeypatch):
    """What held-out rows the fits of a test were judged by."""
    found = []
    judge = judges.judge_rows
    monkeypatch.setattr(
        judges, "judge_rows", lambda held, *r: found.append(held) or judge(held, *r)
    )
    return found


@pytest.fixture
def without_folds(monkeypatch):
    """Hold out a part of the rows, as if there were no time for folds."""
    in_short = partial(plan_judging, short=True)
    monkeypatch.setattr(planning, "plan_judging", in_short)


def test_a_temperature_is_part_of_auto_and_of_nothing_else(table, easy, calibrated):
    X, y = easy
    new = table[2]
    plain = model(calibration=None).fit(X, y)
    fitted = calibrated
    assert (plain.temperature_, plain.calibration_) == (1.0, "none")
    assert fitted.calibration_ == "3 folds" and fitted.temperature_ != 1.0
    logs = plain.predict_log_proba(new) / fitted.temperature_
    expected = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    np.testing.assert_allclose(fitted.predict_log_proba(new), expected, atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(new), plain.predict(new))
    assert model(method="ep").fit(X, y).temperature_ == 1.0
    named = model(method="ep", calibration="temperature", effort="fast").fit(X, y)
    assert named.calibration_ == "leave-one-out"


def test_the_estimate_scores_rows_with_weights_that_did_not_see_them(easy, judged):
    fitted = model().fit(*easy)
    (held,) = judged
    loss = 0.0
    for i in range(3):
        mine = held.part == i
        rest = held.part != i
        w = fit_temperature(held.log_proba[0][rest], held.y[rest], held.weight[rest])
        log_p = w * held.log_proba[0][mine]
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
        loss -= log_p[np.arange(mine.sum()), held.y[mine]].sum()
    assert fitted.estimate_.log_loss == pytest.approx(loss / len(held.y))


@pytest.mark.parametrize(
    ("failing", "how"), [({1}, "3 of 4 folds"), ({1, 2, 3, 4}, "leave-one-out")]
)
def test_a_fold_that_cannot_be_fitted_is_left_out(table, monkeypatch, failing, how):
    X, y, new, _ = table
    fit_fold = folds.fit_fold
    fits = []

    def fail(*given):
        fits.append(given)
        if len(fits) in failing:
            raise NotPositiveDefinite("no factor")
        return fit_fold(*given)

    monkeypatch.setattr(folds, "fit_fold", fail)
    with pytest.warns(UserWarning, match="factorised"):
        fitted = model().fit(X, y)
    assert fitted.calibration_ == how and len(fits) == 4
    assert np.isfinite(fitted.predict_log_proba(new)).all()


@pytest.mark.usefixtures("without_folds")
def test_held_out_rows_are_added_at_the_learnt_hyper_parameters(easy):
    """The posterior is that of all rows, as with hyper-parameters that are given."""
    X, y = easy
    fitted = model(max_epochs=8).fit(X, y)
    assert (
        fitted.calibration_ == "48 rows held out"
        and fitted.loo_log_proba_.shape == (240, 6)
    )
    options = {
        "kernel": fitted.kernel_,
        "inducing": fitted.inducing_points_,
        "noise": fitted.noise_,
    }
    fixed = {"calibration": None, "learn": (), "tol": 1e-5, "max_epochs": 300}
    other = GPClassifier(**nest(**fixed, **options)).fit(X, y)
    w = 1 / fitted.temperature_
    log_p = w * other.predict_log_proba(X)
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    np.testing.assert_allclose(
        np.exp(fitted.predict_log_proba(X)), np.exp(log_p), atol=0.02
    )


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_a_pool_is_saved_without_its_members_being_objects(table, tmp_path, effort):
    X, y, new, labels = table
    fitted = model(effort=effort, ensemble="auto").fit(X, y)
    folds = {"fast": 3, "balanced": 4}[effort]
    assert fitted.calibration_ == f"{folds} folds"
    assert len(fitted.ensemble_weights_) > 1
    alone = model(effort=effort).fit(X, y)
    assert log_loss(labels, fitted.predict_proba(new)) < 1.1 * log_loss(
        labels, alone.predict_proba(new)
    )
    fitted.save(tmp_path / "pool.cavity")
    loaded = cavity.load(tmp_path / "pool.cavity")
    np.testing.assert_array_equal(loaded.predict_proba(new), fitted.predict_proba(new))
    assert loaded.calibration_ == fitted.calibration_
    np.testing.assert_array_equal(loaded.ensemble_weights_, fitted.ensemble_weights_)


def test_members_that_do_not_count_are_not_fitted_again(table, monkeypatch):
    X, y, _, _ = table
    weights = lambda parts, **_: np.array(
        [1.0, *(0.3 if j == 1 else 0.01 for j in range(1, len(parts)))]
    )
    monkeypatch.setattr("cavity.fitting.verdict.fit_weights", weights)
    fits = {
        kind: 0 for kind in (members.Frequencies, members.Boosting, members.Forests)
    }
    for kind in fits:
        fit = kind.fit
        monkeypatch.setattr(
            kind,
            "fit",
            lambda self, *r, f=fit: (
                fits.update({type(self): fits[type(self)] + 1}) or f(self, *r)
            ),
        )
    fitted = model(ensemble="trees").fit(X, y)
    assert fits == {members.Frequencies: 5, members.Boosting: 1, members.Forests: 1}
    assert fitted.ensemble_weights_.tolist() == [1.0, 0.3]


def test_held_out_rows_choose_the_rounds_of_boosting():
    """Rules of four columns take many rounds; noise takes few."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(1600, 8)).astype(float)
    rule = X[:, :4].sum(1) % 2
    noise = rng.integers(2, size=1600)
    rounds = []
    for y in (rule.astype(int), noise):
        rows, held = (
            members.MemberRows(X[part], y[part], None, 2)
            for part in (slice(800), slice(800, None))
        )
        task = MemberTask(rows, TreeColumns.first(8), held)
        _, again = members.Boosting(0.1, 0).fit(task)
        rounds.append(again.rounds)
    assert rounds[0] > 50 > 20 > rounds[1]


def test_boosting_takes_the_rounds_that_it_has_time_for():
    """Without any time it has a few large steps, and is a member all the same; logistic
    regression is not.
    """
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(1600, 8)).astype(float)
    y = (X[:, :4].sum(1) % 2).astype(int)
    train, held = (
        Table(X[part], y[part], np.ones(800), 2)
        for part in (slice(800), slice(800, None))
    )
    recipes = [members.Frequencies(), members.Boosting(0.1, 0), members.Linear()]
    few = round(boosting.FIRST_REACH / boosting.QUICK_RATE)
    seconds = iter([100.0, 100.0, *np.linspace(99, 0, 40)])
    _, some = members.fit_members(
        recipes[:2], train, held, (), lambda: next(seconds, 0.0)
    )
    assert few < some.recipe.rounds and 0.1 <= some.recipe.rate < boosting.QUICK_RATE
    _, none = members.fit_members(recipes, train, held, (), lambda: 0.0)
    assert none.recipe.rounds <= few and none.recipe.rate == boosting.QUICK_RATE


def test_boosting_does_not_diverge_where_rules_decide_and_a_class_is_rare():
    """Unshrunk, a leaf whose rows are all certain divides by nearly 0: this table lost
    5 nats, and the pool chose by luck.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 4))
    y = np.searchsorted([0.25, 1.04, 1.64, 2.3], X[:, 0])
    y = np.where((y < 3) & (X[:, 1] > 0) & (X[:, 2] > 0.5), (y + 1) % 3, y)
    y[X[:, 0] >= np.sort(X[:2000, 0])[-5]] = 5
    rows = members.MemberRows(X[:2000], y[:2000], None, 6)
    task = MemberTask(rows, TreeColumns.first(4))
    boosting, _ = members.Boosting(0.1, 0, rounds=50).fit(task)
    assert log_loss(y[2000:], np.exp(boosting.log_proba(X[2000:]))) < 0.1


@pytest.fixture(scope="module")
def pooled(table):
    with without_warnings():
        return model(ensemble="trees", max_epochs=None).fit(*table[:2])


def test_members_count_at_rows_like_the_training_rows_and_not_far_away(table, pooled):
    X, _, new, _ = table
    gate = pooled._fitted.pool.gate
    weights = pooled.ensemble_weights_
    g = lambda rows: gate.at(latent_columns(pooled, rows)[1])[:, 0]
    assert g(new).mean() > 0.95 and g(X).mean() > 0.95
    away = np.random.default_rng(0).normal(size=(10, 5))
    ray = np.array([g(s * away) for s in (0.0, 3.0, 10.0, 30.0, 1e3, 1e6)])
    assert (np.diff(ray, axis=0) <= 1e-9).all() and (ray[-2:] < 1e-12).all()
    plain = pooled._fitted._replace(pool=Pool(min(1.0, weights.sum())))
    far = 1e3 * away
    np.testing.assert_allclose(
        pooled.predict_log_proba(far), predict_log_proba(plain, far)[0], atol=1e-12
    )


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("cell", [4e38, slow(-1e300)])
def test_a_cell_beyond_float32_is_fitted_and_predicted(table, cell):
    X, y, new, _ = table
    X = X.copy()
    new = new.copy()
    X[3, 1] = new[0, 1] = cell
    fitted = model(ensemble="auto").fit(X, y)
    assert np.isfinite(fitted.predict_log_proba(new)).all()


def test_members_may_be_your_own(table):
    X, y, _, _ = table
    fitted = model(ensemble=[HistGradientBoostingClassifier(max_iter=5)]).fit(X, y)
    assert fitted.plan_.members.pools and len(fitted.ensemble_weights_) <= 2
    forest = ExtraTreesClassifier(
        5, random_state=0
    )  # iterable, though it is a single classifier
    assert "given classifiers" in str(
        model(effort="fast", ensemble=forest).fit(X, y).plan_
    )
    with pytest.raises(BadOption, match="LogisticRegression"):
        model(ensemble=[LogisticRegression()]).fit(X, y)
    with pytest.raises(BadOption, match="classifier"):
        model(ensemble=[3]).fit(X, y)
    with pytest.raises(BadOption, match="slow"):
        model(effort="slow").fit(X, y)


@pytest.mark.usefixtures("few_trees")
def test_an_ensemble_that_is_named_is_never_ignored(table):
    X, y, _, _ = table
    plan = model(effort="fast", ensemble="trees").fit(X, y).plan_.members
    assert plan.trees and plan.rate and not plan.linear
    with pytest.raises(BadOption, match="memory"):
        model(ensemble="trees").fit([(X, y)])


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_the_work_of_a_fit_stays_within_the_budget_at_every_size(effort):
    """Points, steps and rows that are seen follow from one budget: only passes over the
    rows grow with these.
    """
    config = GPClassifier(effort=effort, device="cpu")._config()
    for classes, columns in ((1, 5), (3, 300), (12, 20), (300, 4)):
        for rows in (200, 3000, 50_000, 10**6):
            size = TableSize(rows, columns, max(classes, 2), classes, rows)
            M = count_points(config, size)
            seen = count_seen(config, size)
            plan = plan_training(config, size._replace(rows=seen), M)
            wide = max(M, LEAST_M)
            batches = 1 if plan.batch_size is None else seen / plan.batch_size
            passes = (
                LBFGS_EPOCHS[effort] if plan.optimizer == "lbfgs" else plan.max_epochs
            )
            visits = (
                passes * seen
                if plan.batch_size is None
                else passes * batches * plan.batch_size
            )
            work = classes * wide * (STEP_COST * wide + columns) * visits
            assert M >= LEAST_POINTS and work <= 3.5 * count_budget(config, classes)
            assert plan.optimizer in ("lbfgs", "adam")


def test_partial_fit_keeps_the_temperature(easy):
    X, y = easy
    fitted = model(method="sep", calibration="temperature", effort="fast").fit(X, y)
    before = fitted.temperature_
    assert before != 1 and fitted.partial_fit(X[:20], y[:20]).temperature_ == before


def test_no_pass_over_a_large_table_follows_when_time_is_up():
    X, y = toy(leave_one_out.LEAST_ROWS + 200, 3)
    late = model(
        method="ep",
        calibration="temperature",
        effort="fast",
        batch_size=100,
        max_seconds=1e-3,
        callbacks=[SlowRows()],
    )
    late.fit(X, y)
    assert (
        late.calibration_ == f"leave-one-out of {leave_one_out.LEAST_ROWS} rows"
        and late.history_[-1]["settling_sweeps"] == 0
    )
    with pytest.raises(AttributeError, match="time was up"):
        _ = late.loo_log_proba_
