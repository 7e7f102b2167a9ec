"""Newton's method on log Z_q within a box, for few hyper-parameters; the Hessian comes from gradient differences. [review 3.3]"""

from __future__ import annotations

import numpy as np
import torch

from cavity.errors import BadOption
from cavity.training.loop import Outcome, Run
from cavity.training.objective import Point, evaluate, evaluate_first

Array = np.ndarray
MOST = 200  # parameters: each costs two gradients per iteration
# half-width of the box around the start, in a parameter's own units (logs, or spreads of a column)
REACH = 12.0
STEP = 1e-4
HALVINGS = 25


def train_newton(run: Run) -> Run:
    """Maximise the objective by projected Newton steps with a corrected Hessian and back-tracking; an epoch is one step."""
    x = start = run.state.theta.double().cpu().numpy()
    if len(start) > MOST:
        raise BadOption(
            f"optimizer='newton' takes a gradient per parameter in every step, and there are {len(start)} parameters; the limit is "
            f"{MOST}: leave 'inducing' out of learn, or use optimizer='lbfgs'."
        )
    box = start - REACH, start + REACH
    with run.notify_callbacks():
        point = evaluate_first(run, run.state.theta)
        while not run.is_over():
            run.state = point.state
            gradient, better = _gradient(point), None
            free = ~(((x <= box[0]) & (gradient < 0)) | ((x >= box[1]) & (gradient > 0)))
            if not np.abs(gradient[free]).max(initial=0.0) < 1e-8 * run.total:
                direction = np.zeros_like(x)
                direction[free] = ascent_direction(_hessian(run, x, free), gradient[free])
                better = _search(run, x, point.value, direction, gradient, box)
            if better is None:
                run.converged = True
                break
            x, point = better
            run.state = point.state
            run.record(Outcome(point.value, point.evidence))
    return run


def ascent_direction(hessian: Array, gradient: Array) -> Array:
    """Return −H⁻¹g with the eigenvalues of H made negative, and at least 1e-6 of the largest in size."""
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    size = np.abs(values)
    size = np.maximum(size, 1e-6 * max(size.max(), 1e-300))
    return np.asarray(vectors @ ((vectors.T @ gradient) / size))


def _evaluate(run: Run, x: Array) -> Point | None:
    return evaluate(run, torch.from_numpy(x).to(run.state.theta))


def _gradient(point: Point) -> Array:
    return np.asarray(point.gradient.double().cpu().numpy())


def _hessian(run: Run, x: Array, free: Array) -> Array:
    """Return central differences of the gradient in the parameters that are free to move."""
    columns, unit = [], np.eye(len(x))[free]
    for one in unit:
        ends = (_evaluate(run, x + sign * STEP * one) for sign in (1, -1))
        slopes = [_gradient(end) for end in ends if end is not None]
        columns.append((slopes[0] - slopes[1]) / (2 * STEP) if len(slopes) == 2 else -one)
    return np.array(columns)[:, free]


def _search(
    run: Run, x: Array, value: float, direction: Array, gradient: Array, box: tuple[Array, Array]
) -> tuple[Array, Point] | None:
    """Halve the step along the projected path until it gains a share of what the slope predicts; None if none does."""
    for halvings in range(HALVINGS):
        tried = np.clip(x + 0.5**halvings * direction, *box)
        found, least = _evaluate(run, tried), value + 1e-4 * gradient @ (tried - x)
        if found is not None and found.value >= least and found.value > value:
            return tried, found
    return None
