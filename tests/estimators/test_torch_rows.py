"""Rows, labels and weights may be arrays of any library with DLPack, of any device and
number type.

Results are NumPy arrays.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from cavity import GPClassifier, GPRegressor, report

X, y = load_iris(return_X_y=True)
WEIGHT = np.linspace(0.5, 1.5, 150)


class Far:
    """An array on a device that NumPy cannot read, as of CuPy: it has DLPack and a
    namespace, but no length and no `__array__`.
    """

    def __init__(self, values, device="far:0"):
        self.values = np.asarray(values)
        self.device = device
        self.shape, self.dtype, self.ndim = (
            self.values.shape,
            self.values.dtype,
            self.values.ndim,
        )

    def __array__(self, dtype=None, copy=None):
        raise TypeError("no implicit conversion to a NumPy array")

    def __array_namespace__(self, api_version=None):
        return FAR

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __getitem__(self, key):
        return Far(self.values[key], self.device)


def far(values, dtype=None, device=None):
    return Far(np.asarray(values, dtype=dtype), device)


FLOATS = {"float32": np.float32, "float64": np.float64}
FAR = SimpleNamespace(
    __name__="far",
    asarray=far,
    **FLOATS,
    __array_namespace_info__=lambda: SimpleNamespace(dtypes=lambda **_: FLOATS),
)


def cupy(a):
    return pytest.importorskip("cupy").asarray(a)


KINDS = {
    "float64": lambda a: torch.tensor(a),
    "with a gradient": lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
    "bfloat16": lambda a: (
        torch.tensor(a).bfloat16() if a.dtype.kind == "f" else torch.tensor(a)
    ),
    "cuda": lambda a: torch.tensor(a).cuda(),
    "cupy": cupy,
    "another library": Far,
}
FOLLOW = {
    "float64": "torch",
    "cuda": "torch",
    "cupy": "cupy",
    "another library": "far",
}  # namespaces of results


def fit(kind, convert):
    X_, target, weight = (
        convert(a)
        for a in (X, y if kind is GPClassifier else X[:, 0] + X[:, 3], WEIGHT)
    )
    options = {"effort": "fast", "ensemble": None} if kind is GPClassifier else {}
    gp = kind(n_inducing=10, max_epochs=3, random_state=0, **options)
    held = X_[::3], target[::3]
    return gp.fit(X_, target, weight, eval_set=held), X_, target, weight


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
@pytest.mark.parametrize("name", KINDS)
def test_tensors_give_what_their_numbers_give(kind, name):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")

    def as_numbers(a):
        return (
            KINDS[name](a).double().numpy()
            if name == "bfloat16" and a.dtype.kind == "f"
            else a
        )

    gp, *rows = fit(kind, KINDS[name])
    plain, *numbers = fit(kind, as_numbers)
    ask = "predict_proba" if kind is GPClassifier else "predict"
    found = getattr(gp, ask)(rows[0])
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, getattr(plain, ask)(numbers[0]))
    np.testing.assert_array_equal(
        gp.predict_novelty(rows[0]), plain.predict_novelty(numbers[0])
    )
    assert gp.score(*rows) == plain.score(*numbers)
    few, less = (tuple(a[:20] for a in given) for given in (rows, numbers))
    np.testing.assert_array_equal(
        gp.explain(*few).importance, plain.explain(*less).importance
    )


@pytest.mark.usefixtures("few_trees")
def test_a_report_reads_rows_of_another_library(tmp_path):
    some = slice(None, None, 5)
    gp = GPClassifier(effort="fast", n_inducing=10, max_epochs=3, random_state=0).fit(
        X, y
    )
    for name, rows in {
        "far": (Far(X[some]), Far(y[some])),
        "near": (X[some], y[some]),
    }.items():
        report.write_report(gp, tmp_path / name, *rows)
    assert (tmp_path / "far").read_bytes() == (tmp_path / "near").read_bytes()
