"""Draws of hyper-parameters, with diagnostics and averaged predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.tabular import Tabular
from cavity.common.types import Floats
from cavity.prediction.blocks import predict_blocks
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import predict_latent, predict_proba
from cavity.prediction.targets import target_noise
from cavity.tables.validation import Features, check_rows


@dataclass(frozen=True)
class HyperSamples(Tabular):
    """Posterior draws of the hyper-parameters.

    Attributes
    ----------
    draws : dict of str to ndarray of shape (chains, n_samples, ...)
        Draws by name, in the user's units.
    log_posterior : ndarray of shape (chains, n_samples)
        Unnormalised log density, log Z_q + log prior.
    acceptance : float
        Mean acceptance probability.
    divergences : int
        Number of divergent trajectories.
    r_hat : dict of str to ndarray
        R-hat of each hyper-parameter.
    ess : dict of str to ndarray
        Effective sample size of each hyper-parameter.
    evaluations : int
        Number of gradients of log Z_q that were computed.
    warnings : list of str
        Warnings of the diagnostics.
    models : tuple of FittedModel
        Models at some of the draws; predictions are averaged over them.
    features : Features
        Features of the fit.
    """

    draws: dict[str, Floats]
    log_posterior: Floats
    acceptance: float
    divergences: int
    r_hat: dict[str, Floats]
    ess: dict[str, Floats]
    evaluations: int
    warnings: list[str]
    models: tuple[FittedModel, ...]
    features: Features

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, list[Any]] = {
            name: [] for name in ("name", "mean", "sd", "R-hat", "ESS")
        }
        for name, values in self.draws.items():
            for place in np.ndindex(values.shape[2:]):
                draws = values[(..., *place)]
                columns["name"].append(f"{name}{list(place)}" if place else name)
                columns["mean"].append(draws.mean())
                columns["sd"].append(draws.std())
                columns["R-hat"].append(self.r_hat[name][place])
                columns["ESS"].append(self.ess[name][place])

        return columns

    def _heading(self) -> str:
        chains, n = self.log_posterior.shape
        head = (
            f"{chains} chains of {n} draws, acceptance {self.acceptance:.2f}, "
            f"{self.divergences} divergent"
        )
        return "\n".join([head, *self.warnings])


@dataclass(frozen=True)
class ClassifierSamples(HyperSamples):
    """Posterior draws of the hyper-parameters of a classifier.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Class labels.
    """

    classes: NDArray[Any]

    def predict_proba(self, X: Any) -> Floats:
        """Predict class probabilities, averaged over draws of the hyper-parameters.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `GPClassifier.predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, with columns in the order of `classes`.
        """

        def average(_: FittedModel, rows: Floats) -> tuple[Floats]:
            each = [predict_proba(model, rows)[0] for model in self.models]
            return (np.mean(each, axis=0),)

        return predict_blocks(self.models[0], self.features, X, average)[0]


@dataclass(frozen=True)
class RegressorSamples(HyperSamples):
    """Posterior draws of the hyper-parameters of a regressor.

    Attributes
    ----------
    units : tuple of float
        Shift and scale of the targets.
    """

    units: tuple[float, float]

    def predict(self, X: Any, return_std: bool = False, *, noise: bool = True) -> Any:
        """Predict y, averaged over draws of the hyper-parameters.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to also return standard deviations of the mixture.
        noise : bool, default=True
            Whether standard deviations include the noise, as for new values of y. If
            False, they describe f.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predicted means.
        std : ndarray of shape (n_samples,)
            Standard deviations. Only returned if `return_std` is True.
        """
        rows = check_rows(X, self.features)
        shift, scale = self.units
        each = [predict_latent(model, rows) for model in self.models]
        means = np.stack([f.mean[:, 0] for f in each])
        mean = shift + scale * means.mean(0)
        if not return_std:
            return mean

        var = np.stack([np.maximum(f.var[:, 0], 0) for f in each])
        if noise:
            var += np.array([[target_noise(model)] for model in self.models])
        return mean, scale * np.sqrt(var.mean(0) + means.var(0))
