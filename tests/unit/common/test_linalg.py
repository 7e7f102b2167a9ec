"""Whitening: values, the derivative written out, failure as a value."""

import numpy as np
import pytest
import torch

from cavity.common import linalg
from cavity.engine.inference.posterior import Sums, marginals, posterior

JITTER = torch.tensor(1e-3, dtype=torch.float64)


def spd(C=2, M=4, seed=0):
    A = torch.tensor(np.random.default_rng(seed).normal(size=(C, M, M + 2)))
    return A @ A.mT / M + 0.1 * torch.eye(M, dtype=torch.float64)


def rows(C=2, M=4, N=5, seed=1):
    return torch.tensor(np.random.default_rng(seed).normal(size=(C, M, N)))


def plain(K, B):
    """The same by torch's own derivative of the Cholesky factor and of the solve."""
    diagonal = K.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    lower = torch.linalg.cholesky(
        K + JITTER * diagonal * torch.eye(K.shape[-1], dtype=K.dtype)
    )
    return torch.linalg.solve_triangular(lower, B, upper=False)


def symmetric(A):
    return 0.5 * (A + A.mT)


@pytest.mark.parametrize(("left", "right"), [(2, 2), (1, 2), (2, 1), (1, 1)])
def test_whiten_is_the_triangular_solve(left, right):
    a, failed = linalg.whiten(spd(left), rows(right), JITTER)
    torch.testing.assert_close(a, plain(spd(left), rows(right)), rtol=1e-12, atol=1e-13)
    assert a.shape[0] == max(left, right) and not failed


@pytest.mark.parametrize(("left", "right"), [(2, 2), (1, 2), (2, 1)])
def test_whiten_has_the_gradient_of_plain_autograd(left, right):
    weights = rows(2, seed=7)
    gradients = []
    for solve in (lambda K, B: linalg.whiten(K, B, JITTER)[0], plain):
        A, B = spd(left).requires_grad_(), rows(right).requires_grad_()
        gradients.append(
            torch.autograd.grad((weights * solve(symmetric(A), B)).sum(), (A, B))
        )
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_jitter_moves_with_the_amplitude():
    """K → 4K halves L⁻¹ B exactly: the jitter is relative."""
    a, _ = linalg.whiten(spd(), rows(), JITTER)
    b, _ = linalg.whiten(4 * spd(), rows(), JITTER)
    torch.testing.assert_close(b, 0.5 * a, rtol=0, atol=0)


def test_failure_is_a_flag_and_not_an_exception():
    bad = spd()
    bad[1, 0, 0] = -1.0
    assert linalg.jittered_cholesky(bad, JITTER).failed and linalg.cholesky(bad).failed
    assert linalg.whiten(bad, rows(), JITTER)[1]
    assert (
        not linalg.jittered_cholesky(spd(), JITTER).failed
        and not linalg.cholesky(spd()).failed
    )


def test_factors_are_computed_in_float64():
    """The Hilbert matrix of order 8 has condition 1.5e10: in float32 alone it has no
    Cholesky factor.
    """
    i = torch.arange(8)
    hilbert = 1.0 / (i[:, None] + i[None] + 1).double()
    rounded = hilbert.float() + 1e-7 * torch.eye(8)
    assert torch.linalg.cholesky_ex(rounded.double())[1] == 0
    factor = linalg.cholesky(rounded[None])
    assert not factor.failed and factor.lower.dtype == torch.float64


def test_solves_and_log_determinant():
    K, B = spd(), rows()
    lower = torch.linalg.cholesky(K)
    torch.testing.assert_close(lower @ linalg.solve_lower(lower, B), B)
    torch.testing.assert_close(lower.mT @ linalg.solve_lower_t(lower, B), B)
    torch.testing.assert_close(linalg.log_det(lower), torch.logdet(K))


def test_posterior_by_explicit_inverses():
    P, h, a = spd(seed=3), rows(N=1, seed=4)[..., 0], rows(seed=5)
    q = posterior(Sums(P, h))
    precision = P + torch.eye(4, dtype=torch.float64)
    covariance = torch.linalg.inv(precision)
    mean = (covariance @ h[..., None])[..., 0]
    torch.testing.assert_close(q.mean, mean)
    torch.testing.assert_close(
        q.log_normaliser, -0.5 * torch.logdet(precision) + 0.5 * (h * mean).sum(-1)
    )
    m = marginals(q, a)
    torch.testing.assert_close(m.t.mean, torch.einsum("cm,cmn->cn", mean, a))
    torch.testing.assert_close(
        m.t.var, torch.einsum("cmn,cmk,ckn->cn", a, covariance, a)
    )
    torch.testing.assert_close(m.cov_a(), covariance @ a)


def test_posteriors_without_sites_and_improper_ones():
    q = posterior(Sums(torch.zeros(2, 3, 3).double(), torch.zeros(2, 3).double()))
    assert (q.mean == 0).all() and (q.log_normaliser == 0).all() and not q.failed
    assert posterior(
        Sums(-2 * torch.eye(3, dtype=torch.float64)[None], torch.zeros(1, 3).double())
    ).failed


@pytest.mark.parametrize("M", [1, 5, 31, 32, 33, 64, 100])
def test_the_inverse_by_blocks_is_the_inverse(M):
    lower = torch.linalg.cholesky(spd(3, M))
    eye = torch.eye(M, dtype=torch.float64).expand(3, M, M)
    torch.testing.assert_close(
        linalg.inverse_by_blocks(lower),
        linalg.inverse_lower(lower),
        rtol=1e-10,
        atol=1e-12 * M,
    )
    torch.testing.assert_close(
        linalg.inverse_by_blocks(lower) @ lower, eye, rtol=0, atol=1e-12 * M
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_solves_by_the_inverse_are_solves_by_substitution(monkeypatch, dtype):
    """As a GPU does them: whitening, its derivative, and the marginals of q."""

    def everything():
        K, B = (t.to(dtype).requires_grad_() for t in (spd(2, 40), rows(2, 40)))
        a, _ = linalg.whiten(K, B, JITTER)
        grads = torch.autograd.grad(a.square().sum() + a[0, 1].sum(), [K, B])
        m = marginals(posterior(Sums(spd(2, 40), rows(2, 40)[..., 0])), a.detach())
        return a, symmetric(grads[0]), grads[1], *m.t, m.cov_a()

    expected = everything()
    monkeypatch.setattr(linalg, "inverts", lambda lower: True)
    for got, wanted in zip(everything(), expected, strict=True):
        torch.testing.assert_close(
            got,
            wanted,
            rtol=1e-10 if dtype == torch.float64 else 1e-3,
            atol=1e-11 if dtype == torch.float64 else 1e-3,
        )
