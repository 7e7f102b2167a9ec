"""The Gaussian likelihood of regression, in closed form. [METHOD 4]

Its sites do not depend on q.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from cavity.common.namespaces import Array
from cavity.engine.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.engine.likelihoods.outcomes import NoisyTarget, find_noise
from cavity.engine.parameters import Placed, Setting, find_start, is_learnt
from cavity.errors import BadOption


@LIKELIHOODS.register
class Gaussian(Likelihood):
    r"""Gaussian noise for regression, y = f + N(0, σ²).

    There is one latent function, and one site per row. `moments` gives the sites of
    FITC, τ = 1/(σ² + r), and exact regression if Z = X.
    `average` gives those of the variational bound, τ = 1/σ².

    Parameters
    ----------
    noise : float, or a setting such as Fixed(1.0)
        Variance σ² at the start.
    learn : bool
        Whether to learn log σ².
    projected : bool
        Whether to leave the residual r out of the moments: τ = 1/σ² (projected process,
        subset of regressors).

    Attributes
    ----------
    log_noise : torch.nn.Parameter
        Current log σ², [1].
    """

    linear = True
    n_classes = 1  # targets

    log_noise: nn.Parameter

    def __init__(
        self, noise: float = 1.0, learn: bool = False, projected: bool = False
    ) -> None:
        self.noise = noise
        self.learn = learn
        self.projected = projected

    @property
    def learns(self) -> bool:
        """Whether the noise is learnt."""
        return bool(self.learn) and is_learnt(self._given)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:  # type: ignore[override]
        if self.learns:
            return (self.log_noise,)

        return ()

    log_parameters = parameters

    @property
    def noise(self) -> Tensor:
        """Current variance σ² of the noise, []."""
        return self.log_noise.detach().double().exp()[0]

    @noise.setter
    def noise(self, value: float) -> None:
        self._given = value
        start = float(find_start(value, 1.0, "noise"))
        self.log_noise = nn.Parameter(torch.tensor([start], dtype=torch.float64).log())

    def settings(self) -> tuple[Placed | None, ...]:
        setting = Placed(self._given) if isinstance(self._given, Setting) else None
        return (setting,) * len(self.parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments as given.

        The learnt noise is in `noise` and in `state`.
        """
        return super().get_params(deep) | {"noise": self._given}

    def bind(self, n_classes: int) -> Likelihood:
        raise BadOption(
            f"{type(self).__name__} is a likelihood for regression: use it with "
            "GPRegressor."
        )

    def sites(self, y: Tensor) -> Tensor:
        return torch.zeros(len(y), 1, dtype=torch.long, device=y.device)

    @property
    def outcome(self) -> NoisyTarget:
        """A target with the current noise."""
        return NoisyTarget(find_noise(self.log_noise.detach()))

    def _stored(self) -> dict[str, nn.Parameter]:
        # a noise of 0 has no logarithm
        if self.log_noise.isfinite().all():
            return {"log_noise": self.log_noise}

        return {}

    def log_probability(self, mean: Array, var: Array) -> Array:
        raise BadOption(
            f"{type(self).__name__} is a likelihood for regression and has no classes."
        )

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        r"""Return log Z and its derivatives, with φ(t) = N(y; t, S) and S = σ² + r.

        φ^e = c N(y; t, S/e)        log Z = log c + log N(y; m, v + S/e)
        """
        noise = self.noise.to(f.var.device)
        e = torch.ones_like(f.mean)
        if exponent is not None:
            e = exponent[:, None]
        S = noise + f.residual
        if self.projected:
            S = noise.expand_as(f.residual)
        total = f.var - f.residual + S / e
        off = y[:, None] - f.mean
        log_c = 0.5 * ((1 - e) * (2 * math.pi * S).log() - e.log())
        value = log_c - 0.5 * (off.square() / total + (2 * math.pi * total).log())
        dv = 0.5 * (off.square() / total - 1) / total
        in_S = dv / e + 0.5 * (1 - e) / S
        own = in_S * noise if self.learns else None
        dr = torch.zeros_like(dv) if self.projected else in_S
        return Moments(value[:, 0], off / total, dv, dr, own)

    def average(self, f: Latents, y: Tensor) -> Moments:
        r"""E log N(y; f, σ²) = −½ log 2πσ² − ½ ((y − m)² + v)/σ²."""
        noise = self.noise.to(f.var.device)
        off = y[:, None] - f.mean
        misfit = (off.square() + f.var) / noise
        dv = torch.full_like(f.var, -0.5) / noise
        value = -0.5 * ((2 * math.pi * noise).log() + misfit)
        own = 0.5 * (misfit - 1) if self.learns else None
        return Moments(value[:, 0], off / noise, dv, dv, own)


@LIKELIHOODS.register
class Committee(Gaussian):
    """Gaussian noise for a committee, whose members have one latent function each.

    y is [B 2], member and target of each row. The parameters are those of `Gaussian`.
    """

    def sites(self, y: Tensor) -> Tensor:
        return y.reshape(len(y), -1)[:, :1].long()

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        return super().moments(f, y[:, 1], exponent)

    def average(self, f: Latents, y: Tensor) -> Moments:
        return super().average(f, y[:, 1])
