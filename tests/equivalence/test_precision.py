"""Single precision against explicit matrices in double precision: as near as 24 bits
allow.
"""

import numpy as np
import pytest

from cavity.kernels import RBF
from reference import brute_ep
from reference import kernels as written_out
from reference.problems import hyper_parameters
from support import classifier, latent_columns, toy

NEW = np.random.default_rng(99).normal(size=(8, 2))
EPS = float(np.finfo(np.float32).eps)  # 1.2e-7
METHODS = {
    "ep": (brute_ep.sparse_ep, {}),
    "sep": (brute_ep.sep, {}),
    "pep": (brute_ep.power_ep, {"power": 0.5}),
    "rep": (brute_ep.robust_ep, {"epsilon": 0.05}),
    "gfitc": (brute_ep.gfitc, {}),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("C", [2, 3])
def test_single_precision_is_the_brute_force_to_its_own_precision(C, method):
    X, y = toy(10, C)
    Z, lengthscale, variance, noise = hyper_parameters(C, 3)
    solve, options = METHODS[method]
    ks = written_out.one_per_class(written_out.rbf, lengthscale, variance)
    exact = solve(X, 2 * y - 1 if C == 2 else y, Z, ks, noise, jitter=1e-4, **options)
    gp = classifier(
        method, kernel=RBF(lengthscale, variance), inducing=Z, noise=noise, learn=(), dtype="float32",
        jitter=1e-4, tol=1e-9, max_epochs=400, device="cpu", **options,
    ).fit(X, y)  # fmt: skip
    assert gp.log_marginal_likelihood_ == pytest.approx(exact.log_z, rel=16 * EPS)
    np.testing.assert_allclose(
        gp.predict_proba(NEW), brute_ep.predict_proba(exact, NEW), rtol=0, atol=16 * EPS
    )
    for got, expected in zip(
        latent_columns(gp, NEW), brute_ep.latent(exact, NEW), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=16 * EPS)
