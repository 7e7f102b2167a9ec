r"""Projected Newton steps on the objective f, for few hyper-parameters. [review 3.3]

    θ ← clip(θ + s d, θ₀ ± REACH)      d = −H⁻¹ g, with the eigenvalues of H made negative
    s = 1, ½, ¼, ...  until  f(θ') ≥ f(θ) + 1e-4 gᵀ(θ' − θ)

Bounds of parameters make the box smaller.

H is the Hessian of f in the parameters that the box lets move; it comes from central
differences of the gradient.
"""

from __future__ import annotations

import numpy as np
import torch

from cavity.common.types import Flags, Floats
from cavity.engine.training.convergence import PROMISED_TOL
from cavity.engine.training.loop import Outcome, Run
from cavity.engine.training.objective import Point, evaluate, evaluate_first
from cavity.errors import BadOption

MOST = 200  # parameters: each takes two gradients per step
# half-width of the box around the start, in a parameter's own units (logs, or spreads
# of a column)
REACH = 12.0
DIFFERENCE = 1e-4
HALVINGS = 25
SLOPE_SHARE = 1e-4  # of the gain that the slope predicts
LEAST_CURVATURE = 1e-6  # relative to the largest


def train_newton(run: Run) -> Run:
    """Maximise the objective by projected Newton steps; an epoch is one step."""
    start = run.state.theta.double().cpu().numpy()
    if len(start) > MOST:
        raise BadOption(
            "optimizer='newton' takes two gradients per parameter in every step, and "
            f"there are {len(start)} parameters; the limit is {MOST}: leave 'inducing' "
            "out of learn, or use optimizer='lbfgs'."
        )

    low = start - REACH
    high = start + REACH
    box = run.engine.hyper_prior.box
    if box is not None:
        low = np.maximum(low, box.low.double().cpu().numpy())
        high = np.minimum(high, box.high.double().cpu().numpy())

    x = start
    with run.notify_callbacks():
        found = evaluate_first(run, run.state.theta)
        while not run.is_over():
            run.state = found.state
            g = _gradient(found)
            held_low = (x <= low) & (g < 0)
            held_high = (x >= high) & (g > 0)
            free = ~(held_low | held_high)
            d = np.zeros_like(x)
            d[free] = ascent_direction(_hessian(run, x, free), g[free])
            better = _search(run, x, found, d, low, high)
            if better is None:
                run.converged = True
                break

            gain = better.value - found.value
            x = better.state.theta.double().cpu().numpy()
            found = better
            run.state = found.state
            run.record(Outcome(found.value, found.evidence))
            promised = 0.5 * float(g @ d)
            small = PROMISED_TOL * run.total
            if gain < small and promised < small:
                run.converged = True

    return run


def ascent_direction(hessian: Floats, gradient: Floats) -> Floats:
    """Return −H⁻¹ g with the eigenvalues of H made negative.

    Their size is at least LEAST_CURVATURE of the largest.
    """
    if not len(gradient):
        return gradient

    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    size = np.abs(values)
    size = np.maximum(size, LEAST_CURVATURE * max(size.max(), 1e-300))
    return np.asarray(vectors @ ((vectors.T @ gradient) / size))


def _evaluate(run: Run, x: Floats) -> Point | None:
    return evaluate(run, torch.from_numpy(x).to(run.state.theta))


def _gradient(point: Point) -> Floats:
    return np.asarray(point.gradient.double().cpu().numpy())


def _hessian(run: Run, x: Floats, free: Flags) -> Floats:
    """Return central differences of the gradient in the parameters that are free."""
    columns = []
    for unit in np.eye(len(x))[free]:
        ahead = _evaluate(run, x + DIFFERENCE * unit)
        behind = _evaluate(run, x - DIFFERENCE * unit)
        if ahead is None or behind is None:
            columns.append(-unit)
        else:
            change = _gradient(ahead) - _gradient(behind)
            columns.append(change / (2 * DIFFERENCE))

    return np.array(columns).reshape(-1, len(x))[:, free]


def _search(
    run: Run, x: Floats, at: Point, d: Floats, low: Floats, high: Floats
) -> Point | None:
    """Halve the step until it gains a share of what the slope predicts.

    Steps follow the projected path. Return None if none succeeds.
    """
    g = _gradient(at)
    for halvings in range(HALVINGS):
        tried = np.clip(x + 0.5**halvings * d, low, high)
        found = _evaluate(run, tried)
        enough = at.value + max(0.0, SLOPE_SHARE * float(g @ (tried - x)))
        if found is not None and found.value > at.value and found.value >= enough:
            return found

    return None
