"""A model as an ONNX graph says what predict_proba says, in onnxruntime."""

import json
import sys

import numpy as np
import onnxruntime
import pytest
from sklearn.exceptions import NotFittedError

from cavity import BadFile, BadOption, GPClassifier, GPRegressor, export, kernels
from cavity.common.onnx_graph import OPSET
from reference import brute_ep
from reference import kernels as written_out
from reference.problems import hyper_parameters
from support import classifier, toy

METHODS = [{"method": name} for name in ("ep", "sep", "pep", "gfitc", "vi")]
METHODS += [
    {"method": "rep", "epsilon": 0.1},
    {"method": "vi", "likelihood": "softmax"},
]


def fitted(C: int = 3, **options) -> GPClassifier:
    X, y = toy(50, C, 3)
    settings = {
        "n_inducing": 6,
        "max_epochs": 3,
        "calibration": None,
        "random_state": 0,
    }
    return classifier(**{**settings, **options}).fit(X * [1.0, 10.0, 0.1] + 5, y)


def new_rows(n: int = 30) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 3)) * rng.uniform(0.1, 5, (n, 1)) * [1.0, 10.0, 0.1] + 5


def session(clf, **options) -> onnxruntime.InferenceSession:
    model = export.make_model(clf, **options).SerializeToString()
    alone = onnxruntime.SessionOptions()
    alone.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model, alone, providers=["CPUExecutionProvider"]
    )


def assert_same(
    clf: GPClassifier, X: np.ndarray, tolerance: float = 1e-7, **options
) -> None:
    label, P = session(clf, **options).run(["label", "probabilities"], {"X": X})
    np.testing.assert_allclose(P, clf.predict_proba(X), atol=tolerance)
    np.testing.assert_array_equal(label, clf.predict(X))
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize(
    "method", METHODS, ids=lambda m: "-".join(map(str, m.values()))
)
def test_every_method_with_novelty_on_request(method, C) -> None:
    clf, X = fitted(C, **method), new_rows()
    assert_same(clf, X)
    (found,) = session(clf, novelty=True).run(["novelty"], {"X": X})
    np.testing.assert_allclose(found, clf.predict_novelty(X), atol=1e-6)
    assert [output.name for output in session(clf).get_outputs()] == [
        "label",
        "probabilities",
    ]


@pytest.mark.parametrize(
    ("method", "options", "solve"),
    [
        ("ep", {}, brute_ep.sparse_ep),
        ("sep", {}, brute_ep.sep),
        ("rep", {"epsilon": 0.1}, brute_ep.robust_ep),
        ("gfitc", {}, brute_ep.gfitc),
    ],
    ids=["ep", "sep", "rep", "gfitc"],
)
@pytest.mark.parametrize("C", [2, 3])
def test_the_graph_says_what_explicit_matrices_say(C, method, options, solve) -> None:
    """Known hyper-parameters, inference and prediction both written without the
    library.
    """
    X, y = toy(10, C)
    Z, lengthscale, variance, noise = hyper_parameters(C, 3)
    ks = written_out.one_per_class(written_out.matern32, lengthscale, variance)
    exact = solve(X, 2 * y - 1 if C == 2 else y, Z, ks, noise, **options)
    given = {
        "kernel": kernels.Matern32(lengthscale, variance),
        "inducing": Z,
        "noise": noise,
        "learn": (),
    }
    clf = classifier(method, **given, **options, tol=1e-13, max_epochs=2000).fit(X, y)
    new = np.random.default_rng(2).normal(size=(20, 2), scale=2.0)
    P = session(clf).run(["probabilities"], {"X": new})[0]
    np.testing.assert_allclose(P, brute_ep.predict_proba(exact, new), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        {"C": 10},
        {"C": 20},
        {
            "kernel": kernels.RBF() * kernels.Linear() + kernels.Constant(2.0)
        },  # tests/contract asks each alone
        {"share": "kernel"},
        {"share": "inducing"},
        {"share": "both"},
        {"C": 2, "kernel": kernels.RBF(variance=1 / 3)},
        {"C": 2, "method": "laplace"},
    ],
    ids=str,
)
def test_every_shape_of_a_model(options) -> None:
    assert_same(fitted(**options), new_rows(), 1e-8)


@pytest.mark.parametrize("model", ["float32", "float64"])
@pytest.mark.parametrize("rows", ["float32", "float64"])
def test_single_precision_of_the_model_or_of_the_rows(model, rows) -> None:
    clf, X = fitted(dtype=model), new_rows().astype(rows)
    assert_same(clf, X, 1e-5, dtype=rows)
    assert session(clf, dtype=rows).run(["probabilities"], {"X": X})[0].dtype == rows


@pytest.mark.parametrize(
    "names",
    [["no", "yes", "<b>ü"], [-3, 5, 1000], [1.0, 2.0, 4.0], [True, False]],
    ids=str,
)
def test_labels_of_every_kind_and_the_metadata(names) -> None:
    X, y = toy(50, len(names), 3)
    clf = classifier(effort="fast", n_inducing=5, max_epochs=2, random_state=0).fit(
        X, np.array(names)[y]
    )
    run = session(clf)
    (label,) = run.run(["label"], {"X": X})
    np.testing.assert_array_equal(label, clf.predict(X))
    assert (label.dtype == bool) == (clf.classes_.dtype == bool)
    meta = run.get_modelmeta().custom_metadata_map
    assert (
        json.loads(meta["classes"]) == clf.classes_.tolist()
        and meta["method"] == "auto"
    )


def test_the_file_is_written_whole_or_not_at_all(tmp_path) -> None:
    clf = fitted()
    path = export.onnx(clf, tmp_path / "model.onnx")
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [i.name for i in run.get_inputs()] == ["X"] and len(
        list(tmp_path.iterdir())
    ) == 1
    assert export.make_model(clf).opset_import[0].version == OPSET
    with pytest.raises(BadFile, match="does not exist"):
        export.onnx(clf, tmp_path / "no" / "model.onnx")


class Bent(kernels.RBF):
    """Another function than its parent, whose formula it inherits."""

    def full(self, Z):
        return super().full(Z).square()

    def cross(self, Z, X):
        return super().cross(Z, X).square()

    def pair(self, Z, X):
        return self.full(Z), self.cross(Z, X)

    def diag(self, X):
        return super().diag(X).square()


def test_a_formula_that_belongs_to_the_parent_class_is_not_used() -> None:
    clf = fitted(kernel=Bent(variance=2.0))
    with pytest.raises(BadOption, match="Bent"):
        export.make_model(clf)
    X = new_rows()
    np.testing.assert_allclose(
        clf.predict_proba(X[:1]), clf.predict_proba(X)[:1], rtol=1e-9
    )
    same = type("Named", (kernels.RBF,), {})
    assert_same(fitted(kernel=same()), X)


def fit_numbers(method: str) -> GPRegressor:
    X, _ = toy(30, 2, 3)
    return GPRegressor(method, n_inducing=5, max_epochs=2).fit(X, X[:, 0])


@pytest.mark.parametrize(
    "make, word, options",
    [
        (lambda: fitted(kernel=kernels.RBF() + Bent()), "Bent", {}),
        (fitted, "int8", {"dtype": "int8"}),
        (lambda: fitted(3, method="laplace"), "couples", {}),
        (lambda: fit_numbers("nystrom"), "training rows", {}),
        (lambda: fit_numbers("cg"), "training rows", {}),
        (lambda: fit_numbers("bcm"), "committee", {}),
        (classifier, "fit", {}),
    ],
)
def test_what_has_no_graph_raises_a_clear_error(make, word, options) -> None:
    with pytest.raises((BadOption, NotFittedError), match=word):
        export.make_model(make(), **options)


def test_a_missing_package_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(BadOption, match=r"cavity\[onnx\]"):
        export.make_model(fitted())


@pytest.mark.parametrize("method", ["exact", "fitc", "vi", "svi", "pp", "sr", "sd"])
def test_a_regressor_has_mean_and_std_with_the_noise(method) -> None:
    X, _ = toy(40, 2, 3)
    y = 100 + 30 * np.sin(X[:, 0]) + np.random.default_rng(0).normal(size=40)
    gp = GPRegressor(method, n_inducing=8, max_epochs=5, random_state=0).fit(X, y)
    new = np.random.default_rng(1).normal(size=(20, 3)) * 2
    mean, std = session(gp).run(["mean", "std"], {"X": new})
    expected = gp.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(std, expected[1], rtol=1e-6)


@pytest.mark.parametrize("C", [2, 3, 20])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_cells_whose_squares_overflow(C, dtype) -> None:
    clf = fitted(C, kernel=kernels.RBF() + kernels.Linear(), dtype=dtype)
    # single precision ends at 3e38: beyond, a model in it loses the direction of a row
    # with several such cells
    cells = (
        (1e20, 1e155, 1e300, -1.7e308) if dtype == "float64" else (1e15, 1e30, -1e38)
    )
    assert_same(clf, np.array([[cell, -cell, cell / 10] for cell in cells]), 1e-5)
