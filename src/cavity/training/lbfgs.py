"""L-BFGS on log Z_q: sites are swept to convergence at every point that the line search tries. [METHOD 7]"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.inference import Optimiser, State
from cavity.training.fixed_point import find_fixed_point
from cavity.training.guard import MOST_JITTER, more_jitter, no_factor
from cavity.training.loop import INNER_SWEEPS, INNER_TOL, Outcome, Run

NEAR = 1e-2  # of the sites: an objective that stays while they move by more is between two steps


class Probe(Optimiser):
    """Moves nothing and remembers the gradient."""

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros_like(theta),)

    def step(
        self, state: tuple[Tensor, ...], theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return theta, (gradient,)


class _Settled(Exception):
    """Raised out of SciPy's loop when the run's own rules say stop."""


def train_lbfgs(run: Run) -> Run:
    """Maximise the objective with SciPy's L-BFGS-B; an epoch is one of its iterations."""
    from scipy.optimize import minimize

    worst = -math.inf
    best: list[tuple[float, float, State]] = []

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal worst
        theta = torch.from_numpy(x).to(run.state.theta)
        state, value, evidence = settle(run, theta) if best else first(run, theta)
        if state is None:  # no factor here: a wall for the line search
            run.guard.repairs += 1
            return abs(worst) * 2 + 1e6, np.zeros_like(x)
        worst = value if worst == -math.inf else min(worst, value)
        if not best or value > best[0][0]:
            best[:] = [(value, evidence, state)]
        if run.late():
            if not run.history:
                callback(x)
            raise _Settled
        return -value, -state.optimiser[0].double().cpu().numpy()

    def callback(x: np.ndarray) -> None:
        value, evidence, run.state = best[0]
        run.record(Outcome(value, evidence))
        if run.over():
            raise _Settled

    for watcher in run.callbacks:
        watcher.start(run)
    if not run.resumed:
        run.warm_up()
    start = run.state.theta.double().cpu().numpy()
    limits: dict[str, Any] = {"maxiter": run.plan.max_epochs, "ftol": 0.0, "gtol": 1e-8, "maxfun": 10**9}
    try:
        if not run.over():  # as a resumed run may be
            result = minimize(negative, start, jac=True, method="L-BFGS-B", callback=callback, options=limits)
            run.converged = bool(result.status == 0)
    except _Settled:
        pass
    if best:
        run.state = best[0][2]
    for watcher in run.callbacks:
        watcher.end(run)
    return run


def first(run: Run, theta: Tensor) -> tuple[State, float, float]:
    """`settle` where the run begins, which no line search can leave again: with more jitter until there are factors."""
    repairs = 0
    while True:
        state, value, evidence = settle(run, theta)
        if state is not None:
            return state, value, evidence
        if float(run.state.jitter) >= MOST_JITTER:
            raise no_factor(run.state, repairs)
        repairs += 1
        run.guard.repairs += 1
        run.state = run.state._replace(jitter=more_jitter(run.state))


def settle(run: Run, theta: Tensor) -> tuple[State | None, float, float]:
    """Sites at convergence for these hyper-parameters, with the gradient in `optimiser`; None where no damping helps."""
    for share in (1.0,) if _linear(run) else (1.0, 0.5, 0.25):
        begin = unseen(run.state) if _linear(run) else run.state
        state = run.engine.at(begin, theta)._replace(damping=share * run.state.damping)
        settled, value, evidence = _sweep(run, state)
        if settled is not None:
            return settled._replace(damping=run.state.damping), value, evidence
    return None, math.nan, math.nan


def unseen(state: State) -> State:
    """Without the sites of rows: sites of other hyper-parameters can leave no cavity, and would then be kept."""
    if not len(state.sites.tau):
        return state
    tau, nu = (torch.zeros_like(t) for t in state.sites[:2])
    sums = type(state.sums)(*(torch.zeros_like(t) for t in state.sums))
    return state._replace(sites=state.sites._replace(tau=tau, nu=nu), sums=sums)


def _sweep(run: Run, state: State) -> tuple[State | None, float, float]:
    """The objective and log Z_q beside the state."""
    if run.engine.sites.sweeps:
        most = 1 if _linear(run) else INNER_SWEEPS
        swept = find_fixed_point(
            run, state, lambda size, change: _flat(size, change / run.total) or run.late(), most
        )
        if swept is None:
            return None, math.nan, math.nan
        state = swept
    state, info = run.engine.step(state, run.whole, run.reduce, Probe(), True)
    return (None if bool(info.failed) else state), float(info.objective), float(info.evidence)


def _flat(size: float, change: float) -> bool:
    """log Z_q is stationary in the sites, and at rest long before they are."""
    return size < NEAR and change <= INNER_TOL


def _linear(run: Run) -> bool:
    """Whether one sweep without damping is the fixed point."""
    return bool(getattr(run.engine.factor, "linear", False)) and float(run.state.damping) == 1.0
