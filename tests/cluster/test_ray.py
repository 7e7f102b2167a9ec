"""A fit on Ray's workers is that of one process, also when a worker is lost; errors say
what the library says.
"""

import os
import sys

import pytest

import workers
from cavity import callbacks, cluster
from pages import run_section
from workers import (
    assert_equal,
    check_default,
    check_groups,
    check_page,
    make,
    write_rows,
)

ray = pytest.importorskip(
    "ray", reason="ray is not installed: make test-cluster runs these tests"
)
pytest.importorskip(
    "ray.train.torch",
    reason="ray[train] is not installed: make test-cluster runs these tests",
)


@pytest.fixture(scope="module", autouse=True)
def session():
    """Ray on this machine, with room for two workers and the controller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(
            "RAY_worker_niceness", "0"
        )  # 15 by default, which waits for all other work
        for module in (
            sys.modules[__name__],
            workers,
        ):  # which the workers cannot import
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


def fit(estimator, rows, run, **columns):
    return cluster.fit_on_ray(estimator, str(rows), run=run, target="kind", **columns)


class Die(callbacks.Callback):
    """Ends the process of rank 1 once, after the first epoch."""

    def __init__(self, mark):
        self.mark = mark

    def epoch(self, run, row):
        if os.environ.get("RANK") == "1" and not self.mark.exists():
            self.mark.touch()
            os._exit(1)


def test_two_workers_give_the_model_of_one_process_also_if_one_is_lost(rows, tmp_path):
    failures = ray.train.FailureConfig(max_failures=1)
    run = ray.train.RunConfig(
        storage_path=str(tmp_path), name="lost", failure_config=failures
    )
    keep = {
        "checkpoint": tmp_path / "run.ckpt",
        "resume": True,
        "checkpoint_every": 1e-3,
    }
    estimator = make(callbacks=[Die(tmp_path / "died")], **keep)
    found = cluster.fit_on_ray(estimator, str(rows), run=run, target="kind")
    assert (tmp_path / "died").exists() and (tmp_path / "run.ckpt.1-of-2").exists()
    assert_equal(found, make().fit(rows, target="kind"), rows)


def test_the_default_classifier_is_that_of_one_process(rows, run):
    check_default(lambda clf: fit(clf, rows, run), rows)


def test_groups_stay_together(tmp_path, run):
    check_groups(
        lambda clf, rows: fit(clf, rows, run, groups="patient"),
        tmp_path,
    )


def test_an_error_says_what_the_library_says(rows, run):
    with pytest.raises(ray.train.TrainingFailedError, match="'species'"):
        cluster.fit_on_ray(make(), str(rows), run=run, target="species")


def test_the_page_gives_the_model_of_one_process(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("ray.train.constants.DEFAULT_STORAGE_PATH", str(tmp_path))
    names = run_section("clusters.md", "Ray", path=str(rows))
    check_page(names, names["predictions"].to_pandas(), rows)
