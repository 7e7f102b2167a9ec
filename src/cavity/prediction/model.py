"""A fitted model, ready to predict: O(CM(M+D)) numbers, no rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.linalg import concatenate, solve_lower
from cavity.common.namespaces import NUMPY
from cavity.common.onnx_graph import mirrors
from cavity.common.torch_namespace import TORCH
from cavity.errors import BadInput, BadOption
from cavity.inference import Engine, State
from cavity.inference.coupled import cov_of
from cavity.inference.posterior import Normal, posterior
from cavity.inference.state import map_tensors
from cavity.kernels.base import CalledFormula, formula_of
from cavity.kernels.distance import FAR
from cavity.kernels.formulas import are_far
from cavity.kernels.parameters import as_array as as_array
from cavity.kernels.prior import Prior
from cavity.kernels.spectrum import Spectrum
from cavity.likelihoods import Likelihood, Softmax
from cavity.likelihoods.quadrature.correlated import log_softmax_probability
from cavity.likelihoods.quadrature.grid import ORDER, SPREAD
from cavity.prediction.latent import Form, LatentModel
from cavity.prediction.marginal_matrices import make_form
from cavity.prediction.pool import NO_POOL, Pool

Array = NDArray[np.float64]
PREDICT_BYTES = 64 << 20
# with several latent functions, whose quadratures take a few rows at a time themselves
QUADRATURE_BYTES = 256 << 20


class _Parts(NamedTuple):
    prior: Prior
    prior_lower: Tensor  # [C M M] or [1 M M], factor of k(Z, Z)
    mean: Tensor  # [C M]; [1 CM] if q couples the classes
    lower: Tensor  # [C M M], factor of Λ; [1 CM CM]
    likelihood: Likelihood
    pool: Pool = NO_POOL


class FittedModel(_Parts):
    """q(w) and the projection that it belongs to."""

    @cached_property
    def form(self) -> Form | None:
        """Matrices that replace triangular solves, computed at the first prediction; None where solves are more accurate."""
        if self.coupled or isinstance(self.prior, Spectrum):
            return None
        return make_form(self.prior_lower, self.mean, self.lower, self.prior.noise)

    @cached_property
    def latent(self) -> LatentModel:
        """The marginals of rows in torch, with what depends on Z alone computed at the first prediction."""
        found = latent_model(self, TORCH, self.form)
        if not are_far(found.points, FAR[self.mean.dtype]):
            return found
        return found._replace(formula=CalledFormula(self.prior.kernel), points=self.prior.Z)

    @cached_property
    def single_row(self) -> LatentModel | None:
        """The marginals of one row in NumPy; None on a GPU, in float32, without a formula, and where solves are more accurate."""
        if self.form is None or self.mean.is_cuda or self.mean.dtype != torch.float64:
            return None
        matrix, weight, triangular = self.form
        try:
            found = latent_model(self, NUMPY, Form(NUMPY.array(matrix), NUMPY.array(weight), triangular))
        except BadOption:
            return None
        return None if are_far(found.points) else found

    @cached_property
    def likelihood_takes_arrays(self) -> bool:
        """Whether the likelihood computes probabilities of NumPy arrays, too; one of the user's own may know torch alone."""
        at = np.ones((1, self.prior.n_latent))
        try:
            found = self.likelihood.log_probability(at, at)
        except (AttributeError, TypeError):
            return False
        return isinstance(found, np.ndarray)

    def __getstate__(self) -> None:
        """Leave the matrices out of pickles and copies."""

    @property
    def device(self) -> torch.device:
        return self.mean.device

    @property
    def coupled(self) -> bool:
        """Whether q couples the classes."""
        return len(self.lower) < self.prior.n_latent

    @property
    def cost(self) -> int:
        """About how many times as long probabilities take as those of the probit."""
        return 60 if self.coupled else 8 if isinstance(self.likelihood, Softmax) else 1

    def to(self, device: torch.device) -> FittedModel:
        """Return the model on a device: itself if it is there, else a copy."""
        if torch.empty(0, device=device).device == self.device:
            return self
        prior, likelihood = copy.deepcopy((self.prior, self.likelihood))
        prior_lower, mean, lower = (t.to(device) for t in (self.prior_lower, self.mean, self.lower))
        moved = FittedModel(prior.to(device), prior_lower, mean, lower, likelihood.to(device), self.pool)
        return with_canonical_layout(moved)


@torch.no_grad()
def latent_model(model: FittedModel, xp: Any, form: Form | None = None) -> LatentModel:
    """Return a model with one posterior per class as a function of arrays; BadOption if NumPy does not know its kernel."""
    prior = model.prior
    formula = formula_of(prior.kernel, xp)
    noise, prior_lower, mean, lower = map(xp.array, (prior.noise, model.prior_lower, model.mean, model.lower))
    points = formula.prepare(xp.array(prior.Z))
    return LatentModel(formula, points, noise, prior_lower, mean, lower, form)


class Joint(NamedTuple):
    """Marginals of f at new rows if classes are coupled."""

    mean: Tensor  # [n C]
    var: Tensor  # [n C]
    cov: Tensor  # [n C C]


def extract_model(engine: Engine, state: State) -> FittedModel:
    """Return what prediction needs of a run, on its device. It takes over the engine's workspace."""
    return with_canonical_layout(model_at(engine, state))


def snapshot(engine: Engine, state: State) -> FittedModel:
    """Return the model that a state stands for, in copies on its device. The run stays untouched."""
    return model_at(copy_engine(engine), state)


def copy_engine(engine: Engine) -> Engine:
    """Return an engine with parameters of its own."""
    prior, parameters, factor = copy.deepcopy((engine.prior, engine.parameters, engine.factor))
    return replace(engine, prior=prior, parameters=parameters, factor=factor)


def model_at(engine: Engine, state: State) -> FittedModel:
    """Return the model that a state stands for, on the run's device."""
    engine.load(state.theta, copy=True)
    with torch.no_grad():
        prior_lower, _ = engine.prior.factor(state.jitter)
        q = posterior(state.sums)
    kind = prior_lower.dtype
    q_mean, q_lower = q.mean.to(kind), q.lower.to(kind)
    return FittedModel(engine.prior, prior_lower, q_mean, q_lower, engine.factor)


def with_canonical_layout(model: FittedModel) -> FittedModel:
    """Return the model with column-major factors: the last bits of products and solves depend on the layout."""
    prior_lower, lower = (t.mT.contiguous().mT for t in (model.prior_lower, model.lower))
    return model._replace(prior_lower=prior_lower, mean=model.mean.contiguous(), lower=lower)


def to_device(state: Any, device: torch.device) -> Any:
    """Return the same nest of tuples with its tensors on a device."""
    return map_tensors(lambda tensor: tensor.to(device), state)


def rows_per_block(model: FittedModel) -> int:
    """Return how many rows have a projection [C M n] of at most PREDICT_BYTES."""
    C, M, _ = model.lower.shape
    return max(1, PREDICT_BYTES // (8 * max(C, model.prior.n_latent) * M))


@torch.no_grad()
def predict_latent(model: FittedModel, X: Tensor) -> Normal | Joint:
    """Return marginals of f at new rows, noise included: [n C]. Raises BadInput if a kernel overflows.        [METHOD 8]"""
    size = rows_per_block(model)
    predict = _joint if model.coupled else _marginals
    parts = [predict(model, piece) for piece in torch.split(X, size)]
    f = concatenate(parts) if len(parts) > 1 else parts[0]
    _check_finite(f, X)
    return f


def _check_finite(f: Normal | Joint, X: Tensor) -> None:
    """Refuse rows for which a kernel of the user's own has no finite values; those of the library always have."""
    # NumPy adds a few numbers several times as fast
    mean, var = (t if t.is_cuda else t.numpy() for t in f[:2])
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(mean.sum() + var.sum())
    if not math.isfinite(total):  # a sum can also overflow
        bad = ~(f.mean.isfinite() & f.var.isfinite()).all(-1)
        if not bool(bad.any()):
            return
        row = X[int(bad.nonzero()[0, 0])].tolist()
        raise BadInput(
            f"{int(bad.sum())} rows have no finite latent values, such as the row {row!s:.80}: the kernel overflows there. "
            "Leave such rows out, or limit their features before the kernel squares them."
        )


def _marginals(model: FittedModel, X: Tensor) -> Normal:
    if len(X) == 1 and model.single_row is not None:
        found = model.single_row.marginals(X.double().cpu().numpy())
        return Normal(*(torch.from_numpy(values) for values in found))
    rows = X.to(model.mean)
    if not isinstance(model.prior, Spectrum):
        return Normal(*(values.double() for values in model.latent.marginals(rows)))
    projection = model.prior.project_with(model.prior_lower, rows)
    a = projection.a
    mean = (model.mean[:, None, :] @ a)[:, 0]
    var = projection.r + solve_lower(model.lower, a).square().sum(-2)
    return Normal(mean.mT.double(), var.mT.double())


def _joint(model: FittedModel, X: Tensor) -> Joint:
    projection = model.prior.project_with(model.prior_lower, X.to(model.mean))
    a = projection.a.double()
    mean = torch.bmm(model.mean.double().reshape(len(a), 1, -1), a)[:, 0].mT
    cov = cov_of(model.lower.double(), a) + torch.diag_embed(projection.r.double().mT)
    return Joint(mean, cov.diagonal(dim1=-2, dim2=-1).contiguous(), cov)


@torch.no_grad()
def joint_over_rows(model: FittedModel, X: Tensor, residual: bool = True) -> tuple[Tensor, Tensor]:
    """Return mean [n] and covariance [n n] of one latent function: k(X, X) − AᵀA + AᵀΣA, or AᵀΣA without `residual`."""
    rows = X.to(model.mean)
    a = model.prior.project_with(model.prior_lower, rows).a
    half = solve_lower(model.lower, a)[0].double()
    cov = half.mT @ half
    if residual:
        cov = cov + model.prior.unexplained(rows, a).double()
    return (model.mean @ a[0])[0].double(), cov


@torch.no_grad()
def residual(model: FittedModel, X: Tensor) -> Tensor:
    """Return r of one latent function at new rows, [n]."""
    return model.prior.project_with(model.prior_lower, X.to(model.mean)).r[0].double().cpu()


@torch.no_grad()
def log_probabilities(model: FittedModel, f: Normal | Joint) -> Tensor:
    """Return normalised logarithms of the class probabilities, on the CPU: [n C] → [n C], [n 1] → [n 2]."""
    if isinstance(f, Joint):
        return log_softmax_probability(f.mean, f.cov).cpu()
    parts = [model.likelihood.log_probability(mean, var) for mean, var in split_rows(f)]
    return (torch.cat(parts) if len(parts) > 1 else parts[0]).cpu()


def predict_log_proba(model: FittedModel, rows: Array) -> tuple[Array]:
    """Return logarithms of the class probabilities of rows in memory, [n C]."""
    if len(rows) == 1 and model.single_row is not None and model.likelihood_takes_arrays:
        mean, var = model.single_row.marginals(np.asarray(rows, np.float64))
        if math.isfinite(float(mean.sum() + var.sum())):  # else the error is that of many rows
            return (model.pool.combine(model.likelihood.log_probability(mean, var), rows, var),)
    f = predict_latent(model, as_tensor(rows))
    return (apply_pool(model, f, log_probabilities(model, f).numpy(), rows),)


def predict_proba(model: FittedModel, rows: Array) -> tuple[Array]:
    """Return the class probabilities of rows in memory, [n C]."""
    return (np.exp(*predict_log_proba(model, rows)),)


def apply_pool(model: FittedModel, f: Normal | Joint, log_p: Array, rows: Array) -> Array:
    """Return log-probabilities with the temperature and the pool, given those of the Gaussian process at rows."""
    var = f.var.cpu().numpy() if model.pool.gate is not None else np.empty((len(rows), 0))
    return model.pool.combine(log_p, rows, var)


def predict_labels(model: FittedModel, rows: Array, classes: NDArray[Any]) -> tuple[NDArray[Any]]:
    """Return the most probable class of rows in memory, [n]; probabilities are computed only where it is not certain."""
    if model.pool.members:
        return (classes[predict_log_proba(model, rows)[0].argmax(1)],)
    f = predict_latent(model, as_tensor(rows))
    best = f.mean.argmax(1)
    unsure = (~_leader_is_sure(model, f)).nonzero()[:, 0]
    if len(unsure):
        part = type(f)(*(t[unsure] for t in f))
        best[unsure] = log_probabilities(model, part).argmax(1).to(best.device)
    return (classes[best.cpu().numpy()],)


@torch.no_grad()
def _leader_is_sure(model: FittedModel, f: Normal | Joint) -> Tensor:
    """Return the rows whose label needs no probabilities. A bound that a subclass inherits may not hold for its probabilities."""
    kind = type(model.likelihood)
    if isinstance(f, Joint) or not mirrors(kind, ("leader_is_sure",), ("log_probability", "_log_win")):
        return torch.zeros_like(f.mean[:, 0], dtype=torch.bool)
    return model.likelihood.leader_is_sure(f.mean, f.var)


def predict_moments(model: FittedModel, rows: Array) -> tuple[Array, Array]:
    """Return mean and variance of the latent functions at rows in memory, noise included, each [n C]."""
    f = predict_latent(model, as_tensor(rows))
    return f.mean.cpu().numpy(), f.var.cpu().numpy()


def split_rows(f: Normal) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield means and variances of a few rows at a time: the quadrature takes memory per row."""
    C = f.mean.shape[1]
    held = PREDICT_BYTES if C == 1 else QUADRATURE_BYTES
    size = max(1, held // (8 * 2 * len(SPREAD) * ORDER * C))
    return zip(torch.split(f.mean, size), torch.split(f.var, size), strict=True)


def frequencies(prior: Prior) -> Array | None:
    """Return the frequencies of a sparse spectrum for every latent function, [C H D]; None for inducing points."""
    if not isinstance(prior, Spectrum):
        return None
    found = as_array(prior.frequencies)
    return np.asarray(found.repeat(prior.n_latent // len(found), axis=0))


def as_tensor(rows: Array) -> Tensor:
    """Return an array as a tensor, without a copy if torch may write to it."""
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())
