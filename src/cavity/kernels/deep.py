"""Deep kernels: any torch module as a feature map in front of any kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.column_statistics import Columns, median_distance
from cavity.common.namespaces import NUMPY, namespace
from cavity.common.torch_namespace import TORCH
from cavity.errors import BadOption
from cavity.kernels.base import KERNELS, Kernel, formula_of, full_and_cross
from cavity.kernels.formulas import MappedFormula, to_units


@KERNELS.register
class Deep(Kernel):
    """A kernel on learnt features: k(x, x') = base(net(x), net(x')).

    The weights of the network are learnt together with the other hyper-parameters ("kernel" in `learn`). A kernel is a function,
    so the network is always in evaluation mode: `Dropout` does nothing, and `BatchNorm` keeps the statistics it came with. `fit`
    works on a copy, the attribute `kernel_`. A model file cannot hold the code of a network: pass the kernel to
    `cavity.load(path, kernel=...)`. ONNX export supports dense layers with ReLU, tanh or sigmoid.

    Parameters
    ----------
    net : torch.nn.Module
        Maps rows [..., D] to features [..., H]. Its input is centred and in units of the spread of each column.
    base : Kernel
        The kernel on the features.

    Examples
    --------
    >>> from torch import nn
    >>> from cavity.kernels import RBF, Deep
    >>> kernel = Deep(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), RBF())
    >>> sorted(kernel.get_params(deep=False))
    ['base', 'net']
    """

    unit: Tensor
    center: Tensor

    def __init__(self, net: nn.Module, base: Kernel) -> None:
        super().__init__()
        self.net = net
        self.base = base

    def bind(self, classes: int, columns: Columns) -> None:
        self.net.double().eval()
        self.register_buffer("unit", torch.tensor(columns.spread))
        self.register_buffer("center", torch.tensor(columns.center))
        # the features' statistics, at standard normal rows: the data themselves have zero mean and unit spread
        probe = np.random.default_rng(0).standard_normal((500, len(columns.spread)))
        with torch.no_grad():
            features = self.net(torch.tensor(probe)).numpy()
        center, spread = features.mean(0), features.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        distance = median_distance(
            (features - center) / spread, np.ones(len(features)), np.random.default_rng(0)
        )
        self.base.bind(classes, Columns(center, spread, distance))

    def settle(self, classes: int) -> None:
        self.base.settle(classes)

    def train(self, mode: bool = True) -> Deep:
        """Stay in evaluation mode: dropout and batch normalisation would make the kernel random."""
        return super().train(False)

    def _features(self, X: Tensor) -> Tensor:
        return self.net(to_units(X, self.center, self.unit))

    def full(self, Z: Tensor) -> Tensor:
        return self.base.full(self._features(Z))

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self.base.cross(self._features(Z), self._features(X))

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        return full_and_cross(self.base, self._features(Z), self._features(X))

    def formula(self, xp: Any) -> MappedFormula:
        base, units = formula_of(self.base, xp), (xp.array(self.center), xp.array(self.unit))
        if xp is TORCH:
            return MappedFormula(base, self._features)
        return MappedFormula(base, lambda X: self._call(to_units(X, *units)))

    @torch.no_grad()
    def _call(self, X: Any) -> Any:
        """Return the features of values of a graph, or of an array."""
        if not isinstance(X, np.ndarray):
            return _layers(self.net, X)
        held = next(self.net.parameters(), self.unit)
        return self.net(torch.from_numpy(X).to(held.dtype)).double().numpy()


def _layers(net: nn.Module, X: Any) -> Any:
    """Apply a network of dense layers and activations."""
    if type(net) is nn.Sequential:
        for layer in net:
            X = _layers(layer, X)
        return X
    if type(net) is nn.Linear:
        X = X @ NUMPY.array(net.weight).T
        return X if net.bias is None else X + NUMPY.array(net.bias)
    if type(net) not in ACTIVATIONS:
        known = ", ".join(["Sequential", "Linear", *(kind.__name__ for kind in ACTIVATIONS)])
        raise BadOption(
            f"a deep kernel's {type(net).__name__} cannot be written as an ONNX graph; what can: {known}. Use those, or "
            "clf.save() and cavity.load() instead."
        )
    return ACTIVATIONS[type(net)](namespace(X), X)


ACTIVATIONS: dict[type, Callable[[Any, Any], Any]] = {
    nn.ReLU: lambda xp, X: xp.maximum(X, 0.0),
    nn.Tanh: lambda xp, X: xp.tanh(X),
    nn.Sigmoid: lambda xp, X: 0.5 * (1.0 + xp.tanh(0.5 * X)),
    nn.Identity: lambda xp, X: X,
}
