"""GPClassifier: arguments, fitting and prediction of class labels."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from cavity.common.types import Floats
from cavity.errors import BadOption
from cavity.estimators import argument_types as types
from cavity.estimators.argument_types import Column, Device, Seed, TableLike
from cavity.estimators.judgements import Origin
from cavity.estimators.optional_methods import available_if
from cavity.estimators.sklearn_base import ClassifierMixin
from cavity.fitting.options.training import Training, read_training
from cavity.prediction.blocks import accuracy
from cavity.prediction.decisions import (
    Choices,
    Costs,
    Decisions,
    label_actions,
    predict_choices,
)
from cavity.prediction.predict import predict_labels, predict_log_proba, predict_proba
from cavity.prediction.result import Result
from cavity.saving import model_file
from cavity.tables.arrow_tables import to_host
from cavity.tables.labels import check_labels
from cavity.tables.sources import find_source
from cavity.tables.table import GivenRows

if TYPE_CHECKING:  # they load torch
    from cavity.engine.training.callbacks import Callback
    from cavity.fitting.options.configuration import ClassifierConfig


@model_file.register
@dataclass(eq=False, repr=False)
class GPClassifier(ClassifierMixin, Origin):
    """Gaussian process classification by expectation propagation.

    Each class has a latent Gaussian process (two classes share one) with learnt
    inducing points; the class with the largest latent value wins. Ordered classes
    share one, too.

    The defaults suit most tables. Change `effort` first; docs/api.md says when
    to change the others.

    Parameters
    ----------
    method : str or cavity.methods.Method, default="auto"
        Inference method: "auto", "ep", "sep", "rep", "pep", "gfitc", "vi" or "laplace",
        or an object with options, such as `cavity.methods.REP(epsilon=0.05)`.

        - "auto": EP, or SEP if the sites take more than 2 GB. The library also chooses
          the training, calibrates the probabilities and adds other classifiers.
        - Any other method is the model of its paper, without calibration and pool
          unless `calibration` or `ensemble` asks for them.
    effort : {"balanced", "fast"}, default="balanced"
        How much work `method="auto"` may take. "fast" uses fewer inducing points, no
        trees, and boosting only above 2,000 rows.
    calibration : {"auto", "temperature"} or None, default="auto"
        How class probabilities are calibrated.

        - "temperature": use softmax(w log p), where w is fitted to rows that the model
          did not see.
        - "auto": as "temperature" if `method="auto"`.
        - None: use the probabilities of the model as they are.
    ensemble : {"auto", "trees"}, classifier, list of them or None, default="auto"
        Classifiers to pool with the Gaussian process. Pooled probabilities are
        proportional to p_GP^w₀ p₁^w₁ ..., with weights fitted to held-out rows.

        - "auto": class frequencies, logistic regression, small networks, boosting and
          extra trees, if `method="auto"`, the table is in memory and `calibration` is
          not None.
        - "trees": class frequencies, boosting and extra trees.
        - None: the Gaussian process alone.
    kernel : cavity.kernels.Kernel, torch.nn.Module or None, default=None
        Covariance function; a module needs the methods `full`, `cross` and `diag`. If
        None, use `RBF` with one lengthscale per feature and class. With
        `method="auto"` and at least two inducing points per feature, use
        `RBF() + Linear(fades=True)`.
    n_inducing : int, float or "auto", default="auto"
        Number of inducing points per class; a float is a fraction of the rows. "auto"
        means 100 or, with `method="auto"`, as many as the work of the effort allows.
    inducing : str, array or None, default="auto"
        Initial inducing points, or how to choose them: "auto", "random", "kmeans",
        "per-class" or "greedy". An array has shape (M, D) or (C, M, D). If None, every
        distinct row is a fixed inducing point. With "spectrum", the model has
        `n_inducing` cosines and sines instead, at fixed random frequencies of the
        kernel's spectrum (RBF, Matérn).
    learning_rate : float or None, default=None
        Step size. If None, use 0.01 on full batches and 0.03 on mini-batches, decaying
        to a tenth of it. With `method="auto"`, mini-batches use 0.08, annealed.
    batch_size : int, "auto" or None, default="auto"
        Rows per step. "auto" chooses by the size of the table; None uses all rows.
    max_epochs : int or None, default=None
        Maximum number of passes over the rows. If None, use 500 on full batches, or 16
        of L-BFGS with `method="auto"`. Mini-batches take as many as the steps of the
        plan need, at least three.
    device : str or torch.device, default="auto"
        Where to train and predict: "cpu", "cuda", "cuda:1". "auto" uses a GPU, if there
        is one, unless the table is small.
    random_state : int, RandomState or None, default=None
        Random seed. Give an int to get the same model from every call.
    warm_start : bool, default=False
        Whether `fit` continues from the hyper-parameters and sites of the last fit.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of rows, by class label. "balanced" gives every class the
        same total weight.
    order : sequence of labels or None, default=None
        Class labels from lowest to highest, if classes are ordered, such as
        `["low", "mid", "high"]`. The Gaussian process then has one latent function with
        learnt thresholds, for `method="auto"`, "ep" and "sep"; `classes_` and the
        columns of probabilities stay sorted.
    training : cavity.Training or None, default=None
        What is learnt, optimiser, tolerance, early stopping, checkpoints and precision.
        Grid searches can set one of them, such as `training__tol`.
    callbacks : sequence of cavity.callbacks.Callback, default=()
        Callbacks that follow the training and may stop it.
    verbose : int, default=0
        If 1, show the plan with estimated times, the stages of the fit and progress
        bars.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of X. Defined only if X has column names.
    preparation_ : cavity.Preparation
        How columns become features. Defined only if X has missing cells or columns that
        are not numbers.
    plan_ : Plan
        Decisions of the fit, with reasons; `print` shows them as a table.
    estimate_ : Estimate
        Log loss and accuracy expected on new rows, with standard errors, next to the
        log loss and accuracy of class frequencies. `print` says how far to trust it.
    calibration_ : str
        Which rows determined the temperature and the weights of the pool.
    held_out_ : HeldOutRows
        Rows that the models did not see: row number, label, weight, group and fold, with
        the log-probabilities of the pool and of each member. `estimate_` and `members_`
        are computed from it. It contains no features, and is not saved.
    members_ : MemberScores
        Classifiers of the pool on the held-out rows: weight, log loss alone, what the
        pool loses without it, and seconds.
    temperature_ : float
        1/w of softmax(w log p): above 1 if the model was too confident. Defined only
        without a pool.
    ensemble_weights_ : ndarray
        Weight of the Gaussian process, then of each member of the pool.
    class_prior_ : ndarray of shape (n_classes,)
        Class frequencies of the training rows, by weight.
    loo_log_proba_ : ndarray of shape (n_samples, n_classes)
        Leave-one-out log-probabilities of the training rows of positive weight, each
        without its own sites. Too confident on small tables, because hyper-parameters
        saw the rows. Defined only without a pool, for tables in memory with at most 16
        million numbers whose rows were all seen.
    feature_importance_ : ndarray of shape (n_features_in_,)
        Importance of each column in nats: the mean over rows of
        KL(p(y | x) ‖ mean_b p(y | x with that cell of row b)). Correlated columns share
        information: removing one loses less than its importance. Not defined after
        `partial_fit`.
    feature_relevance_ : ndarray of shape (n_features_in_,) or None
        Share of each column by inverse lengthscale: how fast the latent functions may
        vary along it, not how much they do.
    kernel_ : Kernel
        Kernel with learnt values. `kernel_(X, Z)` computes covariances of rows.
    hyperparameters_ : HyperParameters
        Hyper-parameters by name, class and column, learnt or fixed, with the vector
        `theta` of the learnt ones.
    posterior_ : InducingValues
        Mean and covariance of the latent functions at the inducing points.
    inducing_points_ : ndarray of shape (C, M, D)
        Inducing points, in the units of X.
    frequencies_ : ndarray of shape (C, M/2, D)
        Frequencies in radians per unit of a feature. Defined only for
        `inducing="spectrum"`.
    noise_ : ndarray of shape (C,)
        Variance of the latent noise.
    epsilon_ : float
        Share of random labels. Defined only for methods that model it.
    log_marginal_likelihood_ : float
        log Z_q, an approximation of the log marginal likelihood for "rep", "gfitc",
        "laplace" or two classes, and a lower bound for "vi". Otherwise it only compares
        fits of one method to the same rows: use `estimate_` instead. NaN if training
        stopped too early.
    elbo_ : float
        Evidence lower bound. Defined only for "vi".
    history_ : list of dict
        Training history, one entry per epoch.
    n_epochs_ : int
        Number of epochs.
    fit_warnings_ : list of str
        Warnings of the fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(n_inducing=20, max_epochs=50, random_state=0).fit(X, y)
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    """

    _kind = "model"

    method: types.ClassifierMethod = "auto"
    _: KW_ONLY
    effort: types.Effort = "balanced"
    calibration: types.Calibration | None = "auto"
    ensemble: types.Ensemble | None = "auto"
    kernel: types.KernelArgument = None
    n_inducing: int | float | Literal["auto"] = "auto"
    inducing: types.ClassifierInducing | None = "auto"
    learning_rate: float | None = None
    batch_size: int | Literal["auto"] | None = "auto"
    max_epochs: int | None = None
    device: Device = "auto"
    random_state: Seed = None
    warm_start: bool = False
    class_weight: types.ClassWeight | None = None
    order: Sequence[Any] | None = None
    training: Training | None = None
    callbacks: Sequence[Callback] = ()
    verbose: int = 0

    def _partial_fit_problem(self) -> str | None:
        """Return why there is no `partial_fit`, or None.

        Wrong arguments are left to the call itself, which raises a clear error.
        """
        from cavity.fitting import partial_fit
        from cavity.fitting.options.library import read_method

        try:
            method = read_method(self.method, "classification")
            training = read_training(self.training)
        except BadOption:
            return None

        return partial_fit.find_problem(method, training.optimizer, training.schedule)

    def _config(self) -> ClassifierConfig:
        from cavity.fitting.options.configuration import read_classifier

        return read_classifier(self._arguments())

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
        groups: Column | str | None = None,
    ) -> Self:
        """Fit the model.

        Rows may be in memory, or come from a source that is read in pieces and never
        loaded whole (docs/scale.md). If the fit fails, all fitted attributes stay as
        they were.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Training rows.

            - Frames (pandas, polars, Arrow) may have categories, dates, texts and
              missing cells; `preparation_` turns them into features.
            - Arrays of torch, CuPy or JAX may be on any device.
            - Sparse matrices may have up to 5,000 columns.
            - With `target`, X may be a Parquet or Arrow file, a folder, a URI, a
              pyarrow dataset, table or reader, or any object with
              `__arrow_c_stream__`.
            - Batches (X, y) or (X, y, weight) may come from an iterable, or from a
              callable that returns one.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels. None if the source holds them.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights: a row of weight w counts as w identical rows.
        target : str or None, default=None
            Column of a Parquet or Arrow source with the labels.
        weight : str or None, default=None
            Column of a Parquet or Arrow source with the weights.
        eval_set : (X, y), [(X, y)] or None, default=None
            Validation rows of your own. Training stops after `patience` epochs without
            a smaller negative log-likelihood on them ("validation_nll" in `history_`),
            and they determine the temperature and the weights of the pool.
        time_limit : float or None, default=None
            Seconds for the whole fit. Stages without enough time are shortened or left
            out; `fit_warnings_` says which.
        groups : array-like of shape (n_samples,), str or None, default=None
            Labels of rows that belong together, such as rows of one patient, or the
            column of a Parquet or Arrow source that has these labels and is not a
            feature. A group stays together in folds, held-out rows and leave-one-out,
            and counts once in the standard error of `estimate_`. With a source, some
            groups judge the model and do not train it.

        Returns
        -------
        self : GPClassifier
            Fitted estimator.
        """
        from cavity.fitting.classification import fit_classifier

        given = GivenRows(
            X, y, sample_weight, target, weight, eval_set, time_limit, groups
        )
        return self._fit(fit_classifier, given)

    @available_if(lambda self: self._partial_fit_problem())
    def partial_fit(
        self,
        X: TableLike,
        y: Column,
        classes: ArrayLike | None = None,
        sample_weight: Column | None = None,
    ) -> Self:
        """Learn from more rows, without the earlier ones.

        Available for methods "sep" and "auto", and for `REP(sites="tied")`. Sites are
        added `batch_size` rows at a time (50 by default); then the hyper-parameters in
        `learn` take one step. After `fit` with the same method, rows are added to the
        fitted model.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            New rows. Units, inducing points and the preparation of a frame come from
            the first call: give it some hundreds of rows.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,) or None, default=None
            All classes that later calls may have, for the first call. If None, use the
            classes in y.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights: a row of weight w counts as w identical rows.

        Returns
        -------
        self : GPClassifier
            Updated estimator.
        """
        import torch

        from cavity.fitting import partial_fit

        rows = GivenRows(X, y, sample_weight)
        earlier = getattr(self, "_result", None)
        with torch.inference_mode(False):
            self._store(partial_fit.grow(self._config(), rows, classes, earlier))
        return self

    def _store(self, result: Result) -> None:
        super()._store(result)
        model = result.model
        points = model.inducing_points
        assert result.classes is not None
        self.classes_ = result.classes
        self._loo_log_proba: Floats | None = None
        self._set_optional("epsilon_", model.outcome.epsilon)
        self.inducing_points_ = np.repeat(points, model.n_latent // len(points), axis=0)
        frequencies = model.frequencies
        if frequencies is not None:
            times = model.n_latent // len(frequencies)
            frequencies = np.repeat(frequencies, times, axis=0)
        self._set_optional("frequencies_", frequencies)
        self.calibration_ = result.calibration or "none"
        self.ensemble_weights_ = np.array([model.pool.weight, *model.pool.weights])
        self.noise_ = model.noises
        self._set_optional("class_prior_", result.class_prior)

    def predict_log_proba(self, X: TableLike) -> Floats:
        """Predict log-probabilities, accurate even where probabilities underflow.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Log-probabilities, with columns in the order of `classes_`.
        """
        return self._predict(X, predict_log_proba)[0]

    def predict_proba(self, X: TableLike) -> Floats:
        """Predict class probabilities.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, with columns in the order of `classes_`.
        """
        return self._predict(X, predict_proba)[0]

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, of any kind that `fit` takes. Columns of frames and files
            are found by name. Sources are read block by block.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        check_is_fitted(self, "_fitted")
        return self._predict(X, partial(predict_labels, classes=self.classes_))[0]

    def decide(self, X: TableLike, costs: Costs) -> Decisions:
        """Choose the action of least expected cost for each row.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to decide about, as for `predict`.
        costs : cavity.Costs
            What errors, and refusing to decide, cost.

        Returns
        -------
        Decisions
            `action`, its expected `cost`, and its `margin` over the second cheapest
            action; one value per row.
        """
        check_is_fitted(self, "_fitted")
        if not isinstance(costs, Costs):
            raise BadOption(f"costs={costs!r:.60} must be a cavity.Costs.")

        predict = partial(predict_choices, cost=costs.matrix(self.classes_))
        found = Choices(*self._predict(X, predict))
        action = label_actions(found.action, self.classes_, costs.refuses)
        return Decisions(action, found.cost, found.margin)

    def score(
        self,
        X: TableLike,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        target: str | None = None,
        weight: str | None = None,
    ) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `fit`.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels. None if the source holds them.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows.
        target : str or None, default=None
            Column of a Parquet or Arrow source with the labels.
        weight : str or None, default=None
            Column of a Parquet or Arrow source with the weights.

        Returns
        -------
        float
            Weighted share of rows whose label is predicted.
        """
        features = self._features()
        raw = GivenRows(X, y, sample_weight, target, weight).with_arrays()
        source = find_source(raw, features=features)
        if source is not None:
            return accuracy(self._fitted, features, source, self.classes_)

        rows = len(raw.y) if isinstance(raw.y, Sized) else 0
        labels = check_labels(raw.y, rows)
        return float(super().score(to_host(X), labels, raw.sample_weight))
