"""GPyTorch's SVGP with a softmax likelihood, set up as in its documentation."""

from __future__ import annotations

from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from experiments.early_stopping import (
    RATES,
    Fitted,
    Trained,
    choose_best,
    hold_out,
    median_distance,
    steps_between_evaluations,
    train,
)
from experiments.methods import default_sizes
from experiments.sets import Array, Split

BLOCK = 1000  # rows per block of predictions
TEST_SAMPLES, VALIDATION_SAMPLES = 256, 64  # draws of the latent values over which probabilities are averaged


class LatentProcesses(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    """C independent Gaussian processes with ARD-RBF kernels, each with its own inducing points."""

    def __init__(self, Z: Tensor, lengthscale: float | None = None) -> None:
        C, M, D = Z.shape
        shape = torch.Size([C])
        q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=shape)
        inner = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(inner, num_tasks=C))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=D, batch_shape=shape)
        if lengthscale is not None:
            kernel.lengthscale = lengthscale
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model:
    """The latent processes, their likelihood, and Adam."""

    def __init__(self, data: Split, M: int, batch: int | None, seed: int, rate: float, device: str) -> None:
        classes, rng = np.unique(data.y), np.random.default_rng(seed)
        Z = np.stack([data.X[rng.choice(len(data.X), M, replace=False)] for _ in classes])
        self.M, self.batch, self.device = M, batch, device
        self.X = torch.tensor(data.X, device=device)
        self.y = torch.tensor(np.searchsorted(classes, data.y), device=device)
        self.latent = LatentProcesses(torch.tensor(Z), median_distance(data.X, rng)).to(device, torch.float64)
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=len(classes), mixing_weights=False)
        self.likelihood = likelihood.to(device, torch.float64)
        self.bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.latent, num_data=len(self.y))
        self.adam = torch.optim.Adam([*self.latent.parameters(), *self.likelihood.parameters()], lr=rate)

    def step(self) -> None:
        self.latent.train(), self.likelihood.train()
        n, device = len(self.y), self.y.device
        index = slice(None) if self.batch is None else torch.randint(n, (self.batch,), device=device)
        self.adam.zero_grad()
        loss = -self.bound(self.latent(self.X[index]), self.y[index])
        loss.backward()
        self.adam.step()
        if self.y.is_cuda:
            torch.cuda.synchronize()

    def weights(self) -> Any:
        return self.latent.state_dict(), self.likelihood.state_dict()

    def load(self, weights: Any) -> None:
        self.latent.load_state_dict(weights[0])
        self.likelihood.load_state_dict(weights[1])

    def log_proba(self, X: Array, samples: int = TEST_SAMPLES) -> Array:
        """Softmax, averaged over draws of the latent values."""
        self.latent.eval(), self.likelihood.eval()
        torch.manual_seed(0)
        parts = []
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(samples):
            for block in torch.split(torch.as_tensor(X, dtype=torch.float64), BLOCK):
                parts.append(self.likelihood(self.latent(block.to(self.device))).probs.mean(0).cpu())
        return torch.cat(parts).clamp_min(1e-300).log().numpy()

    def validation_log_proba(self, X: Array) -> Array:
        return self.log_proba(X, VALIDATION_SAMPLES)


def fit_gpytorch(data: Split, seed: int, device: str) -> Fitted:
    """The better of two learning rates, each with early stopping. M and batch size are those of our default."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    where = found if device == "auto" else device
    return choose_best([_train(data, seed, rate, where) for rate in RATES], np.unique(data.y))


def _train(data: Split, seed: int, rate: float, device: str) -> Trained:
    rest, held = hold_out(data, seed)
    classes = np.unique(rest.y)
    M, batch = default_sizes(len(rest.y), len(classes))
    torch.manual_seed(seed)
    model = Model(rest, M, batch, seed, rate, device)
    return train(model, rate, held, classes, steps_between_evaluations(len(rest.y), batch))
