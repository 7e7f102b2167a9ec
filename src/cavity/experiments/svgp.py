"""GPyTorch's SVGP with a softmax likelihood, as its documentation has it, trained until a validation set says stop."""

from __future__ import annotations

import copy
import time
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from cavity.experiments import peers
from cavity.experiments.defaults import our_sizes
from cavity.experiments.peers import EVERY, LEAST, OFTEN, PATIENCE, SAMPLES, Trained, validation
from cavity.experiments.sets import Array, Split

PIECE = 1000


class _Latent(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    """C independent Gaussian processes, ARD-RBF, inducing points of their own."""

    def __init__(self, Z: Tensor, lengthscale: float) -> None:
        C, M, D = Z.shape
        shape = torch.Size([C])
        q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=shape)
        inner = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(inner, num_tasks=C))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=D, batch_shape=shape)
        kernel.lengthscale = lengthscale
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model:
    """The latent processes with their likelihood."""

    def __init__(self, X: Array, C: int, M: int, seed: int, device: str) -> None:
        rng = np.random.default_rng(seed)
        Z = np.stack([X[rng.choice(len(X), M, replace=False)] for _ in range(C)])
        self.M, self.device = M, device
        self.latent = _Latent(torch.tensor(Z), peers.median_distance(X, rng)).to(device, torch.float64)
        self.likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=C, mixing_weights=False).to(
            device, torch.float64
        )

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.latent.parameters(), *self.likelihood.parameters()]

    def weights(self) -> Any:
        """What has to be kept."""
        return self.latent.state_dict(), self.likelihood.state_dict()

    def log_proba(self, X: Array, samples: int = SAMPLES) -> Array:
        """Softmax averaged over draws of the latent values."""
        self.latent.eval(), self.likelihood.eval()
        torch.manual_seed(0)
        parts = []
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(samples):
            for piece in torch.split(torch.as_tensor(X, dtype=torch.float64), PIECE):
                parts.append(self.likelihood(self.latent(piece.to(self.device))).probs.mean(0).cpu())
        return torch.cat(parts).clamp_min(1e-300).log().numpy()


def train(data: Split, seed: int, rate: float, device: str) -> Trained:
    """One run at one rate."""
    rest, held = validation(data, seed)
    classes = np.unique(data.y)
    M, batch = our_sizes(len(rest.y), len(classes))
    torch.manual_seed(seed)
    model = Model(rest.X, len(classes), M, seed, device)
    X = torch.tensor(rest.X, device=device)
    y = torch.tensor(np.searchsorted(classes, rest.y), device=device)
    bound = gpytorch.mlls.VariationalELBO(model.likelihood, model.latent, num_data=len(y))
    adam = torch.optim.Adam(model.parameters, lr=rate)
    every = EVERY if batch is None else min(OFTEN, -(-len(y) // batch))
    best = Trained(rate, model)
    kept: Any = None
    spent, since = 0.0, 0
    for step in range(1, peers.MOST_STEPS + 1):
        begin = time.perf_counter()
        _step(model, bound, adam, X, y, batch)
        spent += time.perf_counter() - begin
        if step % every:
            continue
        judged = _nll(model, held.X, held.y, classes)
        best.curve.append((spent, judged))
        since = 0 if judged < best.judged - LEAST else since + 1
        if judged < best.judged:
            best.judged, best.seconds, best.steps = judged, spent, step
            kept = copy.deepcopy(model.weights())
        if since >= PATIENCE:
            break
    model.latent.load_state_dict(kept[0])
    model.likelihood.load_state_dict(kept[1])
    return best


def _step(model: Model, bound: Any, adam: torch.optim.Adam, X: Tensor, y: Tensor, batch: int | None) -> None:
    model.latent.train(), model.likelihood.train()
    index = slice(None) if batch is None else torch.randint(len(y), (batch,), device=y.device)
    adam.zero_grad()
    loss = -bound(model.latent(X[index]), y[index])
    loss.backward()
    adam.step()
    if y.is_cuda:
        torch.cuda.synchronize()


def _nll(model: Model, X: Array, labels: Any, classes: Any) -> float:
    known = np.isin(labels, classes)
    log_p = model.log_proba(X[known], peers.JUDGE_SAMPLES)
    return float(-log_p[np.arange(known.sum()), np.searchsorted(classes, labels[known])].mean())
