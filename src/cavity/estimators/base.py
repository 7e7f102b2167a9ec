"""Base class of the estimators: fitted attributes, sampling, saving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.common.types import Floats
from cavity.errors import BadInput, BadOption
from cavity.estimators.argument_types import Column, Device, Seed, TableLike
from cavity.estimators.explanations import Explains
from cavity.estimators.learnt import Learnt
from cavity.estimators.notebook import describe_fit
from cavity.estimators.pickled import PickledModel
from cavity.estimators.sklearn_base import BaseEstimator
from cavity.explain.fit_summary import FitSummary, summarise_fit
from cavity.fitting.options.training import Training, flatten, nest
from cavity.fitting.options.value_checks import resolve_device
from cavity.prediction.blocks import Results, predict_blocks
from cavity.prediction.drift import Drift, compare_columns, find_shares
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import find_novelty
from cavity.prediction.result import Result
from cavity.prediction.uncertainty import predict_novelty
from cavity.saving import model_file
from cavity.saving.model_file import Record
from cavity.tables.arrow_tables import to_chunk, to_host
from cavity.tables.columns.column_shares import count_column
from cavity.tables.columns.encoder import check_columns
from cavity.tables.columns.preparation import Preparation
from cavity.tables.table import GivenRows
from cavity.tables.validation import Features, Prepared

if TYPE_CHECKING:  # they load torch
    from cavity.explain.samples import HyperSamples
    from cavity.fitting.options.configuration import ClassifierConfig, RegressorConfig
    from cavity.fitting.request import Request


class GPEstimator(Explains, Learnt, BaseEstimator):
    """Base class of GPClassifier and GPRegressor.

    `fit` sets attributes only when it has a result, so a failed fit changes nothing.
    """

    _kind: ClassVar[str]  # kind of its model files
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
        if not hasattr(self, "_result"):
            return ""

        return describe_fit(self._result, getattr(self, "estimate_", None))

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator.

        Parameters of objects inside it are `kernel__name`, `method__name` and
        `training__name`.

        Parameters
        ----------
        **params : dict
            Values by name. If `kernel` or `training` is None, setting a parameter
            inside it first creates `RBF()` or `Training()`.

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator.
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
        prepare = features.preparation
        self._set_optional("preparation_", prepare)

        names: Any
        if prepare is None:
            self.n_features_in_ = features.n
            names = features.names
        else:
            self.n_features_in_ = prepare.n_features_in_
            names = prepare.feature_names_in_

        if names is not None:
            names = np.array(names, dtype=object)
        self._set_optional("feature_names_in_", names)

        self.log_marginal_likelihood_ = result.evidence
        self._set_optional("elbo_", result.evidence if result.is_bound else None)
        self.history_ = result.history
        self.n_epochs_ = len(result.history)
        self.fit_warnings_ = list(result.warnings)
        self.feature_relevance_ = result.relevance

    @property
    def plan_(self) -> Any:
        """Decisions of the fit, with reasons."""
        plan = self._find_result("plan_").plan
        if plan is None:
            raise AttributeError("plan_ exists after fit().")

        return plan

    @property
    def _fitted(self) -> FittedModel:
        return self._result.model

    def _set_optional(self, name: str, value: Any) -> None:
        """Set an attribute that only some fits have, or remove an earlier one."""
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
        """Check the arguments and draw the seed of the fit."""
        from cavity.fitting.request import make_request

        earlier = None
        if self.warm_start and hasattr(self, "_result"):
            earlier = self._result.continuation
        return make_request(self._config(), raw, earlier)

    def _fit(
        self,
        fit: Callable[[Request[Any], Callable[[Result], None]], list[str]],
        given: GivenRows,
    ) -> Self:
        import torch

        request = self._make_request(given)
        with torch.inference_mode(False):  # tensors have no gradients in that mode
            self.fit_warnings_ = fit(request, self._store)
        return self

    def _predict(
        self, X: Any, predict: Callable[[FittedModel, Floats], Results]
    ) -> Results:
        features = self._features()  # first: raises NotFittedError
        return predict_blocks(self._fitted, features, X, predict)

    def _features(self) -> Features:
        check_is_fitted(self, "_fitted")
        return self._result.features

    def to(self, device: Device) -> Self:
        """Move the fitted model to a device, in place.

        Only predictions move: later fits use the parameter `device` as before.

        Parameters
        ----------
        device : str or torch.device
            Where to predict: "cpu", "cuda", "cuda:1" or "auto".

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator.
        """
        check_is_fitted(self, "_fitted")
        self._result = self._result.to(resolve_device(device))
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle: the model on the CPU, without training rows."""
        state: dict[str, Any] = super().__getstate__()
        if "_result" not in state:
            return state

        record = self._record()
        plain = type(self).__new__(type(self))
        plain._store(record.result)
        given = {name: state[name] for name in state if name not in vars(plain)}
        kept = record._replace(result=record.result.without_rows())
        return given | {"_result": PickledModel(kept)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        result = state.get("_result")
        if isinstance(result, PickledModel):  # skops
            result = result.read()
        if result is not None:
            self._store(result)

    def save(self, path: str | Path) -> None:
        """Save the fitted model to one file; `cavity.load` reads it.

        The file (safetensors and JSON) contains no code. It contains training rows only
        if inducing points are not learnt, or for "nystrom" and "cg"; `cavity info` says
        so. It does not contain callbacks, a RandomState, the code of your own kernel,
        or the state that `warm_start` continues from.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        model_file.save(self._record(), path)

    def _record(self) -> Record:
        check_is_fitted(self, "_fitted")
        classes = getattr(self, "classes_", None)
        self._find_importance()
        result = self._result.to("cpu")._replace(
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
        """Measure how unlike the training rows each row is, from 0 to 1.

        Novelty is the share of training rows with a smaller posterior variance of the
        latent functions. If new rows are like the training rows, one in twenty is above
        0.95. At 1 the model knows no more than before training.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to judge, as for `predict`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Novelty, between 0 (most usual) and 1 (most unusual).
        """
        check_is_fitted(self, "_fitted")
        novelty = find_novelty(self._result.novelty)
        return self._predict(X, partial(predict_novelty, novelty=novelty))[0]

    def compare_rows(self, X: TableLike) -> Drift:
        """Compare rows with the training rows, to see whether they have changed.

        For each column, the shares of its levels, or of ten ranges of its numbers, are
        compared with the training rows.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            New rows, with the columns of the fit.

        Returns
        -------
        Drift
            Distances by column with their p-values; `print` shows them sorted, and
            `changed` lists the columns that have changed.
        """
        check_is_fitted(self, "_fitted")
        result = self._result
        shares = find_shares(result.shares)
        prepare = result.features.encoder
        chunk = to_chunk(to_host(X), prepare.feature_names_in_.tolist())
        check_columns(prepare, chunk.table.column_names)
        if not chunk.table.num_rows:
            raise BadInput("X has no rows to compare: check how they were selected.")

        columns = prepare.columns_
        pairs = zip(columns, shares, strict=True)
        counts = [count_column(*pair, chunk) for pair in pairs]
        novelty = None
        rows = prepare.encode(chunk)
        whole = np.isfinite(rows).all(1)
        if result.novelty is not None and whole.any():
            novelty = self.predict_novelty(Prepared(rows[whole]))
        return compare_columns(columns, shares, counts, novelty)

    def summary(self) -> FitSummary:
        """Return the learnt hyper-parameters by class and column.

        Returns
        -------
        FitSummary
            Variances, lengthscales and noise, with the method, the number of inducing
            points and of epochs, and the evidence. `print` shows them as a table.
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
        """Draw kernel parameters and noise from their posterior by NUTS.

        The log density is the "objective" of `history_` with converged sites. Chains
        start around the fitted values. Requires the extra "mcmc".

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Training rows: the rows of the fit.
        y : array-like of shape (n_samples,)
            Labels or targets of the fit.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the fit.
        n_samples : int, default=200
            Draws per chain, after warm-up.
        warmup : int, default=200
            Warm-up draws per chain.
        chains : int, default=2
            Number of chains.
        target_accept : float, default=0.8
            Acceptance probability that the warm-up aims at.
        n_models : int, default=100
            Number of draws, evenly spaced, that predictions are averaged over.
        random_state : int, RandomState or None, default=None
            Random seed.

        Returns
        -------
        HyperSamples
            `draws` by name, arrays of shape (chains, n_samples, ...), and the
            diagnostics `r_hat`, `ess`, `acceptance`, `divergences` and `warnings`. It
            predicts as the estimator does, averaged over the draws.
        """
        import torch

        from cavity.explain.sampling import SamplingOptions, draw_samples

        check_is_fitted(self, "_fitted")
        given = GivenRows(X, y, sample_weight)
        options = SamplingOptions(
            n_samples, warmup, chains, target_accept, n_models, random_state
        )
        with torch.inference_mode(False):
            return draw_samples(self._config(), self._result, given, options)


def _make_default(name: str) -> Any:
    if name == "training":
        return Training()

    from cavity.engine.kernels import RBF

    return RBF()
