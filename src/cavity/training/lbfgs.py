"""L-BFGS on log Z_q: sites converge at every point that the line search tries. [METHOD 7]"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.training.convergence import LOOSE_CLASSES, find_loose_tol
from cavity.training.fixed_point import find_fixed_point
from cavity.training.loop import Outcome, Run
from cavity.training.objective import SMALL_MOVE, Point, Rest, evaluate, evaluate_first

FREE_UNIT = 0.5  # of parameters without a prior, in a loose plan
FINAL_SWEEPS = 50
MOST_WORSE = 6  # points in a row of a loose plan; line searches that succeed try at most 5


class _Stop(Exception):
    """Leaves SciPy's loop when the run's own rules end the training."""


def train_lbfgs(run: Run) -> Run:
    """Maximise the objective with SciPy's L-BFGS-B; an epoch is one of its iterations."""
    from scipy.optimize import minimize

    worst, tried = -math.inf, 0
    best: list[Point] = []
    start = torch.zeros_like(run.state.theta)
    scale: Callable[[Tensor], Tensor] = torch.clone
    if run.plan.loose:  # in units of the prior, the first steps move what classes and features have in common
        start, scale = run.state.theta, run.engine.hyper_prior.root_covariance(FREE_UNIT).multiply

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal worst, tried
        theta = start + scale(torch.from_numpy(x).to(start))
        found = evaluate(run, theta) if best else evaluate_first(run, theta)
        if found is None:  # no Cholesky factor here: a wall for the line search
            run.guard.repairs += 1
            return abs(worst) * 2 + 1e6, np.zeros_like(x)
        worst, tried = found.value if worst == -math.inf else min(worst, found.value), tried + 1
        if not best or found.value > best[0].value:
            tried = 0
            best[:] = [found]
            if run.plan.loose:
                run.state = found.state  # its sites are near those of the next point
        # a line search that finds nothing better has reached what loose sites can tell
        run.converged = run.plan.loose and tried >= MOST_WORSE
        if run.converged or run.is_late():
            if not run.history:
                end_iteration(x)
            raise _Stop
        return -found.value, -scale(found.gradient).double().cpu().numpy()

    def end_iteration(x: np.ndarray) -> None:
        run.state = best[0].state
        run.record(Outcome(best[0].value, best[0].evidence))
        if run.is_over():
            raise _Stop

    options: dict[str, Any] = {"maxiter": run.plan.max_epochs, "ftol": 0.0, "gtol": 1e-8, "maxfun": 10**9}
    with run.notify_callbacks():
        if not run.resumed:
            run.warm_up()
        first = (run.state.theta - start).double().cpu().numpy()  # zero in a loose plan
        try:
            if not run.is_over():  # a resumed run may be over already
                result = minimize(
                    negative, first, jac=True, method="L-BFGS-B", callback=end_iteration, options=options
                )
                run.converged = bool(result.status == 0 or (run.plan.loose and result.status == 2))
        except _Stop:
            pass
        finally:  # also after an interrupt
            if best:
                run.state = best[0].state
    if run.plan.loose and run.settles and run.history and not run.is_late():
        settle_sites(run)
    return run


def settle_sites(run: Run) -> None:
    """Let the sites converge at the final hyper-parameters.

    With many classes as loosely as before: sweeps move the objective by more than a smaller tolerance, however many there are.
    """
    start, sweeps, C = time.perf_counter(), 0, run.engine.shape[0]
    rest = Rest(0.1 * run.plan.tol if C <= LOOSE_CLASSES else find_loose_tol(C), SMALL_MOVE, FINAL_SWEEPS)

    def enough(size: float, change: float) -> bool:
        nonlocal sweeps
        sweeps += 1
        return rest.is_reached(run, size, change)

    found = find_fixed_point(run, run.state, enough, rest.most)
    if found is not None:
        run.state = found
    run.history[-1]["settling_sweeps"] = sweeps
    run.history[-1]["settling_seconds"] = time.perf_counter() - start
