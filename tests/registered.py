"""One example of every registered kernel and likelihood, for the tests that walk the registries."""

from __future__ import annotations

import torch
from torch import nn

from cavity.kernels import KERNELS, RBF, Constant, Deep, Kernel, Linear, Matern32, Product, Sum
from cavity.likelihoods import LIKELIHOODS, Gaussian, Likelihood

# Tests register classes of their own, too: these are the library's, whatever was imported before.
REGISTERED_KERNELS = {k.__name__: k for k in KERNELS.classes() if k.__module__.startswith("cavity.")}
REGISTERED_LIKELIHOODS = {k.__name__: k for k in LIKELIHOODS.classes() if k.__module__.startswith("cavity.")}
CLASSIFIERS = {name: kind for name, kind in REGISTERED_LIKELIHOODS.items() if not issubclass(kind, Gaussian)}


def net(D: int) -> nn.Module:
    """A small network, the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def make_kernel(kind: type[Kernel], D: int, **values: object) -> Kernel:
    """An instance whose arguments have these values where it has such arguments; `values` may hold one value per class."""
    scale, variance = values.get("lengthscale"), values.get("variance", 1.0)
    if kind is Sum:
        return RBF(scale, variance) + Constant(0.3) + Linear(scale)
    if kind is Product:
        return Matern32(scale, variance) * (Linear(scale) + Constant(0.5))
    if kind is Deep:
        return Deep(net(D), RBF(variance=variance))
    return kind(**{name: value for name, value in values.items() if name in kind.parameter_names()})


def make_likelihood(kind: type[Likelihood], **values: object) -> Likelihood:
    """An instance with these values of its arguments, where it has them."""
    return kind(**{name: value for name, value in values.items() if name in kind.parameter_names()})
