"""GPRegressor: Gaussian process regression through the classifier's engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity import distributed
from cavity.errors import BadOption
from cavity.estimators import blocks, build, fitted, regression, rowwise, runs, target_streams
from cavity.estimators.checks import check_rows
from cavity.estimators.shell import Shell, all_or_nothing
from cavity.estimators.tables import Start
from cavity.estimators.values import whole
from cavity.posterior import Normal
from cavity.training.loop import Run

Array = NDArray[np.float64]


class GPRegressor(RegressorMixin, Shell):  # type: ignore[misc]
    """Gaussian process regression: y = f(x) + noise, exactly or through inducing points.

    The parents of the classifier's methods, in the same engine: a Gaussian likelihood is a site whose precision is known.

    Parameters
    ----------
    method : {"exact", "fitc", "vi", "svi", "pp", "sr", "nystrom", "sd", "bcm", "cg"}
        "exact" takes O(N³); the others O(NM²) with M inducing points. "fitc" keeps each row's own variance in the model, "vi"
        maximises Titsias' lower bound, "svi" the same bound in mini-batches (Hensman). "pp" (projected process) and "sr" (subset of
        regressors) leave the residual variance out of the likelihood, "sr" out of predictions too; "nystrom" replaces the
        training rows' covariance only, and its variances can come out below 0 (they are then 0). Points of these three are not
        learnt. "sd" is the exact method on `n_inducing` rows that are chosen one by one; "bcm" (Bayesian committee machine) on
        `n_blocks` parts of the rows, whose predictions are combined; "cg" learns as "vi" does and then solves the exact system
        by conjugate gradients, preconditioned by what was learnt.
    kernel : None, a kernel of `cavity.kernels`, or a torch.nn.Module with full, cross and diag
        None: RBF with a lengthscale for each column.
    n_inducing : int, or a fraction of the rows
    inducing : {"auto", "random", "kmeans", "greedy", "spectrum"}, None for every row, or an array (M, D)
        "spectrum", for "vi" and "svi": no points but `n_inducing` cosines and sines, at frequencies drawn from the kernel's
        spectrum (RBF, Matérn) and learnt where "frequencies" is in `learn`. The bound is then the evidence of that model itself.
    noise : float
        Variance of the noise on y, in units of y's variance where `normalize_y`. 0 ("exact", "fitc"): y is f itself.
    learn : subset of ("kernel", "noise", "inducing", "frequencies")
        () keeps every value as given and only finds the posterior.
    normalize_y : bool
        Shift and scale y to mean 0 and variance 1 for the fit; predictions and attributes are in the units of y.
    q_update : {"natural", "gradient"}, for "svi"
        Natural-gradient steps of q, or gradient steps of its mean and Cholesky factor together with the hyper-parameters.
    n_blocks : int, and blocks : {"clustered", "random"}, for "bcm"
    selection : {"entropy", "information"}, for "sd"
        The next row is the one whose value is known least, or the one that moves its value most.
    cg_tol : float, for "cg"
        Conjugate gradients end when the residual is this small, relative to the right-hand side.
    optimizer : {"auto", "adam", "sign", "lbfgs", "newton", "gradient", "sag"}
        "auto": L-BFGS-B; for "svi" Adam on mini-batches. "newton" is projected Newton, for few hyper-parameters; "gradient" (full
        batches) and "sag" (stochastic average gradient) are for "svi" with q_update="gradient".
    learning_rate, damping, batch_size, max_epochs, tol, max_seconds, jitter, device, dtype, random_state, warm_start, callbacks,
    checkpoint, checkpoint_every, resume, verbose
        As for `GPClassifier`. The jitter of "exact" is 1e-8.

    Attributes
    ----------
    log_marginal_likelihood_ : float
        Of y in its own units; for "vi" and "svi" the lower bound, which is also `elbo_`.
    noise_ : float
        Variance of the noise, in the units of y².
    kernel_, inducing_points_, history_, n_epochs_
    frequencies_ : (H, D), radians for each unit of a column, with inducing="spectrum"
    """

    def __init__(
        self,
        method: str = "exact",
        *,
        kernel: Any = None,
        n_inducing: int | float = 100,
        inducing: Any = "auto",
        noise: float = 0.1,
        learn: Any = ("kernel", "noise", "inducing"),
        normalize_y: bool = True,
        q_update: str = "natural",
        n_blocks: int = 4,
        blocks: str = "clustered",
        selection: str = "entropy",
        cg_tol: float = 1e-8,
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
        self.noise = noise
        self.learn = learn
        self.normalize_y = normalize_y
        self.q_update = q_update
        self.n_blocks = n_blocks
        self.blocks = blocks
        self.selection = selection
        self.cg_tol = cg_tol
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
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, target: Any = None, weight: Any = None
    ) -> GPRegressor:
        """Train on rows X (N, D) with targets y (N,); a row of weight w counts as w identical rows.

        For methods "svi" and "vi" X may also be a source that is read in pieces and never whole, as for `GPClassifier.fit`: a .npy
        file or memory map with y an array or a .npy file, Parquet or Arrow files with `target` (and `weight`) the names of
        columns, or batches (X, y) or (X, y, weight) that can be iterated again and again.
        """
        reduce = distributed.current()
        regression.check_options(self)
        seed = self._seed(reduce)
        source = target_streams.find(self, X, y, sample_weight, target, weight)
        table: Any = (
            regression.targets(self, X, y, sample_weight)
            if source is None
            else target_streams.read(self, source, seed, reduce)
        )
        rng = np.random.default_rng(seed)
        begin = self._start(table, rng)
        given, table = table, regression.part(self, table, begin, rng)
        Z = regression.choose(self, begin.pool, table, rng)
        options = regression.read(self, table, build.size(self, Z))
        module = build.prior(self, table, begin, Z, options)
        engine = build.engine(module, table, options, regression.factor(self, options))
        run = self._run(engine, table, options, seed, rng, reduce)
        run = self._train(run, options, lambda run: self._keep(run, begin, given))
        self._keep(run, begin, given)
        self.fit_warnings_ = runs.warn(run, options, stacklevel=4)
        return self

    def _keep(self, run: Run, begin: Start, table: Any) -> None:
        self._units = table.shift, table.scale
        self._hold(run, begin, runs.sound_evidence(run) - float(run.engine.total) * math.log(table.scale))
        self._training = self._rows_to_keep(table)

    def _show(self, model: fitted.Fitted) -> None:
        self._take(model, 1)
        self.noise_ = float(model.factor.noise) * self._units[1] ** 2  # type: ignore[attr-defined]
        points = fitted.numpy(model.prior.Z)
        self.inducing_points_ = points[0] if len(points) == 1 else points
        waves = fitted.frequencies(model.prior)
        self._set("frequencies_", None if waves is None else waves[0])

    def _rows_to_keep(self, table: regression.Targets) -> rowwise.Rows | None:
        """The training rows, where predictions go back to them."""
        if self.method not in regression.KEEP_ROWS:
            return None
        X, y, weight = (torch.tensor(t) for t in table.sample())
        noise = float(self._fitted.factor.noise)  # type: ignore[attr-defined]
        return rowwise.build(self._fitted, X, y, weight, noise, self.cg_tol if self.method == "cg" else 0.0)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of f at rows X (n,); with its standard deviation (n,), or its covariance (n, n).

        The noise on y is not in them: add `noise_` to the variance for that of a new y. With its covariance, a committee ("bcm")
        predicts all rows together, which also makes its mean a better one.
        """
        if return_std and return_cov:
            raise BadOption("return_std=True and return_cov=True exclude each other: ask for one of them.")
        shift, scale = self._units_of_y()
        if return_cov:
            center, cov = self._together(fitted.tensor(check_rows(self, X, reset=False)))
            return shift + scale * center.cpu().numpy(), scale**2 * cov.cpu().numpy()

        def moments(rows: Array) -> tuple[Array, Array]:
            f = self._one_by_one(fitted.tensor(rows))
            return shift + scale * f.mean.cpu().numpy(), scale * f.var.clamp_min(0).sqrt().cpu().numpy()

        mean, sd = blocks.predicted(self, X, moments)
        return (mean, sd) if return_std else mean

    def _one_by_one(self, rows: torch.Tensor) -> Normal:
        """Mean and variance of f at each row, [n]."""
        if self._training is not None:
            return rowwise.latent(self._fitted, self._training, rows)
        f = fitted.latent(self._fitted, rows)
        if len(self._fitted.lower) > 1:
            return rowwise.committee(self._fitted, Normal(f.mean, f.var), rows)
        var = f.var[:, 0]
        if self.method == "sr":
            var = var - fitted.residual(self._fitted, rows)
        return Normal(f.mean[:, 0], var)

    def _together(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean [n] and covariance [n n] of f."""
        if self._training is not None:
            return rowwise.joint(self._fitted, self._training, rows)
        if len(self._fitted.lower) > 1:
            return rowwise.committee_joint(self._fitted, rows)
        return fitted.joint_over_rows(self._fitted, rows, self.method != "sr")

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draws of f at rows X from the posterior, (n, n_samples)."""
        mean, cov = self.predict(X, return_cov=True)
        rng = check_random_state(random_state)
        return _draw(mean, cov, whole("n_samples", n_samples, 1), rng)

    def _units_of_y(self) -> tuple[float, float]:
        check_is_fitted(self, "_fitted")
        return self._units

    def _move(self, device: torch.device) -> None:
        super()._move(device)
        if self._training is not None:
            self._training = self._training.to(device)


def _draw(mean: Array, cov: Array, n: int, rng: Any) -> Array:
    """mean + root · N(0, I), the root by eigenvalues: covariances of smooth functions are singular in floating point."""
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean[:, None] + root @ rng.standard_normal((len(mean), n)))
