"""A fit on Spark's executors is that of one process, also when a rank is killed; errors are those of the library."""

import os
import shutil
import signal
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import workers
from cavity import BadOption, GPClassifier, GPRegressor, callbacks
from cavity.errors import LostRank
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

pyspark = pytest.importorskip(
    "pyspark", reason="pyspark is not installed: make test-cluster runs these tests"
)
pytest.importorskip("pandas")
if shutil.which("java") is None:
    pytest.skip(
        "Spark needs Java: install a runtime, such as Debian's openjdk-17-jre-headless",
        allow_module_level=True,
    )
from pyspark.sql import SparkSession  # noqa: E402

from cavity.distributed.spark import fit_on_spark, predict_on_spark  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def spark():
    """Spark on this machine, with room for two tasks; its Java compiles little, since it does little."""
    for module in (sys.modules[__name__], workers):  # which the workers cannot import
        pyspark.cloudpickle.register_pickle_by_value(module)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.config("spark.driver.memory", "1g").getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def alone(rows):
    return make().fit(rows, target="kind")


class Die(callbacks.Callback):
    """Kills the process of rank 1 once, after the first epoch, and notes what lies in the storage when it is there again."""

    def __init__(self, mark, storage):
        self.mark, self.storage = mark, storage

    def epoch(self, run, row):
        if os.environ.get("RANK") == "1" and not self.mark.exists():
            stored = sorted(path.name for path in self.storage.glob("cavity-*/*"))
            self.mark.write_text(" ".join(stored))
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("local_mode", [False, True])
def test_two_ranks_give_the_model_of_one_process_also_if_one_is_killed(rows, alone, tmp_path, local_mode):
    mark, storage = tmp_path / "died", tmp_path / "storage"
    estimator = make(callbacks=[Die(mark, storage)], checkpoint_every=1e-3)
    found = fit_on_spark(
        estimator, rows, target="kind", storage=storage, max_failures=1, local_mode=local_mode
    )
    assert "run.ckpt.2-of-2" in mark.read_text()
    assert list(storage.iterdir()) == []
    assert not hasattr(estimator, "classes_") and estimator.training.checkpoint is None
    assert_equal(found, alone, rows)


def test_the_default_classifier_is_that_of_one_process(rows):
    check_default(lambda estimator: fit_on_spark(estimator, rows, target="kind"), rows)


def test_a_killed_rank_is_an_error_if_failures_are_not_allowed(rows, tmp_path):
    estimator = make(callbacks=[Die(tmp_path / "died", tmp_path)])
    with pytest.raises(LostRank, match=r"died: .*max_failures="):
        fit_on_spark(estimator, rows, target="kind")


class Kept(GPClassifier):
    """Copies the rows that the ranks were given."""

    def fit(self, X, y=None, *, target=None, weight=None):
        copy = os.environ.get("CAVITY_TEST_COPY")
        if copy and os.environ["RANK"] == "0":
            shutil.copytree(X, copy)
        return super().fit(X, y, target=target, weight=weight)


def test_a_data_frame_is_fitted_and_predicted(spark, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("CAVITY_TEST_COPY", str(tmp_path / "copy"))
    frame = spark.read.parquet(str(rows))
    full = {"n_inducing": 6, "batch_size": None, "max_epochs": 3, "random_state": 0}
    found = fit_on_spark(Kept("ep", **full), frame, target="kind", local_mode=True)
    assert_equal(found, GPClassifier("ep", **full).fit(tmp_path / "copy", target="kind"), rows)
    answer = predict_on_spark(found, frame).toPandas().sort_values(["a", "b"])
    given = pq.read_table(rows).to_pandas().sort_values(["a", "b"])
    expected = found.predict_proba(given[["a", "b"]])
    assert list(answer.columns) == ["a", "b", "kind", "label", "p_x", "p_y", "p_z"]
    np.testing.assert_allclose(answer[["p_x", "p_y", "p_z"]].to_numpy(), expected, rtol=1e-12)
    assert list(answer["label"]) == list(found.predict(given[["a", "b"]]))


def test_a_regressor_predicts_mean_and_standard_deviation(spark, rows):
    table = pq.read_table(rows, columns=["a", "b"])
    model = GPRegressor(n_inducing=6, max_epochs=2).fit(table, np.arange(101.0))
    frame = spark.read.parquet(str(rows)).select("a", "b").where("a > 0")
    found = predict_on_spark(model, frame).toPandas()
    mean, std = model.predict(found[["a", "b"]], return_std=True)
    assert list(found.columns) == ["a", "b", "mean", "std"]
    np.testing.assert_allclose(found[["mean", "std"]], np.stack([mean, std], 1), rtol=1e-12)


@pytest.mark.parametrize("fault", ["column", "path"])
def test_a_missing_column_or_path_raises_the_error_of_one_process(rows, fault):
    fit = lambda data, target: fit_on_spark(make(), data, target=target, max_failures=3, local_mode=True)
    check_error_of_one_process(fit, rows, fault)


def test_ranks_of_different_versions_raise_a_clear_error(rows):
    with pytest.raises(BadOption, match=VERSIONS_DIFFER):
        fit_on_spark(make(Older), rows, target="kind", max_failures=3)


def test_bad_arguments_are_refused_before_ranks_start(rows, tmp_path):
    (tmp_path / "file").touch()
    check_refused(
        fit_on_spark,
        rows,
        ({"num_processes": 0}, "num_processes"),
        ({"num_processes": 3}, "local"),
        ({"max_failures": -1}, "max_failures"),
        ({"storage": tmp_path / "file"}, "storage"),
    )


def test_the_page_gives_the_model_of_one_process(rows):
    names = run_section("clusters.md", "Spark", path=str(rows))
    check_page(names, names["predictions"].toPandas(), rows)
