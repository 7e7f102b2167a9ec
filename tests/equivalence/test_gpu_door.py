"""The engine's door on a GPU: `infer`, `evidence` and `fit` find what they find on the
CPU, and results are tensors on the device of the rows.

    python -m pytest tests/equivalence/test_gpu_door.py
"""

import numpy as np
import pytest
import torch

from cavity.engine import (
    EP,
    GFITC,
    GP,
    SEP,
    VI,
    Laplace,
    PowerEP,
    describe,
    evidence,
    fit,
    infer,
    make_hyper_prior,
)
from cavity.kernels import RBF, Linear
from cavity.likelihoods import Gaussian, Ordinal, ProbitPairs, RobustMax, Softmax
from support import toy

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no CUDA device"
)
N = 60
X, Y = toy(N, 3)
NEW = X[:20] + 0.1
EXACT = 1e-8  # relative: float64 on both devices, sites to 1e-11
SINGLE = 2e-3
MODELS = {
    "ep": (EP(), ProbitPairs(3), 0.2),
    "sep": (SEP(), ProbitPairs(3), 0.2),
    "power ep": (PowerEP(removal=0.4), ProbitPairs(3), 0.2),
    "gfitc": (GFITC(), ProbitPairs(3), 0.2),
    "robust": (EP(), RobustMax(3, epsilon=0.1, learn=True), 0.2),
    "vi": (VI(), Softmax(3), 0.2),
    "laplace": (Laplace(), Softmax(3), 0.0),
    "ordered": (EP(), Ordinal().bind(3), 0.2),
}


def on(device, *arrays, dtype=torch.float64):
    """Rows of a type, and other arrays, as tensors on a device."""
    rows, *rest = (torch.as_tensor(a, device=device) for a in arrays)
    return rows.to(dtype), *rest


def make_model(name, **options):
    method, likelihood, noise = MODELS[name]
    gp = GP(
        kernel=RBF([0.8, 1.3], 1.2) + Linear(),
        likelihood=likelihood,
        inducing=X[:8],
        noise=noise,
        **options,
    )
    return gp, method


def assert_same(gpu, cpu, tolerance):
    """Compare a tensor on the GPU with one on the CPU."""
    assert gpu.device.type == DEVICE
    assert gpu.dtype == cpu.dtype == torch.float64
    torch.testing.assert_close(gpu.cpu(), cpu, rtol=tolerance, atol=tolerance)


def assert_same_posterior(gpu, cpu, tolerance):
    assert gpu.log_evidence == pytest.approx(cpu.log_evidence, rel=tolerance)
    rows, new = (torch.as_tensor(NEW, device=d) for d in ("cpu", DEVICE))
    assert_same(gpu.q.mean, cpu.q.mean, tolerance)
    assert_same(gpu.q.cov, cpu.q.cov, tolerance)
    for a, b in zip(gpu.latent(new), cpu.latent(rows), strict=True):
        assert_same(a, b, tolerance)
    for a, b in zip(gpu.joint(new), cpu.joint(rows), strict=True):
        assert_same(a, b, tolerance)
    assert_same(gpu.predict(new), cpu.predict(rows), tolerance)
    assert gpu.draw(new, 2).shape == cpu.draw(rows, 2).shape


@pytest.mark.parametrize("name", MODELS)
def test_infer(name):
    gp, method = make_model(name)
    cpu, gpu = (
        infer(gp, *on(d, X, Y), method=method, tol=1e-11) for d in ("cpu", DEVICE)
    )
    assert gpu.residual < 1e-8
    assert_same_posterior(gpu, cpu, EXACT)


def test_infer_with_weights_and_targets():
    weight = np.random.default_rng(0).uniform(0.3, 3, N)
    gp, method = make_model("ep")
    kernel = RBF([0.8, 1.3], 1.2)
    targets = GP(kernel=kernel, likelihood=Gaussian(0.1), inducing=X[:12], noise=0.0)
    for model, values, way in (
        (gp, Y, method),
        (targets, np.sin(2 * X[:, 0]), PowerEP(damping=1.0)),
    ):
        cpu, gpu = (
            infer(model, *on(d, X, values), weight=weight, method=way, tol=1e-11)
            for d in ("cpu", DEVICE)
        )
        assert gpu.log_evidence == pytest.approx(cpu.log_evidence, rel=EXACT)
        assert_same(gpu.q.mean, cpu.q.mean, EXACT)


@pytest.mark.parametrize("name", MODELS)
def test_evidence_and_its_gradient(name):
    gp, method = make_model(name)
    cpu, gpu = (
        evidence(gp, *on(d, X, Y), method=method, tol=1e-11) for d in ("cpu", DEVICE)
    )
    assert gpu.value == pytest.approx(cpu.value, rel=EXACT)
    assert gpu.gradient.device.type == DEVICE
    unit = float(cpu.gradient.abs().max())
    assert_same(gpu.gradient / unit, cpu.gradient / unit, 1e-7)


@pytest.mark.parametrize("name", ["ep", "sep", "vi"])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_fit(name, batch_size):
    """Rounding grows from step to step; the order of the rows is the same.

    Mini-batches replay a recorded graph on the GPU.
    """
    gp, method = make_model(name, columns=describe(X))
    options = {"batch_size": batch_size, "method": method, "seed": 3}
    cpu, gpu = (
        fit(gp, *on(d, X, Y), steps=12, hyper_prior=make_hyper_prior(gp), **options)
        for d in ("cpu", DEVICE)
    )
    assert [row["objective"] for row in gpu.history] == pytest.approx(
        [row["objective"] for row in cpu.history], rel=1e-6
    )
    torch.testing.assert_close(gpu.gp.theta, cpu.gp.theta, rtol=1e-5, atol=1e-5)
    assert_same_posterior(gpu.posterior, cpu.posterior, 1e-5)


def test_a_learnt_model_goes_back_to_the_cpu():
    gp, method = make_model("ep")
    learnt = fit(gp, *on(DEVICE, X, Y), method=method, steps=3).gp
    np.testing.assert_array_equal(learnt.with_theta(learnt.theta).theta, learnt.theta)
    here = infer(learnt, X, Y, method=method, tol=1e-11)
    there = infer(learnt, *on(DEVICE, X, Y), method=method, tol=1e-11)
    assert here.q.mean.device.type == "cpu"
    assert_same_posterior(there, here, EXACT)
    assert np.ravel(learnt.kernel.sample(X, 1, random_state=0)).shape == (3 * N,)


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_single_precision(optimizer):
    gp, method = make_model("ep")
    start = infer(gp, *on("cpu", X, Y), method=method, tol=1e-11)
    rows, y = on(DEVICE, X, Y, dtype=torch.float32)
    single = infer(gp, rows, y, method=method)
    assert single.engine.prior.center.dtype == torch.float32
    assert_same(single.predict(rows[:20]), start.predict(X[:20]), SINGLE)

    batch = {"adam": 16, "lbfgs": None}[optimizer]
    found = fit(
        gp, rows, y, method=method, steps=40, batch_size=batch, optimizer=optimizer
    )
    assert found.posterior.log_evidence > start.log_evidence
    assert found.posterior.predict(rows).isfinite().all()
