"""log P(f_k is the largest) of classes that hardly ever are, each around its own mode. [METHOD 8]

Grids that all classes of a row share resolve probabilities, not the logarithms of small ones among uneven widths.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import LOG_SQRT_2PI, constant, log_ndtr
from cavity.likelihoods.quadrature.largest import Integrand

REACH = 8.5  # standard deviations beyond which a normal has no mass in float64
NEAR, LEAST = -32.0, -691.0  # logarithms between which a probability is computed again, of 1e-14 and 1e-300
NEWTON = 8  # steps to the mode; they never overshoot
HALVINGS = 7  # to the point where the integrand has fallen by e, on a logarithmic scale
SCALES = (-45.0, 6.0)  # binary logarithms of its distance from the mode, in standard deviations of the class
BYTES = 8 << 20  # of one array over a piece's nodes
MOST_CLASSES = 200  # each entry takes an integral over all classes: with more of them a bound must do
_T, _W = (values[:12] for values in np.polynomial.laguerre.laggauss(24))  # the others have hardly any weight
NODES, LOG_WEIGHTS = tuple(_T.tolist()), tuple((np.log(_W) + _T).tolist())


def mend_far_tails(log_p: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    """Return log p [n C] with other values for small probabilities above 1e-300; still smaller ones are bounded by a duel,
    and so are all with more than MOST_CLASSES classes.

    Rivals whose whole mass lies below the mean of a class are left out: entries with few others come first.
    """
    leader = (mean - REACH * sd).argmax(-1, keepdim=True)
    m, s = mean.gather(-1, leader), sd.gather(-1, leader)
    duel = log_ndtr((mean - m) / (sd.square() + s.square()).sqrt())
    log_p = torch.where(log_p < NEAR, torch.minimum(log_p, duel), log_p)
    row, own = ((log_p < NEAR) & (duel > LEAST)).nonzero(as_tuple=True)
    if not len(row) or mean.shape[1] > MOST_CLASSES:
        return log_p
    highest, order = (mean + REACH * sd).sort(-1, descending=True)
    count = (highest[row] > mean[row, own][:, None]).sum(-1)
    for some in torch.split(count.argsort(), max(1, BYTES // (8 * mean.shape[1] * len(NODES)))):
        at, k = row[some], own[some, None]
        among = order[at, : int(count[some].max())]
        m, unit = mean[at].gather(1, k), sd[at].gather(1, k)
        away = ((mean[at].gather(1, among) - m) / unit).masked_fill(among == k, -1e6)
        log_p[at, own[some]] = _integrate(Integrand(away, unit / sd[at].gather(1, among)))
    return log_p


def _integrate(g: Integrand) -> Tensor:
    """Integrate by Laguerre's rule on both sides of the mode, in units of the distance at which g has fallen by 1."""
    mode = g.find_mode(NEWTON)[:, None]
    top = g.log_value(mode)
    sides = []
    for sign in (-1.0, 1.0):
        low, high = (torch.full_like(mode, end) for end in SCALES)
        for _ in range(HALVINGS):
            mid = 0.5 * (low + high)
            inside = g.log_value(mode + sign * mid.exp2()) > top - 1
            low, high = torch.where(inside, mid, low), torch.where(inside, high, mid)
        scale = high.exp2()
        at = mode + sign * scale * constant(NODES, mode)
        sides.append(g.log_value(at) + constant(LOG_WEIGHTS, mode) + scale.log())
    return torch.cat(sides, 1).logsumexp(1) - LOG_SQRT_2PI
