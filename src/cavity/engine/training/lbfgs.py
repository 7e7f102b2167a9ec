"""L-BFGS on log Z_q; sites converge at each point of the line search. [METHOD 7]"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.engine.training.convergence import (
    LOOSE_CLASSES,
    PROMISED_TOL,
    find_loose_tol,
)
from cavity.engine.training.fixed_point import Rest, find_fixed_point
from cavity.engine.training.loop import Outcome, Run
from cavity.engine.training.objective import SMALL_MOVE, Point, evaluate, evaluate_first

FREE_UNIT = 0.5  # of parameters without a prior, in a loose plan
FINAL_SWEEPS = 50
# steps that shape the next one, in a plan that is not loose: along a valley of inducing
# points, 10 take six times as many epochs [67]
MEMORY = 100
# points in a row of a loose plan; line searches that succeed try at most 5
MOST_WORSE = 6


class _Stop(Exception):
    """Leaves SciPy's loop when the run's own rules end the training."""


class _Search:
    """Objective and gradient at the points that SciPy tries; remembers the best one."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.best: Point | None = None
        # the smallest value, and the points since the best one
        self.worst = math.inf
        self.tried = 0
        self.start = torch.zeros_like(run.state.theta)
        self.scale: Callable[[Tensor], Tensor] = torch.clone
        if run.plan.loose:
            # in units of the prior, first steps move what classes and features share
            self.start = run.state.theta
            self.scale = run.engine.hyper_prior.root_covariance(FREE_UNIT).multiply

    def negative(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative objective and its gradient."""
        run = self.run
        theta = self.start + self.scale(torch.from_numpy(x).to(self.start))
        theta = run.engine.hyper_prior.clip(theta)  # from rounding
        found: Point | None
        if self.best is None:
            found = evaluate_first(run, theta)
        else:
            found = evaluate(run, theta)

        if found is None:  # no Cholesky factor here: a wall for the line search
            run.guard.repairs += 1
            return abs(self.worst) * 2 + 1e6, np.zeros_like(x)

        self.worst = min(self.worst, found.value)
        self.tried += 1
        if self.best is None or found.value > self.best.value:
            self.tried = 0
            self.best = found
            if run.plan.loose:
                run.state = found.state  # its sites are near those of the next point

        # a line search that finds nothing better has reached what loose sites can tell
        run.converged = run.plan.loose and self.tried >= MOST_WORSE
        if run.converged or run.is_late():
            if not run.history:
                self.end_iteration(x)
            raise _Stop

        gradient = self.scale(found.gradient).double().cpu().numpy()
        return -found.value, -gradient

    @property
    def bounds(self) -> np.ndarray | None:
        """Bounds of x, [P 2]; None without."""
        box = self.run.engine.hyper_prior.box
        if box is None:
            return None

        unit = self.scale(torch.ones_like(self.start))
        limits = torch.stack([(limit - self.start) / unit for limit in box], 1)
        return np.asarray(limits.double().cpu().numpy())

    def end_iteration(self, x: np.ndarray) -> None:
        self.end()
        assert self.best is not None
        self.run.record(Outcome(self.best.value, self.best.evidence))
        if self.run.is_over():
            raise _Stop

    def end(self) -> None:
        if self.best is not None:
            self.run.state = self.best.state


def train_lbfgs(run: Run) -> Run:
    """Maximise the objective with SciPy's L-BFGS-B; an epoch is one of its iterations."""
    search = _Search(run)
    with run.notify_callbacks():
        if not run.resumed:
            run.warm_up()
        try:
            if not run.is_over():  # a resumed run may be over already
                run.converged = _climb(search)
        except _Stop:
            pass
        finally:  # also after an interrupt
            search.end()

    if run.plan.loose and run.settles and run.history and not run.is_late():
        settle_sites(run)
    return run


def _climb(search: _Search) -> bool:
    """Run SciPy's loop, and return whether it converged.

    A line search that finds no better point (status 2) may have been misled by rounding
    or by sites that have not quite converged. L-BFGS then restarts at the best point,
    and has converged if the restart gains too little.
    """
    from scipy.optimize import minimize

    run = search.run
    options: dict[str, Any] = {
        "maxiter": run.plan.max_epochs,
        "ftol": 0.0,
        "gtol": 1e-8,
        "maxfun": 10**9,
    }
    if not run.plan.loose:
        options["maxcor"] = MEMORY
    before = -math.inf
    while True:
        x = (run.state.theta - search.start).double().cpu().numpy()
        result = minimize(
            search.negative,
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=search.bounds,
            callback=search.end_iteration,
            options=options,
        )
        if result.status != 2 or run.plan.loose:
            return bool(result.status in (0, 2))

        search.end()
        assert search.best is not None
        if search.best.value - before < PROMISED_TOL * run.total:
            return True

        before = search.best.value


def settle_sites(run: Run) -> None:
    """Let the sites converge at the final hyper-parameters.

    With many classes they converge as loosely as before: every sweep moves the
    objective by more than a smaller tolerance.
    """
    start = time.perf_counter()
    before = run.sweeps
    C = run.engine.shape[0]
    tol = 0.1 * run.plan.tol
    if C > LOOSE_CLASSES:
        tol = find_loose_tol(C)

    found = find_fixed_point(run, run.state, Rest(tol, SMALL_MOVE, FINAL_SWEEPS))
    if found is not None:
        run.state = found

    run.history[-1]["settling_sweeps"] = run.sweeps - before
    run.history[-1]["settling_seconds"] = time.perf_counter() - start
