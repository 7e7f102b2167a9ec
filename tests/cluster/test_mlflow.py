"""Models go through MLflow and come back the same; its generic functions take raw columns."""

import os
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import numpy as np
import pytest

from cavity import BadFile, BadOption, GPClassifier, GPRegressor, __version__
from pages import run_section
from support import toy

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make test-cluster runs these tests")
pandas = pytest.importorskip("pandas")
import cavity.export.mlflow as flavour  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A tracking server in a process of its own, as `mlflow server` starts it: runs in SQLite, artifacts through the server."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--workers",
        "1",
    ]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/runs.db",
        "--artifacts-destination",
        f"{folder}/artifacts",
    ]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_for(f"http://127.0.0.1:{port}", process, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too: it takes long to end by itself
            process.wait()


def wait_for(address, process, log):
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        try:
            if urlopen(f"{address}/health", timeout=5).status == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")


@pytest.fixture(autouse=True)
def store(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(server)
    yield
    mlflow.set_tracking_uri(None)


@pytest.fixture(scope="module")
def frame():
    """Whole numbers, categories, missing cells, booleans."""
    rng, n = np.random.default_rng(0), 60
    table = pandas.DataFrame({"age": rng.integers(20, 60, n), "mass": rng.normal(size=n)})
    table["island"] = pandas.Categorical(rng.choice(["Biscoe", "Dream"], n))
    table["ringed"], table["note"] = rng.random(n) < 0.5, rng.choice(["x", None], n)
    table.loc[3, "mass"] = np.nan
    return table


@pytest.fixture(scope="module")
def clf(frame):
    y = np.where((frame["mass"] > 0) ^ (frame["island"] == "Dream"), "no", "yes")
    return GPClassifier("sep", n_inducing=8, max_epochs=3, random_state=0).fit(frame, y)


def test_a_logged_model_is_the_same_and_its_function_takes_raw_columns(clf, frame):
    info = flavour.log_model(clf, "penguins", pyfunc_predict_fn="predict_proba")
    function = mlflow.pyfunc.load_model(info.model_uri)
    expected = clf.predict_proba(frame)
    np.testing.assert_array_equal(flavour.load_model(info.model_uri).predict_proba(frame), expected)
    answer = function.predict(frame.assign(more=1).iloc[:, ::-1])
    np.testing.assert_array_equal(answer.to_numpy(), expected)
    assert list(answer.columns) == ["no", "yes"]
    assert info.signature.inputs.input_names() == list(clf.preparation_.inputs)
    assert info.signature.outputs.input_names() == ["no", "yes"]
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"missing inputs \['mass'\]"):
        function.predict(frame.drop(columns="mass"))


def test_an_example_is_stored_and_labels_are_the_default(clf, frame, tmp_path):
    flavour.save_model(clf, tmp_path / "model", input_example=frame[4:8])
    function = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert len(function.input_example) == 4
    assert list(function.predict(frame[4:])) == list(clf.predict(frame[4:]))


@pytest.mark.parametrize(
    "model", [GPClassifier("sep", n_inducing=5, max_epochs=2), GPRegressor(n_inducing=5, max_epochs=2)]
)
def test_arrays_without_names_have_a_signature_of_their_shape(model, tmp_path):
    X, y = toy(40, 3, seed=1)
    flavour.save_model(model.fit(X, y), tmp_path / "model")
    function = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(function.predict(X), model.predict(X))
    with pytest.raises(mlflow.exceptions.MlflowException, match="shape"):
        function.predict(X[:, :1])


def test_the_requirements_name_this_version(clf, tmp_path):
    flavour.save_model(clf, tmp_path / "model")
    assert (tmp_path / "model" / "requirements.txt").read_text().split("\n")[
        -1
    ] == f"cavity[arrow]=={__version__}"


def test_bad_models_and_options_are_refused_before_anything_is_written(clf, tmp_path):
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(BadOption, match="LogisticRegression is not an estimator of cavity"):
        flavour.save_model(LogisticRegression(), tmp_path / "model")
    with pytest.raises(BadOption, match="'proba' is unknown; use 'predict' or 'predict_proba'"):
        flavour.save_model(clf, tmp_path / "model", pyfunc_predict_fn="proba")
    with pytest.raises(NotFittedError):
        flavour.save_model(GPClassifier(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_damaged_or_foreign_model_is_refused(clf, tmp_path):
    flavour.save_model(clf, tmp_path / "model")
    file = tmp_path / "model" / "data" / "model.cavity"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(BadFile, match=r"model\.cavity"):
        flavour.load_model(str(tmp_path / "model"))
    described = mlflow.models.Model()
    described.add_flavor("sklearn", pickled_model="model.pkl")
    (tmp_path / "other").mkdir()
    described.save(str(tmp_path / "other" / "MLmodel"))
    with pytest.raises(BadFile, match="not a model of cavity: its flavors are 'sklearn'"):
        flavour.load_model(str(tmp_path / "other"))


def test_the_page_runs(clf, frame):
    names = run_section("clusters.md", "MLflow", clf=clf, frame=frame)
    np.testing.assert_array_equal(names["restored"].predict_proba(frame), clf.predict_proba(frame))
