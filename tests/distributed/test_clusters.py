"""Fits and predictions in one call on stand-ins of Ray and Spark, whose ranks are real
processes; tests/cluster has the engines themselves.
"""

import sys

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import engines
from cavity import GPRegressor, cluster
from cavity.errors import MissingExtra
from workers import Cauchy, assert_equal, check_groups, make, write_rows


@pytest.fixture
def ray(monkeypatch, tmp_path):
    """Fit on Ray."""
    engines.install_ray(monkeypatch.setitem)
    more = {
        "scaling": engines.ScalingConfig(num_workers=2),
        "run": engines.RunConfig(tmp_path / "storage"),
    }
    return lambda clf, rows, **fit: cluster.fit_on_ray(clf, str(rows), **more, **fit)


@pytest.fixture
def spark(monkeypatch):
    """Fit on Spark."""
    engines.install_spark(monkeypatch.setitem)
    return lambda clf, rows, **fit: cluster.fit_on_spark(clf, str(rows), **fit)


@pytest.fixture(params=["ray", "spark"])
def fit(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def alone(rows):
    return make().fit(rows, target="kind")


def test_two_ranks_give_the_model_of_one_process(fit, rows, alone):
    estimator = make()
    assert_equal(fit(estimator, rows, target="kind"), alone, rows)
    assert not hasattr(estimator, "classes_")


def test_groups_stay_together(fit, tmp_path):
    check_groups(
        lambda clf, rows: fit(clf, rows, target="kind", groups="patient"), tmp_path
    )


def test_a_kernel_of_ones_own_comes_back_from_the_storage_of_ray(ray, rows):
    found = ray(make(kernel=Cauchy()), rows, target="kind")
    assert isinstance(found.kernel_, Cauchy)


def test_an_error_of_a_rank_says_what_the_library_says(fit, rows):
    with pytest.raises(RuntimeError, match="'species'"):
        fit(make(), rows, target="species")


@pytest.fixture
def frame(rows):
    """The rows, whose column of labels has the name of a prediction."""
    return pq.read_table(rows).to_pandas().rename(columns={"kind": "label"})


def predict_on_ray(estimator, frame):
    blocks = engines.Dataset(frame[:60], frame[60:])
    return pandas.concat(
        cluster.predict_on_ray(estimator, blocks, batch_size=60).blocks
    )


def predict_on_spark(estimator, frame):
    with pytest.MonkeyPatch.context() as patch:
        engines.install_spark(patch.setitem)
        parts = engines.DataFrame(frame[:60], frame[:0], frame[60:])
        return pandas.concat(cluster.predict_on_spark(estimator, parts).parts)


PREDICT = pytest.mark.parametrize("predict", [predict_on_ray, predict_on_spark])


@PREDICT
def test_rows_get_the_columns_of_the_command_and_keep_their_own(predict, frame, alone):
    found = predict(alone, frame)
    pandas.testing.assert_frame_equal(found[["a", "b", "label"]], frame)
    P = found[["p_x", "p_y", "p_z"]].to_numpy()
    np.testing.assert_allclose(P, alone.predict_proba(frame[["a", "b"]]), rtol=1e-12)
    assert list(found["predicted label"]) == list(alone.classes_[P.argmax(1)])
    assert found.shape[1] == 7


@PREDICT
def test_a_regressor_adds_mean_and_std(predict, frame):
    X = frame[["a", "b"]]
    y = np.sin(X["a"]) + np.random.default_rng(0).normal(size=101)
    gp = GPRegressor(max_epochs=5).fit(X, y)
    mean, std = gp.predict(X, return_std=True)
    found = predict(gp, frame)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["std"], std, rtol=1e-9)


@pytest.mark.parametrize(
    ("fit", "package", "extra"),
    [
        (cluster.fit_on_ray, "ray", "ray"),
        (cluster.fit_on_spark, "pyspark", "spark"),
    ],
)
def test_a_missing_engine_is_named_with_its_extra(monkeypatch, fit, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package}.*\[{extra}\]"):
        fit(make(), "rows", target="kind")
