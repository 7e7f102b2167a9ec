"""Draws of hyper-parameters in the user's units, with diagnostics, and predictions averaged over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from cavity.prediction.blocks import predict_blocks
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import predict_latent, predict_log_proba
from cavity.prediction.regression import target_noise
from cavity.rows.foreign_arrays import follow
from cavity.rows.validation import Features, check_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HyperSamples:
    """Draws of the hyper-parameters from their posterior, and predictions averaged over them.

    Attributes
    ----------
    draws : dict of str to ndarray of shape (chains, n_samples, ...)
        Draws by name, in the user's units.
    log_posterior : ndarray of shape (chains, n_samples)
        log Z_q + log prior.
    acceptance : float
        Mean acceptance probability.
    divergences : int
        Number of divergent trajectories.
    r_hat : dict of str to ndarray
        R-hat of each hyper-parameter.
    ess : dict of str to ndarray
        Effective sample size of each hyper-parameter.
    evaluations : int
        Number of gradients of log Z_q.
    warnings : list of str
        What the diagnostics warn about.
    models : tuple of FittedModel
        Models at the draws that predictions are averaged over.
    features : Features
        Features of the fit.
    """

    draws: dict[str, Array]
    log_posterior: Array
    acceptance: float
    divergences: int
    r_hat: dict[str, Array]
    ess: dict[str, Array]
    evaluations: int
    warnings: list[str]
    models: tuple[FittedModel, ...]
    features: Features

    def __str__(self) -> str:
        chains, n = self.log_posterior.shape
        head = f"{chains} chains of {n} draws, acceptance {self.acceptance:.2f}, {self.divergences} divergent"
        lines = [head, f"{'':24}{'mean':>10}{'sd':>10}{'R-hat':>8}{'ESS':>8}"]
        for name, values in self.draws.items():
            columns = values.reshape(chains * n, -1)
            mean, sd = columns.mean(0), columns.std(0)
            r_hat, ess = self.r_hat[name].reshape(-1), self.ess[name].reshape(-1)
            for i, place in enumerate(np.ndindex(values.shape[2:])):
                label = name + (str(list(place)) if place else "")
                lines.append(f"{label:24}{mean[i]:>10.4g}{sd[i]:>10.4g}{r_hat[i]:>8.3f}{ess[i]:>8.0f}")
        return "\n".join([*lines, *self.warnings])


@dataclass(frozen=True)
class ClassifierSamples(HyperSamples):
    """Draws for a classifier.

    Attributes
    ----------
    classes : ndarray of shape (C,)
        Class labels.
    """

    classes: NDArray[Any]

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities, averaged over draws of the hyper-parameters.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `GPClassifier.predict`.

        Returns
        -------
        ndarray of shape (n, C)
            Columns in the order of `classes`.
        """
        return self._predict(X, lambda rows: np.exp(self._log_proba(rows)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `GPClassifier.predict`.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        return self._predict(X, lambda rows: self.classes[self._log_proba(rows).argmax(1)])

    def _predict(self, X: Any, predict: Callable[[Array], NDArray[Any]]) -> NDArray[Any]:
        return predict_blocks(self.models[0], self.features, X, lambda _, rows: (predict(rows),))[0]

    def _log_proba(self, rows: Array) -> Array:
        each = [predict_log_proba(model, rows)[0] for model in self.models]
        return np.asarray(logsumexp(np.stack(each), axis=0) - np.log(len(each)))


@dataclass(frozen=True)
class RegressorSamples(HyperSamples):
    """Draws for a regressor.

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
        X : array-like of shape (n, D)
            Rows with the features of the fit.
        return_std : bool
            Whether to also return standard deviations of the mixture.
        noise : bool
            True: standard deviations of new values y, noise included. False: those of f.

        Returns
        -------
        ndarray of shape (n,), or two of them
            Means, and standard deviations if `return_std`.
        """
        rows = check_rows(X, self.features)
        shift, scale = self.units
        each = [predict_latent(model, rows) for model in self.models]
        means = np.stack([f.mean[:, 0] for f in each])
        mean = shift + scale * means.mean(0)
        if not return_std:
            return follow(X, (mean,))[0]
        var = np.stack([np.maximum(f.var[:, 0], 0) for f in each])
        if noise:
            var = var + np.array([[target_noise(model)] for model in self.models])
        return follow(X, (mean, scale * np.sqrt(var.mean(0) + means.var(0))))
