"""A fitted model as a record of O(CM(M+D)) numbers, without rows.   [METHOD 8]

Predictions use NumPy on the CPU and, by the same formulas, torch on a GPU. This module
does not load torch.
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
    """The model in torch, as training uses it."""

    prior: Prior
    likelihood: Likelihood


class _Arrays(NamedTuple):
    formula: Formula  # the kernel with its numbers
    Z: Array  # [C M D] or [1 M D], inducing inputs
    noise: Array  # [C] or [1]
    center: Array  # [D], centres of the features
    spread: Array  # [D]
    prior_lower: Array  # [C M M] or [1 M M], factor of k(Z, Z)
    mean: Array  # [C M]; [1 CM] if q couples the classes
    lower: Array  # [C M M], factor of Λ; [1 CM CM]
    n_latent: int
    # has log_probability(mean, var) and uncertainty(mean, var, noise): a likelihood, or
    # its description in a file
    outcome: Any
    modules: Later[Modules]
    pool: Pool = NO_POOL
    # predict by triangular solves: for a few rows, `form` costs more
    by_solves: bool = False


class FittedModel(_Arrays):
    """q(w) with its projection, as NumPy arrays on the CPU or tensors on a GPU."""

    @cached_property
    def form(self) -> Form | None:
        """Matrices that replace triangular solves; None if solves are more accurate.

        They are computed at the first prediction.
        """
        if self.by_solves or self.coupled:
            return None

        return make_form(self.prior_lower, self.mean, self.lower, self.noise)

    @cached_property
    def points(self) -> Any:
        """Z, prepared for the formula."""
        Z = self.xp.double(self.Z) if self.xp is NUMPY else self.Z
        return self.formula.prepare(Z)

    def prepare(self) -> None:
        """Compute what predictions share, before several threads predict."""
        _ = self.points, self.form

    @property
    def xp(self) -> Any:
        """Namespace of the arrays."""
        return namespace(self.mean)

    @property
    def prior(self) -> Prior:
        """Prior in torch."""
        return self.modules.get().prior

    @property
    def likelihood(self) -> Likelihood:
        """Likelihood in torch."""
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
        """Cost of class probabilities relative to the probit."""
        from cavity.engine.likelihoods import Softmax

        if self.coupled:
            return 60
        if isinstance(self.likelihood, Softmax):
            return 8

        return 1

    @property
    def inducing_points(self) -> Floats:
        """Inducing inputs, [C M D] or [1 M D]; [C 0 D] in the frequency domain."""
        if self.spectral:
            return as_array(self.Z)[:, :0]

        return as_array(self.Z)

    @property
    def spectral(self) -> bool:
        """Whether inducing values are in the frequency domain."""
        return isinstance(self.formula, SpectrumFormula)

    @property
    def frequencies(self) -> Floats | None:
        """Frequencies of cosines and sines, [C M/2 D]; None for inducing points.

        Their unit is radians per unit of a feature.
        """
        if not self.spectral:
            return None

        found = as_array(self.points) / as_array(self.spread)
        return found[:, : self.Z.shape[-2] // 2]

    @property
    def noises(self) -> Floats:
        """Variance of the noise of each latent function, [C]."""
        return np.repeat(self.xp.host(self.noise), self.n_latent // len(self.noise))

    def covariances(self, X: Array) -> tuple[Array, Array]:
        """Return k(Z, x), [C M n] or [1 M n], and k(x, x) + s, [C n] or [1 n]."""
        # cells may overflow before they are limited
        with np.errstate(over="ignore", invalid="ignore"):
            k = self.formula.cross(self.points, X)
            variance = self.formula.diag(X) + self.noise[:, None]
        return k, variance

    def project(self, X: Array) -> tuple[Array, Array]:
        """Return a = L⁻¹ k(Z, x) and the residual r = k(x, x) + s − |a|².

        a has the shape [C M n] or [1 M n], r has [C n].
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
        r"""Return mean, variance and residual of f at rows, each [n C].

        a = L⁻¹ k(Z, x)      r = k(x, x) + s − |a|²
        mean  μ·a            variance  r + |Λ^(−½) a|²
        """
        a, r = self.project(X)
        xp = namespace(a)
        half = xp.solve_lower(self.lower, a)
        mean = (self.mean[:, None] @ a)[:, 0]
        return mean.T, (r + xp.column_sum(half * half)).T, r.T

    def joint(self, X: Array) -> Joint:
        """Return the marginals of rows if classes are coupled.

        The covariance of row n is A_nᵀ Σ A_n + diag r.
        """
        xp = self.xp
        C = self.n_latent
        a, r = self.project(X)
        M = a.shape[1]
        a = a + xp.like(np.zeros((C, 1, 1)), a)  # [1 M n] becomes [C M n]
        inverse = xp.solve_lower(self.lower, xp.like(np.eye(C * M)[None], a))[0]
        half = [inverse[:, c * M : (c + 1) * M] @ a[c] for c in range(C)]  # each [CM n]
        products = [xp.stack([(one * other).sum(0) for other in half]) for one in half]
        cov = xp.stack(products) + r.T[:, None] * xp.like(np.eye(C), a)  # [n C C]
        mean = xp.einsum("cm,cmn->nc", self.mean.reshape(C, M), a)
        return Joint(mean, xp.einsum("ncc->nc", cov), cov)

    def among(self, X: Array) -> Array:
        """Return k(X, X), [C n n], with k(x, x) on its diagonal.

        In the frequency domain this is φ(X)ᵀφ(X). If linear functions fade, k(x, x)
        exceeds the formula's value at equal points by noise.
        """
        if self.spectral:
            features = self.formula.cross(self.points, X)
            return self.xp.swap(features) @ features

        k = self.formula.cross(self.formula.prepare(X[None]), X)
        noise = self.xp.maximum(self.formula.diag(X) - self.xp.einsum("cnn->cn", k), 0)
        return k + noise[:, None] * self.xp.like(np.eye(len(X)), k)

    def to(self, device: Any) -> FittedModel:
        """Return the model on a device: itself if it is there, otherwise a copy."""
        import torch

        if torch.empty(0, device=device).device == self.device:
            return self

        prior, likelihood = copy.deepcopy(self.modules.get())
        return record_model(
            prior.to(device),
            torch.as_tensor(self.prior_lower).to(device),
            torch.as_tensor(self.mean).to(device),
            torch.as_tensor(self.lower).to(device),
            likelihood.to(device),
            self.pool,
        )

    def __reduce__(self) -> Any:
        """Pickle and copy only the modules and q; the rest follows from them."""
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
    """Convert a model in torch to a record, on the device of its tensors."""
    import torch

    from cavity.common.torch_namespace import TORCH

    on_gpu = torch.as_tensor(mean).is_cuda
    fixed = prior
    if on_gpu:  # predictions need no derivatives
        fixed = copy.deepcopy(prior).requires_grad_(False)
    with torch.no_grad():
        formula = fixed.formula(TORCH if on_gpu else NUMPY)

    given = prior.state_dict(prefix="prior.")
    given |= {"prior_lower": prior_lower, "mean": mean, "lower": lower}
    arrays: dict[str, Array] = {}
    for name, value in given.items():
        # one layout for all: the last bits of products depend on it
        tensor = torch.as_tensor(value).detach().contiguous()
        arrays[name] = tensor if on_gpu else tensor.numpy()

    return make_model(
        arrays,
        prior.learnt,
        formula,
        prior.n_latent,
        outcome_of(likelihood),
        modules=Later(lambda: Modules(prior, likelihood)),
        pool=pool,
    )


def make_model(
    arrays: dict[str, Array],
    learnt: Collection[str],
    formula: Formula,
    n_latent: int,
    outcome: Any,
    *,
    modules: Later[Modules],
    pool: Pool,
) -> FittedModel:
    """Create a record from arrays with the names of model files.

    Learnt inducing points are stored in units of the spread, relative to the centre.
    """
    center = arrays["prior.center"]
    spread = arrays["prior.spread"]
    Z = arrays["prior.inducing"]
    if "inducing" in learnt:
        Z = center + spread * Z
    if "prior.fixed_noise" in arrays:
        noise = arrays["prior.fixed_noise"]
    else:
        noise = namespace(spread).exp(arrays["prior.log_noise"])

    return FittedModel(
        formula=formula,
        Z=Z,
        noise=noise,
        center=center,
        spread=spread,
        prior_lower=arrays["prior_lower"],
        mean=arrays["mean"],
        lower=arrays["lower"],
        n_latent=n_latent,
        outcome=outcome,
        modules=modules,
        pool=pool,
    )


def outcome_of(likelihood: Likelihood) -> Any:
    """Return the outcome of a likelihood, which predicts without torch.

    Return the likelihood itself if it has none, or if a subclass overrides predictions.
    """
    outcome = getattr(likelihood, "outcome", None)
    calls = ("log_probability", "uncertainty")
    known = outcome is not None and mirrors(type(likelihood), ("outcome",), calls)
    return outcome if known else likelihood


def extract_model(engine: Engine, state: State) -> FittedModel:
    """Return the model of a state, on its device; it reuses the engine's workspace."""
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
    """Return the model of a state in copies, on its device; the run is not changed."""
    return extract_model(copy_engine(engine), state)


def copy_engine(engine: Engine) -> Engine:
    """Return an engine with copies of the parameters."""
    prior, parameters, factor = copy.deepcopy(
        (engine.prior, engine.parameters, engine.factor)
    )
    return replace(engine, prior=prior, parameters=parameters, factor=factor)


def as_array(x: Any) -> Floats:
    """Return a copy of a tensor or an array in float64 on the CPU."""
    return np.array(namespace(x).host(x))


def as_tensor(rows: Floats) -> Tensor:
    """Return an array as a tensor, without a copy if it is writeable."""
    import torch

    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


def settle_kernel(prior: Prior, likelihood: Likelihood) -> None:
    """Write the learnt values of the kernel into its constructor arguments."""
    from cavity.engine.kernels import Kernel

    if isinstance(prior.kernel, Kernel):
        prior.kernel.settle(1 if likelihood.linear else prior.n_latent)
