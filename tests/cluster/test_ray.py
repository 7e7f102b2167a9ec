"""A fit on Ray's workers is that of one process, also when a worker is lost; errors are those of the library."""

import os
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import workers
from cavity import BadOption, GPClassifier, GPRegressor, callbacks
from pages import run_section
from workers import (
    VERSIONS_DIFFER,
    Older,
    assert_equal,
    check_default,
    check_error_of_one_process,
    check_page,
    check_refused,
    make,
    write_rows,
)

ray = pytest.importorskip("ray", reason="ray is not installed: make test-cluster runs these tests")
pytest.importorskip(
    "ray.train.torch", reason="ray[train] is not installed: make test-cluster runs these tests"
)
from cavity.distributed.adapters import append_predictions  # noqa: E402
from cavity.distributed.ray import fit_on_ray, predict_on_ray  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Ray on this machine, with room for two workers and the controller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # 15 by default, which waits for all other work
        for module in (sys.modules[__name__], workers):  # which the workers cannot import
            ray.cloudpickle.register_pickle_by_value(module)
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture
def run(tmp_path):
    return ray.train.RunConfig(storage_path=str(tmp_path), name="run")


@pytest.fixture(scope="module")
def alone(rows):
    return make().fit(rows, target="kind")


class Die(callbacks.Callback):
    """Ends the process of rank 1 once, after the first epoch."""

    def __init__(self, mark):
        self.mark = mark

    def epoch(self, run, row):
        if os.environ.get("RANK") == "1" and not self.mark.exists():
            self.mark.touch()
            os._exit(1)


def test_two_workers_give_the_model_of_one_process_also_if_one_is_lost(rows, alone, tmp_path):
    failures = ray.train.FailureConfig(max_failures=1)
    run = ray.train.RunConfig(storage_path=str(tmp_path), name="lost", failure_config=failures)
    estimator = make(callbacks=[Die(tmp_path / "died")], checkpoint_every=1e-3)
    found = fit_on_ray(estimator, rows, target="kind", run_config=run)
    assert (tmp_path / "died").exists() and (tmp_path / "lost" / "run.ckpt.1-of-2").exists()
    assert not hasattr(estimator, "classes_") and estimator.training.checkpoint is None
    assert_equal(found, alone, rows)


def test_the_default_classifier_is_that_of_one_process(rows, run):
    check_default(lambda estimator: fit_on_ray(estimator, rows, target="kind", run_config=run), rows)


def test_a_dataset_is_fitted_and_predicted(rows, run):
    data = ray.data.read_parquet(str(rows))
    full = GPClassifier("ep", n_inducing=6, batch_size=None, max_epochs=3, random_state=0)
    found = fit_on_ray(full, data, target="kind", run_config=run)
    written = run.storage_path + "/run/rows"
    assert_equal(found, full.fit(written, target="kind"), rows)
    answer = predict_on_ray(found, data, batch_size=30).to_pandas().sort_values(["a", "b"])
    given = pq.read_table(rows).to_pandas().sort_values(["a", "b"])
    expected = found.predict_proba(given[["a", "b"]])
    np.testing.assert_allclose(answer[["p_x", "p_y", "p_z"]].to_numpy(dtype=float), expected, rtol=1e-12)
    assert list(answer["label"]) == list(found.predict(given[["a", "b"]]))


@pytest.mark.parametrize("fault", ["column", "path"])
def test_a_missing_column_or_path_raises_the_error_of_one_process(rows, run, fault):
    fit = lambda data, target: fit_on_ray(make(), data, target=target, run_config=run)
    check_error_of_one_process(fit, rows, fault)


def test_ranks_of_different_versions_raise_a_clear_error(rows, run):
    with pytest.raises(BadOption, match=VERSIONS_DIFFER):
        fit_on_ray(make(Older), rows, target="kind", run_config=run)


def test_bad_arguments_are_refused_before_workers_start(rows):
    check_refused(fit_on_ray, rows, ({"num_workers": 0}, "num_workers"))


def test_a_regressor_predicts_mean_and_standard_deviation(rows):
    table = pq.read_table(rows, columns=["a", "b"])
    model = GPRegressor(n_inducing=6, max_epochs=2).fit(table, np.arange(101.0))
    found = append_predictions(model, table)
    assert found.column_names == ["a", "b", "mean", "std"]
    np.testing.assert_array_equal(found["mean"], model.predict(table))


def test_the_page_gives_the_model_of_one_process(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("ray.train.constants.DEFAULT_STORAGE_PATH", str(tmp_path))
    names = run_section("clusters.md", "Ray", path=str(rows))
    check_page(names, names["predictions"].to_pandas(), rows)
