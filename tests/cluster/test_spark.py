"""A fit on Spark's executors is that of one process."""

import shutil
import sys

import pytest

import workers
from cavity import cluster
from pages import run_section
from workers import (
    assert_equal,
    check_default,
    check_groups,
    check_page,
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


@pytest.fixture(scope="module", autouse=True)
def spark():
    """Spark on this machine, with room for two tasks; its Java compiles little, since
    it does little.
    """
    for module in (sys.modules[__name__], workers):  # which the workers cannot import
        pyspark.cloudpickle.register_pickle_by_value(module)
    builder = SparkSession.builder.master("local[2]").config(
        "spark.ui.enabled", "false"
    )
    builder = builder.config(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.config("spark.driver.memory", "1g").getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows"))


def fit(estimator, rows, **columns):
    return cluster.fit_on_spark(estimator, str(rows), target="kind", **columns)


def test_two_ranks_give_the_model_of_one_process(rows):
    estimator = make()
    found = fit(estimator, rows)
    assert not hasattr(estimator, "classes_")
    assert_equal(found, make().fit(rows, target="kind"), rows)


def test_the_default_classifier_is_that_of_one_process(rows):
    check_default(lambda estimator: fit(estimator, rows), rows)


def test_groups_stay_together(tmp_path):
    check_groups(
        lambda clf, rows: fit(clf, rows, groups="patient"),
        tmp_path,
    )


def test_the_page_gives_the_model_of_one_process(rows):
    names = run_section("clusters.md", "Spark", path=str(rows))
    check_page(names, names["predictions"].toPandas(), rows)
