"""A trained model, ready to predict: O(CM(M+D)) numbers, no rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavity.factors import BinaryProbit, Likelihood, ProbitPairs
from cavity.inference import Engine, State
from cavity.inference.coupled import cov_of
from cavity.linalg import solve_lower
from cavity.posterior import Normal, posterior
from cavity.prior import Prior
from cavity.quadrature import MANY, MOST_EDGES, ORDER, SPREAD, log_softmax_probability
from cavity.spectrum import Spectrum

PREDICT_BYTES = 64 << 20


class Fitted(NamedTuple):
    """q(w) and the projection that it belongs to."""

    prior: Prior
    prior_lower: Tensor  # [C M M] or [1 M M], factor of k(Z, Z)
    mean: Tensor  # [C M]; [1 CM] where q couples the classes
    lower: Tensor  # [C M M], factor of Λ; [1 CM CM]
    factor: Likelihood

    def to(self, device: torch.device) -> Fitted:
        """The same model elsewhere."""
        for parameter in self.factor.parameters:
            parameter.data = parameter.data.to(device)
        prior_lower, mean, lower = (t.to(device) for t in (self.prior_lower, self.mean, self.lower))
        return Fitted(self.prior.to(device), prior_lower, mean, lower, self.factor)


class Joint(NamedTuple):
    """Marginals of f at new rows where classes are coupled."""

    mean: Tensor  # [n C]
    var: Tensor  # [n C]
    cov: Tensor  # [n C C]


def extract(engine: Engine, state: State) -> Fitted:
    """What prediction needs of a run, on the CPU; the engine's workspace goes with it."""
    return ready(*at(engine, state).to(torch.device("cpu")))


def at(engine: Engine, state: State) -> Fitted:
    """The model that a state stands for, on the run's device."""
    engine.load(state.theta)
    with torch.no_grad():
        prior_lower, _ = engine.prior.factor(state.jitter)
        q = posterior(state.sums)
    for parameter in (*engine.prior.parameters(), *engine.parameters):
        parameter.data = parameter.data.clone()  # no longer a view of the state
        parameter.grad = None
    kind = prior_lower.dtype
    usual = BinaryProbit() if engine.prior.n_latent == 1 else ProbitPairs(engine.prior.n_latent)
    factor = engine.factor if isinstance(engine.factor, Likelihood) else usual
    return Fitted(engine.prior, prior_lower, q.mean.to(kind), q.lower.to(kind), factor)


def ready(prior: Prior, prior_lower: Tensor, mean: Tensor, lower: Tensor, factor: Likelihood) -> Fitted:
    """The model with its tensors in one layout, on which the last bits of products and solves depend: factors column-major."""
    prior_lower, lower = (t.mT.contiguous().mT for t in (prior_lower, lower))
    return Fitted(prior, prior_lower, mean.contiguous(), lower, factor)


def on_cpu(state: Any) -> Any:
    """The same nest of tuples with its tensors on the CPU, so that what is kept unpickles without a GPU."""
    if isinstance(state, Tensor):
        return state.cpu()
    parts = [on_cpu(part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def rows_at_a_time(model: Fitted) -> int:
    """Rows whose projection [C M n] takes no more than PREDICT_BYTES."""
    C, M, _ = model.lower.shape
    return max(1, PREDICT_BYTES // (8 * max(C, model.prior.n_latent) * M))


@torch.no_grad()
def latent(model: Fitted, X: Tensor) -> Normal | Joint:
    """Marginals of f at new rows, noise included: [n C].        [METHOD 8]"""
    pieces = torch.split(X, rows_at_a_time(model))
    if len(model.lower) < model.prior.n_latent:
        return Joint(*(torch.cat(column) for column in zip(*(_joint(model, p) for p in pieces), strict=True)))
    parts = [_latent(model, piece) for piece in pieces]
    return Normal(torch.cat([p.mean for p in parts]), torch.cat([p.var for p in parts]))


def _latent(model: Fitted, X: Tensor) -> Normal:
    projection = model.prior.project_with(model.prior_lower, X.to(model.mean))
    a = projection.a
    mean = (model.mean[:, None, :] @ a)[:, 0]
    var = projection.r + solve_lower(model.lower, a).square().sum(-2)
    return Normal(mean.mT.double(), var.mT.double())


@torch.no_grad()
def joint_over_rows(model: Fitted, X: Tensor, residual: bool = True) -> tuple[Tensor, Tensor]:
    r"""Mean [n] and covariance [n n] of one latent function, noise excluded: k(X, X) − AᵀA + AᵀΣA; without the residual, AᵀΣA."""
    rows = X.to(model.mean)
    a = model.prior.project_with(model.prior_lower, rows).a
    half = solve_lower(model.lower, a)[0].double()
    cov = half.mT @ half
    if residual:
        cov = cov + model.prior.unexplained(rows, a).double()
    return (model.mean @ a[0])[0].double(), cov


@torch.no_grad()
def residual(model: Fitted, X: Tensor) -> Tensor:
    """r of one latent function at new rows, [n]."""
    return model.prior.project_with(model.prior_lower, X.to(model.mean)).r[0].double().cpu()


def _joint(model: Fitted, X: Tensor) -> Joint:
    projection = model.prior.project_with(model.prior_lower, X.to(model.mean))
    a = projection.a.double()
    mean = torch.bmm(model.mean.double().reshape(len(a), 1, -1), a)[:, 0].mT
    cov = cov_of(model.lower.double(), a) + torch.diag_embed(projection.r.double().mT)
    return Joint(mean, cov.diagonal(dim1=-2, dim2=-1).contiguous(), cov)


@torch.no_grad()
def log_probability(model: Fitted, f: Normal | Joint) -> Tensor:
    """Logarithms of the class probabilities, normalised: [n C] → [n C], [n 1] → [n 2], on the CPU."""
    if isinstance(f, Joint):
        return log_softmax_probability(f.mean, f.cov).cpu()
    return torch.cat([model.factor.log_probability(mean, var) for mean, var in pieces(f)]).cpu()


def pieces(f: Normal) -> Iterator[tuple[Tensor, Tensor]]:
    """Means and variances of a few rows at a time."""
    C = f.mean.shape[1]
    nodes = ORDER * min(len(SPREAD) * C, MOST_EDGES if C > MANY else len(SPREAD) * C)
    size = max(1, PREDICT_BYTES // (8 * nodes * C))
    yield from zip(torch.split(f.mean, size), torch.split(f.var, size), strict=True)


def frequencies(prior: Prior) -> Any:
    """Of a sparse spectrum, for every latent function, [C H D]; None for inducing points."""
    if not isinstance(prior, Spectrum):
        return None
    found = numpy(prior.frequencies)
    return found.repeat(prior.n_latent // len(found), axis=0)


def tensor(rows: Any) -> Tensor:
    """An array of the user's as a tensor, without a copy where torch would let it be written to."""
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


def numpy(tensor: Tensor) -> Any:
    """A float64 NumPy copy."""
    return tensor.detach().double().cpu().numpy().copy()
