"""Kernels between inducing points, which are constants, and rows: k(Z, X) and k(x, x) as graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cavity import kernels
from cavity.errors import BadOption
from cavity.onnx_graph import Value


class Covariance(NamedTuple):
    """Leading 1 instead of C: the same for every class."""

    cross: Value  # [C M n]
    diag: Value  # [C n], or [C 1]


def covariance(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    """k(Z, X) and k(x, x) for inducing points [C M D] and rows [n D]."""
    write = WRITERS.get(type(kernel))
    if write is None:
        known = ", ".join(sorted(kind.__name__ for kind in WRITERS))
        raise BadOption(
            f"the kernel {type(kernel).__name__} cannot be written as an ONNX graph; those that can: {known}. Use one of "
            "them, or clf.save() and cavity.load() instead."
        )
    return write(kernel, Z, X)


def _stationary(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    rate = _numpy((-kernel.log_lengthscale).exp())[:, None, :]  # [C 1 D]
    U = _numpy(kernel._units(Z)) * rate  # [C M D]
    V = ((X - _numpy(kernel.center)) / _numpy(kernel.unit)).new_axis(0) * rate  # [C n D]
    inner = X.graph.value(U) @ V.turned(0, 2, 1)  # [C M n]
    v2 = (V * V).sum(2).new_axis(1)
    d2 = (v2 - inner * 2.0 + (U**2).sum(2)[:, :, None]).at_least(0.0)
    # the variance as a term of the exponent: onnxruntime may fuse a factor into a product, in single precision
    log_variance = X.graph.value(_numpy(kernel.log_variance)[:, None, None])
    diag = X.graph.value(_numpy(kernel.log_variance.exp())[:, None])
    return Covariance(SHAPES[type(kernel)](kernel, d2, log_variance), diag)


def _rational(kernel: Any, d2: Value, log_variance: Value) -> Value:
    alpha = _numpy(kernel.log_alpha.exp())[:, None, None]
    return ((d2 / (2 * alpha) + 1.0).log() * -alpha + log_variance).exp()


def _matern32(kernel: Any, d2: Value, log_variance: Value) -> Value:
    d = d2.sqrt() * math.sqrt(3.0)
    return (d + 1.0) * (-d + log_variance).exp()


def _matern52(kernel: Any, d2: Value, log_variance: Value) -> Value:
    d = d2.sqrt() * math.sqrt(5.0)
    return (d + d * d / 3.0 + 1.0) * (-d + log_variance).exp()


SHAPES: dict[type, Callable[[Any, Value, Value], Value]] = {
    kernels.RBF: lambda kernel, d2, log_variance: (d2 * -0.5 + log_variance).exp(),
    kernels.Matern12: lambda kernel, d2, log_variance: (-d2.sqrt() + log_variance).exp(),
    kernels.Matern32: _matern32,
    kernels.Matern52: _matern52,
    kernels.RationalQuadratic: _rational,
}


def _linear(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    scale = kernel.unit * (kernel.log_lengthscale - 0.5 * kernel.log_variance[:, None]).exp()
    V = (X - _numpy(kernel.center)).new_axis(0) / _numpy(scale)[:, None]  # [C n D]
    return Covariance(X.graph.value(_numpy(kernel._scaled(Z))) @ V.turned(0, 2, 1), (V * V).sum(2))


def _constant(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    variance = _numpy(kernel.log_variance.exp())[:, None]  # [C 1]
    ones = X.part(1, 0, 1).turned(1, 0) * 0.0 + 1.0  # [1 n]
    return Covariance(ones * np.repeat(variance, Z.shape[-2], 1)[:, :, None], X.graph.value(variance))


def _sum(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    a, b = covariance(kernel.k1, Z, X), covariance(kernel.k2, Z, X)
    return Covariance(a.cross + b.cross, a.diag + b.diag)


def _product(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    a, b = covariance(kernel.k1, Z, X), covariance(kernel.k2, Z, X)
    return Covariance(a.cross * b.cross, a.diag * b.diag)


def _deep(kernel: Any, Z: Tensor, X: Value) -> Covariance:
    features = _layers(kernel.net, (X - _numpy(kernel.center)) / _numpy(kernel.unit))
    return covariance(kernel.base, kernel._features(Z), features)


def _layers(net: nn.Module, X: Value) -> Value:
    """A network of dense layers and plain activations."""
    if type(net) is nn.Sequential:
        for layer in net:
            X = _layers(layer, X)
        return X
    if type(net) is nn.Linear:
        X = X @ _numpy(net.weight).T
        return X if net.bias is None else X + _numpy(net.bias)
    if type(net) not in ACTIVATIONS:
        known = ", ".join(["Sequential", "Linear", *(kind.__name__ for kind in ACTIVATIONS)])
        raise BadOption(
            f"a deep kernel's {type(net).__name__} cannot be written as an ONNX graph; what can: {known}. Use those, or "
            "clf.save() and cavity.load() instead."
        )
    return ACTIVATIONS[type(net)](X)


ACTIVATIONS: dict[type, Callable[[Value], Value]] = {
    nn.ReLU: lambda X: X.graph.op("Relu", X),
    nn.Tanh: lambda X: X.graph.op("Tanh", X),
    nn.Sigmoid: lambda X: X.graph.op("Sigmoid", X),
    nn.Identity: lambda X: X,
}
WRITERS: dict[type, Callable[[Any, Tensor, Value], Covariance]] = {
    **{kind: _stationary for kind in SHAPES},
    kernels.Linear: _linear,
    kernels.Constant: _constant,
    kernels.Sum: _sum,
    kernels.Product: _product,
    kernels.Deep: _deep,
}


@torch.no_grad()
def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy().copy()
