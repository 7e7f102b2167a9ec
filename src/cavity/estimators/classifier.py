"""GPClassifier: reads its arguments, hands over to `fitting` and `prediction`, stores
results.
"""

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
from cavity.estimators.judgements import Judges
from cavity.estimators.optional_methods import available_if
from cavity.estimators.sklearn_base import ClassifierMixin
from cavity.fitting.options.training import Training, read_training
from cavity.prediction.blocks import accuracy
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
class GPClassifier(ClassifierMixin, Judges):
    """Multi-class Gaussian process classification by expectation propagation.

    One latent Gaussian process per class (one for two classes) with learnt inducing
    points; the class with the largest latent value wins. Most fits need no argument;
    `effort` is the first to try, and docs/parameters.md says when to change the others.

    Parameters
    ----------
    method : str or cavity.methods.Method, default="auto"
        "auto" (EP, or SEP if sites take more than 2 GB), "ep", "sep", "rep", "pep",
        "gfitc", "vi" or "laplace"; or an object with options, such as
        `cavity.methods.REP(epsilon=0.05)`.
    effort : {"fast", "balanced"}
        How much work method="auto" may take; "fast" has fewer inducing points, no
        trees, and boosting only above 2,000 rows.
    calibration : {"auto", None, "temperature"}
        "temperature": class probabilities are softmax(w log p), with w fitted to rows
        that the model did not see. "auto": with method="auto". None: the probabilities
        of the model.
    ensemble : {"auto", None, "trees"}, or classifiers
        Classifiers to pool with: probabilities are proportional to p_GP^w₀ p₁^w₁ ...,
        with weights fitted to held-out rows. "auto": with method="auto" and a table in
        memory, unless calibration=None, class frequencies, logistic regression, small
        networks, boosting and extra trees. "trees": class frequencies, boosting and
        extra trees.
    kernel : None, a kernel of `cavity.kernels`, or a torch.nn.Module with full, cross
    and diag
        None: RBF with one lengthscale per feature and class; with method="auto" and at
        least two inducing points per feature, `RBF() + Linear(fades=True)`.
    n_inducing : "auto", int, or a fraction of the rows
        Inducing points per class. "auto": 100; with method="auto" as many as the work
        of the effort allows.
    inducing : str, None or array
        "auto", "random", "kmeans", "per-class" or "greedy"; an array (M, D) or (C, M,
        D); None: every distinct row, not learnt. "spectrum": `n_inducing` cosines and
        sines at random frequencies of the kernel's spectrum (RBF, Matérn), not learnt.
    learning_rate : float or None
        None: 0.01; on mini-batches 0.03, decaying to a tenth of it (method="auto":
        0.08, annealed).
    batch_size : "auto", None or int
        None: full batches.
    max_epochs : int or None
        None: 500 on full batches (method="auto": 16 of L-BFGS); on mini-batches what
        the plan's steps take, at least three.
    device : str or torch.device
        "auto" (the GPU if there is one and the table is not small), "cpu", "cuda",
        "cuda:1". The fitted model predicts there.
    random_state : int, RandomState or None
        Random seed.
    warm_start : bool
        Continue from the hyper-parameters and sites of the last fit.
    class_weight : None, "balanced" or dict
        Factors on the weights of rows, by class. "balanced" gives every class the same
        weight.
    training : None or cavity.Training
        What is learnt, optimiser, tolerance, early stopping, checkpoints, precision.
        Grid searches take `training__tol`.
    callbacks : sequence of cavity.callbacks.Callback
        Your own, which follow the training and may stop it.
    verbose : int
        1 shows the plan with a time estimate, the stages of the fit, and progress bars.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn
        Class labels, the number of columns of X, and their names if it had names.
    preparation_ : cavity.Preparation
        How columns become features, if the table had other columns than numbers, or
        missing cells.
    kernel_, inducing_points_, noise_ : Kernel, ndarray of shape (C, M, D), ndarray of
    shape (C,)
        The kernel with learnt values, the inducing points in the units of X, and noise
        variances.
    frequencies_ : ndarray of shape (C, M/2, D)
        In radians per unit of a feature, with inducing="spectrum".
    epsilon_ : float
        Share of random labels, for methods that have one.
    log_marginal_likelihood_, elbo_ : float
        log Z_q: the log marginal likelihood with "rep", "gfitc", "laplace" or two
        classes, a lower bound, also `elbo_`, with "vi". With others it compares only
        fits of one method to the same rows: use `estimate_`. NaN if training stopped
        too early.
    temperature_, calibration_, ensemble_weights_ : float, str, ndarray
        1/w of softmax(w log p), above 1 if the model was too confident; how w and the
        weights of the pool were found; weight of the Gaussian process, then of each
        member of the pool.
    plan_ : Plan
        What the fit decided, with reasons; `print` shows a table.
    class_prior_ : ndarray of shape (n_classes,)
        Class frequencies of the training rows, by weight.
    estimate_ : Estimate
        Log loss and accuracy on new rows, with errors, and those of class frequencies;
        `print` says how far to trust it.
    loo_log_proba_ : ndarray of shape (N, n_classes)
        Log-probabilities of the training rows of positive weight, each without its own
        sites. Hyper-parameters saw the rows, so they are too confident on small tables.
        Only of a table in memory, seen whole, of at most 16 million numbers.
    feature_importance_ : ndarray of shape (n_features_in_,)
        How much the model reads from each column of X, in nats: the mean of KL(p(y | x)
        ‖ mean_b p(y | x with that cell of row b)). Of correlated columns, each has more
        than would be lost without it. Not after `partial_fit`.
    feature_relevance_ : ndarray of shape (n_features_in_,) or None
        Share of each column of X by inverse lengthscale: how fast the latent functions
        may vary, not how much they do.
    history_, n_epochs_, fit_warnings_ : list of dict, int, list of str
        One row per epoch, the number of epochs, and what the fit warned about.

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
    training: Training | None = None
    callbacks: Sequence[Callback] = ()
    verbose: int = 0

    def _partial_fit_problem(self) -> str | None:
        """Return why there is no `partial_fit`; a wrong argument is left to the call
        itself.
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

        return read_classifier(self.get_params(deep=False))

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
        """Fit the model to rows in memory, or to a source that is read in pieces and
        never whole (docs/scale.md).

        Parameters
        ----------
        X : array-like of shape (N, D), a frame, or a source
            Frames (pandas, polars, Arrow) may have categories, dates, texts and missing
            cells: `preparation_` makes features of them. Arrays of torch, CuPy or JAX
            may be on any device, sparse rows may have up to 5,000 columns. Sources:
            with `target`, a Parquet or Arrow file, a folder or a URI, a pyarrow
            dataset, table or reader, or any object with `__arrow_c_stream__`; batches
            (X, y) or (X, y, weight) from a callable, or an iterable of them.
        y, sample_weight : array-like of shape (N,) or None
            Labels, None if the source holds them. A row of weight w counts as w
            identical rows.
        target, weight : str
            Columns of a Parquet or Arrow source with the labels and the weights.
        eval_set : (X, y) or [(X, y)]
            Validation rows of your own: training stops after `patience` epochs without
            a smaller NLL on them, and temperature and weights of the pool come from
            them. `history_` has "validation_nll".
        time_limit : float or None
            Seconds for the whole fit. Stages that do not fit into it are shortened or
            left out, and `fit_warnings_` says which.
        groups : array-like of shape (N,), str or None
            Labels that say which rows belong together, such as those of one patient, or
            their column in a Parquet or Arrow source, which is then not a feature. A
            group stays together in folds, held-out rows and leave-one-out, and counts
            once in the error of `estimate_`. Of a source some groups judge the model
            and do not train it.

        Returns
        -------
        self : GPClassifier
            The fitted estimator. If the fit fails, an earlier fit stays as it was.
        """
        from cavity.fitting.classification import fit_classifier

        return self._fit(
            fit_classifier,
            X,
            y,
            sample_weight,
            target,
            weight,
            eval_set,
            time_limit,
            groups,
        )

    @available_if(lambda self: self._partial_fit_problem())
    def partial_fit(
        self,
        X: TableLike,
        y: Column,
        classes: ArrayLike | None = None,
        sample_weight: Column | None = None,
    ) -> Self:
        """Learn from more rows: all rows of a call are new, and none is seen again.

        For methods "sep" and "auto", and `REP(sites="tied")`. Sites are added
        `batch_size` rows at a time (50 by default); then the hyper-parameters in
        `learn` take one step. After `fit` with the same method, rows are added to that
        model.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Rows. Units, inducing points and the preparation of a frame come from those
            of the first call: give it some hundreds.
        y : array-like of shape (n,)
            Labels.
        classes : array-like or None
            All classes that will come, for the first call. None: those in y.
        sample_weight : array-like of shape (n,) or None
            A row of weight w counts as w identical rows.

        Returns
        -------
        self : GPClassifier
            The updated estimator.
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
        points = result.model.inducing_points
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
        self.temperature_ = 1 / model.pool.weight
        self.calibration_ = result.calibration or "none"
        self.ensemble_weights_ = np.array([model.pool.weight, *model.pool.weights])
        self.noise_ = model.noises
        self._set_optional("class_prior_", result.class_prior)

    def predict_log_proba(self, X: TableLike) -> Floats:
        """Predict logarithms of the class probabilities, accurate even if a probability
        underflows.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        return self._predict(X, predict_log_proba)[0]

    def predict_proba(self, X: TableLike) -> Floats:
        """Predict class probabilities.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        return self._predict(X, predict_proba)[0]

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            What `fit` takes, sources too: with the features of the fit, by name; memory
            holds one block of rows and the result.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        check_is_fitted(self, "_fitted")
        return self._predict(X, partial(predict_labels, classes=self.classes_))[0]

    def score(
        self,
        X: TableLike,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        target: str | None = None,
        weight: str | None = None,
    ) -> float:
        """Return the accuracy: the weighted share of rows whose label is predicted.

        Parameters
        ----------
        X, y, sample_weight, target, weight : see fit
            As for `fit`.

        Returns
        -------
        float
            Accuracy.
        """
        features = self._features()
        raw = GivenRows(X, y, sample_weight, target, weight).with_arrays()
        source = find_source(raw, features=features)
        if source is not None:
            return accuracy(self._fitted, features, source, self.classes_)
        labels = check_labels(raw.y, len(raw.y) if isinstance(raw.y, Sized) else 0)
        return float(super().score(to_host(X), labels, raw.sample_weight))
