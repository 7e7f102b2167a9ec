"""GPRegressor: arguments, fitting and prediction of targets."""

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
from cavity.estimators.latent import LatentFunction
from cavity.estimators.sklearn_base import RegressorMixin
from cavity.explain.partial_dependence import Average, Averages, thin
from cavity.explain.permutation_importance import Losses
from cavity.fitting.options.training import Training
from cavity.fitting.options.value_checks import read_level, whole
from cavity.prediction.model import as_array
from cavity.prediction.result import Result
from cavity.prediction.target_estimate import TargetEstimate, choose_half_width
from cavity.prediction.targets import (
    draw_normal,
    predict_joint,
    predict_targets,
    target_noise,
)
from cavity.saving import model_file
from cavity.tables.arrow_tables import to_host
from cavity.tables.table import GivenRows
from cavity.tables.validation import Prepared, check_rows

if TYPE_CHECKING:  # they load torch
    from cavity.engine.training.callbacks import Callback
    from cavity.fitting.options.configuration import RegressorConfig


Yes: TypeAlias = Literal[True]
No: TypeAlias = Literal[False]
Moments: TypeAlias = tuple[Floats, Floats]
MOST_JOINT = 300  # rows of a joint posterior


@model_file.register
@dataclass(eq=False, repr=False)
class GPRegressor(RegressorMixin, LatentFunction):
    """Gaussian process regression, exact or with inducing points.

    The model is y = f(x) + noise. All methods run in the engine of `GPClassifier`: a
    Gaussian likelihood is a site of known precision.

    Parameters
    ----------
    method : str or cavity.methods.RegressionMethod, default="exact"
        Inference method. "exact" costs O(N³); the others cost O(NM²) with M inducing
        points: "fitc", "vi", "svi" (in mini-batches), "pp", "sr", "nystrom", "sd",
        "bcm" and "cg". Or an object with options, such as
        `cavity.methods.BCM(n_blocks=8)`.
    kernel : cavity.kernels.Kernel, torch.nn.Module or None, default=None
        Covariance function; a module needs the methods `full`, `cross` and `diag`. If
        None, use `RBF` with one lengthscale per feature.
    n_inducing : int or float, default=100
        Number of inducing points; a float is a fraction of the rows.
    inducing : str, array or None, default="auto"
        Initial inducing points, of shape (M, D), or how to choose them: "auto",
        "random", "kmeans" or "greedy". If None, every distinct row is a fixed inducing
        point. With "spectrum", for "vi" and "svi", the model has cosines and sines
        instead, as in `GPClassifier`; the bound is the evidence of that model.
    normalize_y : bool, default=True
        Whether to shift and scale y to mean 0 and variance 1 for the fit. Predictions
        and attributes are in the units of y.
    learning_rate : float or None, default=None
        Step size. If None, use 0.01 on full batches and 0.03 on mini-batches, decaying
        to a tenth of it.
    batch_size : int, "auto" or None, default="auto"
        Rows per step. "auto" chooses by the method and the size of the table; None uses
        all rows.
    max_epochs : int or None, default=None
        Maximum number of passes over the rows. If None, choose by the method and the
        size of the table.
    device : str or torch.device, default="auto"
        Where to train and predict: "cpu", "cuda", "cuda:1". "auto" uses a GPU, if there
        is one, unless the table is small.
    random_state : int, RandomState or None, default=None
        Random seed. Give an int to get the same model from every call.
    warm_start : bool, default=False
        Whether `fit` continues from the hyper-parameters and sites of the last fit.
    training : cavity.Training or None, default=None
        What is learnt, initial noise, optimiser, tolerance, checkpoints and precision.
        Grid searches can set one of them, such as `training__tol`.
    callbacks : sequence of cavity.callbacks.Callback, default=()
        Callbacks that follow the training and may stop it.
    verbose : int, default=0
        If 1, show the plan with estimated times, the stages of the fit and progress
        bars.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of X. Defined only if X has column names.
    preparation_ : cavity.Preparation
        How columns become features. Defined only if X has missing cells or columns that
        are not numbers.
    plan_ : Plan
        Decisions of the fit, with reasons; `print` shows them as a table.
    estimate_ : TargetEstimate
        Error expected on new rows, from models that learn again without some of the
        rows: five on up to 2,000 rows, one on more. Rows of `eval_set` replace them.
        Not defined for sources.
    feature_importance_ : ndarray of shape (n_features_in_,)
        Importance of each column in nats: the mean over training rows of the divergence
        of the prediction from a normal distribution with the moments of predictions
        after that cell is replaced by cells of other rows.
    feature_relevance_ : ndarray of shape (n_features_in_,) or None
        Share of each column by inverse lengthscale: how fast f may vary along it, not
        how much it does.
    kernel_ : Kernel
        Kernel with learnt values. `kernel_(X, Z)` computes covariances of rows.
    hyperparameters_ : HyperParameters
        Hyper-parameters by name and column, learnt or fixed, with the vector
        `theta` of the learnt ones.
    posterior_ : InducingValues
        Mean and covariance of f at the inducing points.
    inducing_points_ : ndarray of shape (M, D)
        Inducing points, in the units of X.
    frequencies_ : ndarray of shape (M/2, D)
        Frequencies in radians per unit of a feature. Defined only for
        `inducing="spectrum"`.
    noise_ : float
        Variance of the noise, in the units of y².
    log_marginal_likelihood_ : float
        Log marginal likelihood of y in its own units; for "vi" and "svi" a lower bound.
    elbo_ : float
        Evidence lower bound. Defined only for "vi" and "svi".
    history_ : list of dict
        Training history, one entry per epoch.
    n_epochs_ : int
        Number of epochs.
    fit_warnings_ : list of str
        Warnings of the fit.

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

        return read_regressor(self._arguments())

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

        If the fit fails, all fitted attributes stay as they were.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Training rows, of any kind that `GPClassifier.fit` takes; sources only for
            methods "svi" and "vi".
        y : array-like of shape (n_samples,) or None, default=None
            Targets. None if the source holds them.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights: a row of weight w counts as w identical rows.
        target : str or None, default=None
            Column of a Parquet or Arrow source with the targets.
        weight : str or None, default=None
            Column of a Parquet or Arrow source with the weights.
        eval_set : (X, y), [(X, y)] or None, default=None
            Validation rows of your own. Training stops after ten epochs without a
            smaller negative log density on them.
        time_limit : float or None, default=None
            Seconds for the whole fit.

        Returns
        -------
        self : GPRegressor
            Fitted estimator.
        """
        from cavity.fitting.regression import fit_regressor

        given = GivenRows(X, y, sample_weight, target, weight, eval_set, time_limit)
        return self._fit(fit_regressor, given)

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
        """Predict targets.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict.
        return_std : bool, default=False
            Whether to also return standard deviations.
        return_cov : bool, default=False
            Whether to also return the covariance of all rows. A committee ("bcm") then
            predicts the rows jointly, which also improves its mean.
        noise : bool, default=True
            Whether standard deviations and covariances include the noise, as for new
            values of y. If False, they describe f.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
            Predicted means.
        std : ndarray of shape (n_samples,)
            Standard deviations. Only returned if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples)
            Covariance. Only returned if `return_cov` is True.
        """
        if return_std and return_cov:
            raise BadOption(
                "return_std=True and return_cov=True exclude each other: ask for one "
                "of the two."
            )

        features = self._features()
        result = self._result
        model = result.model
        extra = target_noise(model) if noise else 0.0
        if return_cov:
            new = check_rows(X, features, lambda: as_array(model.center))
            mean, cov = predict_joint(model, result.rows, result.predicts_residual, new)
            shift, scale = result.units
            return shift + scale * mean, scale**2 * (cov + extra * np.eye(len(cov)))

        predict = partial(
            predict_targets,
            rows=result.rows,
            with_residual=result.predicts_residual,
            units=result.units,
            noise=extra,
        )
        mean, std = self._predict(X, predict)
        return (mean, std) if return_std else mean

    def score(
        self, X: TableLike, y: Column, sample_weight: Column | None = None
    ) -> float:
        """Return R², the share of the variance of y explained by predicted means.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
            At most 1; a model that predicts the mean of y for every row has 0.
        """
        return float(super().score(to_host(X), to_host(y), to_host(sample_weight)))

    @property
    def estimate_(self) -> TargetEstimate:
        """Error expected on new rows, estimated from the rows of the fit."""
        found = self._result.estimate if hasattr(self, "_result") else None
        if not isinstance(found, TargetEstimate):
            raise AttributeError(
                "estimate_ exists after fit() on a table in memory, or with eval_set=."
            )

        return found

    def predict_interval(
        self, X: TableLike, coverage: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Predict intervals that contain a given share of new targets.

        Intervals are mean ± c · s · std, noise included. The factor c is a quantile of
        |y − mean|/(s · std) at held-out rows. They also teach the local spread s, which
        is 1 if residuals grow nowhere. Without `estimate_` c is the quantile of a normal
        distribution.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict.
        coverage : float, default=0.9
            Share of new targets inside the intervals, above 0 and below 1.

        Returns
        -------
        low : ndarray of shape (n_samples,)
            Lower ends of the intervals.
        high : ndarray of shape (n_samples,)
            Upper ends of the intervals.
        """
        share = read_level(coverage, "coverage")
        c = choose_half_width(getattr(self, "estimate_", None), share)
        result = self._result
        predict = partial(
            predict_targets,
            rows=result.rows,
            with_residual=result.predicts_residual,
            units=result.units,
            noise=target_noise(result.model),
            spread=result.spread,
        )
        mean, wide = self._predict(to_host(X), predict)
        return mean - c * wide, mean + c * wide

    def sample_y(
        self, X: TableLike, n_samples: int = 1, random_state: Seed = 0
    ) -> Floats:
        """Draw samples of f from the posterior, jointly at all rows.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
            Rows at which f is drawn.
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=0
            Random seed.

        Returns
        -------
        ndarray of shape (n_rows, n_samples)
            Draws of f, without noise, in the units of y.
        """
        mean, cov = self.predict(to_host(X), return_cov=True, noise=False)
        draws = whole("n_samples", n_samples, 1)
        return draw_normal(mean, cov, draws, check_random_state(random_state))

    def _row_losses(self, raw: GivenRows) -> tuple[Floats, Floats, Losses]:
        from cavity.tables.labelled import read_targets_of_fit

        table = read_targets_of_fit(raw, self._features(), (0.0, 1.0))

        def losses(X: Floats) -> Floats:
            mean, std = self.predict(Prepared(X), return_std=True)
            score = (table.y - mean) / std
            return np.asarray(
                0.5 * score**2 + np.log(std) + 0.5 * math.log(2 * math.pi)
            )

        return table.X, table.weight, losses

    def _predict_outcome(self, X: Floats) -> Floats:
        return np.column_stack(self.predict(Prepared(X), return_std=True))

    def _compare(self, own: Floats, others: Floats) -> Floats:
        return np.asarray(own[:, 0] - others[:, :, 0].mean(1))

    def _information(self, own: Floats, others: Floats) -> Floats:
        unit = others[:, :, 1].max()  # squares in this unit do not underflow
        own = own / unit
        others = others / unit
        mixture_var = others[:, :, 0].var(1) + (others[:, :, 1] ** 2).mean(1)
        ratio = own[:, 1] ** 2 / mixture_var
        shift = self._compare(own, others) ** 2 / mixture_var
        return 0.5 * np.asarray(ratio - 1 - np.log(ratio) + shift)

    def _average(self, seed: int) -> Average:
        def average(groups: list[Floats]) -> Averages:
            means = [self.predict(Prepared(rows)) for rows in groups]
            mean = np.array([m.mean() for m in means])
            between = np.array([m.std() for m in means])
            var = np.array([find_variance(rows) for rows in groups])
            return Averages(mean, np.sqrt(np.maximum(var, 0.0)), between)

        def find_variance(rows: Floats) -> float:
            fewer = Prepared(thin(rows, MOST_JOINT))
            _, cov = self.predict(fewer, return_cov=True, noise=False)
            return float(cov.mean())

        return average
