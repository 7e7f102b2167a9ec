"""Settings of hyper-parameters and kernels of some columns, in the estimators."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import cavity
from cavity import GPClassifier, GPRegressor, Training
from cavity.errors import BadOption
from cavity.kernels import RBF, Bounded, Fixed, Gamma, Linear, LogNormal, Periodic
from cavity.methods import REP
from registered import assert_same_elsewhere

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.uniform(20, 60, N),
        "income": RNG.lognormal(3, 1, N),
        "city": RNG.choice(["a", "b", "c"], N),
    }
)
LABEL = np.where(np.sin(TABLE.age / 3) + (TABLE.city == "a") > 0.4, "yes", "no")
NUMBERS = TABLE[["age", "income"]].to_numpy()
KERNEL = (
    RBF(columns=["age", "city"], lengthscale=Bounded(0.5, 1.5))
    + Periodic(LogNormal(0, 0.5), period=Fixed(18.0), columns=["age"])
    + Linear(columns=[1], variance=Gamma(2, 2))
)


def make(kernel=KERNEL, **training) -> GPClassifier:
    return GPClassifier(
        "ep",
        kernel=kernel,
        n_inducing=8,
        max_epochs=4,
        random_state=0,
        training=Training(**training),
    )


@pytest.fixture(scope="module")
def fitted() -> GPClassifier:
    return make(noise=LogNormal(-2.0, 1.0)).fit(TABLE, LABEL)


def test_names_and_numbers_of_columns_mean_all_their_features(fitted):
    parts = fitted.kernel_.k1.k1, fitted.kernel_.k1.k2, fitted.kernel_.k2
    assert [len(part.index) for part in parts] == [4, 1, 1]
    frame = fitted.summary().to_frame()
    rows = frame[(frame.part == "RBF") & (frame.name == "lengthscale")]
    assert rows.column.tolist() == ["age", "city=a", "city=b", "city=c"]
    assert rows.value.between(0.5, 1.5).all()
    assert rows.value.nunique() == 2  # a category has one lengthscale
    assert fitted.kernel_.k1.k2.period.value == 18.0
    assert (fitted.feature_relevance_ > 0).all()


def test_a_saved_model_keeps_settings_and_columns(fitted, tmp_path):
    fitted.save(tmp_path / "m.cavity")
    loaded = cavity.load(tmp_path / "m.cavity")
    assert np.array_equal(loaded.predict_proba(TABLE), fitted.predict_proba(TABLE))
    assert repr(loaded.kernel_) == repr(fitted.kernel_)
    assert repr(loaded.kernel) == repr(KERNEL)
    assert repr(loaded.training) == repr(fitted.training)
    again = clone(loaded).fit(TABLE, LABEL)
    assert np.allclose(again.predict_proba(TABLE), fitted.predict_proba(TABLE))
    kept = pickle.loads(pickle.dumps(fitted))
    assert repr(kept.kernel_) == repr(fitted.kernel_)


@pytest.mark.parametrize(
    "kernel",
    [
        Periodic(period=Fixed([18.0, 30.0])),
        Periodic(period=18.0, columns=[0]) * RBF(columns=[1]) + Linear(columns=[0]),
    ],
)
def test_periodic_and_columns_predict_alike_everywhere(kernel, tmp_path):
    clf = make(kernel).set_params(ensemble=None).fit(NUMBERS, LABEL)
    assert_same_elsewhere(clf, NUMBERS, tmp_path)


def test_a_name_that_the_table_lacks_is_refused():
    with pytest.raises(BadOption, match=r"'agee'.*'age'"):
        make(RBF(columns=["agee"])).fit(TABLE, LABEL)
    with pytest.raises(BadOption, match="'age'"):
        make(RBF(columns=["age"])).fit(NUMBERS, LABEL)


def test_paths_of_learn_move_what_they_name():
    kernel = RBF(10.0, columns=["age"]) + Linear(20.0, columns=["income"])
    clf = make(kernel, learn=("kernel.0.lengthscale",)).fit(TABLE, LABEL)
    learnt = clf.kernel_
    assert not np.allclose(learnt.k1.lengthscale, 10)
    assert np.allclose(learnt.k2.lengthscale, 20, rtol=1e-12)
    assert np.allclose(learnt.k1.variance, 1) and np.allclose(learnt.k2.variance, 1)
    with pytest.raises(BadOption, match=r"kernel\.1\.variance"):
        make(kernel, learn=("kernel.5",)).fit(TABLE, LABEL)


def test_warm_starts_and_partial_fits_respect_settings():
    kernel = RBF(Bounded(9.0, 11.0, start=10.0), Fixed(2.0))
    clf = make(kernel).set_params(warm_start=True, method="sep")
    for _ in range(2):
        clf.fit(NUMBERS, LABEL)
        clf.partial_fit(NUMBERS, LABEL)
        value = np.asarray(clf.kernel_.lengthscale)
        assert ((value >= 9) & (value <= 11)).all() and (value != 10).any()
        assert np.asarray(clf.kernel_.variance) == 2.0


def test_noise_and_epsilon_take_settings():
    y = np.sin(NUMBERS[:, 0] / 9)
    bounded = Training(noise=Bounded(0.2, 0.5))
    reg = GPRegressor(training=bounded, normalize_y=False).fit(NUMBERS, y)
    noise = reg.summary().to_frame().query("part == 'noise'").value
    assert noise.between(0.2, 0.5).all()
    fixed = make(noise=Fixed(0.3)).set_params(kernel=RBF(10.0)).fit(NUMBERS, LABEL)
    noise = fixed.summary().to_frame().query("part == 'noise'").value
    assert np.allclose(noise, 0.3)
    method = REP(epsilon=Bounded(0.02, 0.03))
    rep = make(RBF(10.0), learn=("kernel", "epsilon")).set_params(method=method)
    rep.fit(NUMBERS, LABEL)
    assert 0.02 <= rep.epsilon_ <= 0.03
