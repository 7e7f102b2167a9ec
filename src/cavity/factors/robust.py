"""y is the largest, but a share ε of the labels is drawn at random: exact, by quadrature. [METHOD 4, REP; METHOD 9]"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cavity.factors.base import Latents, Likelihood, Moments
from cavity.factors.probit import BinaryProbit, rivals, signs
from cavity.numerics import constant, hazard, log_ndtr
from cavity.quadrature import Largest, Latent, Uncertainty, Win, log_argmax_probability, uncertainty, win


class Epsilon(NamedTuple):
    """The share of random labels; stepped as its log-odds where it is learnt."""

    value: float  # where it is fixed
    log_odds: nn.Parameter | None

    def now(self, like: Tensor) -> Tensor:
        """ε as it stands, a float64 scalar beside `like`."""
        if self.log_odds is None:
            return constant((self.value,), like.double())[0]
        return self.log_odds.detach().double().sigmoid()[0].to(like.device)


class _Robust(Likelihood):
    """(1−ε) S + ε/C, where S = P(y is the largest). A site's precision can be negative where the label is surely wrong."""

    tempers = False

    def __init__(self, n_classes: int, epsilon: float, learn: bool) -> None:
        self.n_classes = n_classes
        start = torch.tensor([epsilon], dtype=torch.float64)
        self._epsilon = Epsilon(float(epsilon), nn.Parameter(start.logit()) if learn else None)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:  # type: ignore[override]
        return () if self._epsilon.log_odds is None else (self._epsilon.log_odds,)

    @property
    def epsilon(self) -> float:
        """ε as it stands."""
        return float(self._epsilon.now(torch.empty(0)))

    def _win(self, f: Latents, y: Tensor) -> Win:
        raise NotImplementedError

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        r"""Z = (1−ε) S + ε/C,  κ = (1−ε) S/Z:  ∂ log Z/∂m = κ S'/S,  ∂ log Z/∂v = ½ κ S''/S,  ∂ log Z/∂ε = (1/C − S)/Z."""
        eps, C = self._epsilon.now(f.mean), self.n_classes
        w = self._win(f, y)
        log_right, log_random = torch.log1p(-eps) + w.log_value, eps.log() - math.log(C)
        value = torch.logaddexp(log_right, log_random)
        kappa = (log_right - value).exp()[:, None]
        dv = 0.5 * kappa * w.second
        slope = (1 / C - w.log_value.exp()) * (-value).exp()
        return Moments(value, kappa * w.first, dv, dv, self._own(slope, eps))

    def average(self, f: Latents, y: Tensor) -> Moments:
        r"""E log p = S log(1−ε+ε/C) + (1−S) log(ε/C).        [METHOD 9]"""
        eps, C = self._epsilon.now(f.mean), self.n_classes
        w = self._win(f, y)
        S = w.log_value.exp()
        right, wrong = (1 - eps + eps / C).log(), eps.log() - math.log(C)
        weight = ((right - wrong) * S)[:, None]
        dv = 0.5 * weight * w.second
        slope = S * (1 / C - 1) / (1 - eps + eps / C) + (1 - S) / eps
        return Moments(right * S + wrong * (1 - S), weight * w.first, dv, dv, self._own(slope, eps))

    def _own(self, slope: Tensor, eps: Tensor) -> Tensor | None:
        """∂/∂(log-odds of ε), [B 1]."""
        return None if self._epsilon.log_odds is None else (slope * eps * (1 - eps))[:, None]

    def _log_win(self, mean: Tensor, var: Tensor) -> Tensor:
        """log P(each class is the largest), normalised."""
        raise NotImplementedError

    def log_probability(self, mean: Tensor, var: Tensor) -> Tensor:
        return self._mixed(self._log_win(mean, var))

    def uncertainty(self, mean: Tensor, var: Tensor, noise: Tensor) -> Uncertainty:
        log_p = self._log_win(mean, var + noise)
        return uncertainty(Latent(mean, var, log_p, self.epsilon), Largest(noise))

    def _mixed(self, log_p: Tensor) -> Tensor:
        """(1−ε) p + ε/C."""
        eps = self._epsilon.now(log_p)
        return torch.logaddexp(torch.log1p(-eps) + log_p, eps.log() - math.log(self.n_classes))


class RobustMax(_Robust):
    """C latent functions. One site a class, the own class first."""

    def __init__(self, n_classes: int, epsilon: float, learn: bool = False) -> None:
        super().__init__(n_classes, epsilon, learn)

    def sites(self, y: Tensor) -> Tensor:
        return torch.cat([y[:, None], rivals(y, self.n_classes)], 1)

    def _win(self, f: Latents, y: Tensor) -> Win:
        return win(f.mean, f.var)

    def _log_win(self, mean: Tensor, var: Tensor) -> Tensor:
        return log_argmax_probability(mean, var).log_softmax(1)


class RobustBinary(_Robust):
    """One latent function for two classes: S = Φ(±m/√v), in closed form. One site a row."""

    def __init__(self, epsilon: float, learn: bool = False) -> None:
        super().__init__(2, epsilon, learn)

    def sites(self, y: Tensor) -> Tensor:
        return BinaryProbit().sites(y)

    def _win(self, f: Latents, y: Tensor) -> Win:
        sign, scale = signs(y, f.mean), f.var.rsqrt()
        alpha = sign * f.mean * scale
        beta = hazard(alpha)
        return Win(log_ndtr(alpha)[:, 0], sign * beta * scale, -beta * alpha * scale * scale)

    def _log_win(self, mean: Tensor, var: Tensor) -> Tensor:
        return BinaryProbit().log_probability(mean, var)
