"""Inducing values in the frequency domain: a sparse spectrum.

The model is linear in random cosines and sines. [thesis 7.1; Lázaro-Gredilla et al.
2010]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.common.linalg import Factor
from cavity.common.torch_namespace import TORCH
from cavity.common.types import Floats
from cavity.engine.kernels.formulas import Formula, SpectrumFormula
from cavity.engine.kernels.library import KERNELS
from cavity.engine.kernels.prior import Prior, Projection
from cavity.engine.kernels.stationary import RBF
from cavity.errors import BadOption


def spectral_degrees(kind: type) -> float | None:
    """Return the degrees of freedom of a kernel's frequencies; None if not known."""
    return vars(kind).get("spectral_degrees")


def draw_frequencies(
    kernel: Any, M: int, C: int, D: int, rng: np.random.Generator
) -> Floats:
    """Draw the frequencies of M features, [C M D], from the kernel's spectral density.

    These are M/2 frequencies of cosines, then the same of sines, in units of
    1/lengthscale.
    """
    degrees = spectral_degrees(RBF if kernel is None else type(kernel))
    if degrees is None:
        known = [k.__name__ for k in KERNELS.classes() if spectral_degrees(k)]
        raise BadOption(
            f"inducing='spectrum' needs a kernel with a known spectral density "
            f"({', '.join(known)}) and got {kernel!r:.80}: use one of these, or "
            "inducing points (inducing='auto')."
        )
    if getattr(kernel, "columns", None) is not None:
        raise BadOption(
            f"inducing='spectrum' needs a kernel of all columns, and got {kernel!r:.80}: "
            "leave columns= out, or use inducing points (inducing='auto')."
        )
    if M < 2:
        raise BadOption(
            f"n_inducing={M} is too small: a frequency has a cosine and a sine, so use "
            "at least 2."
        )

    Z = rng.standard_normal((C, M // 2, D))
    if degrees < math.inf:
        Z *= np.sqrt(degrees / rng.chisquare(degrees, (C, M // 2, 1)))
    return np.concatenate([Z, Z], axis=1)


class Spectrum(Prior):
    r"""f(x) = w·φ(x) + noise, w ~ N(0, I), with the features of `SpectrumFormula`.

    Inducing values are the weights w, whose covariance is I. So a = φ(x), and the
    residual is the noise alone. `inducing` holds frequencies times lengthscales, which
    are not learnt.
    """

    def formula(self, xp: Any) -> Formula:
        return SpectrumFormula(self.kernel.formula(xp).scale)

    def factor(self, jitter: Tensor) -> Factor:
        """Return L = I: the weights are white already."""
        eye = torch.eye(self.size, dtype=self.Z.dtype, device=self.Z.device)
        return Factor(eye[None], self._no_failure())

    def project(self, X: Tensor, jitter: Tensor) -> Projection:
        """Project rows: a = φ(x)."""
        formula = self.formula(TORCH)
        a = formula.cross(formula.prepare(self.Z), X)
        return self._projection(a, X, self._no_failure())

    def _no_failure(self) -> Tensor:
        return torch.zeros((), dtype=torch.bool, device=self.Z.device)
