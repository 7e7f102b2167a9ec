"""A loaded model predicts without torch, to the bit what the fitted one predicts; so
does `cavity predict`.
"""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import cavity
from cavity import GPClassifier, GPRegressor
from cavity.errors import BadOption
from cavity.fitting.options import nest
from cavity.kernels import RBF, Constant, Linear, RationalQuadratic
from cli.running import run
from support import toy, without_warnings

FEW = {"n_inducing": 6, "max_epochs": 2, "tol": 1.0, "random_state": 0, "device": "cpu"}
CLASSIFIERS = {
    "auto": GPClassifier("auto", **nest(**FEW)),
    "two classes": GPClassifier("ep", **nest(**FEW)),
    "rep": GPClassifier("rep", **nest(learn=("kernel", "epsilon"), **FEW)),
    "float32": GPClassifier("ep", **nest(dtype="float32", **FEW)),
    "shared": GPClassifier("sep", **nest(share="both", **FEW)),
    "fixed": GPClassifier("sep", **nest(learn=("kernel",), **FEW)),
}
REGRESSORS = {
    name: GPRegressor(name, **nest(**FEW))
    for name in ("exact", "fitc", "pp", "nystrom", "cg", "bcm")
}
# a kernel that is given makes `load` return it, which is torch's; `cavity predict` does
# without
KERNELS = GPClassifier(
    "ep", **nest(kernel=RBF() * Constant() + Linear() + RationalQuadratic(), **FEW)
)

BLOCKED = """
import json, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("torch is asked for")

sys.meta_path.insert(0, NoTorch())
import numpy as np
import cavity

X, found = np.load("X.npy"), {}
for name in json.loads(sys.argv[1]):
    model = cavity.load(name)
    if hasattr(model, "classes_"):
        parts = [model.predict_proba(X), *model.predict_uncertainty(X), model.predict_novelty(X), *model.predict_latent(X)]
    else:
        parts = [*model.predict(X, return_std=True), model.predict_novelty(X)]
    np.savez(f"{name}.npz", *parts)
from cavity.cli.app import app
app(["predict", "kernels", "new.csv", "--out", "kernels.csv"], standalone_mode=False)
"""


def rows(D):
    """Rows near and far from the training rows."""
    X = np.random.default_rng(3).normal(size=(25, D)) * 2
    X[-2:] *= [[30.0], [1e6]]
    return X


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, and what they predict in a process that cannot import torch."""
    folder = tmp_path_factory.mktemp("models")
    X, y = toy(60, 3)
    new = rows(X.shape[1])
    np.save(folder / "X.npy", new)
    pd.DataFrame(new[:9], columns=["a", "b"]).to_csv(folder / "new.csv", index=False)
    with without_warnings():
        for name, clf in CLASSIFIERS.items():
            clf.fit(X, y > 0 if name == "two classes" else y).save(folder / name)
        for name, gp in REGRESSORS.items():
            gp.fit(X, 100 + 7 * X[:, 0] ** 2 + y).save(folder / name)
        KERNELS.fit(X, y).save(folder / "kernels")
    names = json.dumps([*CLASSIFIERS, *REGRESSORS])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCKED, names],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS])
def test_a_loaded_model_predicts_to_the_bit_without_torch(name, folder):
    model, X = (CLASSIFIERS | REGRESSORS)[name], np.load(folder / "X.npy")
    if name in CLASSIFIERS:
        expected = [
            model.predict_proba(X),
            *model.predict_uncertainty(X),
            model.predict_novelty(X),
            *model.predict_latent(X),
        ]
    else:
        expected = [*model.predict(X, return_std=True), model.predict_novelty(X)]
    for found, value in zip(
        np.load(folder / f"{name}.npz").values(), expected, strict=True
    ):
        np.testing.assert_array_equal(found, value)


def test_the_command_predicts_any_kernel_of_the_library_without_torch(folder):
    found = pd.read_csv(folder / "kernels.csv")
    P = KERNELS.predict_proba(np.load(folder / "X.npy")[:9])
    np.testing.assert_allclose(
        found[[f"p_{c}" for c in KERNELS.classes_]], P, rtol=1e-9, atol=1e-12
    )


def test_torch_makes_of_a_loaded_model_what_was_fitted(folder):
    """The attributes that need torch come when they are asked for; a file has no sums
    to which partial_fit could add.
    """
    X, y = toy(60, 3)
    loaded, clf = cavity.load(folder / "auto"), CLASSIFIERS["auto"]
    assert repr(loaded.kernel_) == repr(clf.kernel_) and str(loaded.plan_) == str(
        clf.plan_
    )
    with pytest.raises(BadOption, match="pickle"):
        loaded.partial_fit(X, y)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float64, str, object])
def test_the_command_writes_labels_of_every_type(dtype, tmp_path):
    X, y = toy(30, 2)
    labels = (
        (y > 0).astype(int).astype(str)
        if dtype in (str, object)
        else (y > 0).astype(dtype)
    )
    with without_warnings():
        clf = GPClassifier("ep", **nest(**FEW)).fit(X, labels.astype(dtype))
    clf.save(tmp_path / "m")
    pd.DataFrame(X[:5], columns=["a", "b"]).to_csv(tmp_path / "new.csv", index=False)
    assert (
        run(
            "predict",
            tmp_path / "m",
            tmp_path / "new.csv",
            "--out",
            tmp_path / "out.csv",
        ).exit_code
        == 0
    )
    found = pd.read_csv(tmp_path / "out.csv", dtype=str)["label"]
    expected = [
        str(int(v)) if dtype is np.float64 else str(v).lower()
        for v in clf.predict(X[:5])
    ]
    assert found.str.lower().tolist() == expected
