"""Runs: from an engine and its rows to training, and on to more rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cavity.common.ranks import Local
from cavity.engine import assembly
from cavity.engine.batches.stream import Data
from cavity.engine.inference import Engine, Sites, State
from cavity.engine.inference.posterior import Sums
from cavity.engine.inference.state import map_tensors
from cavity.engine.methods import Scheme
from cavity.engine.training.fixed_point import Rest, find_fixed_point
from cavity.engine.training.guard import make_factorisation_error
from cavity.engine.training.lbfgs import train_lbfgs
from cavity.engine.training.loop import Run
from cavity.engine.training.newton import train_newton
from cavity.engine.training.steps import Steps

# of the sites of rows that are added
EXTEND_TOL = 1e-4
EXTEND_SWEEPS = 5


def say_nothing(row: dict[str, Any]) -> None:
    """Report nothing of an epoch."""


def make_run(
    engine: Engine,
    rows: Data,
    steps: Steps,
    method: Scheme,
    *,
    damping: float,
    jitter: float,
    seed: int = 0,
    reduce: Local | None = None,
    earlier: State | None = None,
    report: Callable[[dict[str, Any]], None] = say_nothing,
) -> Run:
    """Make a run that has not started, on this rank's part of the rows.

    `earlier`: the state of another run, from which it continues.
    """
    reduce = reduce or Local()
    data = rows.shard(reduce.rank, reduce.world)
    state = assembly.make_first_state(
        engine, data, steps, damping=damping, jitter=jitter, seed=seed
    )
    has_q = False
    if earlier is not None:
        state, has_q = continue_from(state, earlier)
        state = state._replace(theta=engine.hyper_prior.clip(state.theta))
    if has_q:
        state = engine.sites.adopt(state)
    warm_up = None
    if method.starts_from_ep and not has_q:
        warm_up = assembly.make_warm_up(engine)
    return Run(
        engine,
        data,
        steps,
        state,
        reduce,
        optimiser=assembly.make_optimiser(steps, engine, data),
        warm_up_engine=warm_up,
        replays=records_steps(engine.total.device, reduce),
        report=report,
    )


def records_steps(device: torch.device, reduce: Local) -> bool:
    """Return whether mini-batch steps are recorded and replayed.

    They are on a GPU that one process has to itself.
    """
    return device.type == "cuda" and reduce.world == 1


def count_work(run: Run) -> int:
    """Return the multiply-adds of a step's largest product, C × M × M × batch."""
    C, M = run.engine.shape
    return C * M * M * (run.plan.batch_size or run.rows.n_rows)


def train(run: Run) -> Run:
    """Train to the end, by the common loop or by the optimizer's own."""
    if run.learns and run.plan.optimizer == "newton":
        return train_newton(run)
    if run.learns and run.plan.optimizer == "lbfgs":
        return train_lbfgs(run)

    return run.train()


def continue_from(fresh: State, old: State) -> tuple[State, bool]:
    """Return the new state with what still fits of the old one.

    The second value says whether that includes q.
    """
    if old.theta.shape == fresh.theta.shape:
        fresh = fresh._replace(theta=old.theta.to(fresh.theta))
    fits = (
        old.sums.P.shape == fresh.sums.P.shape
        and old.sites.tau.shape == fresh.sites.tau.shape
    )
    if fits:
        sums: Sums = map_tensors(_copy_to, old.sums, fresh.sums)
        sites: Sites = map_tensors(_copy_to, old.sites, fresh.sites)
        clock = old.clock.to(fresh.clock)
        fresh = fresh._replace(sums=sums, sites=sites, clock=clock)

    return fresh, fits


def _copy_to(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like, copy=True)


def extend_rows(
    run: Run, engine: Engine, rows: Data, place: Tensor, share: Tensor
) -> Run:
    """Return the run with the sites of more rows, swept at its hyper-parameters.

    `engine` is the engine of the same model for the new rows. A row begins with the
    share `share` [N] of the sites that the row at its place [N] had: merged rows lose a
    part of their weight, new rows all of it.
    """
    data = rows.shard(run.reduce.rank, run.reduce.world)
    own = slice(data.keep.start, data.keep.stop)
    device = run.state.theta.device

    # the sites of all ranks' rows, read at this rank's new rows
    tables = (torch.cat(run.reduce.gather(t.cpu())) for t in run.state.sites)
    tau, nu, clock = (table[place[own]].to(device) for table in tables)
    kept = share[own, None].to(tau)
    state = run.state._replace(sites=Sites(tau * kept, nu * kept, clock))

    steps = replace(run.plan, max_seconds=None)
    found = replace(run, engine=engine, rows=data, plan=steps, state=state)
    tol = run.plan.tol or EXTEND_TOL
    rest = Rest(tol, math.sqrt(tol), EXTEND_SWEEPS, collect=True)
    swept = find_fixed_point(found, state, rest)
    if swept is None:
        raise make_factorisation_error(found.state, 0)

    found.state = swept
    found.plan = run.plan
    found.guard.repairs = run.guard.repairs
    found.pace = run.pace
    return found


def label_evidence(run: Run) -> float:
    """Return log Z_q of labels, or NaN if it is above 0.

    Far from the fixed point it can be, but the log of a probability is not.
    """
    evidence = run.evidence()
    return evidence if evidence <= 0 else math.nan
