"""L-BFGS on log Z_q: sites converge at every point that the line search tries. [METHOD 7]"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.inference import Optimiser, State
from cavity.training.convergence import ROUGH_CLASSES, rough_tol
from cavity.training.fixed_point import find_fixed_point
from cavity.training.guard import MOST_JITTER, factorisation_error, raise_jitter
from cavity.training.loop import INNER_SWEEPS, INNER_TOL, Outcome, Run

FREE_UNIT = 0.5  # of parameters without a prior, in a rough plan
FINAL_SWEEPS = 50
SMALL_MOVE = 1e-2  # of the sites: a flat objective while they still move by more is not yet convergence
ROUGH_MOVE = 0.3  # the same for a rough plan
TINY_MOVE = 0.05  # over √classes: sites that move less change the objective by less than its tolerance
EARLY = 2  # epochs of a rough plan after which folds may begin [61]
MOST_WORSE = 6  # points in a row of a rough plan; line searches that succeed try at most 5
ROUGH_SWEEPS = 30  # at a point of a rough plan: most need 3 to 17, and those that need more are rejected by the line search


class Probe(Optimiser):
    """Leaves the parameters alone and keeps the gradient."""

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros_like(theta),)

    def step(
        self, state: tuple[Tensor, ...], theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return theta, (gradient,)


class Rest(NamedTuple):
    """When sites have converged: log Z_q is stationary in them, and converges long before they do."""

    tol: float  # of the objective per row
    small_move: float  # of the sites, relative to their size
    most: int  # sweeps
    tiny: float = 0.0  # move of the sites that leaves the objective within its tolerance
    collect: bool = False  # whether to begin with the sums of the sites at the new hyper-parameters

    def is_reached(self, run: Run, size: float, change: float) -> bool:
        return size < self.small_move and (change / run.total <= self.tol or size < self.tiny)


class _Stop(Exception):
    """Leaves SciPy's loop when the run's own rules end the training."""


def train_lbfgs(run: Run) -> Run:
    """Maximise the objective with SciPy's L-BFGS-B; an epoch is one of its iterations."""
    from scipy.optimize import minimize

    worst, tried = -math.inf, 0
    best: list[tuple[float, float, State]] = []
    start = torch.zeros_like(run.state.theta)
    scale: Callable[[Tensor], Tensor] = torch.clone
    if run.plan.rough:  # in units of the prior, the first steps move what classes and features have in common
        start, scale = run.state.theta, run.engine.hyper_prior.root_covariance(FREE_UNIT).multiply

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal worst, tried
        theta = start + scale(torch.from_numpy(x).to(start))
        state, value, evidence = converge_at(run, theta) if best else converge_at_start(run, theta)
        if state is None:  # no Cholesky factor here: a wall for the line search
            run.guard.repairs += 1
            return abs(worst) * 2 + 1e6, np.zeros_like(x)
        worst, tried = value if worst == -math.inf else min(worst, value), tried + 1
        if not best or value > best[0][0]:
            tried = 0
            best[:] = [(value, evidence, state)]
            if run.plan.rough:
                run.state = state  # its sites are near those of the next point
        # a line search that finds nothing better has reached what rough sites can tell
        run.converged = run.plan.rough and tried >= MOST_WORSE
        if run.converged or run.is_late():
            if not run.history:
                end_iteration(x)
            raise _Stop
        return -value, -scale(state.optimiser[0]).double().cpu().numpy()

    def end_iteration(x: np.ndarray) -> None:
        value, evidence, run.state = best[0]
        run.record(Outcome(value, evidence))
        if len(run.history) <= EARLY:
            run.early = run.state
        if run.is_over():
            raise _Stop

    options: dict[str, Any] = {"maxiter": run.plan.max_epochs, "ftol": 0.0, "gtol": 1e-8, "maxfun": 10**9}
    with run.notify_callbacks():
        if not run.resumed:
            run.warm_up()
        first = (run.state.theta - start).double().cpu().numpy()  # zero in a rough plan
        try:
            if not run.is_over():  # a resumed run may be over already
                result = minimize(
                    negative, first, jac=True, method="L-BFGS-B", callback=end_iteration, options=options
                )
                run.converged = bool(result.status == 0 or (run.plan.rough and result.status == 2))
        except _Stop:
            pass
        finally:  # also after an interrupt
            if best:
                run.state = best[0][2]
    if run.plan.rough and run.plan.settle and run.history and not run.is_late():
        settle_sites(run)
    return run


def settle_sites(run: Run) -> None:
    """Let the sites converge at the final hyper-parameters.

    With many classes as roughly as before: sweeps move the objective by more than a smaller tolerance, however many there are.
    """
    start, sweeps, C = time.perf_counter(), 0, run.engine.shape[0]
    rest = Rest(0.1 * run.plan.tol if C <= ROUGH_CLASSES else rough_tol(C), SMALL_MOVE, FINAL_SWEEPS)

    def enough(size: float, change: float) -> bool:
        nonlocal sweeps
        sweeps += 1
        return rest.is_reached(run, size, change)

    found = find_fixed_point(run, run.state, enough, rest.most)
    if found is not None:
        run.state = found
    run.history[-1]["settling_sweeps"] = sweeps
    run.history[-1]["settling_seconds"] = time.perf_counter() - start


def converge_at_start(run: Run, theta: Tensor) -> tuple[State, float, float]:
    """Call `converge_at` with more and more jitter until it succeeds: no line search could leave a start that fails."""
    repairs = 0
    while True:
        state, value, evidence = converge_at(run, theta)
        if state is not None:
            return state, value, evidence
        if float(run.state.jitter) >= MOST_JITTER:
            raise factorisation_error(run.state, repairs)
        repairs += 1
        run.guard.repairs += 1
        run.state = run.state._replace(jitter=raise_jitter(run.state))


def converge_at(run: Run, theta: Tensor, rest: Rest | None = None) -> tuple[State | None, float, float]:
    """Return the state with converged sites at these hyper-parameters, its objective and its log Z_q.

    The gradient is in `state.optimiser`. The state is None if no damping helps. `rest`: when sites have converged, if not by the
    run's plan.
    """
    linear = run.engine.factor.linear and float(run.state.damping) == 1.0  # one sweep is the fixed point
    rest = rest or _choose_rest(run)
    begin = without_sites(run.state) if linear else run.state
    for share in (1.0,) if linear else (1.0, 0.5, 0.25):
        state = run.engine.at(begin, theta)._replace(damping=share * run.state.damping)
        converged, value, evidence = _sweep(run, state, rest._replace(most=1) if linear else rest)
        if converged is not None:
            return converged._replace(damping=run.state.damping), value, evidence
    return None, math.nan, math.nan


def without_sites(state: State) -> State:
    """Set the rows' sites to zero: those of other hyper-parameters may leave no cavity, and would then never be updated."""
    if not len(state.sites.tau):
        return state
    tau, nu = (torch.zeros_like(t) for t in state.sites[:2])
    sums = type(state.sums)(*(torch.zeros_like(t) for t in state.sums))
    return state._replace(sites=state.sites._replace(tau=tau, nu=nu), sums=sums)


def _choose_rest(run: Run) -> Rest:
    if run.plan.rough:
        C = run.engine.shape[0]
        return Rest(rough_tol(C), ROUGH_MOVE, ROUGH_SWEEPS, TINY_MOVE / math.sqrt(C), collect=True)
    return Rest(INNER_TOL, SMALL_MOVE, INNER_SWEEPS)


def _sweep(run: Run, state: State, rest: Rest) -> tuple[State | None, float, float]:
    engine = run.engine
    if engine.sites.sweeps:
        frozen = engine.freeze(state, run.rows, learn=not engine.exact)
        if rest.collect:
            state = frozen.collect(state, run.whole, run.reduce)
        swept = find_fixed_point(
            run, state, lambda *moved: rest.is_reached(run, *moved) or run.is_late(), rest.most, frozen
        )
        if swept is None:
            return None, math.nan, math.nan
        state, engine = swept, engine.thaw(frozen)
    after, info = engine.step(state, run.whole, run.reduce, Probe(), True)
    if bool(info.failed):
        return None, math.nan, math.nan
    if not _has_posterior(run, after):
        after = state._replace(optimiser=after.optimiser)
    return after, float(info.objective), float(info.evidence)


def _has_posterior(run: Run, state: State) -> bool:
    """Return whether q can be factorised: with sites of negative precision a single sweep can spoil it."""
    return not bool(run.engine.sites.gaussian(state.sums).failed)
