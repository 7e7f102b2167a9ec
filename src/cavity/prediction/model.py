"""A fitted model as a record of arrays, ready to predict: O(CM(M+D)) numbers, no rows.
[METHOD 8]

Predictions are NumPy's on the CPU and, by the same formulas, torch's on a GPU. This
module does not load torch.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cavity.common.lazy import Later
from cavity.common.namespaces import NUMPY, Array, namespace
from cavity.common.overrides import mirrors
from cavity.common.types import Floats
from cavity.engine.kernels.formulas import Formula, SpectrumFormula
from cavity.pool.pool import NO_POOL, Pool
from cavity.prediction.latent import Form, Joint, Marginals, make_form

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from cavity.engine.inference import Engine, State
    from cavity.engine.kernels.prior import Prior
    from cavity.engine.likelihoods import Likelihood


class Modules(NamedTuple):
    """What training made of a model, and goes on with."""

    prior: Prior
    likelihood: Likelihood


class _Arrays(NamedTuple):
    formula: Formula  # the kernel with its numbers
    Z: Array  # [C M D] or [1 M D], inducing inputs
    noise: Array  # [C] or [1]
    center: Array  # [D], of the columns
    spread: Array  # [D]
    prior_lower: Array  # [C M M] or [1 M M], factor of k(Z, Z)
    mean: Array  # [C M]; [1 CM] if q couples the classes
    lower: Array  # [C M M], factor of Λ; [1 CM CM]
    n_latent: int
    # log_probability(mean, var) and uncertainty(mean, var, noise): a likelihood, or
    # what a file says of one
    outcome: Any
    modules: Later[Modules]  # the same in torch
    pool: Pool = NO_POOL
    # predict by triangular solves: for a few rows, `form` takes longer
    by_solves: bool = False


class FittedModel(_Arrays):
    """q(w) and the projection that it belongs to.

    Arrays are NumPy's on the CPU, tensors on a GPU.
    """

    @cached_property
    def form(self) -> Form | None:
        """Matrices that replace triangular solves, computed at the first prediction;
        None where solves are more accurate.
        """
        if self.by_solves or self.coupled:
            return None
        return make_form(self.prior_lower, self.mean, self.lower, self.noise)

    @cached_property
    def points(self) -> Any:
        """What the formula needs of Z."""
        return self.formula.prepare(
            self.xp.double(self.Z) if self.xp is NUMPY else self.Z
        )

    @property
    def xp(self) -> Any:
        """The namespace of the arrays."""
        return namespace(self.mean)

    @property
    def prior(self) -> Prior:
        """The prior in torch."""
        return self.modules.get().prior

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood in torch."""
        return self.modules.get().likelihood

    @property
    def device(self) -> torch.device:
        import torch

        if self.xp is NUMPY:
            return torch.device("cpu")
        return self.mean.device

    @property
    def coupled(self) -> bool:
        """Whether q couples the classes."""
        return len(self.lower) < self.n_latent

    @property
    def cost(self) -> int:
        """About how many times as long probabilities take as those of the probit."""
        from cavity.engine.likelihoods import Softmax

        if self.coupled:
            return 60
        if isinstance(self.likelihood, Softmax):
            return 8
        return 1

    @property
    def inducing_points(self) -> Floats:
        """Inducing inputs, [C M D] or [1 M D]; none in the frequency domain, [C 0 D]."""
        if self.spectral:
            return as_array(self.Z)[:, :0]
        return as_array(self.Z)

    @property
    def spectral(self) -> bool:
        """Whether inducing values are in the frequency domain."""
        return isinstance(self.formula, SpectrumFormula)

    @property
    def frequencies(self) -> Floats | None:
        """Frequencies of cosines and sines in radians per unit of a feature, [C M/2 D];
        None for inducing points.
        """
        if not self.spectral:
            return None
        found = as_array(self.points) / as_array(self.spread)
        return found[:, : self.Z.shape[-2] // 2]

    @property
    def noises(self) -> Floats:
        """Latent noise of every latent function, [C]."""
        return np.repeat(self.xp.host(self.noise), self.n_latent // len(self.noise))

    def covariances(self, X: Array) -> tuple[Array, Array]:
        """Return k(Z, x), [C M n] or [1 M n], and k(x, x) + s, [C n] or [1 n]."""
        # of cells, before they are limited
        with np.errstate(over="ignore", invalid="ignore"):
            return self.formula.cross(self.points, X), self.formula.diag(
                X
            ) + self.noise[:, None]

    def project(self, X: Array) -> tuple[Array, Array]:
        """Return a = L⁻¹ k(Z, x), [C M n] or [1 M n], and r = k(x, x) + s − |a|², [C
        n].
        """
        k, variance = self.covariances(X)
        xp = namespace(k)
        a = xp.solve_lower(self.prior_lower, k)
        return a, xp.maximum(variance - xp.column_sum(a * a), 0)

    def marginals(self, X: Array) -> Marginals:
        """Return mean and variance of f at rows [n D], noise included, each [n C]."""
        if self.form is None:
            return Marginals(*self.marginals_and_residual(X)[:2])
        mean, var = self.form.apply(*self.covariances(X))
        return Marginals(mean.T, var.T)

    def marginals_and_residual(self, X: Array) -> tuple[Array, Array, Array]:
        r"""Return mean, variance and residual of f at rows, each [n C], by triangular
        solves.

        a = L⁻¹ k(Z, x)      r = k(x, x) + s − |a|²      mean  μ·a      variance  r + |Λ^(−½) a|²
        """
        a, r = self.project(X)
        xp = namespace(a)
        half = xp.solve_lower(self.lower, a)
        mean = (self.mean[:, None] @ a)[:, 0]
        return mean.T, (r + xp.column_sum(half * half)).T, r.T

    def joint(self, X: Array) -> Joint:
        """Return the marginals of rows if classes are coupled: covariances A_nᵀ Σ A_n +
        diag r.
        """
        (a, r) = self.project(X)
        xp = self.xp
        C = self.n_latent
        a, M = a + xp.like(np.zeros((C, 1, 1)), a), a.shape[1]
        inverse = xp.solve_lower(self.lower, xp.like(np.eye(C * M)[None], a))[0]
        half = [inverse[:, c * M : (c + 1) * M] @ a[c] for c in range(C)]  # each [CM n]
        cov = xp.stack(
            [xp.stack([(one * other).sum(0) for other in half]) for one in half]
        )  # [n C C]
        cov = cov + r.T[:, None] * xp.like(np.eye(C), a)
        mean = xp.einsum("cm,cmn->nc", self.mean.reshape(C, M), a)
        return Joint(mean, xp.einsum("ncc->nc", cov), cov)

    def among(self, X: Array) -> Array:
        """Return k(X, X), [C n n]; of a spectrum φ(X)ᵀφ(X).

        Its diagonal is more than that of points if linear functions fade: the rest is
        noise.
        """
        if self.spectral:
            features = self.formula.cross(self.points, X)
            return self.xp.swap(features) @ features
        k = self.formula.cross(self.formula.prepare(X[None]), X)
        noise = self.xp.maximum(self.formula.diag(X) - self.xp.einsum("cnn->cn", k), 0)
        return k + noise[:, None] * self.xp.like(np.eye(len(X)), k)

    def to(self, device: Any) -> FittedModel:
        """Return the model on a device: itself if it is there, else a copy."""
        import torch

        if torch.empty(0, device=device).device == self.device:
            return self
        prior, likelihood = copy.deepcopy(self.modules.get())
        q = (self.prior_lower, self.mean, self.lower)
        prior_lower, mean, lower = (torch.as_tensor(t).to(device) for t in q)
        return record_model(
            prior.to(device), prior_lower, mean, lower, likelihood.to(device), self.pool
        )

    def __reduce__(self) -> Any:
        """Leave what follows from the modules out of pickles and copies."""
        return record_model, (
            self.prior,
            self.prior_lower,
            self.mean,
            self.lower,
            self.likelihood,
            self.pool,
        )


def record_model(
    prior: Prior,
    prior_lower: Any,
    mean: Any,
    lower: Any,
    likelihood: Likelihood,
    pool: Pool = NO_POOL,
) -> FittedModel:
    """Return the record of a model in torch, on the device of its tensors."""
    import torch

    from cavity.common.torch_namespace import TORCH

    if torch.as_tensor(mean).is_cuda:
        xp = TORCH
    else:
        xp = NUMPY
    fixed = prior
    if xp is TORCH:  # predictions need no derivatives
        fixed = copy.deepcopy(prior).requires_grad_(False)
    with torch.no_grad():
        formula = fixed.formula(xp)
    given = prior.state_dict(prefix="prior.") | {
        "prior_lower": prior_lower,
        "mean": mean,
        "lower": lower,
    }
    # in one layout: the last bits of products depend on it
    tensors = {
        name: torch.as_tensor(t).detach().contiguous() for name, t in given.items()
    }
    arrays = {name: t.numpy() if xp is NUMPY else t for name, t in tensors.items()}
    modules = Later(lambda: Modules(prior, likelihood))
    return make_model(
        arrays,
        prior.learnt,
        formula,
        prior.n_latent,
        outcome_of(likelihood),
        modules,
        pool,
    )


def make_model(
    arrays: dict[str, Array],
    learnt: Collection[str],
    formula: Formula,
    n_latent: int,
    outcome: Any,
    modules: Later[Modules],
    pool: Pool,
) -> FittedModel:
    """Return the record of arrays with the names of model files; learnt inducing points
    are in spreads from the centre.
    """
    inducing, center, spread = (
        arrays[f"prior.{name}"] for name in ("inducing", "center", "spread")
    )
    if "inducing" in learnt:
        Z = center + spread * inducing
    else:
        Z = inducing
    given = "prior.fixed_noise" in arrays
    if given:
        noise = arrays["prior.fixed_noise"]
    else:
        noise = namespace(spread).exp(arrays["prior.log_noise"])
    prior_lower, mean, lower = (
        arrays[name] for name in ("prior_lower", "mean", "lower")
    )
    of = formula, Z, noise, center, spread, prior_lower, mean, lower
    return FittedModel(*of, n_latent, outcome, modules, pool)


def outcome_of(likelihood: Likelihood) -> Any:
    """Return what a likelihood predicts: its outcome, or itself if it has none or a
    subclass overrides a prediction.
    """
    outcome = getattr(likelihood, "outcome", None)
    calls = ("log_probability", "uncertainty")
    known = outcome is not None and mirrors(type(likelihood), ("outcome",), calls)
    return outcome if known else likelihood


def extract_model(engine: Engine, state: State) -> FittedModel:
    """Return what prediction needs of a run, on its device.

    It takes over the engine's workspace.
    """
    import torch

    from cavity.engine.inference.posterior import posterior

    engine.load(state.theta, copy=True)
    with torch.no_grad():
        prior_lower, _ = engine.prior.factor(state.jitter)
        q = posterior(state.sums)
    kind = prior_lower.dtype
    return record_model(
        engine.prior, prior_lower, q.mean.to(kind), q.lower.to(kind), engine.factor
    )


def snapshot(engine: Engine, state: State) -> FittedModel:
    """Return the model that a state stands for, in copies on its device.

    The run stays untouched.
    """
    return extract_model(copy_engine(engine), state)


def copy_engine(engine: Engine) -> Engine:
    """Return an engine with parameters of its own."""
    prior, parameters, factor = copy.deepcopy(
        (engine.prior, engine.parameters, engine.factor)
    )
    return replace(engine, prior=prior, parameters=parameters, factor=factor)


def as_array(x: Any) -> Floats:
    """Return a copy of a tensor or an array in float64 on the CPU."""
    return np.array(namespace(x).host(x))


def as_tensor(rows: Floats) -> Tensor:
    """Return an array as a tensor, without a copy if torch may write to it."""
    import torch

    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


def settle_kernel(prior: Prior, likelihood: Likelihood) -> None:
    """Write the kernel's learnt values into its constructor arguments, one set per
    class.
    """
    from cavity.engine.kernels import Kernel

    if isinstance(prior.kernel, Kernel):
        prior.kernel.settle(1 if likelihood.linear else prior.n_latent)
