"""The printed formulas of the review against finite differences: those that fail,
beside what holds.
"""

import numpy as np
import pytest
from scipy.special import expit

from reference import bounds
from reference.kernels import rbf

RNG = np.random.default_rng(0)
N, M, NOISE = 9, 4, 0.3  # NOISE is σ_n², a variance
X, Z = RNG.normal(size=(N, 2)), RNG.normal(size=(M, 2))
Y = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=N)
LABEL = np.sign(Y)
A0 = RNG.normal(size=(M, M))
MU, SIGMA = RNG.normal(size=M), A0 @ A0.T / M + 0.2 * np.eye(M)
XI = RNG.normal(size=N)
H = 1e-5


def gram(theta):
    ell, var = np.exp(theta)
    return bounds.Gram(rbf(Z, Z, ell, var), rbf(Z, X, ell, var), np.full(N, var))


THETA = np.log([1.1, 1.7])
K = gram(THETA)
K_INV = np.linalg.inv(K.mm)
DK = [
    bounds.Gram(
        *(
            (a - b) / (2 * H)
            for a, b in zip(gram(THETA + H * e), gram(THETA - H * e), strict=True)
        )
    )
    for e in np.eye(2)
]


def slope(f, x):
    """Central differences of a scalar f at x, any shape."""
    x = np.asarray(x, dtype=float)
    out = np.zeros(x.size)
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = H
        e = e.reshape(x.shape)
        out[i] = (f(x + e) - f(x - e)) / (2 * H)
    return out.reshape(x.shape)


def assert_differs(printed, true, least=1e-3):
    assert np.max(np.abs(np.asarray(printed) - true)) > least, (
        "the printed formula holds: take it off the page"
    )


def elbo(mu, Sigma, gram_, noise=NOISE):
    """L₃ of regression.   [review 8]"""
    m, var = bounds.marginals(mu, Sigma, gram_)
    rows = -0.5 * np.log(2 * np.pi * noise) - 0.5 * ((Y - m) ** 2 + var) / noise
    return rows.sum() - bounds.kl(mu, Sigma, gram_.mm)


def logistic_elbo(mu, Sigma, gram_, nodes=60):
    """L₃ of classification.   [review 12]"""
    m, var = bounds.marginals(mu, Sigma, gram_)
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    f = LABEL[:, None] * (m[:, None] + np.sqrt(var)[:, None] * z)
    return (np.log(expit(f)) @ w / w.sum()).sum() - bounds.kl(mu, Sigma, gram_.mm)


# --- the evidence ------------------------------------------------------------------------------------------
def test_5_the_determinant_of_laplace_is_that_of_one_plus_kw():
    """−½ log|B| completes log q(y) for a Gaussian likelihood, where Laplace is exact,
    with |B| = |I + KW|.
    """
    kernel = rbf(X, X, 1.1, 1.7)
    W = np.eye(N) / NOISE
    f = kernel @ np.linalg.solve(kernel + NOISE * np.eye(N), Y)
    log_lik = -0.5 * N * np.log(2 * np.pi * NOISE) - 0.5 * np.sum((Y - f) ** 2) / NOISE
    psi = log_lik - 0.5 * f @ np.linalg.solve(kernel, f)
    C = kernel + NOISE * np.eye(N)
    exact = -0.5 * (
        Y @ np.linalg.solve(C, Y) + np.linalg.slogdet(C)[1] + N * np.log(2 * np.pi)
    )
    assert psi - 0.5 * np.linalg.slogdet(np.eye(N) + kernel @ W)[1] == pytest.approx(
        exact, abs=1e-8
    )
    assert_differs(
        psi - 0.5 * np.linalg.slogdet(kernel)[1] - 0.5 * np.linalg.slogdet(W)[1], exact
    )


def test_2_1_1_the_determinant_of_b_has_sigma_to_the_2n():
    B = NOISE * np.eye(N) + K.mn.T @ K_INV @ K.mn
    A = K.mm + K.mn @ K.mn.T / NOISE
    rest = np.linalg.slogdet(A)[1] - np.linalg.slogdet(K.mm)[1]
    assert rest + N * np.log(NOISE) == pytest.approx(np.linalg.slogdet(B)[1], abs=1e-8)
    assert_differs(rest + np.log(NOISE), np.linalg.slogdet(B)[1])


def test_2_1_1_the_best_q_divides_by_the_variance():
    for scale, holds in ((NOISE, True), (np.sqrt(NOISE), False)):
        Sigma = np.linalg.inv(K_INV @ K.mn @ K.mn.T @ K_INV / scale + K_INV)
        mu = Sigma @ K_INV @ K.mn @ Y / scale
        flat = np.abs(slope(lambda u, S=Sigma: elbo(u, S, K), mu)).max() < 1e-6
        assert flat == holds


def test_2_1_1_the_gradient_of_the_collapsed_bound_holds():
    """The one that `method="vi"` of GPRegressor climbs."""

    def bound(theta):
        g = gram(theta)
        B = NOISE * np.eye(N) + g.mn.T @ np.linalg.inv(g.mm) @ g.mn
        quadratic = Y @ np.linalg.solve(B, Y) + g.residual.sum() / NOISE
        return -0.5 * (N * np.log(2 * np.pi) + np.linalg.slogdet(B)[1] + quadratic)

    B_inv = np.linalg.inv(NOISE * np.eye(N) + K.mn.T @ K_INV @ K.mn)
    for i, d in enumerate(DK):
        dB = (d.mn.T - K.mn.T @ K_INV @ d.mm) @ K_INV @ K.mn + K.mn.T @ K_INV @ d.mn
        traces = -np.trace(B_inv @ dB) - (d.nn.sum() - np.trace(dB)) / NOISE
        assert 0.5 * (traces + Y @ B_inv @ dB @ B_inv @ Y) == pytest.approx(
            slope(bound, THETA)[i], abs=1e-6
        )


# --- stochastic variational inference ----------------------------------------------------------------------
def test_9_the_gradient_in_the_first_expectation_parameter_has_the_other_sign():
    beta2 = np.outer(MU, MU) + SIGMA
    true = slope(lambda b: elbo(b, beta2 - np.outer(b, b), K), MU)
    printed = -K_INV @ K.mn @ Y / NOISE + np.linalg.solve(SIGMA, MU)
    np.testing.assert_allclose(-printed, true, atol=1e-5)
    assert_differs(printed, true)


def test_2_1_2_the_gradient_in_the_mean_has_the_other_sign():
    true = slope(lambda u: elbo(u, SIGMA, K), MU)
    printed = K_INV @ K.mn @ (K.mn.T @ K_INV @ MU - Y) / NOISE + K_INV @ MU
    np.testing.assert_allclose(-printed, true, atol=1e-5)
    assert_differs(printed, true)


def test_2_1_2_the_gradient_in_the_cholesky_factor_holds():
    L = np.linalg.cholesky(SIGMA)
    true = np.tril(slope(lambda T: elbo(MU, np.tril(T) @ np.tril(T).T, K), L))
    Lambda = K_INV @ K.mn @ K.mn.T @ K_INV / NOISE
    np.testing.assert_allclose(
        np.tril(-Lambda @ L + np.diag(1 / np.diag(L)) - K_INV @ L), true, atol=1e-5
    )


def test_2_1_2_a_minus_is_missing_in_the_gradient_of_the_kernel():
    true = slope(lambda t: elbo(MU, SIGMA, gram(t)), THETA)
    for i, d in enumerate(DK):
        A, dA = K_INV @ K.mn, K_INV @ d.mn - K_INV @ d.mm @ K_INV @ K.mn
        fit = (Y - A.T @ MU) @ (dA.T @ MU) / NOISE - np.trace(A.T @ SIGMA @ dA) / NOISE
        rest = 0.5 * (
            -np.trace(K_INV @ d.mm)
            + np.trace(SIGMA @ K_INV @ d.mm @ K_INV)
            + MU @ K_INV @ d.mm @ K_INV @ MU
        )
        moved = np.trace(K.mn.T @ K_INV @ d.mm @ K_INV @ K.mn)
        residual = -d.nn.sum() + 2 * np.trace(d.mn.T @ K_INV @ K.mn)
        assert fit + rest + 0.5 * (residual - moved) / NOISE == pytest.approx(
            true[i], abs=1e-5
        )
        assert_differs(fit + rest + 0.5 * (residual + moved) / NOISE, true[i])


def test_2_2_the_gradient_in_the_mean_subtracts_the_prior():
    m, var = bounds.marginals(MU, SIGMA, K)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    pull = LABEL * (
        expit(-LABEL[:, None] * (m[:, None] + np.sqrt(var)[:, None] * z)) @ w / w.sum()
    )
    true = slope(lambda u: logistic_elbo(u, SIGMA, K), MU)
    np.testing.assert_allclose(K_INV @ K.mn @ pull - K_INV @ MU, true, atol=1e-5)
    assert_differs(K_INV @ K.mn @ pull + K_INV @ MU, true)


# --- bounds of the logistic --------------------------------------------------------------------------------
def test_2_3_1_the_derivative_of_b_holds_inside_a_trace_only():
    Lam = np.diag(bounds.jaakkola_lambda(np.abs(XI)))
    gaps = []
    matrix = lambda g: 2 * g.mn @ Lam @ g.mn.T + g.mm
    for e, d in zip(np.eye(2), DK, strict=True):
        true = (matrix(gram(THETA + H * e)) - matrix(gram(THETA - H * e))) / (2 * H)
        printed = 4 * d.mn @ Lam @ K.mn.T + d.mm
        B_inv = np.linalg.inv(matrix(K))
        assert np.trace(B_inv @ printed) == pytest.approx(
            np.trace(B_inv @ true), abs=1e-6
        )
        gaps.append(np.abs(printed - true).max())
    assert_differs(
        max(gaps), 0
    )  # in the lengthscale; the variance scales all entries alike


def test_2_3_1_the_gradient_of_the_collapsed_bound_holds():
    lam = bounds.jaakkola_lambda(np.abs(XI))
    B = lambda g: 2 * g.mn @ (lam[:, None] * g.mn.T) + g.mm

    def J(theta):
        g = gram(theta)
        pulled = g.mn @ LABEL
        dets = 0.5 * (np.linalg.slogdet(g.mm)[1] - np.linalg.slogdet(B(g))[1])
        return pulled @ np.linalg.solve(B(g), pulled) / 8 + dets - lam @ g.residual

    B_inv, pulled = np.linalg.inv(B(K)), K.mn @ LABEL
    for i, d in enumerate(DK):
        dB = 4 * d.mn @ (lam[:, None] * K.mn.T) + d.mm
        dK = (
            d.nn
            - 2 * np.sum((d.mn.T @ K_INV) * K.mn.T, 1)
            + np.sum((K.mn.T @ K_INV @ d.mm @ K_INV) * K.mn.T, 1)
        )
        quadratic = (
            d.mn @ LABEL
        ) @ B_inv @ pulled / 4 - pulled @ B_inv @ dB @ B_inv @ pulled / 8
        got = (
            quadratic
            + 0.5 * np.trace(K_INV @ d.mm)
            - 0.5 * np.trace(B_inv @ dB)
            - lam @ dK
        )
        assert got == pytest.approx(slope(J, THETA)[i], abs=1e-6)


def test_2_3_2_the_mean_is_not_the_best_point_of_expansion():
    """∂J₂/∂ξ = ½ l'''(ξ)(S² + (m − ξ)²), which is not 0 at ξ = m."""
    m, var = bounds.marginals(MU, SIGMA, K)
    at = slope(lambda x: bounds.taylor_value(MU, SIGMA, x, LABEL, K), m)
    s = expit(LABEL * m)
    np.testing.assert_allclose(
        at, -0.5 * LABEL * s * (1 - s) * (1 - 2 * s) * var, atol=1e-6
    )
    assert_differs(at, 0, least=1e-2)


def test_2_3_2_the_log_determinant_of_b_enters_the_gradient_with_a_plus():
    s = expit(LABEL * XI)
    psi = 0.5 * s * (1 - s)
    A = lambda g: g.mn @ (psi[:, None] * g.mn.T)
    B = lambda g: np.linalg.inv(np.linalg.inv(A(g)) + 2 * np.linalg.inv(g.mm))
    true = slope(lambda t: 0.5 * np.linalg.slogdet(B(gram(t)))[1], THETA)
    A_inv = np.linalg.inv(A(K))
    for i, d in enumerate(DK):
        dB = (
            2
            * B(K)
            @ (A_inv @ d.mn @ (psi[:, None] * K.mn.T) @ A_inv + K_INV @ d.mm @ K_INV)
            @ B(K)
        )
        trace = 0.5 * np.trace(np.linalg.solve(B(K), dB))
        assert trace == pytest.approx(true[i], abs=1e-5)
        assert_differs(-trace, true[i])
