"""A fit on Spark's executors is that of one process."""

import shutil
import sys

import pytest

import workers
from cavity import distributed
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
from pyspark.ml.torch.distributor import TorchDistributor  # noqa: E402
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


def fit_on_spark(estimator, rows, local_mode=False, **columns):
    """Fit as docs/clusters.md does."""

    def fit_rank():
        distributed.join("gloo")
        fitted = estimator.fit(str(rows), target="kind", **columns)
        distributed.leave()
        return fitted

    return TorchDistributor(2, local_mode, False).run(fit_rank)


@pytest.mark.parametrize("local_mode", [False, True])
def test_two_ranks_give_the_model_of_one_process(rows, local_mode):
    estimator = make()
    found = fit_on_spark(estimator, rows, local_mode)
    assert not hasattr(estimator, "classes_")
    assert_equal(found, make().fit(rows, target="kind"), rows)


def test_the_default_classifier_is_that_of_one_process(rows):
    check_default(lambda estimator: fit_on_spark(estimator, rows), rows)


def test_groups_stay_together(tmp_path):
    check_groups(
        lambda clf, rows: fit_on_spark(clf, rows, True, groups="patient"),
        tmp_path,
    )


def test_the_page_gives_the_model_of_one_process(rows):
    names = run_section("clusters.md", "Spark", path=str(rows))
    check_page(names, names["predictions"].toPandas(), rows)
