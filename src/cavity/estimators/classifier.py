"""GPClassifier: reads its arguments, hands over to `fitting` and `prediction`, stores results."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.common.namespaces import NUMPY
from cavity.errors import BadOption
from cavity.estimators import argument_types as types
from cavity.estimators.argument_types import Column, Device, Rows, Seed
from cavity.estimators.base import Array, GPEstimator, give_rows
from cavity.estimators.optional_methods import available_if
from cavity.estimators.sklearn_base import ClassifierMixin
from cavity.explain.partial_dependence import Average
from cavity.explain.permutation_importance import Losses
from cavity.options.training import Training, read_training
from cavity.options.value_checks import read_class_weight, whole
from cavity.prediction import uncertainty
from cavity.prediction.blocks import accuracy
from cavity.prediction.estimate import Estimate
from cavity.prediction.pool import normalised
from cavity.prediction.predict import predict_labels, predict_log_proba, predict_moments, predict_proba
from cavity.prediction.ranked_rows import RankedRows, rank
from cavity.prediction.result import Result
from cavity.rows.foreign_arrays import to_host
from cavity.rows.frames import Prepared
from cavity.rows.labels import check_labels
from cavity.rows.sources import find_source
from cavity.saving import model_file

if TYPE_CHECKING:  # they load torch
    from cavity.explain.evidence_sampling import Diagnosis
    from cavity.options import ClassifierConfig
    from cavity.rows.tables import GivenRows
    from cavity.training.callbacks import Callback

N_DRAWS = 50  # of the latent functions, for the intervals of partial dependence


@model_file.register
@dataclass(eq=False, repr=False)
class GPClassifier(ClassifierMixin, GPEstimator):
    """Multi-class Gaussian process classification by expectation propagation.

    One latent Gaussian process per class (one for two classes) with learnt inducing points; the class with the largest latent
    value wins. Most fits need no argument; `effort` is the first to try, and docs/parameters.md says when to change the others.

    Parameters
    ----------
    method : str or cavity.methods.Method, default="auto"
        "auto" (EP, or SEP if sites take more than 2 GB), "ep", "sep", "rep", "pep", "gfitc", "vi" or "laplace"; or an object with
        options, such as `cavity.methods.REP(epsilon=0.05)`.
    effort : {"fast", "balanced"}
        How much work method="auto" may take; "fast" has fewer inducing points, no trees, and boosting only above 2,000 rows.
    calibration : {"auto", None, "temperature"}
        "temperature": class probabilities are softmax(w log p), with w fitted to rows that the model did not see. "auto": with
        method="auto". None: the probabilities of the model.
    ensemble : {"auto", None, "trees"}, or classifiers
        Classifiers to pool with: probabilities are proportional to p_GP^w₀ p₁^w₁ ..., with weights fitted to held-out rows. "auto":
        with method="auto" and a table in memory, unless calibration=None, class frequencies, logistic regression, small networks,
        boosting and extra trees. "trees": class frequencies, boosting and extra trees.
    kernel : None, a kernel of `cavity.kernels`, or a torch.nn.Module with full, cross and diag
        None: RBF with one lengthscale per feature and class; with method="auto" and at least two inducing points per
        feature, `RBF() + Linear(fades=True)`.
    n_inducing : "auto", int, or a fraction of the rows
        Inducing points per class. "auto": 100; with method="auto" as many as the work of the effort allows.
    inducing : str, None or array
        "auto", "random", "kmeans" or "per-class"; an array (M, D) or (C, M, D); None: every distinct row, not learnt.
    learning_rate : float or None
        None: 0.01; on mini-batches 0.03, decaying to a tenth of it (method="auto": 0.08, annealed).
    batch_size : "auto", None or int
        None: full batches.
    max_epochs : int or None
        None: 500 on full batches (method="auto": 16 of L-BFGS); on mini-batches as many as the steps of the plan take, at least
        three.
    device : str or torch.device
        "auto" (the GPU if there is one and the table is not small), "cpu", "cuda", "cuda:1". The fitted model predicts there.
    random_state : int, RandomState or None
        Random seed.
    warm_start : bool
        Continue from the hyper-parameters and sites of the last fit.
    class_weight : None, "balanced" or dict
        Factors on the weights of rows, by class. "balanced" gives every class the same weight.
    training : None or cavity.Training
        What is learnt, optimiser, tolerance, early stopping, checkpoints, precision. Grid searches take `training__tol`.
    callbacks : sequence of cavity.callbacks.Callback
        JsonLines, or your own.
    verbose : int
        1 shows the plan with a time estimate, the stages of the fit, and progress bars.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of X, if it had names.
    preparation_ : cavity.Preparation
        How columns become features, if the table had other columns than numbers, or missing cells.
    kernel_ : Kernel
        The kernel with learnt values.
    inducing_points_ : ndarray of shape (C, M, D)
        Inducing points in the units of X.
    noise_ : ndarray of shape (C,)
        Noise variances.
    epsilon_ : float
        Share of random labels, for methods that have one.
    log_marginal_likelihood_ : float
        log Z_q: the log marginal likelihood with "rep", "gfitc", "laplace" or two classes, a lower bound with "vi". With "ep",
        "sep", "pep" and "auto" of more classes it compares only fits of one method to the same rows: use `estimate_`. NaN if
        training stopped so early that the value would be above 0.
    elbo_ : float
        Evidence lower bound, for variational methods.
    temperature_ : float
        1/w, where probabilities are softmax(w log p); above 1 if the model was too confident. 1 without calibration.
    calibration_ : str
        How the temperature and the weights of the pool were found.
    ensemble_weights_ : ndarray
        Weight of the Gaussian process, then of each member of the pool.
    plan_ : Plan
        What the fit decided, with reasons; `print` shows a table.
    class_prior_ : ndarray of shape (n_classes,)
        Class frequencies of the training rows, by weight.
    estimate_ : Estimate
        Log loss and accuracy on new rows, with errors, and those of class frequencies; `print` says how far to trust it.
    loo_log_proba_ : ndarray of shape (N, n_classes)
        Leave-one-out log-probabilities of the training rows of positive weight: each from the fitted model without that row's own
        sites. Hyper-parameters saw the row, so they are too confident on small tables. Only after the `fit` of a table in memory
        that the Gaussian process sees whole, of at most 16 million numbers.
    feature_importance_ : ndarray of shape (n_features_in_,)
        How much the model reads from each column of X, in nats: the mean of KL(p(y | x) ‖ mean_b p(y | x with that cell of row b))
        over training rows x and other rows b. Of correlated columns, each has more than would be lost without it: see
        `explain(X, y, conditional=True)`. Not after `partial_fit`.
    feature_relevance_ : ndarray of shape (n_features_in_,) or None
        Share of each column of X by inverse lengthscale: how fast the latent functions may vary, not how much they do.
    history_ : list of dict
        One row per epoch.
    n_epochs_ : int
        Number of epochs.
    fit_warnings_ : list of str
        What the fit warned about.

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
        """Return why there is no `partial_fit`; a wrong argument is left to the call itself."""
        from cavity.fitting import partial_fit
        from cavity.options.library import read_method

        try:
            method, training = read_method(self.method, "classification"), read_training(self.training)
        except BadOption:
            return None
        return partial_fit.find_problem(method, training.optimizer, training.schedule)

    def _config(self) -> ClassifierConfig:
        from cavity.options import read_classifier

        return read_classifier(self.get_params(deep=False))

    def fit(
        self,
        X: Rows,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        target: str | None = None,
        weight: str | None = None,
        eval_set: types.EvalSet | None = None,
        time_limit: float | None = None,
        groups: Column | None = None,
    ) -> Self:
        """Fit the model.

        X may be in memory, or a source that is read in pieces and never whole (docs/scale.md).

        Parameters
        ----------
        X : array-like of shape (N, D), a frame, or a source
            Frames (pandas, polars, Arrow) may have categories, dates, texts and missing cells: `preparation_` makes features of
            them. Arrays of torch, CuPy or JAX may be on any device, sparse rows may have up to 5,000 columns. Sources: a .npy file
            or `numpy.memmap`; with `target`, a Parquet or Arrow file, a folder or a URI, a pyarrow dataset, table or reader, or any
            object with `__arrow_c_stream__`; batches (X, y) or (X, y, weight) from a callable, or an iterable of them.
        y : array-like of shape (N,) or None
            Labels. None if the source holds them.
        sample_weight : array-like of shape (N,) or None
            A row of weight w counts as w identical rows.
        target, weight : str
            Columns of a Parquet or Arrow source with the labels and the weights.
        eval_set : (X, y) or [(X, y)]
            Validation rows of your own: training stops after `patience` epochs without a smaller NLL on them, and temperature and
            weights of the pool come from them. `history_` has "validation_nll".
        time_limit : float or None
            Seconds for the whole fit. Stages that do not fit into it are shortened or left out, and `fit_warnings_` says which.
        groups : array-like of shape (N,) or None
            Labels that say which rows belong together, such as those of one patient: a group stays together in folds, held-out rows
            and leave-one-out, and counts once in the error of `estimate_`. For a table in memory and a single process.

        Returns
        -------
        self : GPClassifier
            The fitted estimator. If the fit fails, an earlier fit stays as it was.
        """
        import torch

        from cavity.fitting.classification import fit_classifier

        raw = give_rows(X, y, sample_weight, target, weight, eval_set, time_limit, groups)
        request = self._make_request(raw)
        with torch.inference_mode(False):  # within that mode tensors have no gradients
            self.fit_warnings_ = fit_classifier(request, self._store)
        return self

    @available_if(lambda self: self._partial_fit_problem())
    def partial_fit(
        self, X: Rows, y: Column, classes: ArrayLike | None = None, sample_weight: Column | None = None
    ) -> Self:
        """Learn from more rows: all rows of a call are new, and none is seen again.

        For methods "sep" and "auto", and `REP(sites="tied")`. Sites are added `batch_size` rows at a time (50 by default); then
        the hyper-parameters in `learn` take one step. After `fit` with the same method, rows are added to that model.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Rows. Units, inducing points and the preparation of a frame come from those of the first call: give it some hundreds.
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

        earlier = self._result if hasattr(self, "_result") else None
        with torch.inference_mode(False):
            self._store(partial_fit.grow(self._config(), give_rows(X, y, sample_weight), classes, earlier))
        return self

    def _store(self, result: Result) -> None:
        super()._store(result)
        model = result.model
        assert result.classes is not None
        self.classes_ = result.classes
        self._loo_log_proba: Array | None = None
        self._set_optional("epsilon_", model.outcome.epsilon)
        points = model.inducing_points
        self.inducing_points_ = np.repeat(points, model.n_latent // len(points), axis=0)
        self.temperature_ = 1 / model.pool.weight
        self.calibration_ = result.calibration or "none"
        self.ensemble_weights_ = np.array([model.pool.weight, *model.pool.weights])
        self.noise_ = model.noises
        self._set_optional("class_prior_", result.class_prior)

    @property
    def estimate_(self) -> Estimate:
        """How good the model is on new rows, estimated from the rows of the fit."""
        result = self._result if hasattr(self, "_result") else None
        if result is None or (result.estimate is None and (result.loo is None or result.class_prior is None)):
            raise AttributeError(
                "estimate_ exists after fit(), not after partial_fit() or where classes are coupled; a file has it if it was "
                "read before save(), or comes from held-out rows."
            )
        if result.estimate is None:
            assert result.loo is not None and result.class_prior is not None
            loo = result.loo.sample()
            log_p = normalised(self._fitted.pool.weight * loo.log_proba(self._fitted))
            found = loo.estimate(self._fitted, log_p, result.class_prior, "leave-one-out")
            self._result = result._replace(estimate=found)
            return found
        assert isinstance(result.estimate, Estimate)
        return result.estimate

    @property
    def loo_log_proba_(self) -> Array:
        """Leave-one-out log-probabilities of the training rows."""
        loo = None if not hasattr(self, "_result") else self._result.loo
        if loo is None or not loo.complete:
            raise AttributeError(
                "loo_log_proba_ exists after fit() of a table in memory, in one process, unless it is very large or time was up: "
                "fit again, without validation_fraction or with more time."
            )
        if self._loo_log_proba is None:
            self._loo_log_proba = normalised(self._fitted.pool.weight * loo.log_proba(self._fitted))
        return self._loo_log_proba

    def suspect_labels(self, n: int | None = None) -> RankedRows:
        """Rank training rows by how unlikely their own label is given all other rows.

        Look at all rows below 0.01, or below your own guess of the share of wrong labels.

        Parameters
        ----------
        n : int or None
            Return only the first n. With fewer rows it returns all of them and warns.

        Returns
        -------
        RankedRows
            `rows`, row numbers of the table given to `fit`, the most suspect first, and `scores`, the leave-one-out probability of
            each of these labels.
        """
        most = None if n is None else whole("n", n, 1)
        log_p, loo = self.loo_log_proba_, self._result.loo
        assert loo is not None
        own = log_p[np.arange(len(loo.y)), loo.y]
        found = rank(loo.rows, own, most)
        return RankedRows(found.rows, np.exp(found.scores))

    def predict_latent(self, X: Rows) -> tuple[Array, Array]:
        """Predict the latent values, noise included.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        mean, variance : ndarray of shape (n, C)
            (n, 1) for two classes.
        """
        return self._predict(X, predict_moments)

    latent_mean_and_variance = predict_latent  # as scikit-learn's GaussianProcessClassifier calls it

    def sample_latent(self, X: Rows, n: int = 1, *, random_state: Seed = 0) -> Array:
        """Draw the latent functions at rows X from their posterior, all rows of a draw jointly.

        Draws are those of the Gaussian process, without noise, temperature and pool. n_rows rows take O(n_rows³).

        Parameters
        ----------
        X : array-like of shape (n_rows, D)
            Rows with the features of the fit.
        n : int
            Number of draws.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        ndarray of shape (n, n_rows, C)
            (n, n_rows, 1) for two classes.
        """
        from cavity.prediction.draws import Normals, draw_latent

        draws = whole("n", n, 1)
        rows, seed = self._read_raw(X).X, check_random_state(random_state).randint(2**31 - 1)
        (f,) = draw_latent(self._fitted, [rows], draws, Normals(self._fitted, seed))
        return np.asarray(f.cpu().numpy())

    def predict_log_proba(self, X: Rows) -> Array:
        """Predict logarithms of the class probabilities, accurate even if a probability underflows.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        (log_p,) = self._predict(X, predict_log_proba)
        return log_p

    def predict_proba(self, X: Rows) -> Array:
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
        (P,) = self._predict(X, predict_proba)
        return P

    def predict(self, X: Rows) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            What `fit` takes, sources too: with the features of the fit, by name; memory holds one block of rows and the result.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        check_is_fitted(self, "_fitted")
        (labels,) = self._predict(X, partial(predict_labels, classes=self.classes_))
        return labels

    def score(
        self,
        X: Rows,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        target: str | None = None,
        weight: str | None = None,
    ) -> float:
        """Return the accuracy: the weighted share of rows whose label is predicted.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            Rows, in every form that `fit` takes.
        y, sample_weight, target, weight : see fit
            As for `fit`.

        Returns
        -------
        float
            Accuracy.
        """
        features = self._features()
        raw = give_rows(X, y, sample_weight, target, weight).with_arrays()
        source = find_source(raw, features=features)
        if source is None:
            y = raw.y
            labels = check_labels(y, len(y) if isinstance(y, Sized) else 0)
            return float(super().score(to_host(X), labels, raw.sample_weight))
        return accuracy(self._fitted, features, source, self.classes_)

    def predict_uncertainty(self, X: Rows) -> uncertainty.Uncertainty:
        """Split the entropy of each row's label into an aleatoric and an epistemic part.

        Aleatoric entropy would remain if the latent functions were known; epistemic entropy is the mutual information of label and
        latent functions (BALD): what labels nearby could teach. They are those of the Gaussian process, scaled to add up to
        `total`, the entropy of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        Uncertainty
            Arrays `total`, `aleatoric` and `epistemic` of shape (n,), in nats.
        """
        return uncertainty.Uncertainty(*self._predict(X, uncertainty.predict_uncertainty))

    def rank_for_labeling(self, X: Rows, n: int | None = None) -> RankedRows:
        """Rank rows by how much their labels would teach the model: by epistemic uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_rows, D), or a source
            As for `predict`.
        n : int or None
            Return only the best n. With fewer rows it returns all of them and warns.

        Returns
        -------
        RankedRows
            `rows`, row numbers, the most informative first, and `scores`, their epistemic uncertainty in nats.
        """
        most = None if n is None else whole("n", n, 1)
        epistemic = self.predict_uncertainty(to_host(X)).epistemic
        return rank(np.arange(len(epistemic)), epistemic, most, descending=True)

    def diagnose(
        self,
        X: Rows,
        y: Column,
        sample_weight: Column | None = None,
        *,
        n_samples: int = 1000,
        random_state: Seed = 0,
    ) -> Diagnosis:
        """Estimate how far to trust this fit by importance sampling, with q as the proposal.

        Needs the extra "diagnose".

        Parameters
        ----------
        X, y, sample_weight : array-like
            The rows of the fit.
        n_samples : int
            Number of samples.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        Diagnosis
            The model's log evidence with its standard error, the effective sample size, Pareto's k, q's distance from the
            posterior, `level` ("good", "usable", "unclear", "poor"), and `verdict`, which says what to do.
        """
        import torch

        from cavity.explain import evidence_sampling
        from cavity.rows.labelled_tables import read_table_of_fit

        features, class_weight = self._features(), read_class_weight(self.class_weight)
        table = read_table_of_fit(give_rows(X, y, sample_weight), class_weight, features, self.classes_)
        n = whole("n_samples", n_samples, 25)
        rng = check_random_state(random_state)
        evidence = self.log_marginal_likelihood_
        with torch.inference_mode(False):
            model = self._fitted.to("cpu")
            return evidence_sampling.diagnose(model, table.X, table.y, table.weight, evidence, n, rng)

    def _row_losses(self, raw: GivenRows) -> tuple[Array, Array, Losses]:
        from cavity.rows.labelled_tables import read_table_of_fit

        table = read_table_of_fit(raw, None, self._features(), self.classes_)
        own = np.arange(len(table.y)), table.y
        return table.X, table.weight, lambda X: -self.predict_log_proba(Prepared(X))[own]

    def _predict_outcome(self, X: Array) -> Array:
        return self.predict_log_proba(Prepared(X))

    def _compare(self, own: Array, others: Array) -> Array:
        return np.asarray(own - NUMPY.logsumexp(others, 1) + np.log(others.shape[1]))

    def _information(self, own: Array, others: Array) -> Array:
        return np.asarray((np.exp(own) * self._compare(own, others)).sum(1))

    def _average(self, seed: int) -> Average:
        def average(groups: list[Array]) -> tuple[Array, Array]:
            mean = [self.predict_proba(Prepared(rows)).mean(0) for rows in groups]
            from cavity.prediction.draws import draw_log_proba

            draws = draw_log_proba(self._fitted, groups, N_DRAWS, seed)
            return np.array(mean), np.array([np.exp(log_p).mean(1).std(0, ddof=1) for log_p in draws])

        return average
