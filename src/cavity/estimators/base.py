"""What the estimators share: storing a fit's result, sampling, saving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.common.types import Floats
from cavity.errors import BadOption
from cavity.estimators.argument_types import Column, Device, Seed, TableLike
from cavity.estimators.explanations import Explains
from cavity.estimators.notebook import describe_fit
from cavity.estimators.sklearn_base import BaseEstimator
from cavity.explain.fit_summary import FitSummary, summarise_fit
from cavity.fitting.options.training import Training, flatten, nest
from cavity.fitting.options.value_checks import resolve_device
from cavity.prediction.blocks import Results, predict_blocks
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import find_novelty
from cavity.prediction.result import Result
from cavity.prediction.uncertainty import predict_novelty
from cavity.saving import model_file
from cavity.saving.model_file import Record
from cavity.tables.columns.preparation import Preparation
from cavity.tables.table import GivenRows
from cavity.tables.validation import Features

if TYPE_CHECKING:  # they load torch
    from cavity.explain.samples import HyperSamples
    from cavity.fitting.options.configuration import ClassifierConfig, RegressorConfig
    from cavity.fitting.request import Request


class GPEstimator(Explains, BaseEstimator):
    """Base class of GPClassifier and GPRegressor.

    A fit sets attributes only when it has a result.
    """

    _kind: ClassVar[str]  # what its files call themselves
    _result: Result
    _config: Callable[[], ClassifierConfig | RegressorConfig]
    method: Any
    training: Training | None
    random_state: Seed
    warm_start: bool
    noise_: Any
    inducing_points_: Floats
    preparation_: Preparation
    notes_: dict[str, Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._describe_fit()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown = super()._repr_mimebundle_(**kwargs)
        if "text/html" in shown:
            shown["text/html"] += self._describe_fit()
        return shown

    def _describe_fit(self) -> str:
        fitted = hasattr(self, "_result")
        if fitted:
            return describe_fit(self._result, getattr(self, "estimate_", None))
        return ""

    def set_params(self, **params: Any) -> Self:
        """Set arguments, inner ones as `kernel__argument`, `method__argument` or
        `training__argument`.

        Parameters
        ----------
        **params : dict
            Argument values by name. Where `kernel` or `training` is None, an inner
            argument makes it `RBF()` or `Training()`.

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator itself.
        """
        for name in ("kernel", "method", "training"):
            inner = next((key for key in params if key.startswith(f"{name}__")), None)
            value = params.get(name, getattr(self, name))
            if inner is not None and value is None and name != "method":
                params = {**params, name: _make_default(name)}
            elif inner is not None and not hasattr(value, "get_params"):
                objects = "Training()" if name == "training" else f"{name}s.NAME()"
                raise BadOption(
                    f"{inner!r} cannot be set: {name}={value!r:.60} has no arguments. "
                    f"Give an object: {name}=cavity.{objects}."
                )
        super().set_params(**params)
        return self

    def _store(self, result: Result) -> None:
        """Set the fitted attributes: NumPy arrays in the user's units."""
        self._result = result
        features = result.features
        prepare = result.features.preparation
        self._set_optional("preparation_", prepare)
        if prepare is None:
            self.n_features_in_ = features.n
        else:
            self.n_features_in_ = prepare.n_features_in_
        if prepare is None:
            names: Any = features.names
        else:
            names = prepare.feature_names_in_
        self._set_optional(
            "feature_names_in_",
            None if names is None else np.array(names, dtype=object),
        )
        self.log_marginal_likelihood_ = result.evidence
        self._set_optional("elbo_", result.evidence if result.is_bound else None)
        self.history_ = result.history
        self.n_epochs_ = len(result.history)
        self.fit_warnings_ = list(result.warnings)
        self.feature_relevance_ = result.relevance

    @property
    def plan_(self) -> Any:
        """What the fit decided, with reasons."""
        plan = None
        if hasattr(self, "_result"):
            plan = self._result.plan
        if plan is None:
            raise AttributeError("plan_ exists after fit().")
        return plan

    @property
    def kernel_(self) -> Any:
        """The kernel with learnt values."""
        if not hasattr(self, "_fitted"):
            raise AttributeError("kernel_ exists after fit().")
        return self._fitted.prior.kernel

    @property
    def _fitted(self) -> FittedModel:
        return self._result.model

    def _set_optional(self, name: str, value: Any) -> None:
        """Set an attribute that only some fits have; remove an older one."""
        if value is not None:
            setattr(self, name, value)
        elif hasattr(self, name):
            delattr(self, name)

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of GPClassifier or GPRegressor.

        Unlike `get_params`, this does not depend on the constructor of a subclass.
        """
        owner = model_file.ESTIMATORS[self._kind]
        return {field.name: getattr(self, field.name) for field in fields(owner)}

    def _make_request(self, raw: GivenRows) -> Request[Any]:
        """Check the arguments, and draw the seed of the fit."""
        from cavity.fitting.request import make_request

        earlier = None
        if self.warm_start and hasattr(self, "_result"):
            earlier = self._result.continuation
        return make_request(self._config(), raw, earlier)

    def _fit(
        self,
        fit: Callable[[Request[Any], Callable[[Result], None]], list[str]],
        *given: Any,
    ) -> Self:
        import torch

        request = self._make_request(GivenRows(*given))
        with torch.inference_mode(False):  # within that mode tensors have no gradients
            self.fit_warnings_ = fit(request, self._store)
        return self

    def _predict(
        self, X: Any, predict: Callable[[FittedModel, Floats], Results]
    ) -> Results:
        features = self._features()
        return predict_blocks(self._fitted, features, X, predict)

    def _features(self) -> Features:
        check_is_fitted(self, "_fitted")
        return self._result.features

    def to(self, device: Device) -> Self:
        """Move the fitted model to a device, in place.

        Predictions are computed there. The argument `device`, which later fits use,
        stays as it is.

        Parameters
        ----------
        device : str or torch.device
            "auto", "cpu", "cuda", "cuda:1".

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator itself.
        """
        check_is_fitted(self, "_fitted")
        self._result = self._result_on(resolve_device(device))
        return self

    def _result_on(self, device: Any) -> Result:
        model = self._result.model.to(device)
        rows = self._result.rows
        return self._result._replace(
            model=model, rows=None if rows is None else rows.to(device)
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model without its device and without what has one entry per
        training row.
        """
        state: dict[str, Any] = super().__getstate__()
        if "_result" not in state:
            return state
        self._find_importance()
        kept = self._result_on("cpu")._replace(loo=None, background=None)
        return state | {"_result": kept, "_loo_log_proba": None}

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors and JSON);
        `cavity.load(path)` reads it.

        It holds training rows only if inducing points are not learnt, or for "nystrom"
        and "cg"; `cavity info` says so. It does not hold callbacks, a RandomState, the
        code of your own kernel, or what `warm_start` continues from.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        model_file.save(self._record(), path)

    def _record(self) -> Record:
        check_is_fitted(self, "_fitted")
        classes = getattr(self, "classes_", None)
        self._find_importance()
        result = self._result_on("cpu")._replace(
            classes=classes, warnings=tuple(self.fit_warnings_)
        )
        return Record(
            self._kind,
            flatten(self._arguments()),
            result,
            getattr(self, "notes_", {}),
        )

    @classmethod
    def _from_record(cls, record: Record) -> Self:
        made = cls(**nest(**record.arguments))
        result = record.result
        encoder = result.features.preparation
        if encoder is not None:
            features = result.features._replace(
                preparation=Preparation.from_json(encoder.to_json())
            )
            result = result._replace(features=features)
        made._store(result)
        if record.notes:
            made.notes_ = record.notes
        return made

    def predict_novelty(self, X: TableLike) -> Floats:
        """Tell how unlike the training rows each row is: 0 is as usual as can be, 1 as
        unusual as can be.

        The number is the share of training rows with a smaller posterior variance of
        the latent functions: of new rows like the training rows, one in twenty is above
        0.95. At 1 the model knows no more than before training.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        ndarray of shape (n,)
            Novelty, between 0 and 1.
        """
        check_is_fitted(self, "_fitted")
        return self._predict(
            X, partial(predict_novelty, novelty=find_novelty(self._result.novelty))
        )[0]

    def summary(self) -> FitSummary:
        """Return the learnt hyper-parameters by class and column; `print` shows them as
        a table.

        Returns
        -------
        FitSummary
            Variances, lengthscales and noise; method, number of inducing points, epochs
            and evidence.
        """
        check_is_fitted(self, "_fitted")
        return summarise_fit(self._result, str(self.method))

    def sample_hyperparameters(
        self,
        X: TableLike,
        y: Column,
        sample_weight: Column | None = None,
        *,
        n_samples: int = 200,
        warmup: int = 200,
        chains: int = 2,
        target_accept: float = 0.8,
        n_models: int = 100,
        random_state: Seed = None,
    ) -> HyperSamples:
        """Draw kernel parameters and noise from their posterior by NUTS, and average
        predictions over the draws.

        The density is the "objective" of `history_` with converged sites. Needs the
        extra "mcmc".

        Parameters
        ----------
        X, y, sample_weight : array-like
            The rows of the fit. Chains start around its hyper-parameters.
        n_samples, warmup, chains : int
            Draws per chain, warm-up draws per chain, and chains.
        target_accept : float
            Acceptance rate that the warm-up aims at.
        n_models : int
            Predictions are averaged over this many draws, evenly spaced.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        HyperSamples
            `draws` by name, arrays (chains, n_samples, ...), with `r_hat`, `ess`,
            `acceptance`, `divergences` and `warnings`. It predicts as the estimator
            does.
        """
        import torch

        from cavity.explain.sampling import draw_samples

        check_is_fitted(self, "_fitted")
        given = GivenRows(X, y, sample_weight)
        options = (n_samples, warmup, chains, target_accept, n_models)
        with torch.inference_mode(False):
            return draw_samples(
                self._config(), self._result, given, *options, random_state
            )


def _make_default(name: str) -> Any:
    if name == "training":
        return Training()
    from cavity.engine.kernels import RBF

    return RBF()
