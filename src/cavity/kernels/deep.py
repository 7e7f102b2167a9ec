"""A kernel on learnt features: any torch module in front of any kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavity.columns import Columns, median_distance
from cavity.kernels.base import Kernel, full_and_cross


class Deep(Kernel):
    """k(x, x') = base(net(x), net(x')).

    `net` maps [..., D] to [..., H]; its weights are learnt together with the other hyper-parameters ("kernel" in `learn`).
    It is given the columns centred and in units of their spread. `fit` works on a copy: `kernel_` is that copy. A kernel is a
    function, so the net is always in evaluation mode: `Dropout` does nothing, `BatchNorm` keeps the statistics it came with.
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        params: dict[str, Any] = {"net": self.net, "base": self.base}
        if deep and hasattr(self.base, "get_params"):
            params.update({f"base__{key}": value for key, value in self.base.get_params().items()})
        return params

    def train(self, mode: bool = True) -> Deep:
        return super().train(False)

    def _features(self, X: Tensor) -> Tensor:
        return self.net((X - self.center) / self.unit)  # type: ignore[no-any-return]

    def full(self, Z: Tensor) -> Tensor:
        return self.base.full(self._features(Z))

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self.base.cross(self._features(Z), self._features(X))

    def diag(self, X: Tensor) -> Tensor:
        return self.base.diag(self._features(X))

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        return full_and_cross(self.base, self._features(Z), self._features(X))
