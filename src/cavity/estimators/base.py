"""What the estimators share: storing a fit's result, sampling, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cavity import modelfile
from cavity.diagnostics.sampling import Asked
from cavity.errors import BadOption
from cavity.fitting.job import Continuation, Result
from cavity.intake.validation import Features
from cavity.modelfile import Record
from cavity.prediction.model import FittedModel

Array = NDArray[np.float64]
EXAMPLES = {"model": "cavity.methods.EP()", "regressor": "cavity.methods.BCM()"}  # methods as objects


class GPEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of GPClassifier and GPRegressor. A fit sets attributes only when it has a result."""

    _kind: ClassVar[str]  # what its files call themselves
    _result: Result
    _fitted: FittedModel  # of the result
    _load = staticmethod(modelfile.load)  # the counterpart of `save`, for callers below this layer

    def set_params(self, **params: Any) -> Self:
        """Set arguments, those of the kernel as `kernel__argument` and those of the method as `method__argument`.

        Parameters
        ----------
        **params : dict
            Argument values by name.

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator itself.
        """
        for name in ("kernel", "method"):
            inner = next((key for key in params if key.startswith(f"{name}__")), None)
            value = params.get(name, getattr(self, name))
            if inner is not None and not hasattr(value, "get_params"):
                example = "cavity.kernels.RBF()" if name == "kernel" else EXAMPLES[self._kind]
                raise BadOption(
                    f"{inner!r} cannot be set: {name}={value!r:.60} has no arguments. Give an object that has, for example "
                    f"{type(self).__name__}({name}={example})."
                )
        super().set_params(**params)
        return self

    def _store(self, result: Result) -> None:
        """Set the fitted attributes: NumPy arrays in the user's units."""
        self._result, self._fitted = result, result.model
        features, prepare = result.features, result.features.preparation
        self._set_optional("preparation_", prepare)
        self.n_features_in_ = features.n if prepare is None else prepare.n_features_in_
        names = features.names if prepare is None else prepare.feature_names_in_
        self._set_optional("feature_names_in_", None if names is None else np.array(names, dtype=object))
        self.kernel_ = result.model.prior.kernel
        self.log_marginal_likelihood_ = result.evidence
        self._set_optional("elbo_", result.evidence if result.is_bound else None)
        self.history_ = result.history
        self.n_epochs_ = len(result.history)
        self.fit_warnings_ = list(result.warnings)
        self.feature_relevance_ = result.relevance

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what has one entry per training row."""
        state = dict(super().__getstate__())
        if "_result" in state:
            state["_result"] = state["_result"]._replace(loo=None)
            state["_loo_log_proba"] = None
        return state

    def _set_optional(self, name: str, value: Any) -> None:
        """Set an attribute that only some fits have; remove an older one."""
        if value is not None:
            setattr(self, name, value)
        elif hasattr(self, name):
            delattr(self, name)

    def _model_and_features(self) -> tuple[FittedModel, Features]:
        """Return what predictions need."""
        features = self._features()
        return self._fitted, features

    def _features(self) -> Features:
        """Return the features of the fit."""
        check_is_fitted(self, "_fitted")
        return self._result.features

    def _continuation(self) -> Continuation | None:
        """Return what a warm start continues from."""
        return self._result.continuation if self.warm_start and hasattr(self, "_result") else None

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors and JSON); `cavity.load(path)` reads it.

        The file holds the arguments, the posterior with its inducing points, and what `partial_fit` adds to. It holds training
        rows only if inducing points are not learnt, or if a GPRegressor predicts from its training rows ("nystrom", "cg");
        `cavity info` says which. It does not hold callbacks, a RandomState, the code of your own kernel, or what `warm_start`
        continues from.

        Parameters
        ----------
        path : str or Path
            The file. It is written to a temporary file first and then renamed.
        """
        check_is_fitted(self, "_fitted")
        classes = getattr(self, "classes_", None)
        texts = tuple(self.fit_warnings_)
        result = self._result._replace(classes=classes, warnings=texts)
        notes = getattr(self, "notes_", {})
        modelfile.save(Record(self._kind, self.get_params(deep=False), result, notes), path)

    @classmethod
    def _from_record(cls, record: Record) -> Self:
        made = cls(**record.arguments)
        made._store(record.result)
        if record.notes:
            made.notes_ = record.notes
        return made

    def sample_hyperparameters(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        n_samples: int = 200,
        warmup: int = 200,
        chains: int = 2,
        over: Any = ("kernel", "noise"),
        target_accept: float = 0.8,
        n_models: int = 100,
        random_state: Any = None,
    ) -> Any:
        """Draw hyper-parameters from their posterior by NUTS, and average predictions over the draws.

        The density is the "objective" of `history_`: log Z_q (the evidence or the bound) with converged sites, plus the log
        prior. Needs the extra "mcmc".

        Parameters
        ----------
        X, y, sample_weight : array-like
            The rows of the fit. Chains start around its hyper-parameters.
        n_samples, warmup, chains : int
            Draws per chain, warm-up draws per chain, and chains.
        over : subset of ("kernel", "noise", "inducing")
            What is sampled.
        target_accept : float
            Acceptance rate that the warm-up aims at.
        n_models : int
            Predictions are averaged over this many draws, evenly spaced.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        HyperSamples
            `draws` by name, arrays (chains, n_samples, ...) in the user's units, with `r_hat` and `ess` of each, `acceptance`,
            `divergences` and `warnings`. It predicts as the estimator does; `print` shows it as a table.
        """
        check_is_fitted(self, "_fitted")
        asked = Asked(n_samples, warmup, chains, target_accept, n_models, over, random_state)
        with torch.inference_mode(False):
            return self._sample(X, y, sample_weight, asked)

    def _sample(self, X: Any, y: Any, sample_weight: Any, asked: Asked) -> Any:
        raise NotImplementedError
