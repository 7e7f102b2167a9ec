"""The methods of inference as values: points in one engine's space. [METHOD 4]

A method says how sites are stored, how much of a site a cavity removes, where sites
sit, and how far a full sweep moves them. It does not say what the likelihood is. This
module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Store = Literal["own", "tied", "averaged", "free"]
Place = Literal["t", "f", "mode"]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A method of inference.

    Attributes
    ----------
    sites : {"own", "tied", "averaged", "free"}
        One pair of numbers per site of every row; sums of sites only; sums that move by
        natural gradients; or none: the mean and Cholesky factor of q are parameters.
    removal : float
        Share of a site that a cavity removes: 1 EP, p power EP, 0 variational.
    placement : {"t", "f", "mode"}
        Sites on t = a·w; on f with the residual eliminated; or at the mode of f.
    damping : float
        Share of the way to the new sites that a full sweep takes: undamped parallel
        updates can diverge.
    starts_from_ep : bool
        Whether moment matching finds the first q: there are poor optima near the prior.

    Examples
    --------
    >>> from cavity.engine import EP, SEP
    >>> SEP().sites
    'tied'
    >>> EP(damping=0.1).damping
    0.1
    """

    sites: Store = "own"
    removal: float = 1.0
    placement: Place = "t"
    damping: float = 0.5
    starts_from_ep: bool = False

    @property
    def tied(self) -> bool:
        """Whether only the sums of sites are stored."""
        return self.sites == "tied"

    @property
    def variational(self) -> bool:
        """Whether cavities remove nothing."""
        return self.removal == 0

    @property
    def on_f(self) -> bool:
        """Whether sites sit on f, with the inducing values marginalised."""
        return self.placement != "t"

    @property
    def at_mode(self) -> bool:
        """Whether a cavity is a point (Laplace)."""
        return self.placement == "mode"


@dataclass(frozen=True, kw_only=True)
class EP(Scheme):
    """Expectation propagation: one pair of numbers per site, O(NC) memory."""


@dataclass(frozen=True, kw_only=True)
class SEP(Scheme):
    """Stochastic EP: memory does not depend on the number of rows."""

    sites: Store = "tied"


@dataclass(frozen=True, kw_only=True)
class PowerEP(Scheme):
    """Power EP: a cavity removes a part of each site; `removal` is the power."""

    removal: float = 0.5


@dataclass(frozen=True, kw_only=True)
class GFITC(Scheme):
    """Generalised FITC: inducing values are marginalised, sites sit on f."""

    placement: Place = "f"
    # 0.5 takes twice as many sweeps to converge, 1 does not converge
    damping: float = 0.8


@dataclass(frozen=True, kw_only=True)
class VI(Scheme):
    """Variational inference: by natural gradients, or with `sites="free"` by gradients
    of the mean and Cholesky factor of q.
    """

    sites: Store = "averaged"
    removal: float = 0.0
    damping: float = 0.2  # 0.5 needs repairs and 1 does not converge


@dataclass(frozen=True, kw_only=True)
class Laplace(Scheme):
    """Laplace's method; its sweeps are Newton steps."""

    placement: Place = "mode"
    damping: float = 1.0
