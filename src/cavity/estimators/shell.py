"""What the estimators have in common: a fit around an engine, the attributes that it leaves, and a file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from cavity.columns import Columns
from cavity.distributed import Local
from cavity.estimators import fitted, runs, sampling, saved, watch
from cavity.estimators.options import Options
from cavity.estimators.tables import Facts, Start, Table
from cavity.inference import Engine
from cavity.kernels import Kernel
from cavity.training.checkpoint import restore_run
from cavity.training.loop import Run

Array = NDArray[np.float64]
Fit = TypeVar("Fit", bound=Callable[..., Any])


def all_or_nothing(fit: Fit) -> Fit:
    """A fit that fails leaves the estimator as it was, an older model among it; what an interrupted one has learnt is kept."""

    @functools.wraps(fit)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            if vars(self).get("_fitted") is before.get("_fitted"):
                vars(self).clear()
                vars(self).update(before)
            raise

    return whole  # type: ignore[return-value]


class Shell(BaseEstimator):  # type: ignore[misc]
    """`fit` of an estimator checks its rows and builds an engine; the rest is here."""

    def _seed(self, reduce: Local) -> int:
        """That of the run, after a look at the arguments that say how it is watched."""
        watch.check(self, reduce)
        return watch.seed(self, int(check_random_state(self.random_state).randint(2**31 - 1)), reduce)

    def _start(self, table: Facts, rng: np.random.Generator) -> Start:
        """The table's starting values; a warm start keeps the units of the old parameters."""
        begin = table.start(rng)
        warm = self.warm_start and hasattr(self, "_state")
        if warm and len(self._columns.center) == self.n_features_in_:
            begin = begin._replace(columns=self._columns)
        return begin

    def _run(
        self,
        engine: Engine,
        table: Facts,
        options: Options,
        seed: int,
        rng: np.random.Generator,
        reduce: Local,
        held: Table | None = None,
    ) -> Run:
        """A run that has not begun, or that goes on from a checkpoint."""
        run = runs.start(self, engine, table.rows(options), options, int(rng.integers(2**31 - 1)), reduce)
        M = engine.prior.size
        known = watch.facts(self, table, M, seed) if self.checkpoint is not None else {}
        run.callbacks = watch.callbacks(self, held, known, reduce)
        stored = watch.stored(self, reduce)
        if stored is not None:
            restore_run(run, stored, known)
        return run

    def _train(self, run: Run, options: Options, keep: Callable[[Run], None]) -> Run:
        """To the end; interrupted, what was learnt so far is there to predict with."""
        try:
            return runs.train(run, options)
        except KeyboardInterrupt:
            watch.go_back(run)
            keep(run)
            raise

    def _hold(self, run: Run, begin: Start, evidence: float) -> None:
        """The fitted attributes: NumPy, in the user's units."""
        self.log_marginal_likelihood_ = evidence
        bounded = run.engine.removal == 0 and getattr(run.engine.factor, "bounds", True)
        self._set("elbo_", evidence if bounded else None)
        self._show(fitted.extract(run.engine, run.state))
        self.history_ = run.history
        self.n_epochs_ = len(run.history)
        self.fit_warnings_: list[str] = []
        self.feature_relevance_ = _relevance(self.kernel_, begin)
        if self.warm_start:
            self._state = fitted.on_cpu(run.state)
            self._columns: Columns = begin.columns

    def _show(self, model: fitted.Fitted) -> None:
        """The model, and the attributes that are read off it."""
        raise NotImplementedError

    def _take(self, model: fitted.Fitted, classes: int) -> None:
        """The model and its kernel, the kernel's values as one set for each class."""
        self._fitted, self.kernel_ = model, model.prior.kernel
        if isinstance(self.kernel_, Kernel):
            self.kernel_.settle(classes)

    def _set(self, name: str, value: Any) -> None:
        """An attribute that only some methods have."""
        if value is not None:
            setattr(self, name, value)
        elif hasattr(self, name):
            delattr(self, name)

    def _move(self, device: torch.device) -> None:
        """Where it predicts from now on."""
        self._fitted = self._fitted.to(device)

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
        """Draws of the hyper-parameters from their posterior, by NUTS, and predictions averaged over them.

        X and y are the rows of the fit, whose hyper-parameters the chains start around. The density is that of `history_`'s
        "objective": log Z_q, the evidence or the bound, with the sites at rest, plus the log prior.

        The result has `draws` by name, arrays (chains, n_samples, ...) in the user's units, with `r_hat` and `ess` of each,
        `acceptance`, `divergences` and `warnings`; it predicts as the estimator does (`predict`, with `return_std` for a regressor,
        `predict_proba` and `predict_log_proba` for a classifier), averaged over `n_models` of the draws, evenly spaced. `print`
        shows it as a table. With "inducing" in `over` the inducing points are sampled too. Needs the extra "mcmc".
        """
        asked = sampling.Asked(n_samples, warmup, chains, target_accept, n_models)
        return sampling.sample(self, X, y, sample_weight, over, asked, random_state)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors and JSON), aside and renamed; `cavity.load(path)` reads it.

        The file has the arguments, the posterior with its inducing points, and what `partial_fit` continues from. Inducing
        points that are not learnt are rows of the data, and a GPRegressor of method "nystrom" or "cg" predicts from all training
        rows, which are then in its file; `cavity info` says which rows are. Not in it: callbacks, a RandomState, the code of a
        kernel of your own, and what `warm_start` continues from.
        """
        saved.save(self, path)


def _relevance(kernel: Any, begin: Start) -> Array | None:
    """How much each column matters: inverse lengthscales in units of the spread, averaged over classes, summing to one."""
    weights = kernel.relevance(begin.columns) if isinstance(kernel, Kernel) else None
    if weights is None:
        return None
    mean = np.asarray(weights).mean(0)
    return np.asarray(mean / mean.sum())
