"""Fitted estimators go through MLflow's flavour of scikit-learn and come back the same."""

import numpy as np
import pytest

from cavity import GPClassifier
from pages import run_section

mlflow = pytest.importorskip(
    "mlflow", reason="mlflow is not installed: make test-cluster runs these tests"
)
pandas = pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    yield
    mlflow.set_tracking_uri(None)


@pytest.fixture
def frame():
    """Whole numbers, categories, missing cells, booleans."""
    rng, n = np.random.default_rng(0), 60
    table = pandas.DataFrame(
        {"age": rng.integers(20, 60, n), "mass": rng.normal(size=n)}
    )
    table["island"] = pandas.Categorical(rng.choice(["Biscoe", "Dream"], n))
    table["ringed"], table["note"] = rng.random(n) < 0.5, rng.choice(["x", None], n)
    table.loc[3, "mass"] = np.nan
    return table


def test_the_page_logs_a_classifier_and_its_function_takes_raw_columns(frame):
    y = np.where((frame["mass"] > 0) ^ (frame["island"] == "Dream"), "no", "yes")
    clf = GPClassifier(random_state=0).fit(frame, y)
    names = run_section("clusters.md", "MLflow", clf=clf, frame=frame)
    expected = clf.predict_proba(frame)
    np.testing.assert_array_equal(names["restored"].predict_proba(frame), expected)
    np.testing.assert_array_equal(
        names["model"].predict(frame.assign(more=1).iloc[:, ::-1]), expected
    )


def test_skops_stores_a_fitted_classifier_without_code(frame):
    skops = pytest.importorskip("skops.io")
    y = np.where(frame["mass"] > 0, "no", "yes")
    clf = GPClassifier(n_inducing=5, max_epochs=3, random_state=0).fit(frame, y)
    stored = skops.dumps(clf)
    types = skops.get_untrusted_types(data=stored)
    assert all(name.startswith("cavity.") for name in types)
    info = mlflow.sklearn.log_model(
        clf,
        name="penguins",
        serialization_format="skops",
        skops_trusted_types=types,
        pip_requirements=["cavity[arrow]"],
    )
    expected = clf.predict_proba(frame)
    for again in (
        skops.loads(stored, trusted=types),
        mlflow.sklearn.load_model(info.model_uri),
    ):
        np.testing.assert_array_equal(again.predict_proba(frame), expected)
