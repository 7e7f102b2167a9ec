"""Runs: from an engine and its rows to training, and what to warn about afterwards."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.distributed import Local
from cavity.fitting import build
from cavity.inference import Engine, Sites, State
from cavity.inference.posterior import Sums
from cavity.options import Options
from cavity.prediction.model import copy_engine
from cavity.rows.batches.shuffle import shard_range
from cavity.rows.batches.stream import Data
from cavity.rows.tables import Facts
from cavity.training.guard import JITTER, make_factorisation_error
from cavity.training.lbfgs import train_lbfgs
from cavity.training.loop import Run, RunSettings
from cavity.training.objective import Rest, converge_sites
from cavity.training.progress import make_reporter

EXTEND_TOL, EXTEND_SWEEPS = 1e-4, 5  # of the sites of rows that are added


def make_run(
    engine: Engine, rows: Data, options: Options, seed: int, reduce: Local, earlier: State | None = None
) -> Run:
    """Make a run that has not started; it continues from `earlier`, the last fit's state, if given."""
    data = rows if reduce.world == 1 else rows.shard(reduce.rank, reduce.world)
    config, chosen = options.config, options.plan
    damping = chosen.damping if len(engine.hyper_prior.mean) else chosen.sweep_damping
    state = build.make_first_state(engine, data, options, damping, seed)
    has_q = False  # and not only a prior to start from
    if earlier is not None:
        state, has_q = _continue_from(state, earlier)
        state = engine.at(state, state.theta)
    shown = config.verbose if reduce.rank == 0 else 0
    plan = RunSettings(
        **chosen.steps(),
        learn=bool(len(state.theta)),
        optimiser=build.make_optimiser(options),
        leap=not options.method.variational or options.method.linear,
        warm_up=None if has_q else build.make_warm_up(engine, options),
        replay=records_steps(options, reduce),
        report=make_reporter(shown, chosen.max_epochs, float(engine.total)),
    )
    return Run(engine, data, plan, state, reduce)


def records_steps(options: Options, reduce: Local) -> bool:
    """Return whether mini-batch steps are recorded and replayed: on a GPU that one process has to itself."""
    return options.config.device.type == "cuda" and reduce.world == 1


def count_work(run: Run) -> int:
    """Return the multiply-adds of a step's largest product, C × M × M × batch."""
    C, M = run.engine.shape
    return C * M * M * (run.plan.batch_size or run.rows.n_rows)


def train(run: Run, options: Options) -> Run:
    """Train to the end, by the common loop or by that of L-BFGS."""
    return train_lbfgs(run) if run.plan.learn and options.plan.optimizer == "lbfgs" else run.train()


class Kept(NamedTuple):
    """Rows of a run that a part of them keeps."""

    place: Tensor  # [n]
    share: Tensor  # [n], of the row's weight: merged rows lose a part of it


def extend(run: Run, options: Options, table: Facts, kept: Kept) -> Run:
    """Return the run with the sites of more rows, swept at its hyper-parameters; sites that are not `kept` begin anew."""
    engine, reduce = build.with_rows(copy_engine(run.engine), table, options), run.reduce
    data = table.rows(options.config)
    if reduce.world > 1:
        data = data.shard(reduce.rank, reduce.world)
    mine = shard_range(len(kept.place), reduce.rank, reduce.world)
    place, share = (column[mine.start : mine.stop] for column in kept)
    tau, nu, clock = (torch.cat(reduce.gather(t.cpu()))[place] for t in run.state.sites)
    sites = Sites(tau * share[:, None], nu * share[:, None], clock)
    sites = Sites(*(t.to(old) for t, old in zip(sites, run.state.sites, strict=True)))
    plan = replace(run.plan, max_seconds=None, report=lambda row: None)
    found = Run(engine, data, plan, run.state._replace(sites=sites), reduce)
    tol = run.plan.tol or EXTEND_TOL
    state = converge_sites(found, found.state, Rest(tol, math.sqrt(tol), EXTEND_SWEEPS, collect=True))
    if state is None:
        raise make_factorisation_error(found.state, 0)
    found.state, found.plan, found.started, found.callbacks = state, run.plan, run.started, run.callbacks
    found.history, found.converged, found.stopped = run.history, run.converged, run.stopped
    found.guard.repairs, found.pace = run.guard.repairs, run.pace
    return found


def label_evidence(run: Run) -> float:
    """Return log Z_q of labels; NaN if it is above 0, as far from the fixed point: no probability is."""
    evidence = run.evidence()
    return evidence if evidence <= 0 else math.nan


NO_EVIDENCE = (
    "training stopped while the sites were far from their fixed point, where log Z_q is not an evidence (it was above 0): "
    "log_marginal_likelihood_ is NaN. Raise max_epochs= or Training(max_seconds=...) before you compare models by it.",
    RuntimeWarning,
)


def find_warnings(
    run: Run, options: Options, lightest: float = 1.0, limit: str = "Training(max_seconds=...)"
) -> list[tuple[str, type[Warning]]]:
    """Return what the user should know of a run; `lightest`: the smallest weight, `limit`: the argument that limits the time."""
    found: list[tuple[str, type[Warning]]] = []
    if lightest < 1 and _matches_whole_rows(run, options):
        text = (
            f"rows of weight below 1 (the smallest is {lightest:.3g}) count for too little: the factors of this method have no "
            "fractional powers. Probabilities near them are too cautious, log_marginal_likelihood_ is too large. Use "
            "method='ep', which is right for any weight."
        )
        found.append((text, RuntimeWarning))
    if run.guard.repairs:
        text = (
            f"{run.guard.repairs} steps lost their Cholesky factor and were repaired (see 'repairs' in history_); the fit went "
            f"on with smaller steps. If the result is poor, raise {JITTER} or lower learning_rate=."
        )
        found.append((text, RuntimeWarning))
    # the library's own plan for mini-batches ends with its last epoch; any other limit is a limit
    as_planned = options.plan.planned and len(run.history) >= options.plan.max_epochs
    if not (run.converged or run.stopped or as_planned):
        text = (
            f"training stopped after {len(run.history)} epochs, before the objective converged to tol={run.plan.tol:g}: raise "
            f"max_epochs= or {limit}, or accept a larger Training(tol=...) (command line: --max-epochs, "
            "--max-seconds, or tol = ... in the file of --config)."
        )
        from sklearn.exceptions import ConvergenceWarning

        found.append((text, ConvergenceWarning))
    return found


def warn(found: list[tuple[str, type[Warning]]], stacklevel: int) -> list[str]:
    for text, kind in found:
        warnings.warn(text, kind, stacklevel=stacklevel + 1)
    return [text for text, _ in found]


def _matches_whole_rows(run: Run, options: Options) -> bool:
    """Return whether a row of weight below 1 is matched as a whole row.  [docs/decisions/0008]"""
    method = options.method
    if method.variational or method.at_mode:
        return False
    return method.on_f or not run.engine.factor.tempers


def _continue_from(fresh: State, old: State) -> tuple[State, bool]:
    """Return the new state with what still fits of the old one, and whether that includes q."""
    if old.theta.shape == fresh.theta.shape:
        fresh = fresh._replace(theta=old.theta.to(fresh.theta))
    fits = old.sums.P.shape == fresh.sums.P.shape and old.sites.tau.shape == fresh.sites.tau.shape
    if fits:
        sums = Sums(*(a.to(b, copy=True) for a, b in zip(old.sums, fresh.sums, strict=True)))
        sites = Sites(*(a.to(b, copy=True) for a, b in zip(old.sites, fresh.sites, strict=True)))
        fresh = fresh._replace(sums=sums, sites=sites, clock=old.clock.to(fresh.clock))
    return fresh, fits
