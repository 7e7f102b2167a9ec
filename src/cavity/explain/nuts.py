"""Hamiltonian Monte Carlo over the hyper-parameters: Mici's NUTS samples log Z_q
(converged) + log prior.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from cavity.common.types import Flags, Floats
from cavity.engine.inference import State
from cavity.engine.training.fixed_point import Rest
from cavity.engine.training.loop import Run
from cavity.engine.training.objective import Point, evaluate, evaluate_first
from cavity.errors import missing_extra

# of the sites; the error of log Z_q is of its square: .01 on average, .03 at most
TOL = 2e-2
CENTER_TOL = 1e-6  # at the fit, where every evaluation starts
SWEEPS = 500
DEPTH = 7  # a trajectory of at most 2⁷ gradients, each of them a run to convergence
REMEMBERED = 1000  # points whose gradients are kept
SPREAD = 0.5  # of the chains' starts around the fit, in logarithms
STEP = 0.1  # of the differences of gradients that give the metric
ENOUGH = 20  # warm-up draws per hyper-parameter from which a metric can be learnt
# times P^(−1/4): accepts about 0.8 of a normal's draws in its own metric
STEP_SIZE = 1.3
# of the step size near this value; Mici's 0.05 lets it swing, and small steps cost deep
# trees
HOLD = 0.2
FLAT = 1e-2  # least curvature of the metric, relative to the largest


class LogDensity:
    """log Z_q + log prior as a function of the hyper-parameters: every call sweeps the
    sites from the same state to convergence.

    At the fixed point log Z_q is stationary in the sites, so the engine's gradient is that of the function.        [METHOD 6]
    """

    def __init__(self, run: Run, tol: float = TOL) -> None:
        self.run = run
        self.rest = Rest(math.inf, tol, SWEEPS, collect=True)
        self.evaluations = 0
        found = evaluate_first(
            run, run.state.theta, self.rest._replace(small_move=min(tol, CENTER_TOL))
        )
        # then one sweep from empty sites is the fixed point
        if not run.engine.factor.linear:
            run.state = found.state

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Return the value and the gradient; −∞ if the posterior cannot be factorised."""
        self.evaluations += 1
        found = self._evaluate(theta)
        if found is not None and bool(found.gradient.isfinite().all()):
            return found.value, found.gradient.double().cpu().numpy()
        return -math.inf, np.zeros_like(theta)

    def at(self, theta: Floats) -> State:
        """Return the state at a draw, where the posterior is known to exist."""
        found = self._evaluate(theta)
        assert found is not None
        return found.state

    def _evaluate(self, theta: Floats) -> Point | None:
        place = torch.from_numpy(np.ascontiguousarray(theta)).to(self.run.state.theta)
        return evaluate(self.run, place, self.rest)


class Chains(NamedTuple):
    """Draws of the flat vector of hyper-parameters, with the sampler's statistics."""

    theta: Floats  # [chains n P]
    log_density: Floats  # [chains n]
    acceptance: Floats  # [chains n], mean over the trajectory
    diverging: Flags  # [chains n]


def sample(
    target: LogDensity, n: int, warmup: int, chains: int, accept: float, seed: int
) -> Chains:
    """Run NUTS. Chains start near the fit and run one after the other.

    They move in coordinates z with θ = center + root z, in which the curvature at the
    fit is the identity. So the step size that the warm-up adapts is known roughly,
    whatever the model. A long warm-up also learns the variances of z.
    """
    try:
        import mici
    except ImportError:
        raise missing_extra("mici", "mcmc") from None
    rng = np.random.default_rng(seed)
    center = target.run.state.theta.double().cpu().numpy()
    starts = [_draw_start(target, center, rng) for _ in range(chains)]
    lower = np.linalg.cholesky(_estimate_curvature(target, center))
    root = np.linalg.inv(lower).T
    near = math.log(STEP_SIZE * len(center) ** -0.25)
    hold = {"log_step_size_reg_target": near, "log_step_size_reg_coefficient": HOLD}
    adapters = [mici.adapters.DualAveragingStepSizeAdapter(accept, **hold)]
    if warmup >= ENOUGH * len(center):
        adapters.append(mici.adapters.OnlineVarianceMetricAdapter(reg_scale=1.0))

    # Mici asks again at every draw; no object, because Mici copies these
    @lru_cache(REMEMBERED)
    def look(z: bytes) -> tuple[float, Floats]:
        return target(center + root @ np.frombuffer(z))

    def slope(z: Floats) -> tuple[Floats, float]:
        value, gradient = look(z.tobytes())
        return -(root.T @ gradient), -value

    system = mici.systems.EuclideanMetricSystem(
        lambda z: slope(z)[1], grad_neg_log_dens=slope
    )
    leapfrog = mici.integrators.LeapfrogIntegrator(system)
    sampler = mici.samplers.DynamicMultinomialHMC(
        system, leapfrog, rng, max_tree_depth=DEPTH
    )

    def trace(state: Any) -> dict[str, Any]:
        return {
            "theta": center + root @ state.pos,
            "value": -system.neg_log_dens(state),
        }

    begin = [lower.T @ (start - center) for start in starts]
    how = {"adapters": adapters, "trace_funcs": [trace], "display_progress": False}
    _, traces, statistics = sampler.sample_chains(warmup, n, begin, **how)
    found = (
        traces["theta"],
        traces["value"],
        statistics["av_metrop_accept_prob"],
        statistics["diverging"],
    )
    return Chains(*map(np.stack, found))


def _estimate_curvature(target: LogDensity, center: Floats) -> Floats:
    """Return minus the Hessian at the fit, [P P], by differences of gradients,
    eigenvalues made positive: warm-ups are short.
    """
    moves = STEP * np.eye(len(center))
    rise = np.stack([target(center - d)[1] - target(center + d)[1] for d in moves])
    values, vectors = np.linalg.eigh(0.25 / STEP * (rise + rise.T))
    curvature = np.maximum(np.abs(values), FLAT * np.abs(values).max())
    return np.asarray((vectors * curvature) @ vectors.T)


def _draw_start(target: LogDensity, center: Floats, rng: np.random.Generator) -> Floats:
    """Draw a start near the fit; halve the distance until the posterior exists."""
    away = SPREAD * rng.standard_normal(len(center))
    while not math.isfinite(target(center + away)[0]):
        away *= 0.5
    return np.asarray(center + away)
