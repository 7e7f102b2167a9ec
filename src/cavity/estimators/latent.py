"""The latent functions of an estimator: moments and joint draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from cavity.common.types import Floats
from cavity.estimators.argument_types import Seed, TableLike
from cavity.estimators.base import GPEstimator
from cavity.fitting.options.value_checks import draw_seed, whole
from cavity.prediction.joint import predict_joint_moments
from cavity.prediction.predict import predict_moments
from cavity.prediction.targets import draw_normal
from cavity.tables.arrow_tables import to_host


class LatentFunctions(GPEstimator):
    """Methods of GPClassifier that predict and draw the latent functions."""

    def predict_latent(
        self, X: TableLike, return_cov: bool = False, *, noise: bool = True
    ) -> tuple[Floats, Floats]:
        """Predict mean and variance of the latent functions of the Gaussian process.

        Two classes have one latent function, positive where the second class of
        `classes_` is more probable.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `predict`. With `return_cov`, rows in memory.
        return_cov : bool, default=False
            Whether to return covariances of all rows instead of variances.
        noise : bool, default=True
            Whether variances include the noise `noise_`, as labels see it. If False,
            they describe the functions themselves.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_classes)
            Posterior means; shape (n_samples,) for two classes.
        variance : ndarray of shape (n_samples, n_classes)
            Posterior variances, of the same shape. With `return_cov` covariances, of
            shape (n_samples, n_samples, n_classes), or (n_samples, n_samples) for two
            classes.
        """
        self._features()  # raises NotFittedError
        model = self._fitted
        if return_cov:
            rows = self._read_raw(X).X
            mean, spread = predict_joint_moments(model, rows, noise)
        else:
            mean, spread = self._predict(X, partial(predict_moments, noise=noise))

        if model.n_latent == 1:
            return mean[..., 0], spread[..., 0]

        return mean, spread

    # the name in scikit-learn's GaussianProcessClassifier
    latent_mean_and_variance = predict_latent

    def sample_latent(
        self,
        X: TableLike,
        n: int = 1,
        *,
        noise: bool = False,
        random_state: Seed = 0,
    ) -> Floats:
        """Draw samples of the latent functions, jointly at all rows.

        The draws describe the Gaussian process, without temperature and pool; they have
        the moments of `predict_latent` with the same `noise`. The cost is O(n_rows³).

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
            Rows at which the functions are drawn.
        n : int, default=1
            Number of draws.
        noise : bool, default=False
            Whether to add the noise `noise_`, independent from row to row.
        random_state : int, RandomState or None, default=0
            Random seed.

        Returns
        -------
        ndarray of shape (n, n_rows, n_classes)
            Draws; shape (n, n_rows) for two classes.
        """
        from cavity.prediction.draws import Normals, draw_latent

        rows = self._read_raw(X).X
        draws = whole("n", n, 1)
        normals = Normals(self._fitted, draw_seed(random_state))
        (found,) = draw_latent(self._fitted, [rows], draws, normals)
        f = np.asarray(found.cpu().numpy())
        if noise:
            extra = normals(*f.shape).cpu().numpy()
            f = f + np.sqrt(self._fitted.noises) * extra
        if self._fitted.n_latent == 1:
            return np.asarray(f[..., 0])

        return f


class LatentFunction(GPEstimator):
    """Methods of GPRegressor that predict and draw f."""

    predict: Callable[..., Any]

    def predict_latent(
        self, X: TableLike, return_cov: bool = False, *, noise: bool = True
    ) -> tuple[Floats, Floats]:
        """Predict mean and variance of f, as `GPClassifier.predict_latent` does.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict. With `return_cov`, rows in memory.
        return_cov : bool, default=False
            Whether to return the covariance of all rows instead of variances.
        noise : bool, default=True
            Whether to include the noise, as for new values of y.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Posterior means, in the units of y.
        variance : ndarray of shape (n_samples,)
            Posterior variances. With `return_cov` the covariance, of shape (n_samples,
            n_samples).
        """
        if return_cov:
            mean, cov = self.predict(X, return_cov=True, noise=noise)
            return mean, cov

        mean, std = self.predict(X, return_std=True, noise=noise)
        return mean, std**2

    def sample_latent(
        self,
        X: TableLike,
        n: int = 1,
        *,
        noise: bool = False,
        random_state: Seed = 0,
    ) -> Floats:
        """Draw samples of f, jointly at all rows, as `GPClassifier.sample_latent` does.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
            Rows at which f is drawn.
        n : int, default=1
            Number of draws.
        noise : bool, default=False
            Whether to add the noise, as for new values of y.
        random_state : int, RandomState or None, default=0
            Random seed.

        Returns
        -------
        ndarray of shape (n, n_rows)
            Draws in the units of y.
        """
        mean, cov = self.predict_latent(to_host(X), return_cov=True, noise=noise)
        draws = whole("n", n, 1)
        return draw_normal(mean, cov, draws, check_random_state(random_state)).T
