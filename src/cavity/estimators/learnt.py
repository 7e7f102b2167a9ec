"""What a fitted estimator has learnt: hyper-parameters, q, and their evidence."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.common.types import Floats
from cavity.errors import BadOption
from cavity.estimators.argument_types import Column, TableLike
from cavity.prediction.inducing_values import InducingValues, find_inducing_values
from cavity.prediction.result import Result
from cavity.tables.table import GivenRows
from cavity.tables.validation import check_rows

if TYPE_CHECKING:  # they load torch
    from cavity.explain.hyperparameters import HyperParameters
    from cavity.fitting.options.configuration import ClassifierConfig, RegressorConfig


class Learnt:
    """Attributes and methods of an estimator that tell what it has learnt."""

    _result: Result
    _config: Callable[[], ClassifierConfig | RegressorConfig]

    def _find_result(self, name: str) -> Result:
        if not hasattr(self, "_result"):
            raise AttributeError(f"{name} exists after fit().")

        return self._result

    @property
    def kernel_(self) -> Any:
        """Kernel with learnt values; `kernel_(X, Z)` computes covariances of rows."""
        from cavity.engine.kernels import Kernel

        result = self._find_result("kernel_")
        kernel = result.model.prior.kernel
        if not isinstance(kernel, Kernel):
            return kernel

        shown: Any = copy.copy(kernel)  # with the same parameters
        shown.read_rows = partial(check_rows, features=result.features)
        return shown

    @property
    def hyperparameters_(self) -> HyperParameters:
        """Hyper-parameters by name, class and column, learnt or fixed."""
        from cavity.explain.hyperparameters import list_hyperparameters

        return list_hyperparameters(self._find_result("hyperparameters_"))

    @property
    def posterior_(self) -> InducingValues:
        """Posterior of the latent functions at the inducing points."""
        result = self._find_result("posterior_")
        mean, covariance = find_inducing_values(result.model)
        if result.classes is not None:
            return InducingValues(mean, covariance)

        shift, scale = result.units
        mean = shift + scale * mean
        covariance = scale**2 * covariance
        if len(mean) > 1:  # a committee
            return InducingValues(mean, covariance)

        return InducingValues(mean[0], covariance[0])

    def log_marginal_likelihood(
        self,
        theta: Floats | None = None,
        eval_gradient: bool = False,
        *,
        X: TableLike | None = None,
        y: Column | None = None,
        sample_weight: Column | None = None,
    ) -> Any:
        """Compute the log marginal likelihood log Z_q of the Gaussian process.

        The sites converge anew at theta, the inducing points stay. The fitted model
        does not change. Other classifiers of the pool do not enter. For what log Z_q is
        with each method, see `log_marginal_likelihood_`.

        The rows are those that the fit trained on, without prior of the
        hyper-parameters. An estimator does not hold them after loading, unpickling or
        `partial_fit`, or if they came from a source or have more than 16 million cells:
        then give X and y.

        Parameters
        ----------
        theta : ndarray of shape (n_learnt,) or None, default=None
            Learnt hyper-parameters in the order of `hyperparameters_`, whose `theta`
            has those of the fit. If None, return the value of the fit.
        eval_gradient : bool, default=False
            Whether to also return the gradient. It is exact at the fixed point; for
            "sep" it holds the sums of the sites fixed.
        X : array-like or frame of shape (n_samples, n_features), or None, default=None
            Rows, instead of those of the fit.
        y : array-like of shape (n_samples,) or None, default=None
            Labels or targets of these rows.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of these rows.

        Returns
        -------
        value : float
            Log marginal likelihood; of a regressor, of y in its own units. It is −∞,
            with a gradient of 0, where a covariance matrix cannot be factorised.
        gradient : ndarray of shape (n_learnt,)
            Derivative in theta. Only returned if `eval_gradient` is True.
        """
        check_is_fitted(self, "_fitted")
        result = self._result
        if theta is None and X is None:
            if eval_gradient:
                raise BadOption(
                    "eval_gradient=True needs theta: give hyperparameters_.theta for "
                    "the gradient at the values of the fit."
                )
            return result.evidence

        return self._evaluate(
            result, theta, eval_gradient, GivenRows(X, y, sample_weight)
        )

    def _evaluate(
        self, result: Result, theta: Any, eval_gradient: bool, given: GivenRows
    ) -> Any:
        import torch

        from cavity.fitting import evidence

        learnt = self.hyperparameters_.theta
        move = np.zeros_like(learnt)
        if theta is not None:
            move = _read_theta(theta, learnt) - learnt
        known = result.evidence_rows
        with torch.inference_mode(False):
            if given.X is not None:
                known = evidence.read_rows(self._config(), result, given)
            if known is None:
                raise BadOption(
                    "this estimator does not hold the rows of its fit: give them as "
                    "log_marginal_likelihood(theta, X=X, y=y)."
                )
            found = evidence.evaluate(result.model, known, move)

        _, scale = result.units
        total = float(known.rows.weight.sum())
        value = found.value - total * math.log(scale)
        if eval_gradient:
            return value, found.gradient.cpu().numpy()

        return value


def _read_theta(theta: Any, learnt: Floats) -> Floats:
    """Return θ as an array of the right length."""
    given = np.asarray(theta, dtype=np.float64)
    if given.shape != learnt.shape or not np.isfinite(given).all():
        raise BadOption(
            f"theta has shape {given.shape}; it needs {len(learnt)} finite numbers, the "
            "learnt hyper-parameters in the order of hyperparameters_."
        )

    return given
