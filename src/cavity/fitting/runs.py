"""Runs: from an engine and its rows to training, and on to more rows."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from cavity.common.progress import make_reporter
from cavity.common.ranks import Local
from cavity.common.types import Floats, Ints
from cavity.engine.batches.stream import Data
from cavity.engine.inference import Engine, Sites, State
from cavity.engine.inference.posterior import Sums
from cavity.engine.training.fixed_point import Rest, find_fixed_point
from cavity.engine.training.guard import make_factorisation_error
from cavity.engine.training.lbfgs import train_lbfgs
from cavity.engine.training.loop import Run
from cavity.engine.training.newton import train_newton
from cavity.fitting import build
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import TrainingPlan
from cavity.fitting.rows_on_device import load_rows
from cavity.prediction.model import copy_engine
from cavity.tables.table import Facts

# of the sites of rows that are added
EXTEND_TOL = 1e-4
EXTEND_SWEEPS = 5


def make_run(
    engine: Engine,
    rows: Data,
    config: Config,
    plan: TrainingPlan,
    seed: int,
    reduce: Local,
    earlier: State | None = None,
) -> Run:
    """Make a run that has not started; it continues from `earlier`, the last fit's
    state, if given.
    """
    data = rows.shard(reduce.rank, reduce.world)
    if len(engine.hyper_prior.mean):
        damping = plan.damping
    else:
        damping = plan.sweep_damping
    state = build.make_first_state(engine, data, config, plan, damping, seed)
    has_q = False
    if earlier is not None:
        state, has_q = _continue_from(state, earlier)
    return Run(
        engine,
        data,
        plan,
        state,
        reduce,
        optimiser=build.make_optimiser(plan),
        warm_up_engine=None if has_q else build.make_warm_up(engine, config, plan),
        replays=records_steps(config, reduce),
        report=make_reporter(
            config.verbose * (reduce.rank == 0), plan.max_epochs, float(engine.total)
        ),
    )


def records_steps(config: Config, reduce: Local) -> bool:
    """Return whether mini-batch steps are recorded and replayed: on a GPU that one
    process has to itself.
    """
    return config.device.type == "cuda" and reduce.world == 1


def count_work(run: Run) -> int:
    """Return the multiply-adds of a step's largest product, C × M × M × batch."""
    C, M = run.engine.shape
    return C * M * M * (run.plan.batch_size or run.rows.n_rows)


def train(run: Run) -> Run:
    """Train to the end, by the common loop or by that of the optimiser."""
    if run.learns and run.plan.optimizer == "lbfgs":
        return train_lbfgs(run)
    if run.learns and run.plan.optimizer == "newton":
        return train_newton(run)
    return run.train()


def extend_rows(
    run: Run,
    config: Config,
    plan: TrainingPlan,
    table: Facts,
    place: Ints,
    share: Floats,
) -> Run:
    """Return the run with the sites of more rows, swept at its hyper-parameters.

    A row begins with this share of the sites that the row at its place had: merged rows
    lose a part of their weight, new ones all.
    """
    engine = build.with_rows(copy_engine(run.engine), table, config, plan)
    data = load_rows(table, config.dtype, config.device).shard(
        run.reduce.rank, run.reduce.world
    )
    own = slice(data.keep.start, data.keep.stop)
    every = (
        torch.cat(run.reduce.gather(t.cpu()))[place[own]] for t in run.state.sites
    )  # of all ranks
    tau, nu, clock = (t.to(run.state.theta.device) for t in every)
    kept = torch.from_numpy(share[own])[:, None].to(tau)
    tol = run.plan.tol or EXTEND_TOL
    state = run.state._replace(sites=Sites(tau * kept, nu * kept, clock))
    found = replace(
        run,
        engine=engine,
        rows=data,
        plan=replace(run.plan, max_seconds=None),
        state=state,
    )
    swept = find_fixed_point(
        found, state, Rest(tol, math.sqrt(tol), EXTEND_SWEEPS, collect=True)
    )
    if swept is None:
        raise make_factorisation_error(found.state, 0)
    found.state = swept
    found.plan = run.plan
    found.guard.repairs = run.guard.repairs
    found.pace = run.pace
    return found


def label_evidence(run: Run) -> float:
    """Return log Z_q of labels; NaN if it is above 0, as far from the fixed point: no
    probability is.
    """
    evidence = run.evidence()
    return evidence if evidence <= 0 else math.nan


def _continue_from(fresh: State, old: State) -> tuple[State, bool]:
    """Return the new state with what still fits of the old one, and whether that
    includes q.
    """
    if old.theta.shape == fresh.theta.shape:
        fresh = fresh._replace(theta=old.theta.to(fresh.theta))
    fits = (
        old.sums.P.shape == fresh.sums.P.shape
        and old.sites.tau.shape == fresh.sites.tau.shape
    )
    if fits:
        sums = Sums(
            *(a.to(b, copy=True) for a, b in zip(old.sums, fresh.sums, strict=True))
        )
        sites = Sites(
            *(a.to(b, copy=True) for a, b in zip(old.sites, fresh.sites, strict=True))
        )
        fresh = fresh._replace(sums=sums, sites=sites, clock=old.clock.to(fresh.clock))
    return fresh, fits
