"""Robust likelihoods. [METHOD 4, REP; METHOD 9]

The largest f wins, but a share ε of the labels is drawn at random.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.torch_namespace import constant
from cavity.engine.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.engine.likelihoods.outcomes import LargestWins, WithOutcome, find_share
from cavity.engine.likelihoods.probit import match_probit, rivals, signs
from cavity.engine.likelihoods.quadrature.largest import Win, win
from cavity.engine.parameters import Placed, Setting, find_start, is_learnt
from cavity.errors import BadOption


class _Robust(WithOutcome, Likelihood):
    """(1−ε) S + ε/C, where S = P(y is the largest).

    The precision of a site can be negative if a label is surely wrong.
    """

    tempers = False

    log_odds: nn.Parameter  # of ε; stepped if ε is learnt

    def __init__(self, epsilon: float = 1e-3, learn: bool = False) -> None:
        self.epsilon = epsilon
        self.learn = learn

    @property
    def learns(self) -> bool:
        """Whether ε is learnt."""
        return bool(self.learn) and is_learnt(self._given)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:  # type: ignore[override]
        if self.learns:
            return (self.log_odds,)

        return ()

    @property
    def epsilon(self) -> float:
        """Current share of random labels."""
        if self.learns:
            return find_share(self.log_odds.detach())

        return _number(self._given)

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self._given = value
        share = torch.tensor([_number(value)], dtype=torch.float64)
        self.log_odds = nn.Parameter(share.logit())

    def settings(self) -> tuple[Placed | None, ...]:
        setting = None
        if isinstance(self._given, Setting):
            setting = Placed(self._given, link="logit")
        return (setting,) * len(self.parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments as given.

        A learnt ε is in `epsilon` and in `state`.
        """
        return super().get_params(deep) | {"epsilon": self._given}

    @property
    def outcome(self) -> LargestWins:
        return LargestWins(self._classes(), self.epsilon)

    def _stored(self) -> dict[str, nn.Parameter]:
        return {"log_odds": self.log_odds} if self.learns else {}

    def load_state(
        self, state: dict[str, Tensor], dtype: torch.dtype | None = None
    ) -> None:
        # files of 0.3 have the argument epsilon twice
        known = {name: value for name, value in state.items() if name != "epsilon"}
        super().load_state(known, dtype)

    def _check_classes(self, n_classes: int) -> None:
        """Check ε, too: this is the first call of a fit."""
        super()._check_classes(n_classes)
        if not 0 <= _number(self._given) < 1:
            raise BadOption(
                f"epsilon={self._given!r} of {type(self).__name__} must be a share, at "
                "least 0 and below 1."
            )
        if self.learns and _number(self._given) == 0:
            raise BadOption(
                "epsilon=0 cannot be learnt, because its log-odds are stepped: give a "
                "positive start, or learn=False."
            )

    def _share(self, like: Tensor) -> Tensor:
        """Return the current ε as a float64 scalar on the device of `like`."""
        if not self.learns:
            return constant((_number(self._given),), like.double())[0]

        return self.log_odds.detach().double().sigmoid()[0].to(like.device)

    def _win(self, f: Latents, y: Tensor) -> Win:
        raise NotImplementedError

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        r"""Return log Z and its derivatives, with κ = (1−ε) S/Z.

        Z = (1−ε) S + ε/C        ∂ log Z/∂ε = (1/C − S)/Z
        ∂ log Z/∂m = κ S'/S      ∂ log Z/∂v = ½ κ S''/S
        """
        eps = self._share(f.mean)
        C = self._classes()
        w = self._win(f, y)
        log_right = torch.log1p(-eps) + w.log_value
        log_random = eps.log() - math.log(C)
        value = torch.logaddexp(log_right, log_random)
        kappa = (log_right - value).exp()[:, None]
        dv = 0.5 * kappa * w.second
        slope = (1 / C - w.log_value.exp()) * (-value).exp()
        return Moments(value, kappa * w.first, dv, dv, self._own(slope, eps))

    def average(self, f: Latents, y: Tensor) -> Moments:
        r"""E log p = S log(1−ε+ε/C) + (1−S) log(ε/C).        [METHOD 9]"""
        eps = self._share(f.mean)
        C = self._classes()
        w = self._win(f, y)
        S = w.log_value.exp()
        right = (1 - eps + eps / C).log()
        wrong = eps.log() - math.log(C)
        weight = ((right - wrong) * S)[:, None]
        dv = 0.5 * weight * w.second
        slope = S * (1 / C - 1) / (1 - eps + eps / C) + (1 - S) / eps
        value = right * S + wrong * (1 - S)
        return Moments(value, weight * w.first, dv, dv, self._own(slope, eps))

    def _own(self, slope: Tensor, eps: Tensor) -> Tensor | None:
        """Return the derivative in the log-odds of ε, [B 1]."""
        if self.learns:
            return (slope * eps * (1 - eps))[:, None]

        return None


def _number(value: Any) -> float:
    """Return the start as a float; NaN if it is not a number, which `bind` reports."""
    if isinstance(value, Setting):
        return float(find_start(value, 1e-3, "epsilon"))
    if isinstance(value, bool):
        return math.nan
    if isinstance(value, int | float | np.integer | np.floating):
        return float(value)

    return math.nan


@LIKELIHOODS.register
class RobustMax(_Robust):
    """Robust maximum: the class with the largest f wins, except for random labels.

    A share ε of the labels is drawn at random. The moments are exact, by quadrature.

        p(y | f) = (1 − ε) [f_y is the largest] + ε/C

    One site per class, the own class first. The precision of a site can be negative if
    a label is surely wrong. Two classes have `RobustBinary`.

    Parameters
    ----------
    n_classes : int or None
        Number of classes; None until `bind`.
    epsilon : float, or a setting such as Fixed(0.01)
        Share ε of the labels that are drawn at random; the start if it is learnt.
    learn : bool
        Whether to learn the log-odds of ε.

    Attributes
    ----------
    log_odds : torch.nn.Parameter
        Current log-odds of ε, [1]. They are used only if `learn` is True.
    """

    name = "robust-max"

    def __init__(
        self, n_classes: int | None = None, epsilon: float = 1e-3, learn: bool = False
    ) -> None:
        super().__init__(epsilon, learn)
        self.n_classes = n_classes

    def _for_two_classes(self) -> Likelihood:
        binary = RobustBinary(self._given, self.learn)
        binary.load_state(self.state())
        return binary

    def sites(self, y: Tensor) -> Tensor:
        return torch.cat([y[:, None], rivals(y, self._classes())], 1)

    def _win(self, f: Latents, y: Tensor) -> Win:
        return win(f.mean, f.var)


@LIKELIHOODS.register
class RobustBinary(_Robust):
    """The robust likelihood for two classes, which share one latent function.

    S = Φ(±m/√v), in closed form. One site per row.

    Parameters
    ----------
    epsilon : float, or a setting such as Fixed(0.01)
        Share ε of the labels that are drawn at random; the start if it is learnt.
    learn : bool
        Whether to learn the log-odds of ε.

    Attributes
    ----------
    log_odds : torch.nn.Parameter
        Current log-odds of ε, [1]. They are used only if `learn` is True.
    """

    two_classes = True
    n_classes = 2

    def _win(self, f: Latents, y: Tensor) -> Win:
        sign = signs(y, f.mean)
        value, dm, dv, _ = match_probit(sign * f.mean, f.var)
        return Win(value[:, 0], sign * dm, 2 * dv)
