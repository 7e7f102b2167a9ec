"""GPClassifier: `__init__` stores, `fit` checks, builds and trains."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity import distributed
from cavity.errors import BadInput
from cavity.estimators import (
    blocks,
    build,
    diagnosis,
    fitted,
    partial,
    runs,
    streams,
    uncertainty,
    watch,
)
from cavity.estimators.checks import check_labels, check_rows, check_weights, weight_of_class
from cavity.estimators.options import USUAL_EPSILON, read
from cavity.estimators.shell import Shell, all_or_nothing
from cavity.estimators.tables import Facts, Start, Table
from cavity.estimators.values import inducing_count, whole
from cavity.training.loop import Run

Array = NDArray[np.float64]
log = logging.getLogger("cavity")


class GPClassifier(ClassifierMixin, Shell):  # type: ignore[misc]
    """Multi-class Gaussian process classification by expectation propagation.

    One latent Gaussian process a class (a single one for two classes), summarised at inducing points that are learnt together
    with the kernels; the label is the class with the largest latent value. Probabilities are those of that model, computed
    by quadrature: nothing is fitted one-versus-rest, nothing is calibrated afterwards.

    Parameters
    ----------
    method : {"auto", "ep", "sep", "rep", "pep", "gfitc", "vi", "laplace"}
        "ep" keeps a few numbers for each row, O(NC); "sep" keeps none, memory is independent of the rows. "auto" is what we
        recommend: "ep", for rows without numbers (see `fit`) "sep", with the kernel and the prior named below.
        "rep" is EP with wrong labels in the model; "pep" power EP; "gfitc" marginalises the inducing values (full batches
        only); "vi" maximises a variational bound; "laplace" expands the logistic (two classes) or the softmax (more, with the
        classes coupled) around the mode.
    kernel : None, a kernel of `cavity.kernels`, or a torch.nn.Module with full, cross and diag
        None: RBF with a lengthscale for each column and class; with method="auto", where there are at least two inducing points a
        column, `RBF() + Linear()`.
    n_inducing : int, or a fraction of the rows
    inducing : {"auto", "random", "kmeans", "per-class", "greedy", "spectrum"}, None, or an array (M, D) or (C, M, D)
        None: a point at every distinct row, not learnt: the method without sparsity. "spectrum": no points but `n_inducing` cosines
        and sines, at frequencies drawn from the kernel's spectrum (RBF, Matérn).
    share : {"auto", None, "prior", "kernel", "inducing", "both"}
        What the classes have in common; sharing the kernel shares the noise as well. "prior": every class has its own
        values, and the prior draws them to those of the other classes and columns. "auto": "prior" with method="auto"
        and inducing points, else None.
    noise : float or (C,)
        Variance of the noise on each latent value; with one latent function, 1 is the textbook probit model.
    learn : subset of ("kernel", "noise", "inducing", "frequencies", "epsilon")
        What is learnt; () keeps every value as given and only finds the posterior. "frequencies" are those of
        inducing="spectrum": learnt ones fit more and overfit easily.
    epsilon : float in [0, 1), for "rep" and "vi"
        Share of the labels that are drawn at random, by default 1e-3. With "epsilon" in `learn`, where it starts: by default 0.1.
        0: y is the largest, exactly.
    sites : {"own", "tied"}, for "rep"
        "tied" is robust SEP.
    power : float in (0, 1], for "pep"
        1 is EP, towards 0 it approaches variational inference with the same factors.
    q_update : {"natural", "gradient"}, for "vi"
        Natural-gradient steps of the sites, or joint gradient steps on q's mean and Cholesky factor and the hyper-parameters.
    likelihood : {"auto", "robust-max", "softmax"}, for "vi"
        "auto" is "robust-max".
    bound : {"quadrature", "jaakkola", "taylor"}, for "vi" and two classes
        What stands for the average of the logistic's logarithm: itself, Jaakkola and Jordan's lower bound, or an expansion to
        second order (no bound). With the last two the best q has a closed form, which each sweep finds.
    predictive : {"quadrature", "probit"}, for two classes with "laplace", or "vi" and likelihood="softmax"
        "probit" averages the logistic curve by σ(m/√(1 + πv/8)): wrong by at most 0.02, and never about the more probable class.
    schedule : {"inner-approx", "inner-exact", "outer"}
        How site sweeps and hyper-parameter steps alternate.
    optimizer : {"auto", "adam", "sign", "lbfgs"}
        "auto": "sign" (the papers' rule) on full batches, Adam on mini-batches; L-BFGS for "gfitc", for "laplace", and for "vi"
        with q_update="gradient" on full batches.
    learning_rate : float, default 0.01; with mini-batches 0.03, falling to a tenth of it
    damping : float in (0, 1], default 0.5 on full batches ("gfitc" 0.8, "vi" 0.2), 1 on mini-batches
    batch_size : "auto", None (full batches) or int
    max_epochs, tol, max_seconds
        Training ends when the objective per row improves by less than `tol` over ten epochs, or at a limit; `max_epochs` None: 500
        on full batches (method="auto": 200), on mini-batches as many as make 600 to 2,000 steps, at least three. After
        `max_seconds` one more sweep over the rows settles the sites ("settling_sweeps" and "settling_seconds" in the last row of
        `history_`), and `log_marginal_likelihood_` is that of the state before it.
    jitter : float, relative to the kernel's variance (default 1e-6, in float32 1e-4)
    device : "auto", "cpu", "cuda", ...
    dtype : {"float64", "float32"}
    random_state : int, RandomState or None
    warm_start : bool
        Continue from the hyper-parameters and sites of the last fit.
    class_weight : None, "balanced" or dict
    validation_fraction : None, or a share of the rows
        Held out of every class; training ends when their NLL has not improved for `patience` epochs, and the best state is kept.
        `history_` has it as "validation_nll". For a set of your own: `callbacks=[cavity.callbacks.Validation(X, y)]`.
    patience : int
    callbacks : sequence of cavity.callbacks.Callback
        JsonLines, TensorBoard, TimeBudget, Validation, or your own.
    checkpoint : None or a path
        The run is written there every `checkpoint_every` seconds and at the end of training, aside and renamed.
    resume : bool
        Continue from `checkpoint` where that file exists: on the CPU to the same bits as a run that was never interrupted
        (L-BFGS, which keeps a memory of its own, continues from its best point).
    verbose : int
        1 shows a progress bar.
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        kernel: Any = None,
        n_inducing: int | float = 100,
        inducing: Any = "auto",
        share: str | None = "auto",
        noise: Any = 0.1,
        learn: Any = ("kernel", "noise", "inducing"),
        epsilon: float = USUAL_EPSILON,
        sites: str = "own",
        power: float = 0.5,
        q_update: str = "natural",
        likelihood: str = "auto",
        bound: str = "quadrature",
        predictive: str = "quadrature",
        schedule: str = "inner-approx",
        optimizer: str = "auto",
        learning_rate: float | None = None,
        damping: float | None = None,
        batch_size: int | str | None = "auto",
        max_epochs: int | None = None,
        tol: float = 1e-4,
        max_seconds: float | None = None,
        jitter: float | None = None,
        device: Any = "auto",
        dtype: str = "float64",
        random_state: Any = None,
        warm_start: bool = False,
        class_weight: Any = None,
        validation_fraction: float | None = None,
        patience: int = 10,
        callbacks: Any = (),
        checkpoint: Any = None,
        checkpoint_every: float = 60.0,
        resume: bool = False,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.share = share
        self.noise = noise
        self.learn = learn
        self.epsilon = epsilon
        self.sites = sites
        self.power = power
        self.q_update = q_update
        self.likelihood = likelihood
        self.bound = bound
        self.predictive = predictive
        self.schedule = schedule
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.damping = damping
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.tol = tol
        self.max_seconds = max_seconds
        self.jitter = jitter
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.warm_start = warm_start
        self.class_weight = class_weight
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, target: Any = None, weight: Any = None
    ) -> GPClassifier:
        """Train on rows X (N, D) with labels y (N,); a row of weight w counts as w identical rows.

        Beyond scikit-learn's convention, X may be a source that is read in pieces and never whole:

        - a path of a .npy file, or a `numpy.memmap`, with y an array or a .npy file;
        - a Parquet or Arrow file, or a folder of them, or a pyarrow dataset or table, with `target` the name of the label's
          column and, optionally, `weight` that of the weights (above zero); all other columns must be numbers;
        - a callable that returns an iterator of batches (X, y) or (X, y, weight), or anything that can be iterated again
          and again. Its rows have no numbers, so "auto" is "sep" and methods with a site a row are refused.

        Labels are then in the source, and y is None. One pass gives the starting values: exact ones of columns and counts, the
        rest from a sample of 20,000 rows, rare classes fully in it. Up to that many rows, they are those of the table in memory.
        """
        reduce = distributed.current()
        seed = self._seed(reduce)
        source = streams.find(self, X, y, sample_weight, target, weight)
        table: Facts
        table = (
            self._table(X, y, sample_weight) if source is None else streams.read(self, source, seed, reduce)
        )
        rng = np.random.default_rng(seed)
        table, held = watch.hold_out(table, self.validation_fraction, rng)
        begin = self._start(table, rng)
        M = inducing_count(self.n_inducing, table.class_totals.sum())
        Z = build.points(self, begin.pool, M, table.n_latent, rng)
        options = read(self, table.n_rows, table.n_latent, build.size(self, Z), source)
        engine = build.engine(build.prior(self, table, begin, Z, options), table, options)
        run = self._run(engine, table, options, seed, rng, reduce, held)
        run = self._train(run, options, lambda run: self._keep(run, begin, table))
        self._keep(run, begin, table)
        self.fit_warnings_ = runs.warn(run, options, 4, table.lightest)
        return self

    @partial.where_tied
    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> GPClassifier:
        """Learn from more rows: those of every call are new, and none is seen again.

        For method "sep" (also "auto"), and "rep" with sites="tied". The rows' sites are added to the sums, a few rows at a
        time (`batch_size`, by default 50; None: the whole call at once), each cavity leaving out the share 1/n_c of the
        sums; then the hyper-parameters in `learn` take one step. After `fit` with the same method it adds to that model.

        The first call says which classes there are: `classes`, or else those in y; later ones may leave it out. Units and
        inducing points come from its rows, so give it some hundreds. `log_marginal_likelihood_` and `history_` (a row a
        call) are estimates from the call's rows.
        """
        grown, run = partial.grow(self, X, y, classes, sample_weight)
        self._growing: partial.Growing | None = grown
        self._hold(run, grown.begin, runs.sound_evidence(run))
        return self

    def _table(self, X: Any, y: Any, sample_weight: Any) -> Table:
        rows = check_rows(self, X, reset=True)
        labels = check_labels(y, len(rows))
        weight = check_weights(sample_weight, rows)
        if self.class_weight is not None:
            weight = weight * weight_of_class(self.class_weight, labels, weight)
        present = weight > 0
        self.classes_, encoded = np.unique(labels[present], return_inverse=True)
        if len(self.classes_) < 2:
            raise BadInput(
                f"y has only one class, {str(self.classes_[0])!r} (rows of weight 0 do not count): a classifier needs at least "
                "two; look at how the rows were selected."
            )
        if not present.all():
            rows, weight = rows[present], weight[present]
        return Table(rows, encoded.reshape(-1), weight, len(self.classes_))

    def _keep(self, run: Run, begin: Start, table: Facts) -> None:
        self._growing = partial.keep(self, run, begin, table)
        self._hold(run, begin, runs.sound_evidence(run))

    def _show(self, model: fitted.Fitted) -> None:
        prior, C = model.prior, model.prior.n_latent
        self._take(model, C)
        self._set("epsilon_", getattr(model.factor, "epsilon", None))
        self.inducing_points_ = np.repeat(fitted.numpy(prior.Z), C // prior.Z.shape[0], axis=0)
        self._set("frequencies_", fitted.frequencies(prior))
        self.noise_ = np.repeat(fitted.numpy(prior.noise), C // len(prior.noise))

    def _latent(self, rows: Array) -> Any:
        return fitted.latent(self._fitted, fitted.tensor(rows))

    def _log_proba(self, rows: Array) -> Array:
        return fitted.log_probability(self._fitted, self._latent(rows)).numpy()

    def _labels(self, rows: Array) -> NDArray[Any]:
        return np.asarray(self.classes_[self._log_proba(rows).argmax(1)])

    def predict_latent(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the latent values, noise included: each (n, C), or (n, 1) for two classes."""

        def latent(rows: Array) -> tuple[Array, Array]:
            f = self._latent(rows)
            return f.mean.cpu().numpy(), f.var.cpu().numpy()

        mean, var = blocks.predicted(self, X, latent)
        return mean, var

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities (n, C), also where the probabilities underflow.

        With more than 16 classes, one that cannot win a row gets an upper bound: its duel with the row's leader.
        X as for `predict`.
        """
        (log_p,) = blocks.predicted(self, X, lambda rows: (self._log_proba(rows),))
        return np.asarray(log_p)

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities (n, C), columns in the order of `classes_`; X as for `predict`."""
        (p,) = blocks.predicted(self, X, lambda rows: (np.exp(self._log_proba(rows)),))
        return np.asarray(p)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row.

        X may also be what `fit` reads in pieces: a .npy file or memory map, a Parquet or Arrow file, a folder of them, a pyarrow
        table or dataset (the columns that the model was fitted on, by name; others are not read), or batches, with their labels
        or without. Then no more than a block of rows is in memory, beside the result.
        """
        (labels,) = blocks.predicted(self, X, lambda rows: (self._labels(rows),))
        return np.asarray(labels)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, target: Any = None, weight: Any = None
    ) -> float:
        """Share of the rows whose label is predicted, by weight; rows, labels and weights in every way that `fit` takes them."""
        source = blocks.labelled(self, X, y, sample_weight, target, weight)
        if source is None:
            return float(super().score(X, y, sample_weight))
        return blocks.accuracy(self, source, self._labels)

    def predict_uncertainty(self, X: Any) -> uncertainty.Uncertainty:
        """Entropy of each row's label, `total`, and its parts `aleatoric` and `epistemic`: arrays (n,), in nats.

        Aleatoric is what would stay if the latent functions were known: noise, random labels, softmax. Epistemic is the rest, the
        mutual information of label and latent functions (BALD), never negative: what labels nearby could teach. Each part is
        integrated by itself; total = aleatoric + epistemic holds to the error of that, 1e-8 for two classes (or rows where
        only two can win), a few 1e-3 and at most about 0.01 nats otherwise. The same rows always get the same numbers.
        X as for `predict`.
        """
        parts = blocks.predicted(self, X, lambda rows: uncertainty.of(self._fitted, self._latent(rows)))
        return uncertainty.Uncertainty(*parts)

    def rank_for_labeling(self, X: Any, n: int | None = None) -> NDArray[np.int64]:
        """Row numbers of X, or of its `n` best rows, whose labels would teach the model most first: by epistemic uncertainty."""
        return uncertainty.ranked(lambda: self.predict_uncertainty(X), n)

    def diagnose(
        self, X: Any, y: Any, sample_weight: Any = None, *, n_samples: int = 1000, random_state: Any = 0
    ) -> diagnosis.Diagnosis:
        """How far to trust this fit on the rows it was fitted to: samples of q, weighted by how probable the model makes them.

        The result has the model's log evidence with its standard error, beside `log_marginal_likelihood_`, the effective number
        of samples, and Pareto's k: below 0.5 is good, above 0.7 q misses part of the posterior. Needs the extra "diagnose".
        """
        check_is_fitted(self, "_fitted")
        rows, encoded, weight = diagnosis.rows_of_fit(self, X, y, sample_weight)
        n = whole("n_samples", n_samples, 25)
        rng = check_random_state(random_state)
        return diagnosis.diagnose(self._fitted, rows, encoded, weight, self.log_marginal_likelihood_, n, rng)
