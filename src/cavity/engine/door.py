"""The door of the engine: a model and arrays go in, a posterior comes out.

Nothing changes the model. `infer` finds q at its hyper-parameters, `evidence` has log
Z_q and its gradient, `fit` returns a model with other hyper-parameters. Arrays of NumPy
and tensors are taken alike; the rows X decide the precision and the device, and results
are tensors there, in float64.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.common.ranks import Local
from cavity.engine import assembly, runs
from cavity.engine.assembly import Weights
from cavity.engine.batches.in_memory import RowsInMemory
from cavity.engine.kernels.hyper_prior import HyperPrior
from cavity.engine.methods import EP, Scheme
from cavity.engine.models import GP, Modules, to_array
from cavity.engine.posteriors import Posterior
from cavity.engine.training.callbacks import Callback
from cavity.engine.training.fixed_point import Rest
from cavity.engine.training.loop import Run
from cavity.engine.training.objective import Point, evaluate_first
from cavity.engine.training.steps import Steps
from cavity.errors import BadInput, BadOption

JITTER = {torch.float64: 1e-6, torch.float32: 1e-4}  # relative to the kernel's variance
PIECE_BYTES = 128 << 20  # of a projection [C M B]
TOL = {torch.float64: 1e-8, torch.float32: 1e-4}  # of fixed points


class Evidence(NamedTuple):
    """log Z_q plus the log density of given priors, and its gradient in `GP.theta`."""

    value: float
    gradient: Tensor  # [P]


class Fit(NamedTuple):
    """What `fit` leaves."""

    gp: GP  # with the learnt hyper-parameters
    posterior: Posterior
    history: list[dict[str, Any]]  # one row for each epoch


def begin(
    gp: GP,
    X: Any,
    y: Any,
    *,
    method: Scheme | None = None,
    plan: Steps | None = None,
    weight: Any = None,
    hyper_prior: HyperPrior | None = None,
    seed: int = 0,
    ranks: Local | None = None,
) -> Run:
    """Return a run that has not started, for a loop of your own.

    It has an `engine`, `rows` and a first `state`, in which q is the prior.

    The method sets the damping. `ranks`: from `cavity.distributed.join()`; every rank
    receives all rows, and works on its part.
    """
    method = method or EP()
    rows = _make_rows(X, y, weight)
    kind = rows.X.dtype
    modules = gp.make_modules(rows.X.device, kind)
    prior = modules.prior
    if hyper_prior is not None:
        hyper_prior = hyper_prior.to(prior.center)

    weights = Weights(
        y=rows.y,
        totals=to_array(rows.weight),
        lightest=float(rows.weight.min()),
        heaviest=float(rows.weight.max()),
    )
    plan = replace(plan or Steps(), sweep_damping=method.damping)
    engine = assembly.make_engine(
        *modules,
        method,
        weights,
        hyper_prior=hyper_prior,
        chunk=max(1, PIECE_BYTES // (kind.itemsize * gp.n_latent * prior.size)),
        exact=plan.schedule == "inner-exact",
    )
    damping = 1.0
    if plan.batch_size is None:
        damping = method.damping

    jitter = JITTER[kind]
    if gp.jitter is not None:
        jitter = gp.jitter

    return runs.make_run(
        engine,
        rows,
        plan,
        method,
        damping=damping,
        jitter=jitter,
        seed=seed,
        reduce=ranks,
    )


def finish(gp: GP, run: Run) -> Fit:
    """Return what a run has learnt: the model, its posterior and the history."""
    run.engine.load(run.state.theta, copy=True)
    learnt = gp.read(Modules(run.engine.prior, run.engine.factor))
    return Fit(learnt, _make_posterior(learnt, run, run.evidence()), run.history)


def infer(
    gp: GP,
    X: Any,
    y: Any,
    *,
    method: Scheme | None = None,
    weight: Any = None,
    tol: float | None = None,
    max_sweeps: int = 1000,
    ranks: Local | None = None,
) -> Posterior:
    """Return the posterior at the fixed point of the sites.

    The hyper-parameters are the model's.

    Sweeps end when they move the sites, relative to their size, and log Z_q per row by
    less than `tol` (1e-8, or 1e-4 in float32), or after `max_sweeps`: see
    `Posterior.residual`.
    """
    fixed = replace(gp, learn=frozenset())
    run = begin(fixed, X, y, method=method, weight=weight, ranks=ranks)
    found = _find_fixed_point(run, tol, max_sweeps)
    return _make_posterior(gp, run, found.evidence)


def evidence(
    gp: GP,
    X: Any,
    y: Any,
    *,
    method: Scheme | None = None,
    weight: Any = None,
    tol: float | None = None,
    max_sweeps: int = 1000,
    ranks: Local | None = None,
) -> Evidence:
    """Return log Z_q at the fixed point of the sites, and its gradient in `gp.theta`.

    Use it with an optimiser, a sampler or Bayesian optimisation of your own.

    The gradient is exact for methods with own sites; SEP's holds the sums fixed. Priors
    that the model's hyper-parameters were given enter value and gradient, as densities
    of `theta`.
    """
    run = begin(gp, X, y, method=method, weight=weight, ranks=ranks)
    return find_evidence(run, tol, max_sweeps)


def find_evidence(
    run: Run, tol: float | None = None, max_sweeps: int = 1000
) -> Evidence:
    """Return log Z_q and its gradient at the hyper-parameters of a run.

    The run has no hyper-prior, as `begin` makes it.
    """
    found = _find_fixed_point(run, tol, max_sweeps)
    return Evidence(found.value, found.gradient.double())


def fit(
    gp: GP,
    X: Any,
    y: Any,
    *,
    method: Scheme | None = None,
    steps: int = 200,
    batch_size: int | None = None,
    optimizer: str = "adam",
    rate: float = 0.01,
    tol: float = 0.0,
    weight: Any = None,
    hyper_prior: HyperPrior | None = None,
    seed: int = 0,
    callbacks: tuple[Callback, ...] = (),
    ranks: Local | None = None,
) -> Fit:
    """Learn hyper-parameters, and let the sites converge.

    Return the learnt model, its posterior and the history.

    `steps` are rounded up to whole passes over the rows. `optimizer`: "adam", "sign" or
    "lbfgs". `hyper_prior`: see `make_hyper_prior`; None leaves priors that the model was
    given alone beside log Z_q. For other schedules:
    `finish(gp, train(begin(gp, X, y, plan=Steps(...))))`.
    """
    epochs = steps
    if batch_size is not None:
        steps_per_epoch = math.ceil(len(y) / batch_size)
        epochs = math.ceil(steps / steps_per_epoch)

    plan = Steps(
        optimizer=optimizer,
        rate=rate,
        batch_size=batch_size,
        max_epochs=epochs,
        tol=tol,
    )
    run = begin(
        gp,
        X,
        y,
        method=method,
        plan=plan,
        weight=weight,
        hyper_prior=hyper_prior,
        seed=seed,
        ranks=ranks,
    )
    run.callbacks = callbacks
    return finish(gp, runs.train(run))


def _find_fixed_point(run: Run, tol: float | None, max_sweeps: int) -> Point:
    """Let the sites of a run converge, and leave them in its state."""
    if not run.engine.sites.sweeps:
        raise BadOption(
            "sites='free' has no sweeps that find q at given hyper-parameters: use "
            "engine.fit, or VI() with the natural gradient."
        )

    run.warm_up()
    if tol is None:
        tol = TOL[run.engine.prior.center.dtype]
    rest = Rest(tol, tol, max_sweeps)
    found = evaluate_first(run, run.state.theta, rest)
    run.state = found.state
    return found


def _make_posterior(gp: GP, run: Run, log_evidence: float) -> Posterior:
    after, _ = run.engine.step(run.state, run.whole, run.reduce, None, True)
    h = run.state.sums.h
    moved = (after.sums.h - h).norm() / h.norm().clamp_min(1e-300)
    residual = float(moved / run.state.damping)
    run.engine.load(run.state.theta, copy=True)
    return Posterior(gp, run.engine, run.state, log_evidence, residual)


def _make_rows(X: Any, y: Any, weight: Any) -> RowsInMemory:
    rows = torch.as_tensor(X)
    if rows.dtype not in JITTER:
        rows = rows.double()
    labels = torch.as_tensor(y, device=rows.device)
    if weight is None:
        weight = np.ones(len(rows))
    weights = torch.as_tensor(weight, dtype=torch.float64, device=rows.device)
    if not len(rows) == len(labels) == len(weights):
        raise BadInput(
            f"X, y and weight have {len(rows)}, {len(labels)} and {len(weights)} rows."
        )
    if rows.ndim != 2 or not len(rows):
        raise BadInput(f"X has shape {tuple(rows.shape)}; it has to be [N D], N > 0.")
    if not (weights > 0).all():
        raise BadInput("weights have to be positive: leave rows of weight 0 out.")

    return RowsInMemory(rows, labels, weights)
