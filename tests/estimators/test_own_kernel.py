"""A torch module of the user's as a kernel: its weights learn in a copy, the module
stays as it was.
"""

import numpy as np
import pytest
import torch
from torch import nn

from cavity import GPClassifier
from cavity.fitting.options import nest
from support import ALONE, without_warnings


class Deep(nn.Module):
    """What a user may write: three calls, one set of features for all classes."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        with torch.no_grad():
            for weight in self.net.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)

    def full(self, Z):
        return self.cross(Z, Z)

    def cross(self, Z, X):
        return torch.exp(-0.5 * torch.cdist(self.net(Z), self.net(X)) ** 2)

    def diag(self, X):
        return torch.ones(1, len(X), dtype=X.dtype, device=X.device)


@pytest.fixture(scope="module", params=[2, 3], ids=["binary", "three classes"])
def rings(request):
    """Rings, which no linear function of the columns separates."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % request.param
    angle = rng.uniform(0, 2 * np.pi, 90)
    radius = 0.3 + y + 0.15 * rng.normal(size=90)
    return radius[:, None] * np.c_[np.cos(angle), np.sin(angle)], y


def fit(kernel, X, y, **options):
    usual = {"n_inducing": 15, "max_epochs": 40, "random_state": 0, **ALONE}
    with without_warnings():
        return GPClassifier(**nest(kernel=kernel, **usual | options)).fit(X, y)


def test_weights_learn_in_a_copy_and_raise_the_evidence(rings):
    kernel = Deep()
    before = {name: p.detach().clone() for name, p in kernel.named_parameters()}
    fitted = fit(kernel, *rings)
    fixed = fit(kernel, *rings, learn=("noise", "inducing"))
    for name, p in kernel.named_parameters():
        assert p.dtype == torch.float32 and p.requires_grad and p.grad is None
        torch.testing.assert_close(p.detach(), before[name], rtol=0, atol=0)
        learnt, kept = (
            dict(clf.kernel_.named_parameters())[name] for clf in (fitted, fixed)
        )
        torch.testing.assert_close(kept.detach(), p.detach().double(), rtol=0, atol=0)
        assert learnt.dtype == torch.float64
        assert (
            name == "net.2.bias" or (learnt - p).abs().max() > 1e-3
        )  # distances do not see the last bias
    assert (
        fitted.kernel is kernel
        and len({id(k) for k in (kernel, fitted.kernel_, fixed.kernel_)}) == 3
    )
    assert fitted.score(*rings) > 0.9 and fitted.feature_relevance_ is None
    assert f"{fitted.noise_[0]:.4g}" in str(fitted.summary())
    assert fitted.log_marginal_likelihood_ > fixed.log_marginal_likelihood_ + 1


def freeze_first_layer():
    kernel = Deep()
    kernel.net[0].requires_grad_(False)
    return kernel


def test_frozen_parameters_are_not_learnt(rings, tmp_path):
    kernel = freeze_first_layer()
    X, y = rings
    for clf in (
        fit(kernel, X, y, max_epochs=5),
        fit(kernel, X, y, n_inducing=10, batch_size=30, max_epochs=5),
        fit(kernel, X, y, warm_start=True, max_epochs=5).fit(X, y),
    ):
        first = clf.kernel_.net[0]
        last = clf.kernel_.net[2]
        given = kernel.net[0].weight.double()
        torch.testing.assert_close(first.weight, given, rtol=0, atol=0)
        assert not first.weight.requires_grad
        assert (last.weight - kernel.net[2].weight).abs().max() > 1e-3
    assert not kernel.net[0].weight.requires_grad and kernel.net[2].weight.requires_grad


def test_a_frozen_kernel_stays_where_rows_are_added(rings):
    kernel = Deep().requires_grad_(False)
    X, y = rings
    clf = GPClassifier(
        "sep", kernel=kernel, n_inducing=10, random_state=0, device="cpu"
    )
    for rows in (slice(0, 45), slice(45, 90)):
        clf.partial_fit(X[rows], y[rows], classes=np.unique(y))
    given = kernel.net[0].weight.double()
    torch.testing.assert_close(clf.kernel_.net[0].weight, given, rtol=0, atol=0)
