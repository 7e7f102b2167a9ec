"""Draws of hyper-parameters in the user's units, with diagnostics, and predictions
averaged over them.
"""

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
    """Draws of the hyper-parameters from their posterior, and predictions averaged over
    them.

    Attributes
    ----------
    draws : dict of str to ndarray of shape (chains, n_samples, ...)
        Draws by name, in the user's units.
    log_posterior : ndarray of shape (chains, n_samples)
        log Z_q + log prior.
    acceptance, divergences, evaluations : float, int, int
        Mean acceptance probability, number of divergent trajectories, and number of
        gradients of log Z_q.
    r_hat, ess : dict of str to ndarray
        R-hat and effective sample size of each hyper-parameter.
    warnings : list of str
        What the diagnostics warn about.
    models : tuple of FittedModel
        Models at the draws that predictions are averaged over.
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
        lines = []
        for name, values in self.draws.items():
            for place in np.ndindex(values.shape[2:]):
                draws = values[(..., *place)]
                label = name + (str(list(place)) if place else "")
                judged = self.r_hat[name][place], self.ess[name][place]
                lines.append((label, draws.mean(), draws.std(), *judged))
        return dict(
            zip(
                ("name", "mean", "sd", "R-hat", "ESS"),
                zip(*lines, strict=True),
                strict=True,
            )
        )

    def _heading(self) -> str:
        chains, n = self.log_posterior.shape
        head = f"{chains} chains of {n} draws, acceptance {self.acceptance:.2f}, {self.divergences} divergent"
        return "\n".join([head, *self.warnings])


@dataclass(frozen=True)
class ClassifierSamples(HyperSamples):
    """Draws for a classifier.

    Attributes
    ----------
    classes : ndarray of shape (C,)
        Class labels.
    """

    classes: NDArray[Any]

    def predict_proba(self, X: Any) -> Floats:
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

        def average(_: FittedModel, rows: Floats) -> tuple[Floats]:
            return (
                np.mean(
                    [predict_proba(model, rows)[0] for model in self.models], axis=0
                ),
            )

        return predict_blocks(self.models[0], self.features, X, average)[0]


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
            True: standard deviations of new values y, noise included. False: those of
            f.

        Returns
        -------
        ndarray of shape (n,), or two of them
            Means, and standard deviations if `return_std`.
        """
        rows = check_rows(X, self.features)
        (shift, scale) = self.units
        each = [predict_latent(model, rows) for model in self.models]
        means = np.stack([f.mean[:, 0] for f in each])
        mean = shift + scale * means.mean(0)
        if not return_std:
            return mean
        extra = np.array([[target_noise(model) * noise] for model in self.models])
        var = np.stack([np.maximum(f.var[:, 0], 0) for f in each]) + extra
        return mean, scale * np.sqrt(var.mean(0) + means.var(0))
