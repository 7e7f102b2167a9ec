"""What finite differences need: an engine's objective as a function of its parameters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from cavity.engine.inference import State
from support import Machine, converge

Objective = Callable[[np.ndarray], float]


def objective_at(run: Machine, state: State) -> Objective:
    """The sums held fixed, unless they are parameters."""

    def objective(theta: np.ndarray) -> float:
        moved = run.engine.sites.place(state._replace(theta=torch.tensor(theta)))
        return float(run.step(moved)[1].objective)

    return objective


def converged_objective(run: Machine, fixed_point: State, tol: float) -> Objective:
    """The sites follow the parameters: EP converges again at each of them."""

    def objective(theta: np.ndarray) -> float:
        moved = converge(run, fixed_point._replace(theta=torch.tensor(theta)), tol=tol)
        return float(run.step(moved)[1].objective)

    return objective


def fixed_site_evidence(run: Machine, state: State) -> Objective:
    """(τ, ν) held fixed; a, r, P, h and the cavities follow the parameters."""

    def evidence(theta: np.ndarray) -> float:
        run.engine.load(torch.tensor(theta))
        with torch.no_grad():
            return float(run.engine.evaluate_fixed_sites(state, run.rows.whole())[0])

    return evidence
