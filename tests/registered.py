"""One example of every registered kernel and likelihood, for the tests that walk the
registries.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cavity
from cavity.kernels import (
    KERNELS,
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern32,
    Product,
    Sum,
)
from cavity.likelihoods import LIKELIHOODS, Gaussian, Likelihood

# Tests register classes of their own, too: these are the library's, whatever was
# imported before.
REGISTERED_KERNELS = {
    k.__name__: k for k in KERNELS.classes() if k.__module__.startswith("cavity.")
}
REGISTERED_LIKELIHOODS = {
    k.__name__: k for k in LIKELIHOODS.classes() if k.__module__.startswith("cavity.")
}
CLASSIFIERS = {
    name: kind
    for name, kind in REGISTERED_LIKELIHOODS.items()
    if not issubclass(kind, Gaussian)
}


def make_kernel(kind: type[Kernel], **values: object) -> Kernel:
    """An instance whose arguments have these values where it has such arguments;
    `values` may hold one value per class.
    """
    scale, variance = values.get("lengthscale"), values.get("variance", 1.0)
    if kind is Sum:
        return RBF(scale, variance) + Constant(0.3) + Linear(scale)
    if kind is Product:
        return Matern32(scale, variance) * (Linear(scale) + Constant(0.5))
    return kind(
        **{
            name: value
            for name, value in values.items()
            if name in kind.parameter_names()
        }
    )


def make_likelihood(kind: type[Likelihood], **values: object) -> Likelihood:
    """An instance with these values of its arguments, where it has them."""
    return kind(
        **{
            name: value
            for name, value in values.items()
            if name in kind.parameter_names()
        }
    )


def assert_same_elsewhere(
    clf: cavity.GPClassifier, X: np.ndarray, folder: Path, atol: float = 1e-7
) -> None:
    """The loaded model predicts the same to the last bit, and the ONNX graph to `atol`."""
    onnxruntime = pytest.importorskip("onnxruntime")
    P = clf.predict_proba(X)
    clf.save(folder / "m.cavity")
    loaded = cavity.load(folder / "m.cavity")
    assert np.array_equal(loaded.predict_proba(X), P) and repr(loaded.method) == repr(
        clf.method
    )
    session = onnxruntime.InferenceSession(
        cavity.export.make_model(clf).SerializeToString()
    )
    label, found = session.run(["label", "probabilities"], {"X": X})
    np.testing.assert_allclose(found, P, rtol=0, atol=atol)
    np.testing.assert_array_equal(label, clf.predict(X))
