"""Sparse-spectrum features instead of inducing points: a linear model of random cosines and sines. [docs/decisions/0020]"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.linalg import Factor
from cavity.errors import BadOption
from cavity.kernels import KERNELS, RBF
from cavity.kernels.prior import Prior, Projection

Array = NDArray[np.float64]

NAME = "spectrum"


def asked(inducing: Any) -> bool:
    """Return whether the argument `inducing` asks for features instead of points."""
    return isinstance(inducing, str) and inducing == NAME


def spectral_degrees(kind: type) -> float | None:
    """Return the degrees of freedom of a kernel's frequencies; None if they are not known. A subclass may have another shape."""
    return vars(kind).get("spectral_degrees")


def draw(kernel: Any, features: int, C: int, D: int, rng: np.random.Generator) -> Array:
    """Draw frequencies [C H D] of M = 2H features from the kernel's spectral density, in units of 1/lengthscale."""
    degrees = spectral_degrees(RBF if kernel is None else type(kernel))
    if degrees is None:
        known = ", ".join(kind.__name__ for kind in KERNELS.classes() if spectral_degrees(kind) is not None)
        raise BadOption(
            f"inducing='spectrum' needs a kernel with a known spectral density ({known}) and got {kernel!r:.80}: use one of these, "
            "or inducing points (inducing='auto')."
        )
    if features < 2:
        raise BadOption(
            f"n_inducing={features} is too small: a frequency needs a cosine and a sine, so use at least 2 features."
        )
    normal = rng.standard_normal((C, features // 2, D))
    if math.isinf(degrees):
        return normal
    return np.asarray(normal * np.sqrt(degrees / rng.chisquare(degrees, (C, features // 2, 1))))


class Spectrum(Prior):
    r"""f(x) = w·φ(x) + noise,  w ~ N(0, I),  with H frequencies ω_h = ε_h/ℓ and M = 2H features

        φ(x) = √(σ²/H) (cos ω₁·x, …, cos ω_H·x, sin ω₁·x, …, sin ω_H·x)

    φ(x)·φ(x') → k(x, x') as H grows, and |φ(x)|² = σ² for every H. So a = φ, and the residual is the noise alone.
    `inducing` holds ε, [C H D] or [1 H D].
    """

    @property
    def size(self) -> int:
        return 2 * self.inducing.shape[-2]

    @property
    def Z(self) -> Tensor:
        """Inducing inputs, of which there are none: [C 0 D]."""
        return self.inducing[:, :0]

    @property
    def frequencies(self) -> Tensor:
        """ω, [C H D] or [1 H D], in radians per unit of the user's."""
        return self._scaled() / self.kernel.unit

    def factor(self, jitter: Tensor) -> Factor:
        """Return L = I, [1 M M]: the features are white already."""
        eye = torch.eye(self.size, dtype=self.inducing.dtype, device=self.inducing.device)
        return Factor(eye[None], torch.zeros((), dtype=torch.bool, device=eye.device))

    def project(self, X: Tensor, jitter: Tensor) -> Projection:
        """Project rows: a = φ(x)."""
        return self._projection(self._features(X), X, torch.zeros((), dtype=torch.bool, device=X.device))

    def project_with(self, lower: Tensor, X: Tensor) -> Projection:
        return self.project(X, torch.zeros((), device=X.device))

    def _stepped(self, Z: Tensor) -> Tensor:
        return Z

    def _scaled(self) -> Tensor:
        """Return ω in units of the kernel, [C H D]."""
        rate: Tensor = self.kernel.log_scale.neg().exp()  # [C D]
        return self.inducing * rate[:, None]

    def _features(self, X: Tensor) -> Tensor:
        angle: Tensor = self._scaled() @ self.kernel.to_units(X).mT  # [C H B]
        scale: Tensor = (0.5 * self.kernel.log_variance).exp()[:, None, None] / math.sqrt(angle.shape[1])
        return scale * torch.cat([angle.cos(), angle.sin()], 1)
