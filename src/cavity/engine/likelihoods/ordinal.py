"""The likelihood of ordered classes: thresholds on one latent function. [METHOD 21]"""

import copy
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn
from torch.nn.functional import pad

from cavity.common.namespaces import Array, namespace
from cavity.common.torch_namespace import TORCH, constant
from cavity.engine.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.engine.likelihoods.normal_tails import hazard, hazard_slope
from cavity.engine.likelihoods.quadrature.information import EntropyParts
from cavity.errors import BadOption

FAR = 1e10  # stands for ∞, the upper threshold of the highest class
SPREAD = 2**0.5  # of f a priori, with a kernel of variance 1 and some noise
GRID = np.linspace(-8, 8, 321)  # nodes of the entropy, in standard deviations
DENSITY = 0.05 * np.exp(-0.5 * GRID**2) / (2 * np.pi) ** 0.5


@LIKELIHOODS.register
class Ordinal(Likelihood):
    """Ordered classes: the class at place k has b_k < f ≤ b_(k+1), for noisy f.

    One site per row. The noise on f blurs the thresholds b, which are learnt.

    Parameters
    ----------
    order : tuple of int or None
        Place of each class, from 0 for the lowest. None: the order of the labels.
    start : tuple of float or None
        First thresholds, ascending. None: all classes are equally frequent a priori.
    learn : bool
        Whether to learn the thresholds.
    """

    tempers = False
    n_latent = 1
    cuts: nn.Parameter  # [C−1], lowest threshold, then logarithms of the distances

    def __init__(
        self, order: Any = None, start: Any = None, learn: bool = True
    ) -> None:
        self.order = order
        self.start = start
        self.learn = learn

    def bind(self, n_classes: int) -> Likelihood:
        bound = copy.copy(self)
        bound.n_classes = n_classes
        bound.order = tuple(self.order or range(n_classes))
        b = np.array(self.start or SPREAD * ndtri(np.arange(1, n_classes) / n_classes))
        complete = sorted(bound.order) == list(range(n_classes)) == [*range(len(b) + 1)]
        if not complete or (np.diff(b) <= 0).any():
            wanted = f"{n_classes} places and {n_classes - 1} ascending thresholds"
            raise BadOption(f"{self!r} needs {wanted}.")

        bound.cuts = nn.Parameter(torch.tensor(np.append(b[0], np.log(np.diff(b)))))
        bound.parameters = bound.log_parameters = (bound.cuts,) if self.learn else ()
        return bound

    @torch.no_grad()
    def _thresholds(self) -> tuple[Tensor, Tensor]:
        """Return −∞, b_1, ..., b_(C−1), ∞, [C+1], and their derivatives, [C+1 C−1]."""
        first, rest = self.cuts.double().tensor_split([1])
        b = torch.cat([first, rest.exp()]).cumsum(0)
        slopes = pad(rest.exp(), (1, 0), value=1.0).expand(len(b), -1).tril()
        ends = pad(pad(b, (1, 0), value=-FAR), (0, 1), value=FAR)
        return ends, pad(slopes, (0, 0, 1, 1))

    def sites(self, y: Tensor) -> Tensor:
        return torch.zeros(len(y), 1, dtype=torch.long, device=y.device)

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        r"""Return log Z and its derivatives, with u, l = (b − m)/√V at both thresholds.

        Z = Φ(u) − Φ(l)        d₁ = −(φ(u) − φ(l))/(Z √V)        ∂b = ±φ/(Z √V)
        −d₂ V = (φ(u) − φ(l))²/Z² + (u φ(u) − l φ(l))/Z
        """
        place = constant(self.order, y)[y]
        b, slopes = self._thresholds()
        s = f.var.rsqrt()
        u, l = ((b[place + k, None] - f.mean) * s for k in (1, 0))
        left, a, c, share, value = _between(TORCH, u, l)
        near = hazard(a) / share  # φ(a)/Z
        far = hazard(c) * (1 - share) / share
        dm = torch.where(left, far - near, near - far) * s
        curved = (near - far).square() + a * near - c * far
        curved = torch.where(share == 1, hazard_slope(a, near), curved).clamp(0, 1)
        dv = 0.5 * (dm * dm - curved * s * s)
        own = torch.where(left, near, far) * slopes[place + 1]
        own = s * (own - torch.where(left, far, near) * slopes[place])
        return Moments(value[:, 0], dm, dv, dv, own if self.learn else None)

    def log_probability(self, mean: Array, var: Array) -> Array:
        xp = namespace(mean)
        b = self._thresholds()[0].tolist()
        ends = (tuple(b[k + up] for k in self.order) for up in (1, 0))
        u, l = ((xp.constant(end, mean) - mean) / xp.sqrt(var) for end in ends)
        return xp.log_softmax(_between(xp, u, l)[-1])

    def uncertainty(self, mean: Array, var: Array, noise: Array) -> EntropyParts:
        mean, var, noise = map(np.asarray, (mean, var, noise))
        nodes = (mean + np.sqrt(var) * GRID).reshape(-1, 1)
        log_p = self.log_probability(mean, var + noise)
        known = self.log_probability(nodes, np.maximum(noise, 1e-12) + 0 * nodes)
        total = -(np.exp(log_p) * log_p).sum(1)
        sharp = -(np.exp(known) * known).sum(1).reshape(-1, len(GRID)) @ DENSITY
        sharp = np.minimum(sharp, total)
        return EntropyParts(total, sharp, total - sharp)


def _between(xp: Any, u: Array, l: Array) -> tuple[Array, ...]:
    r"""Return log(Φ(u) − Φ(l)) last; before it, how it is split without cancellation.

    Both ends are moved to the left tail: a = u, c = l, or a = −l, c = −u. The share that
    remains of Φ(a) is 1 − Φ(c)/Φ(a) = 2t/(1 + t), t = tanh(½ log Φ(a)/Φ(c)).
    """
    left = u + l < 0.0
    a = xp.where(left, u, -l)
    c = xp.where(left, l, -u)
    log_a = xp.log_ndtr(a)
    t = xp.tanh(0.5 * (log_a - xp.log_ndtr(c)))
    share = xp.maximum(2.0 * t / (1.0 + t), 1e-300)
    return left, a, c, share, log_a + xp.log(share)
