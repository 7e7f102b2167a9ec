"""GPRegressor: Gaussian process regression through the classifier's engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, overload

import numpy as np
from sklearn.utils import check_random_state

from cavity.common.types import Floats
from cavity.errors import BadOption
from cavity.estimators import argument_types as types
from cavity.estimators.argument_types import Column, Device, Seed, TableLike
from cavity.estimators.base import GPEstimator
from cavity.estimators.sklearn_base import RegressorMixin
from cavity.explain.partial_dependence import Average
from cavity.explain.permutation_importance import Losses
from cavity.fitting.options.training import Training
from cavity.fitting.options.value_checks import read_level, whole
from cavity.prediction.model import as_array
from cavity.prediction.result import Result
from cavity.prediction.target_estimate import TargetEstimate, find_normal_half_width
from cavity.prediction.targets import (
    draw_normal,
    predict_joint,
    predict_targets,
    target_noise,
)
from cavity.saving import model_file
from cavity.tables.arrow_tables import to_host
from cavity.tables.validation import Prepared, check_rows

if TYPE_CHECKING:  # they load torch
    from cavity.engine.training.callbacks import Callback
    from cavity.fitting.options.configuration import RegressorConfig
    from cavity.tables.table import GivenRows


Yes: TypeAlias = Literal[True]
No: TypeAlias = Literal[False]
Moments: TypeAlias = tuple[Floats, Floats]


@model_file.register
@dataclass(eq=False, repr=False)
class GPRegressor(RegressorMixin, GPEstimator):
    """Gaussian process regression: y = f(x) + noise, exactly or through inducing
    points.

    The methods run in the classifier's engine: a Gaussian likelihood is a site whose
    precision is known.

    Parameters
    ----------
    method : str or cavity.methods.RegressionMethod, default="exact"
        "exact" takes O(N³), the others O(NM²) with M inducing points: "fitc", "vi",
        "svi" (in mini-batches), "pp", "sr", "nystrom", "sd", "bcm", "cg". Or an object
        with options, such as `cavity.methods.BCM(n_blocks=8)`.
    kernel : None, a kernel of `cavity.kernels`, or a torch.nn.Module with full, cross
    and diag
        None: RBF with one lengthscale per feature.
    n_inducing : int, or a fraction of the rows
        Number of inducing points.
    inducing : str, None or array of shape (M, D)
        "auto", "random", "kmeans" or "greedy"; None: every distinct row. "spectrum",
        for "vi" and "svi": cosines and sines, as for `GPClassifier`; the bound is then
        the evidence of that model.
    normalize_y : bool
        Shift and scale y to mean 0 and variance 1 for the fit. Predictions and
        attributes are in the units of y.
    learning_rate, batch_size, max_epochs, device, random_state, warm_start : see
    GPClassifier
        As for `GPClassifier`.
    training : None or cavity.Training
        What is learnt, first noise, optimiser, tolerance, checkpoints, precision. Grid
        searches take `training__tol`.
    callbacks, verbose : see GPClassifier
        As for `GPClassifier`.

    Attributes
    ----------
    log_marginal_likelihood_ : float
        Of y in its own units; for "vi" and "svi" the lower bound, which is also
        `elbo_`.
    elbo_ : float
        Evidence lower bound, for variational methods.
    estimate_ : TargetEstimate
        How good the model is on new rows, from leave-one-out. Not for "nystrom", "cg",
        "bcm" and sources.
    noise_ : float
        Variance of the noise, in the units of y².
    inducing_points_ : ndarray of shape (M, D)
        Inducing points in the units of X.
    frequencies_ : ndarray of shape (M/2, D)
        In radians per unit of a feature, with inducing="spectrum".
    feature_importance_ : ndarray of shape (n_features_in_,)
        How much the model reads from each column of X, in nats: the mean over training
        rows of the divergence of the prediction from a normal one with the moments that
        it has with that cell of other rows.
    kernel_, plan_, feature_relevance_, n_features_in_, feature_names_in_ : see
    GPClassifier
        As for `GPClassifier`.
    preparation_, history_, n_epochs_, fit_warnings_ : see GPClassifier
        As for `GPClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from cavity import GPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> gp = GPRegressor("vi", n_inducing=20, max_epochs=20, random_state=0).fit(X, y)
    >>> mean, std = gp.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    _kind = "regressor"

    method: types.RegressorMethod = "exact"
    _: KW_ONLY
    kernel: types.KernelArgument = None
    n_inducing: int | float = 100
    inducing: types.RegressorInducing | None = "auto"
    normalize_y: bool = True
    learning_rate: float | None = None
    batch_size: int | Literal["auto"] | None = "auto"
    max_epochs: int | None = None
    device: Device = "auto"
    random_state: Seed = None
    warm_start: bool = False
    training: Training | None = None
    callbacks: Sequence[Callback] = ()
    verbose: int = 0

    def _config(self) -> RegressorConfig:
        from cavity.fitting.options.configuration import read_regressor

        return read_regressor(self.get_params(deep=False))

    def fit(
        self,
        X: TableLike,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        target: str | None = None,
        weight: str | None = None,
        eval_set: types.EvalSet | None = None,
        time_limit: float | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (N, D), a frame, or a source
            As for `GPClassifier.fit`; sources for methods "svi" and "vi".
        y : array-like of shape (N,) or None
            Targets. None if the source holds them.
        sample_weight, target, weight : see GPClassifier.fit
            As for `GPClassifier.fit`, which also has `groups`; a regressor has none.
        eval_set : (X, y) or [(X, y)]
            Validation rows of your own: training stops after ten epochs without a
            smaller negative log density on them.
        time_limit : float or None
            Seconds for the whole fit.

        Returns
        -------
        self : GPRegressor
            The fitted estimator. If the fit fails, an earlier fit stays as it was.
        """
        from cavity.fitting.regression import fit_regressor

        return self._fit(
            fit_regressor, X, y, sample_weight, target, weight, eval_set, time_limit
        )

    def _store(self, result: Result) -> None:
        super()._store(result)
        self.noise_ = target_noise(result.model) * result.units[1] ** 2
        frequencies = result.model.frequencies
        self._set_optional(
            "frequencies_", None if frequencies is None else frequencies[0]
        )
        points = result.model.inducing_points
        if len(points) == 1:
            self.inducing_points_ = points[0]
        else:
            self.inducing_points_ = points

    @overload
    def predict(
        self,
        X: TableLike,
        return_std: No = False,
        return_cov: No = False,
        *,
        noise: bool = True,
    ) -> Floats: ...
    @overload
    def predict(
        self,
        X: TableLike,
        return_std: Yes,
        return_cov: No = False,
        *,
        noise: bool = True,
    ) -> Moments: ...
    @overload
    def predict(
        self,
        X: TableLike,
        return_std: No = False,
        *,
        return_cov: Yes,
        noise: bool = True,
    ) -> Moments: ...
    def predict(
        self,
        X: TableLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        noise: bool = True,
    ) -> Floats | tuple[Floats, Floats]:
        """Predict y at rows X.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            Rows with the features of the fit.
        return_std : bool
            Also return standard deviations.
        return_cov : bool
            Also return the covariance. A committee ("bcm") then predicts all rows
            together, which improves its mean, too.
        noise : bool
            True: standard deviations and covariances are those of new values y, noise
            included. False: those of f.

        Returns
        -------
        mean : ndarray of shape (n,)
            Mean of y, which is that of f.
        std : ndarray of shape (n,)
            Only with `return_std`.
        cov : ndarray of shape (n, n)
            Only with `return_cov`.
        """
        if return_std and return_cov:
            raise BadOption(
                "return_std=True and return_cov=True exclude each other: ask for one "
                "of them."
            )
        features = self._features()
        result = self._result
        (shift, scale) = result.units
        rows = result.rows
        residual = result.predicts_residual
        extra = target_noise(self._fitted) if noise else 0.0
        if return_cov:
            new = check_rows(X, features, lambda: as_array(self._fitted.center))
            mean, cov = predict_joint(self._fitted, rows, residual, new)
            return shift + scale * mean, scale**2 * (cov + extra * np.eye(len(cov)))

        targets = partial(
            predict_targets,
            rows=rows,
            with_residual=residual,
            units=result.units,
            noise=extra,
        )
        found = self._predict(X, targets)
        return found if return_std else found[0]

    def score(
        self, X: TableLike, y: Column, sample_weight: Column | None = None
    ) -> float:
        """Return R², the share of the targets' variance that predicted means explain.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            Rows with the features of the fit.
        y, sample_weight : array-like of shape (n,)
            Targets, and weights or None.

        Returns
        -------
        float
            At most 1; 0 is as good as the mean of y.
        """
        return float(super().score(to_host(X), to_host(y), to_host(sample_weight)))

    @property
    def estimate_(self) -> TargetEstimate:
        """How good the model is on new rows, estimated from the rows of the fit."""
        found = None
        if hasattr(self, "_result"):
            found = self._result.estimate
        if not isinstance(found, TargetEstimate):
            raise AttributeError(
                "estimate_ exists after fit() on a table in memory, not for the "
                'methods "nystrom", "cg" and "bcm".'
            )
        return found

    def predict_interval(
        self, X: TableLike, coverage: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Predict intervals that hold a share `coverage` of new y: mean ± c · std,
        noise included.

        c is the quantile of |y − mean|/std at training rows that are predicted without
        their own targets (`estimate_`), or that of a normal distribution.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            Rows with the features of the fit.
        coverage : float
            Share of new rows, above 0 and below 1.

        Returns
        -------
        low, high : ndarray of shape (n,)
            Ends of the intervals.
        """
        share = read_level(coverage, "coverage")
        found = getattr(self, "estimate_", None)
        if found is None:
            c = find_normal_half_width(share)
        else:
            c = found.find_half_width(share)
        mean, std = self.predict(to_host(X), return_std=True)
        return mean - c * std, mean + c * std

    def sample_y(
        self, X: TableLike, n_samples: int = 1, random_state: Seed = 0
    ) -> Floats:
        """Draw f at rows X from the posterior.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Rows with the features of the fit.
        n_samples : int
            Number of draws.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        ndarray of shape (n, n_samples)
            Draws of f.
        """
        mean, cov = self.predict(to_host(X), return_cov=True, noise=False)
        return draw_normal(
            mean,
            cov,
            whole("n_samples", n_samples, 1),
            check_random_state(random_state),
        )

    def _row_losses(self, raw: GivenRows) -> tuple[Floats, Floats, Losses]:
        from cavity.tables.labelled import read_targets_of_fit

        table = read_targets_of_fit(raw, self._features(), (0.0, 1.0))

        def losses(X: Floats) -> Floats:
            mean, std = self.predict(Prepared(X), return_std=True)
            return np.asarray(
                0.5 * ((table.y - mean) / std) ** 2
                + np.log(std)
                + 0.5 * math.log(2 * math.pi)
            )

        return table.X, table.weight, losses

    def _predict_outcome(self, X: Floats) -> Floats:
        return np.column_stack(self.predict(Prepared(X), return_std=True))

    def _compare(self, own: Floats, others: Floats) -> Floats:
        return np.asarray(own[:, 0] - others[:, :, 0].mean(1))

    def _information(self, own: Floats, others: Floats) -> Floats:
        unit = others[:, :, 1].max()  # in which squares do not vanish
        own = own / unit
        others = others / unit
        var = others[:, :, 0].var(1) + (others[:, :, 1] ** 2).mean(1)  # of the mixture
        ratio = own[:, 1] ** 2 / var
        return 0.5 * np.asarray(
            ratio - 1 - np.log(ratio) + self._compare(own, others) ** 2 / var
        )

    def _average(self, seed: int) -> Average:
        def average(groups: list[Floats]) -> tuple[Floats, Floats]:
            found = [
                self.predict(Prepared(rows), return_cov=True, noise=False)
                for rows in groups
            ]
            mean = np.array([m.mean() for m, _ in found])
            var = np.array([cov.mean() for _, cov in found])
            return mean, np.sqrt(np.maximum(var, 0.0))

        return average
