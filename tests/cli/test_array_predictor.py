"""Predictions in NumPy equal those of torch, for every kernel and preparation that NumPy knows; all else goes to torch."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from cavity import GPClassifier, GPRegressor
from cavity.cli import predictors
from cavity.cli.models import Predictor
from cavity.cli.predicting import open_predictor
from cavity.cli.predictors import ArrayPredictor, Extras
from cavity.options import nest
from cavity.saving.model_file import read_record
from cli.running import run
from registered import REGISTERED_KERNELS, make_kernel
from support import toy

KERNELS = list(REGISTERED_KERNELS.values())
FEW = {"n_inducing": 6, "max_epochs": 2, "tol": 1.0, "random_state": 0}


def save(model, X, y, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y).save(path)
    return path


def rows(D, n=25, seed=3):
    """Rows near and far from the training rows."""
    X = np.random.default_rng(seed).normal(size=(n, D)) * 2
    X[-3:] *= [[30.0], [1e6], [1e200]]
    return X


def assert_same(path, X):
    """Compare the columns of both; also refuse a fallback to torch."""
    light = open_predictor(path, None)
    assert isinstance(light, ArrayPredictor)
    asked = Extras(uncertainty=light.classes is not None, novelty=True)
    found, expected = (
        light.predict_columns(X, asked),
        Predictor(read_record(path).result).predict_columns(X, asked),
    )
    assert "full" not in vars(light), "NumPy did not resolve these rows"
    assert list(found) == list(expected)
    for name, column in expected.items():
        if name == "label":
            np.testing.assert_array_equal(found[name], column)
        else:
            scale = 1.0 if name.startswith("p_") else np.abs(column).max()
            close = 1e-5 if name in ("aleatoric", "epistemic") else 1e-9  # whose sums are in single precision
            assert (np.abs(found[name] - column) <= close * scale).all(), name


@pytest.mark.parametrize("C", [2, 3, 10])
@pytest.mark.parametrize("kind", KERNELS, ids=lambda kind: kind.__name__)
def test_probabilities_of_every_kernel(kind, C, tmp_path):
    X, y = toy(50, C)
    kernel = make_kernel(kind, lengthscale=1.5, variance=0.7)
    path = save(GPClassifier("ep", **nest(kernel=kernel, **FEW)), X, y, tmp_path / "m")
    assert_same(path, rows(X.shape[1]))


@pytest.mark.parametrize("kind", KERNELS, ids=lambda kind: kind.__name__)
def test_means_and_deviations_of_every_kernel(kind, tmp_path):
    X, _ = toy(40, 3)
    kernel = make_kernel(kind, lengthscale=1.5, variance=0.7)
    path = save(GPRegressor("fitc", **nest(kernel=kernel, **FEW)), X, 100 + 7 * X[:, 0] ** 2, tmp_path / "m")
    assert_same(path, rows(X.shape[1], seed=5)[:-1])


@pytest.mark.parametrize("method", ["exact", "vi", "svi"])
def test_means_and_deviations_of_other_methods(method, tmp_path):
    X, y = toy(40, 3)
    path = save(GPRegressor(method, **nest(**FEW)), X, 20 * X[:, 0] + y, tmp_path / "m")
    assert_same(path, rows(X.shape[1], seed=5)[:-1])


@pytest.mark.parametrize("method", ["pp", "sr", "nystrom"])
def test_regressors_that_need_more_than_q_are_left_to_torch(method, tmp_path):
    X, y = toy(40, 3)
    path = save(GPRegressor(method, **nest(**FEW)), X, 20 * X[:, 0] + y, tmp_path / "m")
    assert not isinstance(open_predictor(path, None), ArrayPredictor)


def test_what_default_settings_make(tmp_path):
    X, y = toy(60, 3)
    assert_same(save(GPClassifier(random_state=0), X, y, tmp_path / "classes"), rows(X.shape[1]))
    assert_same(save(GPRegressor(random_state=0), X, 20 * X[:, 0] + y, tmp_path / "numbers"), X + 0.1)


@pytest.mark.parametrize("option", [{"share": "both"}, {"share": "kernel"}, {"learn": ("kernel",)}])
def test_shared_kernels_and_fixed_points(option, tmp_path):
    X, y = toy(60, 4)
    assert_same(save(GPClassifier("sep", **nest(**FEW, **option)), X, y, tmp_path / "m"), rows(X.shape[1]))


def test_a_pool_with_trees(tmp_path):
    X, y = toy(60, 3)
    forest = RandomForestClassifier(5, max_depth=3, random_state=0)
    model = GPClassifier("ep", **nest(ensemble=[forest], calibration="temperature", **FEW))
    assert_same(save(model, X, y, tmp_path / "m"), rows(X.shape[1]))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with numbers, missing cells, categories, dates and formatted numbers, and models of it."""
    folder, rng, n = tmp_path_factory.mktemp("table"), np.random.default_rng(0), 80
    frame = pd.DataFrame(
        {
            "size": np.exp(2 * rng.normal(size=n)).round(3),
            "cost": [f"{v:,.2f}" for v in rng.uniform(500, 5000, n)],
            "level": rng.normal(size=n).round(2),
            "colour": rng.choice(["red", "green, blue", "ü"], n),
            "day": pd.date_range("2020-01-01", periods=n).strftime("%Y-%m-%d"),
            "flag": rng.random(n) < 0.5,
        }
    )
    frame.loc[::7, "level"], frame.loc[::9, "colour"] = np.nan, None
    label = np.where(frame["size"] > 1, "big", np.where(frame["flag"], "no", "Ja"))
    train = frame.assign(label=label, value=frame["size"] * 3 + 1)
    train.to_csv(folder / "train.csv", index=False)
    fit = ("--n-inducing", "8", "--max-epochs", "4", "--device", "cpu")
    classes = (
        "--target",
        "label",
        "--ignore",
        "value",
        "--effort",
        "fast",
        "--out",
        folder / "classes.cavity",
    )
    numbers = ("--target", "value", "--ignore", "label", "--regression", "--out", folder / "numbers.cavity")
    for more in (classes, numbers):
        assert run("fit", folder / "train.csv", *more, *fit).exit_code == 0
    new = frame.iloc[:30].copy()
    new.loc[3, "colour"], new.loc[4, "size"] = "violet", np.nan
    new.assign(extra=1, id=np.arange(30)).to_csv(folder / "new.csv", index=False)
    new.assign(id=np.arange(30)).to_parquet(folder / "new.parquet")
    return folder


@pytest.mark.parametrize("data", ["new.csv", "new.parquet"])
@pytest.mark.parametrize("model", ["classes", "numbers"])
def test_the_command_writes_the_same_for_raw_columns(model, data, table, monkeypatch, tmp_path):
    arguments = (
        "predict",
        table / f"{model}.cavity",
        table / data,
        "--keep",
        "id",
        "--keep",
        "colour",
        "--out",
    )
    light = run(*arguments, tmp_path / "light.csv")
    monkeypatch.setattr(
        "cavity.cli.predicting.open_predictor", lambda path, *_: Predictor(read_record(path).result)
    )
    full = run(*arguments, tmp_path / "full.csv")
    assert light.exit_code == full.exit_code == 0
    assert light.output.replace("light.csv", "") == full.output.replace("full.csv", "")  # notes, too
    found, expected = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("light", "full"))
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float64, str, object])
def test_labels_of_every_type(dtype, tmp_path):
    X, y = toy(30, 2)
    labels = (y > 0).astype(int).astype(str) if dtype in (str, object) else (y > 0).astype(dtype)
    path = save(GPClassifier("ep", **nest(**FEW)), X, labels.astype(dtype), tmp_path / "m")
    assert_same(path, X[:5])
    np.savetxt(
        tmp_path / "new.csv",
        X[:5],
        delimiter=",",
        header=",".join(f"x{j}" for j in range(X.shape[1])),
        comments="",
    )
    assert run("predict", path, tmp_path / "new.csv", "--out", tmp_path / "out.csv").exit_code == 0
    found = pd.read_csv(tmp_path / "out.csv", dtype=str)["label"]
    expected = Predictor(read_record(path).result).predict_columns(X[:5])["label"]
    assert found.str.lower().tolist() == [
        str(int(v)) if dtype is np.float64 else str(v).lower() for v in expected
    ]


OTHERS = {
    "another likelihood": GPClassifier("rep", **nest(**FEW)),
    "coupled classes": GPClassifier("laplace", n_inducing=5, max_epochs=2, random_state=0),
    "single precision": GPClassifier("ep", **nest(dtype="float32", **FEW)),
    "a spectrum": GPClassifier("ep", **nest(inducing="spectrum", **FEW)),
    "an object as method": GPClassifier("pep", **nest(**FEW)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_left_to_torch(name, tmp_path):
    X, y = toy(30, 3)
    path = save(OTHERS[name], X, y, tmp_path / "m")
    assert not isinstance(open_predictor(path, None), ArrayPredictor)


def test_a_device_is_left_to_torch(toy_model):
    assert isinstance(open_predictor(toy_model, None), ArrayPredictor)
    assert not isinstance(open_predictor(toy_model, "cpu"), ArrayPredictor)


def test_many_rows_and_missing_cells_are_left_to_torch(toy_model, monkeypatch):
    X, _ = toy(60, 3)
    expected = Predictor(read_record(toy_model).result).predict_columns(X)["p_0"]
    light = open_predictor(toy_model, None)
    work = light.work_per_row
    monkeypatch.setattr(predictors, "MOST_WORK", 100 * work)
    for _ in range(2):
        np.testing.assert_allclose(light.predict_columns(X)["p_0"], expected, atol=1e-9, rtol=0)
    assert "full" in vars(light)
    missing = X.copy()
    missing[0, 0] = np.nan
    results = []
    for predictor in (open_predictor(toy_model, None), Predictor(read_record(toy_model).result)):
        with pytest.raises(ValueError, match=r"NaN|missing") as refused:
            predictor.predict_columns(missing)
        results.append(str(refused.value))
    assert results[0] == results[1]
