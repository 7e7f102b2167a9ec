"""What the estimators share: storing a fit's result, sampling, saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.common.lazy import resolve
from cavity.errors import BadOption, CavityError
from cavity.estimators.argument_types import Column, Device, Rows, Seed
from cavity.estimators.notebook import describe_fit
from cavity.estimators.sklearn_base import BaseEstimator
from cavity.explain.contributions import Contributions, compute_contributions, compute_importance
from cavity.explain.fit_summary import FitSummary, summarise_fit
from cavity.explain.partial_dependence import Average, PartialDependence, compute_partial_dependence
from cavity.explain.permutation_importance import Draws, Importance, Losses, permutation_importance
from cavity.explain.raw_rows import RawRows, choose_rows, read_raw_rows
from cavity.options.training import Training, flatten, nest
from cavity.options.value_checks import read_level, resolve_device, whole
from cavity.prediction.blocks import predict_blocks
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import find_novelty
from cavity.prediction.result import Result
from cavity.prediction.uncertainty import predict_novelty
from cavity.rows.columns.preparation import Preparation
from cavity.rows.foreign_arrays import Results
from cavity.rows.validation import Features
from cavity.saving import model_file
from cavity.saving.model_file import Record

if TYPE_CHECKING:  # they load torch
    from cavity.explain.samples import HyperSamples
    from cavity.fitting.request import Request
    from cavity.options import ClassifierConfig, RegressorConfig
    from cavity.rows.tables import GivenRows

Array = NDArray[np.float64]
EXAMPLES = {  # of arguments that are objects; of methods, by the kind of estimator
    "kernel": "cavity.kernels.RBF()",
    "training": "cavity.Training()",
    "model": "cavity.methods.EP()",
    "regressor": "cavity.methods.BCM()",
}


def give_rows(*arguments: Any) -> GivenRows:
    """Return the arguments of `fit` as one value."""
    from cavity.rows.tables import GivenRows

    return GivenRows(*arguments)


class GPEstimator(BaseEstimator):
    """Base class of GPClassifier and GPRegressor. A fit sets attributes only when it has a result."""

    _kind: ClassVar[str]  # what its files call themselves
    _result: Result
    _fitted: FittedModel  # of the result
    method: Any
    training: Training | None
    random_state: Seed
    warm_start: bool
    noise_: Any
    inducing_points_: Array
    preparation_: Preparation
    notes_: dict[str, Any]
    _load = staticmethod(model_file.load)  # the counterpart of `save`, for callers below this layer

    def _config(self) -> ClassifierConfig | RegressorConfig:
        """Return the arguments, checked."""
        raise NotImplementedError

    def _average(self, seed: int) -> Average:
        """Return a function from groups of rows to mean predictions and their standard deviations."""
        raise NotImplementedError

    def _predict_outcome(self, X: Array) -> Array:
        """Return log-probabilities [n C], or means and standard deviations [n 2], of features."""
        raise NotImplementedError

    def _compare(self, own: Array, others: Array) -> Array:
        """Return contributions of a column, [n C] or [n], given predictions with other cells, [n B ...]."""
        raise NotImplementedError

    def _information(self, own: Array, others: Array) -> Array:
        """Return the divergence of the predictions from their mean over other cells, [n]."""
        raise NotImplementedError

    def _row_losses(self, raw: GivenRows) -> tuple[Array, Array, Losses]:
        """Return features and weights of rows, and a function from features to the loss of each row."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._describe_fit()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown = super()._repr_mimebundle_(**kwargs)
        return shown | {
            key: f"{text}{self._describe_fit()}" for key, text in shown.items() if key == "text/html"
        }

    def _describe_fit(self) -> str:
        return (
            describe_fit(self._result, getattr(self, "estimate_", None)) if hasattr(self, "_result") else ""
        )

    def set_params(self, **params: Any) -> Self:
        """Set arguments, inner ones as `kernel__argument`, `method__argument` or `training__argument`.

        Parameters
        ----------
        **params : dict
            Argument values by name. `kernel__argument` turns `kernel=None` into `RBF()`, `training__argument` turns
            `training=None` into `Training()`.

        Returns
        -------
        self : GPClassifier or GPRegressor
            The estimator itself.
        """
        for name in ("kernel", "training"):
            asked = any(key.startswith(f"{name}__") for key in params)
            if asked and params.get(name, getattr(self, name)) is None:
                params = {**params, name: self._make_default(name)}
        for name in ("kernel", "method", "training"):
            inner = next((key for key in params if key.startswith(f"{name}__")), None)
            value = params.get(name, getattr(self, name))
            if inner is not None and not hasattr(value, "get_params"):
                example = EXAMPLES.get(name) or EXAMPLES[self._kind]
                raise BadOption(
                    f"{inner!r} cannot be set: {name}={value!r:.60} has no arguments. Give an object that has, for example "
                    f"{type(self).__name__}({name}={example})."
                )
        super().set_params(**params)
        return self

    @staticmethod
    def _make_default(name: str) -> Any:
        """Return the object that None stands for."""
        if name == "training":
            return Training()
        from cavity.kernels import RBF

        return RBF()

    def _store(self, result: Result) -> None:
        """Set the fitted attributes: NumPy arrays in the user's units."""
        self._result, self._fitted = result, result.model
        features, prepare = result.features, result.features.preparation
        self._set_optional("preparation_", prepare)
        self.n_features_in_ = features.n if prepare is None else prepare.n_features_in_
        names = features.names if prepare is None else prepare.feature_names_in_
        self._set_optional("feature_names_in_", None if names is None else np.array(names, dtype=object))
        self.log_marginal_likelihood_ = result.evidence
        self._set_optional("elbo_", result.evidence if result.is_bound else None)
        self.history_ = result.history
        self.n_epochs_ = len(result.history)
        self.fit_warnings_ = list(result.warnings)
        self.feature_relevance_ = result.relevance

    @property
    def plan_(self) -> Any:
        """What the fit decided, with reasons."""
        plan = resolve(self._result.plan) if hasattr(self, "_result") else None
        if plan is None:
            raise AttributeError("plan_ exists after fit().")
        return plan

    @property
    def kernel_(self) -> Any:
        """The kernel with learnt values."""
        if not hasattr(self, "_fitted"):
            raise AttributeError("kernel_ exists after fit().")
        return self._fitted.prior.kernel

    def _set_optional(self, name: str, value: Any) -> None:
        """Set an attribute that only some fits have; remove an older one."""
        if value is not None:
            setattr(self, name, value)
        elif hasattr(self, name):
            delattr(self, name)

    def _make_request(self, raw: GivenRows) -> Request[Any]:
        """Check the arguments, and draw the seed of the fit."""
        from cavity.fitting.request import make_request

        earlier = self._result.continuation if self.warm_start and hasattr(self, "_result") else None
        return make_request(self._config(), raw, earlier)

    def _predict(self, X: Any, predict: Callable[[FittedModel, Array], Results]) -> Results:
        features = self._features()
        return predict_blocks(self._fitted, features, X, predict)

    def _features(self) -> Features:
        check_is_fitted(self, "_fitted")
        return self._result.features

    def to(self, device: Device) -> Self:
        """Move the fitted model to a device, in place.

        After `fit` the model is on the device of the fit, and predictions are computed there. Pickles and model files do not depend
        on the device. The argument `device`, which later fits use, stays as it is.

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
        self.__dict__.update(self._parts_on(resolve_device(device)))
        return self

    def _parts_on(self, device: Any) -> dict[str, Any]:
        """Return the attributes that hold tensors, on a device."""
        model, rows = self._fitted.to(device), self._result.rows
        result = self._result._replace(model=model, rows=None if rows is None else rows.to(device))
        return {"_result": result, "_fitted": model}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model without its device and without what has one entry per training row."""
        state: dict[str, Any] = super().__getstate__()
        if "_fitted" not in state:
            return state
        state = state | self._parts_on("cpu")
        kept = state["_result"]._replace(loo=None, background=None, importance=self._find_importance())
        return state | {"_result": kept, "_loo_log_proba": None}

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
        model_file.save(self._record(), path)

    def _record(self) -> Record:
        check_is_fitted(self, "_fitted")
        classes = getattr(self, "classes_", None)
        texts = tuple(self.fit_warnings_)
        self._find_importance()
        held: Result = self._parts_on("cpu")["_result"]
        result = held._replace(classes=classes, warnings=texts)
        notes = getattr(self, "notes_", {})
        return Record(self._kind, flatten(self.get_params(deep=False)), result, notes)

    @classmethod
    def _from_record(cls, record: Record) -> Self:
        made, result = cls(**nest(**record.arguments)), record.result
        encoder = result.features.preparation
        if encoder is not None:
            features = result.features._replace(preparation=Preparation.from_json(encoder.to_json()))
            result = result._replace(features=features)
        made._store(result)
        if record.notes:
            made.notes_ = record.notes
        return made

    def predict_novelty(self, X: Rows) -> Array:
        """Tell how unlike the training rows each row is: 0 is as usual as can be, 1 as unusual as can be.

        The number is the share of training rows that are more usual, where a row is unusual if the posterior variance of the
        latent functions is large there. New rows like the training rows have values spread evenly over 0 to 1, so one in twenty
        is above 0.95. The most unusual training row has 0.99; beyond it, the number grows to 1, where the model knows no more
        than before training. It does not depend on labels or predictions. It sees only what the kernel sees: a shift in columns
        of long lengthscale changes it little.

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
        novelty = find_novelty(self._result.novelty)
        (found,) = self._predict(X, partial(predict_novelty, novelty=novelty))
        return found

    def summary(self) -> FitSummary:
        """Return the learnt hyper-parameters by class and column; `print` shows them as a table.

        Returns
        -------
        FitSummary
            Variances, lengthscales and noise; method, number of inducing points, epochs and evidence.
        """
        check_is_fitted(self, "_fitted")
        return summarise_fit(self._result, str(self.method))

    def sample_hyperparameters(
        self,
        X: Rows,
        y: Column,
        sample_weight: Column | None = None,
        *,
        n_samples: int = 200,
        warmup: int = 200,
        chains: int = 2,
        over: Sequence[str] = ("kernel", "noise"),
        target_accept: float = 0.8,
        n_models: int = 100,
        random_state: Seed = None,
    ) -> HyperSamples:
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
        import torch

        from cavity.explain.sampling import Asked, draw_samples

        check_is_fitted(self, "_fitted")
        asked = Asked(n_samples, warmup, chains, target_accept, n_models, over, random_state)
        with torch.inference_mode(False):
            return draw_samples(self._config(), self._result, give_rows(X, y, sample_weight), asked)

    def explain(
        self,
        X: Rows,
        y: Column,
        sample_weight: Column | None = None,
        *,
        n_repeats: int = 5,
        conditional: bool = False,
        groups: Mapping[str, str | int | Sequence[str | int]] | None = None,
        random_state: Seed = 0,
    ) -> Importance:
        """Estimate which columns matter: by how much the loss increases without the cells of one column.

        The loss is the negative log-probability of the label, or the negative log density of the target. Give rows that were not
        used for training: on training rows, columns of noise that the model has memorised seem to matter.

        Shuffling breaks the ties between columns: it says what the model reads, also if another column says the same. With
        `conditional=True` a cell is replaced by cells of rows that are alike in the other columns: it says what would be lost
        without the column. Two equal columns then have 0 each; as a group they keep what they tell.

        Parameters
        ----------
        X : array-like of shape (n, D), or a frame
            Rows with the columns of the fit.
        y : array-like of shape (n,)
            Labels or targets.
        sample_weight : array-like of shape (n,) or None
            Weights of the rows.
        n_repeats : int
            How often each column is shuffled, or how many rows that are alike replace its cells. Each time all rows are predicted
            again.
        conditional : bool
            True: the cells of a column are unknown, and the loss is that of the mean prediction over cells that the other columns
            allow. A forest, fitted to X, finds them: give some hundreds of rows.
        groups : None or dict of str to columns
            Columns that are replaced together, by the name of their group, such as `{"size": ["width", "height"]}`.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        Importance
            `names`, `importance` and `standard_error`, one entry per column or group; `print` shows them sorted.
        """
        features, repeats = self._features(), whole("n_repeats", n_repeats, 1)
        rows, weight, losses = self._row_losses(give_rows(X, y, sample_weight))
        seed = check_random_state(random_state).randint(2**31 - 1)
        draws = Draws(repeats, np.random.default_rng(seed), bool(conditional))
        return permutation_importance(losses, rows, weight, features, draws, groups)

    @property
    def feature_importance_(self) -> Array:
        """Importance of each column of X in nats: how much a cell of another row in it changes the prediction."""
        found = self._find_importance() if hasattr(self, "_result") else None
        if found is None:
            raise AttributeError(
                "feature_importance_ exists after fit(), not after partial_fit() or in files of older versions: "
                "use explain(X, y), which also tells how far to trust it."
            )
        return found

    @property
    def feature_importances_(self) -> Array:
        """`feature_importance_`, by the name that scikit-learn gives it."""
        return self.feature_importance_

    def _find_importance(self) -> Array | None:
        """Compute the importance of the columns once, from rows that the fit keeps in memory."""
        result = self._result
        if result.importance is None and result.background is not None:
            X, features, cost = result.background, result.features, self._fitted.cost
            calls = self._predict_outcome, self._information
            try:
                found = compute_importance(X, features, *calls, cost, result.relevance)
            except CavityError:  # a kernel of the user's own overflows; saving must not fail for it
                return None
            self._result = result._replace(importance=found)
        return self._result.importance

    def partial_dependence(
        self,
        X: Rows,
        column: str | int,
        *,
        n_values: int = 20,
        n_rows: int = 50,
        level: float = 0.95,
        random_state: Seed = 0,
    ) -> PartialDependence:
        """Compute how predictions depend on one column: the mean over rows in which all its cells are set to one value.

        Intervals are those of this mean under the posterior of the latent functions: exact for a regressor; for a classifier
        from 50 joint draws, as quantiles of a beta distribution. They say how well the model knows the mean,
        not how much rows differ from it. Values are replaced one column at a time: if columns are strongly correlated, some rows
        will be unlike any real row.

        Parameters
        ----------
        X : array-like of shape (n, D), or a frame
            Rows with the columns of the fit, raw cells as they are.
        column : str or int
            Name or number of a column of the table.
        n_values : int
            At most so many values: quantiles from 2 % to 98 % of a number or date, the most frequent levels of a category. Missing
            is one more value, if the training rows had missing cells in the column.
        n_rows : int
            Predictions are averaged over a random sample of so many rows.
        level : float
            Probability of the intervals.
        random_state : int, RandomState or None
            Random seed of the sample and the draws.

        Returns
        -------
        PartialDependence
            `values` in the user's units, `mean`, `low` and `high`; `print` shows them as a table.
        """
        values, most = whole("n_values", n_values, 1), whole("n_rows", n_rows, 1)
        read_level(level)
        rows = self._read_raw(X)
        j, seed = rows.find(column), check_random_state(random_state).randint(2**31 - 1)
        chosen = choose_rows(len(rows.X), most, seed)
        classes = getattr(self, "classes_", None)
        return compute_partial_dependence(rows, j, chosen, values, self._average(seed), classes, level)

    def explain_rows(
        self, X: Rows, background: Rows, *, n_background: int = 50, random_state: Seed = 0
    ) -> Contributions:
        """Tell what moves the predictions of single rows: for each column, what its cell does compared with cells of other rows.

        The contribution of a column to a class is log p(c | x) minus the log of the mean of p(c | x') over background rows, where
        x' is the row with the background row's cell in that column; for a regressor, the same of predicted means, without logs.
        Its expectation over rows and over their classes, if predictions are right, is `feature_importance_`.

        Parameters
        ----------
        X : array-like of shape (n, D), or a frame
            Rows to explain.
        background : array-like of shape (m, D), or a frame
            Rows to compare with, such as the training rows.
        n_background : int
            A random sample of so many background rows is used. Each makes one prediction per row and column.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        Contributions
            `contributions` with the rows' cells in `values`; `print` shows the largest for the predicted classes.
        """
        most = whole("n_background", n_background, 1)
        rows, others = self._read_raw(X), self._read_raw(background)
        seed = check_random_state(random_state).randint(2**31 - 1)
        chosen, classes = others.X[choose_rows(len(others.X), most, seed)], getattr(self, "classes_", None)
        return compute_contributions(rows, chosen, self._predict_outcome, self._compare, classes)

    def _read_raw(self, X: Any) -> RawRows:
        return read_raw_rows(X, self._features(), self._fitted)
