"""Sparse-spectrum features instead of inducing points: a linear model of random cosines and sines. [docs/decisions/0020]"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.errors import BadOption
from cavity.kernels import RBF, Matern12, Matern32, Matern52
from cavity.linalg import Factor
from cavity.prior import Prior, Projection

Array = NDArray[np.float64]

NAME = "spectrum"
# Degrees of freedom of Student's t that a kernel's frequencies have, in units of 1/lengthscale; ∞ is the normal.
DEGREES: dict[type, float] = {RBF: math.inf, Matern12: 1.0, Matern32: 3.0, Matern52: 5.0}


def asked(inducing: Any) -> bool:
    """Whether the argument `inducing` names features instead of points."""
    return isinstance(inducing, str) and inducing == NAME


def draw(kernel: Any, features: int, C: int, D: int, rng: np.random.Generator) -> Array:
    """Frequencies [C H D] of M = 2H features, in units of 1/lengthscale: draws from the kernel's spectral density."""
    kind = RBF if kernel is None else type(kernel)
    if kind not in DEGREES:
        known = ", ".join(k.__name__ for k in DEGREES)
        raise BadOption(
            f"inducing='spectrum' needs a kernel whose spectral density is known here, {known}, and got {kernel!r:.80}: use one "
            "of these, or inducing points (inducing='auto')."
        )
    if features < 2:
        raise BadOption(
            f"n_inducing={features}: a frequency has a cosine and a sine, use at least 2 features."
        )
    normal, degrees = rng.standard_normal((C, features // 2, D)), DEGREES[kind]
    if math.isinf(degrees):
        return normal
    return np.asarray(normal * np.sqrt(degrees / rng.chisquare(degrees, (C, features // 2, 1))))


class Spectrum(Prior):
    r"""f(x) = w·φ(x) + noise,  w ~ N(0, I),  with H frequencies ω_h = ε_h/ℓ and M = 2H features

        φ(x) = √(σ²/H) (cos ω₁·x, …, cos ω_H·x, sin ω₁·x, …, sin ω_H·x)

    φ(x)·φ(x') → k(x, x') as H grows, and |φ(x)|² = σ² for every H: a = φ, and nothing but the noise is left to the residual.
    `inducing` has the points ε, [C H D] or [1 H D].
    """

    @property
    def size(self) -> int:
        return 2 * self.inducing.shape[-2]

    @property
    def Z(self) -> Tensor:
        """No point of the inputs stands for the function, [C 0 D]."""
        return self.inducing[:, :0]

    @property
    def frequencies(self) -> Tensor:
        """ω, [C H D] or [1 H D], in radians for each of the user's units."""
        omega: Tensor = self._scaled() / self.kernel.unit
        return omega

    def factor(self, jitter: Tensor) -> Factor:
        """The features are white already: L = I, [1 M M]."""
        eye = torch.eye(self.size, dtype=self.inducing.dtype, device=self.inducing.device)
        return Factor(eye[None], torch.zeros((), dtype=torch.bool, device=eye.device))

    def project(self, X: Tensor, jitter: Tensor) -> Projection:
        """a = φ(x)."""
        return self._projection(self._features(X), X, torch.zeros((), dtype=torch.bool, device=X.device))

    def project_with(self, lower: Tensor, X: Tensor) -> Projection:
        return self.project(X, torch.zeros((), device=X.device))

    def unexplained(self, X: Tensor, a: Tensor) -> Tensor:
        return torch.zeros_like(a[0].mT @ a[0])

    def _stepped(self, Z: Tensor) -> Tensor:
        return Z

    def _scaled(self) -> Tensor:
        """ω in units of the kernel, [C H D]."""
        rate: Tensor = self.kernel.log_lengthscale.neg().exp()  # [C D]
        return self.inducing * rate[:, None]

    def _features(self, X: Tensor) -> Tensor:
        angle: Tensor = self._scaled() @ self.kernel._units(X).mT  # [C H B]
        scale: Tensor = (0.5 * self.kernel.log_variance).exp()[:, None, None] / math.sqrt(angle.shape[1])
        return scale * torch.cat([angle.cos(), angle.sin()], 1)
