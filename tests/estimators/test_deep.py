"""Deep kernels: weights learn in a copy, the user's module stays as it was."""

import pickle
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from cavity import GPClassifier
from cavity.kernels import RBF, Deep
from cavity.options import nest
from support import toy


def network(outputs=2):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs))
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.5)
    return net


class OwnDeep(nn.Module):
    """What a user may write: three calls, one set of features for all classes."""

    def __init__(self):
        super().__init__()
        self.net = network()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def _features(self, X):
        return self.net(X) * self.log_scale.exp()

    def full(self, Z):
        return self.cross(Z, self._features(Z), done=True)

    def cross(self, Z, X, done=False):
        return torch.exp(-0.5 * torch.cdist(self._features(Z), X if done else self._features(X)[None]) ** 2)

    def diag(self, X):
        return torch.ones(1, len(X), dtype=X.dtype, device=X.device)


KERNELS = {"Deep": lambda: Deep(network(), RBF()), "own module": OwnDeep}


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request):
    return KERNELS[request.param]()


@pytest.fixture(scope="module", params=[2, 3], ids=["binary", "three classes"])
def spirals(request):
    """Rings, which no linear function of the columns separates."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % request.param
    angle = rng.uniform(0, 2 * np.pi, 90)
    radius = 0.3 + y + 0.15 * rng.normal(size=90)
    return radius[:, None] * np.c_[np.cos(angle), np.sin(angle)], y


def model(kernel, **options):
    return GPClassifier(
        **nest(
            kernel=kernel,
            **{"n_inducing": 15, "max_epochs": 40, "random_state": 0, "effort": "fast"} | options,
        )
    )


def weights(module):
    return {
        name: (p.dtype, p.requires_grad, p.grad, p.detach().clone()) for name, p in module.named_parameters()
    }


class Learnt(NamedTuple):
    kernel: nn.Module
    before: dict  # weights of the kernel before the fit
    fitted: GPClassifier
    X: np.ndarray
    y: np.ndarray


@pytest.fixture(scope="module")
def learnt(kernel, spirals):
    before = weights(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Learnt(kernel, before, model(kernel).fit(*spirals), *spirals)


def test_weights_learn_in_a_copy(learnt):
    kernel, before, fitted, X, y = learnt
    for name, (dtype, learns, grad, value) in weights(kernel).items():
        assert (dtype, learns, grad) == before[name][:3]
        torch.testing.assert_close(value, before[name][3], rtol=0, atol=0)
    assert fitted.kernel is kernel and fitted.kernel_ is not kernel
    learnt = dict(fitted.kernel_.net.named_parameters())
    for name, old in kernel.net.named_parameters():
        assert learnt[name].dtype == torch.float64
        if name != "2.bias":  # distances do not see the last bias
            assert (learnt[name] - old).abs().max() > 1e-3
    assert fitted.score(X, y) > 0.9


def test_learning_the_weights_raises_the_evidence(learnt):
    kernel, _, fitted, X, y = learnt
    fixed = model(kernel, learn=("noise", "inducing")).fit(X, y)
    assert fitted.log_marginal_likelihood_ > fixed.log_marginal_likelihood_ + 1
    for a, b in zip(fixed.kernel_.net.parameters(), kernel.net.parameters(), strict=True):
        torch.testing.assert_close(a.detach(), b.detach().double(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "options", [{"method": "sep"}, {"batch_size": 30}, {"dtype": "float32"}, {"share": "both"}], ids=str
)
def test_a_deep_kernel_on_every_road(kernel, spirals, options):
    X, y = spirals
    fitted = model(kernel, **options | {"max_epochs": 15}).fit(X, y)
    assert fitted.score(X, y) > 0.6
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1.0, atol=1e-12)


def test_a_deep_kernel_is_cloned_and_pickled(kernel, spirals):
    X, y = spirals
    fitted = model(kernel, max_epochs=5).fit(X, y)
    p = fitted.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), p)
    copy = clone(fitted)
    assert copy.kernel is not kernel
    np.testing.assert_array_equal(copy.fit(X, y).predict_proba(X), p)


def test_a_module_of_the_users_has_no_relevance(spirals):
    X, y = spirals
    fitted = model(OwnDeep(), max_epochs=3).fit(X, y)
    assert fitted.feature_relevance_ is None


def test_fits_do_not_share_their_copies(spirals):
    X, y = spirals
    kernel = Deep(network(), RBF())
    a, b = (model(kernel, max_epochs=2).fit(X, y) for _ in range(2))
    assert len({id(k) for k in (a.kernel_, b.kernel_, kernel)}) == 3
    assert len({p.data_ptr() for k in (a.kernel_, b.kernel_, kernel) for p in k.net.parameters()}) == 12


@pytest.mark.filterwarnings("ignore")
def test_a_net_is_a_function_whatever_it_does_in_training():
    """Dropout would draw other features for k(Z, Z) than for k(Z, X), and others again at every prediction."""
    torch.manual_seed(0)
    X, y = toy(40, 2)
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Dropout(0.5), nn.Linear(20, 2))
    clf = GPClassifier("ep", kernel=Deep(net, RBF()), n_inducing=10, max_epochs=10, random_state=0).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), clf.predict_proba(X))
    assert net.training and not clf.kernel_.train().net.training
