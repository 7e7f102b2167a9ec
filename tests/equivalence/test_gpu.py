"""A GPU finds what the CPU finds: posterior, evidence, learnt values, probabilities."""

import numpy as np
import pytest
import torch

from cavity import GPRegressor
from cavity.fitting.options import nest
from cavity.kernels import RBF
from support import classifier, toy

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no CUDA device"
)
METHODS = {
    "ep": {},
    "sep": {},
    "pep": {},
    "rep": {"epsilon": 0.05},
    "gfitc": {},
    "vi": {},
    "softmax": {"method": "vi", "likelihood": "softmax"},
    "laplace": {},
}
REGRESSION = ["exact", "vi", "fitc", "svi"]


def assert_same(make, X, y, new, predict, rel, atol):
    """Fit on both devices."""
    cpu, gpu = (make(device).fit(X, y) for device in ("cpu", "cuda"))
    assert gpu.log_marginal_likelihood_ == pytest.approx(
        cpu.log_marginal_likelihood_, rel=rel
    )
    for a, b in zip(predict(gpu, new), predict(cpu, new), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def predict_both(gp, new):
    return gp.predict_proba(new), *gp.predict_latent(new)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("C", [2, 4])
def test_at_fixed_hyper_parameters(C, name):
    X, y = toy(60, C)
    options = dict(
        method=name,
        kernel=RBF(1.2, 1.5),
        inducing=X[:12],
        learn=(),
        tol=0.0,
        max_epochs=60,
    )
    make = lambda device: classifier(
        device=device, random_state=0, **{**options, **METHODS[name]}
    )
    assert_same(make, X, y, X[:20] + 0.1, predict_both, 1e-8, 1e-8)


@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("method", ["ep", "sep"])
def test_ten_epochs_of_learning(method, batch_size):
    """Rounding grows from step to step; the visiting order does not depend on the
    device.
    """
    X, y = toy(60, 3)
    options = {
        "n_inducing": 8,
        "max_epochs": 10,
        "tol": 0.0,
        "batch_size": batch_size,
        "random_state": 0,
    }
    make = lambda device: classifier(method, device=device, **options)
    assert_same(make, X, y, X[:20] + 0.1, predict_both, 1e-5, 1e-5)


@pytest.mark.parametrize("method", ["ep", "sep", "rep", "gfitc"])
def test_single_precision(method):
    X, y = toy(60, 3)
    options = dict(
        kernel=RBF(1.2, 1.5),
        inducing=X[:8],
        learn=(),
        tol=0.0,
        max_epochs=60,
        dtype="float32",
    )
    assert_same(
        lambda device: classifier(method, device=device, **options),
        X,
        y,
        X[:20] + 0.1,
        predict_both,
        1e-4,
        1e-4,
    )


@pytest.mark.parametrize("method", REGRESSION)
def test_regression_at_fixed_hyper_parameters(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=60)
    options = {"kernel": RBF(1.0, 1.0), "noise": 0.05, "learn": (), "random_state": 0}
    options |= {} if method == "exact" else {"inducing": X[:12]}
    make = lambda device: GPRegressor(method, **nest(device=device, **options))
    assert_same(
        make,
        X,
        y,
        X[:20] + 0.1,
        lambda gp, new: gp.predict(new, return_std=True),
        1e-8,
        1e-8,
    )
