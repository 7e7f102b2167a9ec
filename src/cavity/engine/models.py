"""A Gaussian process model as a value: kernel, likelihood, inducing inputs, noise.

Its hyper-parameters are a vector, too: `theta`, and `with_theta`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from cavity.common.column_statistics import Columns, summarize
from cavity.common.types import Floats
from cavity.engine import assembly
from cavity.engine.inference import find_places, name_parameters
from cavity.engine.kernels import Kernel
from cavity.engine.kernels.base import check_kernel, per_class
from cavity.engine.kernels.hyper_prior import HyperPrior
from cavity.engine.kernels.prior import Prior
from cavity.engine.learning import is_path
from cavity.engine.likelihoods import Likelihood
from cavity.engine.parameters import Setting, find_start, is_learnt, keep_setting
from cavity.errors import BadOption

CPU = torch.device("cpu")
LEARN = frozenset({"kernel", "noise", "inducing"})


class Modules(NamedTuple):
    """A model in torch; the engine writes hyper-parameters into it."""

    prior: Prior
    likelihood: Likelihood


@dataclass(frozen=True, kw_only=True)
class GP:
    """A Gaussian process model: the prior of the latent functions, and the likelihood.

    Attributes
    ----------
    kernel : Kernel, torch.nn.Module or any object with `full`, `cross` and `diag`
        Parameters of a module that do not require a gradient are never learnt.
    likelihood : Likelihood
        For its number of classes: `ProbitPairs(3)`, or `ProbitPairs().bind(2)`.
    inducing : array or tensor, [M D] or [C M D]
        Inducing inputs: the same for all latent functions, or some for each.
    noise : scalar or [C], or a setting such as Fixed(0.1)
        Variance of the noise of the latent functions; 0 is not learnt.
    columns : Columns or None
        Units of the columns, in which hyper-parameters are stepped: see `describe`.
        None: columns as they are, with centre 0 and spread 1.
    share_kernel : bool
        Whether latent functions have the same hyper-parameters.
    learn : set of {"kernel", "noise", "inducing"} and paths in the kernel
        What `fit` changes, and what `theta` holds. Paths are "kernel.lengthscale", or
        "kernel.0.lengthscale" for the first kernel of a sum or product. The likelihood
        decides by itself what it learns.
    jitter : float or None
        Relative to the kernel's variance. None: 1e-6, or 1e-4 in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.engine import EP, GP, infer
    >>> from cavity.kernels import RBF
    >>> from cavity.likelihoods import ProbitPairs
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> gp = GP(kernel=RBF(lengthscale=0.5), likelihood=ProbitPairs(3), inducing=X)
    >>> post = infer(gp, X, [0, 1, 2], method=EP())
    >>> post.predict(X).argmax(1)
    tensor([0, 1, 2])
    """

    kernel: Any
    likelihood: Likelihood
    inducing: Any
    noise: Any = 0.1
    columns: Columns | None = None
    share_kernel: bool = False
    learn: frozenset[str] = LEARN
    jitter: float | None = None

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        unknown = sorted(set(self.learn) - LEARN)
        unknown = [name for name in unknown if not is_path(name)]
        if unknown:
            names = ", ".join(map(repr, sorted(LEARN)))
            raise BadOption(
                f"learn has {unknown[0]!r}: use names of {names}, or paths in the "
                "kernel, such as 'kernel.lengthscale'."
            )
        if np.ndim(to_array(self.inducing)) not in (2, 3):
            raise BadOption("inducing has to be [M D] or [C M D].")

    @property
    def n_latent(self) -> int:
        """Number of latent functions."""
        return self.likelihood.n_latent

    @property
    def theta(self) -> Tensor:
        """The learnt hyper-parameters as a vector [P]: logs, and spreads of columns."""
        prior, likelihood = self.make_modules()
        parameters = name_parameters(prior, likelihood).values()
        none = torch.zeros(0, dtype=torch.float64)
        return torch.cat([none, *(p.detach().double().flatten() for p in parameters)])

    @property
    def names(self) -> dict[str, slice]:
        """Where each hyper-parameter stands in `theta`."""
        return find_places(name_parameters(*self.make_modules()))

    def with_theta(self, theta: Any) -> GP:
        """Return the model with these hyper-parameters."""
        modules = self.make_modules()
        parameters = name_parameters(*modules)
        if parameters:
            vector = torch.as_tensor(to_array(theta))
            vector_to_parameters(vector, parameters.values())
        return self.read(modules)

    def make_modules(
        self, device: torch.device = CPU, dtype: torch.dtype = torch.float64
    ) -> Modules:
        """Return the model in torch: copies, into which the engine may write."""
        Z = to_array(self.inducing)
        start = to_array(find_start(self.noise, 0.1, "noise"))
        noise = per_class(start, self.n_latent, "noise")
        learn = frozenset(self.learn)
        if not is_learnt(self.noise) or not (noise > 0).all():
            learn = learn - {"noise"}
        setting = self.noise if isinstance(self.noise, Setting) else None
        prior = assembly.make_prior(
            self.kernel,
            Z if Z.ndim == 3 else Z[None],
            noise,
            self.columns or _plain_columns(Z.shape[-1]),
            n_latent=self.n_latent,
            share_kernel=self.share_kernel,
            learn=learn,
            device=device,
            dtype=dtype,
            noise_setting=setting,
        )
        likelihood = copy.deepcopy(self.likelihood).to(device, dtype)
        return Modules(prior, likelihood)

    def read(self, modules: Modules) -> GP:
        """Return the model with the hyper-parameters that stand in its modules.

        A model is on the CPU: rows say where it is used.
        """
        prior = copy.deepcopy(modules.prior).to(CPU)
        likelihood = copy.deepcopy(modules.likelihood).to(CPU)
        kernel = prior.kernel
        if isinstance(kernel, Kernel):
            kernel.settle(1 if self.share_kernel else self.n_latent)
        return replace(
            self,
            kernel=kernel,
            likelihood=likelihood,
            inducing=to_array(prior.Z),
            noise=keep_setting(self.noise, to_array(prior.noise)),
        )


def describe(X: Any) -> Columns:
    """Return centre, spread and usual distance of columns, for `GP(columns=...)`.

    Lengthscales that are None then start from a value that suits the rows, and
    optimisers step in units of each column's spread.
    """
    rows = to_array(X)
    rng = np.random.default_rng(0)
    found = summarize(rows, np.ones(len(rows)), rng)
    return found._replace(group=None, constant=None)


def make_hyper_prior(gp: GP, pooled: bool = False) -> HyperPrior:
    """Return the priors of the model's hyper-parameters, as the estimators have them.

    Hyper-parameters without a given prior have weak normals on their logs, centred at
    the current values.

    `pooled`: partial pooling across latent functions and columns.
    """
    return assembly.make_hyper_prior(*gp.make_modules(), pooled)


def to_array(x: Any) -> Floats:
    """Return numbers as an array in float64 on the CPU."""
    if isinstance(x, Tensor):
        x = x.detach().cpu().double().numpy()
    return np.array(x, dtype=np.float64)


def _plain_columns(D: int) -> Columns:
    return Columns(np.zeros(D), np.ones(D), 1.0)
