"""Runs of an estimator: from an engine and its rows to training, and what is said afterwards."""

from __future__ import annotations

import math
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from cavity.data import Data, Divisible, Shard
from cavity.distributed import Local
from cavity.estimators import build
from cavity.estimators.options import Options
from cavity.inference import Engine
from cavity.training.lbfgs import train_lbfgs
from cavity.training.loop import Plan, Run
from cavity.training.newton import train_newton
from cavity.training.progress import make_reporter

FULL_DAMPING = 0.5  # parallel updates of all sites at once can diverge undamped
VARIATIONAL_DAMPING = 0.2  # natural-gradient steps: 0.5 needs repairs, 1 does not converge
ON_F_DAMPING = (
    0.8  # GFITC sweeps to convergence before every step; 0.5 takes twice as many sweeps, 1 does not converge
)


def start(
    estimator: Any, machine: Engine, rows: Divisible, options: Options, seed: int, reduce: Local
) -> Run:
    """A run that has not begun, or that goes on from the last fit's state."""
    data: Data = rows if reduce.world == 1 else Shard(rows, reduce.rank, reduce.world)
    full = options.batch_size is None or not len(machine.hyper_prior.mean)
    usual = _damping(options)
    damping = options.damping or (usual if full else 1.0)
    state = build.first_state(machine, data, options, damping, seed)
    has_q = False  # and not only a prior to begin with
    if estimator.warm_start and hasattr(estimator, "_state"):
        state, has_q = _continued(state, estimator._state)
        state = machine.at(state, state.theta)
    plan = Plan(
        learn=bool(len(state.theta)),
        schedule=options.schedule,
        optimiser=build.optimiser(options, machine, data),
        rate=options.rate,
        final_rate=options.final_rate,
        sweep_damping=options.damping or usual,
        leap=not options.method.variational or options.method.linear,
        warm_up=None if has_q else build.warm_up(machine, options),
        batch_size=options.batch_size,
        max_epochs=options.max_epochs,
        tol=estimator.tol,
        max_seconds=estimator.max_seconds,
        reshuffle=options.optimizer != "sag",
        replay=records(options, reduce),
        report=make_reporter(
            estimator.verbose if reduce.rank == 0 else 0, options.max_epochs, float(machine.total)
        ),
    )
    return Run(machine, data, plan, state, reduce)


def records(options: Options, reduce: Local) -> bool:
    """Whether mini-batch steps are recorded: on a GPU of its own."""
    return options.device.type == "cuda" and reduce.world == 1


def _damping(options: Options) -> float:
    """Of full sweeps. Newton's steps, and sites that do not depend on where they are asked, need none."""
    method = options.method
    if method.at_mode or method.bound != "quadrature" or method.linear:
        return 1.0
    if method.variational:
        return VARIATIONAL_DAMPING
    return ON_F_DAMPING if method.on_f else FULL_DAMPING


def train(run: Run, options: Options) -> Run:
    """To the end, by the loop or by an optimiser that has one of its own."""
    if run.plan.learn and options.optimizer in ("lbfgs", "newton"):
        return train_lbfgs(run) if options.optimizer == "lbfgs" else train_newton(run)
    return run.train()


def sound_evidence(run: Run) -> float:
    """log Z_q of the last state that has a posterior: sites of negative precision can leave the very last one without."""
    evidence = run.evidence()
    if math.isfinite(evidence):
        return evidence
    info = None
    while info is None:
        kept = run.state
        run.state, info = run.guard.advance(kept, run.whole, None, True)
    run.state = kept
    return float(info.evidence)


def warn(run: Run, options: Options, stacklevel: int, lightest: float = 1.0) -> list[str]:
    """Warn of what the user should know; what was said, for reports. `lightest`: the smallest weight of a row."""
    said: list[str] = []
    if lightest < 1 and _whole_rows(run, options):
        said.append(
            f"rows of weight below 1 (the smallest is {lightest:.3g}) count for too little: the factors of this method have no "
            "fractional powers. Probabilities near them are too cautious, log_marginal_likelihood_ is too large. Use method='ep', "
            "which is right for any weight."
        )
        warnings.warn(said[-1], RuntimeWarning, stacklevel=stacklevel)
    if run.guard.repairs:
        said.append(
            f"{run.guard.repairs} steps lost their Cholesky factor and were repaired (see 'repairs' in history_); the fit "
            "went on with smaller steps. If the result is poor, raise jitter= or lower learning_rate=."
        )
        warnings.warn(said[-1], RuntimeWarning, stacklevel=stacklevel)
    # a plan of ours for mini-batches ends with its last epoch; any other limit is a limit
    planned = options.planned and (options.batch_size is not None or options.recommended)
    as_planned = planned and len(run.history) == options.max_epochs
    if not run.converged and not as_planned:
        said.append(
            f"training stopped after {len(run.history)} epochs, before the objective settled to tol={run.plan.tol:g}: raise "
            "max_epochs= or max_seconds=, or accept a larger tol=."
        )
        warnings.warn(said[-1], ConvergenceWarning, stacklevel=stacklevel)
    return said


def _whole_rows(run: Run, options: Options) -> bool:
    """Whether a row of weight below 1 is matched as a whole one.  [docs/decisions/0008]"""
    method = options.method
    if method.variational or method.at_mode:
        return False
    return method.on_f or not getattr(run.engine.factor, "tempers", True)


def _continued(fresh: Any, old: Any) -> tuple[Any, bool]:
    """The new run's state with what still fits of the old one's, and whether q is among it."""
    if old.theta.shape == fresh.theta.shape:
        fresh = fresh._replace(theta=old.theta.to(fresh.theta))
    fits = old.sums.P.shape == fresh.sums.P.shape and old.sites.tau.shape == fresh.sites.tau.shape
    if fits:
        sums, sites = (
            type(new)(*(a.to(b, copy=True) for a, b in zip(kept, new, strict=True)))
            for kept, new in ((old.sums, fresh.sums), (old.sites, fresh.sites))
        )
        fresh = fresh._replace(sums=sums, sites=sites, clock=old.clock.to(fresh.clock))
    return fresh, fits
