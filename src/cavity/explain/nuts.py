"""Hamiltonian Monte Carlo over the hyper-parameters, by NUTS of Mici.

The log density is log Z_q + log prior, with converged sites.
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

# relative move of the sites at which an evaluation has converged. Measured half a
# logarithm away from fits of 24 and 100 rows, two and three classes: log Z_q errs by at
# most 1e-3, its gradient by at most 0.5 %. At 1e-3 they err by 0.06 and 8 %.
TOL = 1e-4
# the same at the fit, where every evaluation starts
CENTER_TOL = 1e-6
SWEEPS = 500
# a trajectory takes at most 2⁷ gradients, each from a run to convergence
DEPTH = 7
# points whose gradients are cached
REMEMBERED = 1000
# spread of the chains' starts around the fit, in logarithms
SPREAD = 0.5
# step of the gradient differences that give the metric
STEP = 0.1
# warm-up draws per hyper-parameter that are enough to learn a metric
ENOUGH = 20
# step size times P^(1/4): accepts about 0.8 of the draws of a normal in its own metric
STEP_SIZE = 1.3
# strength of the pull towards that step size; with 0.05, Mici's default, the step size
# oscillates, and small steps cost deep trees
HOLD = 0.2
# smallest curvature of the metric, relative to the largest
FLAT = 1e-2


class LogDensity:
    """log Z_q + log prior as a function of the hyper-parameters.          [METHOD 6]

    Every call sweeps the sites to convergence, from the same state. At the fixed point
    log Z_q is stationary in the sites, so the engine's gradient is the total one.
    """

    def __init__(self, run: Run, tol: float = TOL) -> None:
        self.run = run
        self.rest = Rest(math.inf, tol, SWEEPS, collect=True)
        self.evaluations = 0
        first = self.rest._replace(small_move=min(tol, CENTER_TOL))
        found = evaluate_first(run, run.state.theta, first)
        # with a linear factor, one sweep from empty sites is the fixed point
        if not run.engine.factor.linear:
            run.state = found.state

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Return value and gradient; −∞ if the posterior cannot be factorised."""
        self.evaluations += 1
        found = self._evaluate(theta)
        if found is not None and bool(found.gradient.isfinite().all()):
            return found.value, found.gradient.double().cpu().numpy()

        return -math.inf, np.zeros_like(theta)

    def at(self, theta: Floats) -> State:
        """Return the state at a draw, where the posterior exists."""
        found = self._evaluate(theta)
        assert found is not None
        return found.state

    def _evaluate(self, theta: Floats) -> Point | None:
        place = torch.from_numpy(np.ascontiguousarray(theta)).to(self.run.state.theta)
        if not self.run.engine.hyper_prior.contains(place):
            return None

        return evaluate(self.run, place, self.rest)


class Chains(NamedTuple):
    """Draws of the hyper-parameters θ, with statistics of the sampler."""

    theta: Floats  # [chains n P]
    log_density: Floats  # [chains n]
    acceptance: Floats  # [chains n], mean over a trajectory
    diverging: Flags  # [chains n]


def sample(
    target: LogDensity, n: int, warmup: int, chains: int, accept: float, seed: int
) -> Chains:
    """Run NUTS: chains start near the fit and run one after the other.

    Chains move in coordinates z, θ = center + root z, in which the curvature at the fit
    is the identity. A good step size is then nearly the same for every model, and
    the warm-up starts from it. A long warm-up also learns the variances of z.
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

    system = _make_system(mici.systems, target, center, root)

    def trace(state: Any) -> dict[str, Any]:
        return {
            "theta": center + root @ state.pos,
            "value": -system.neg_log_dens(state),
        }

    sampler = mici.samplers.DynamicMultinomialHMC(
        system,
        mici.integrators.LeapfrogIntegrator(system),
        rng,
        max_tree_depth=DEPTH,
    )
    _, traces, statistics = sampler.sample_chains(
        warmup,
        n,
        [lower.T @ (start - center) for start in starts],
        adapters=_make_adapters(mici.adapters, accept, len(center), warmup),
        trace_funcs=[trace],
        display_progress=False,
    )
    return Chains(
        theta=np.stack(traces["theta"]),
        log_density=np.stack(traces["value"]),
        acceptance=np.stack(statistics["av_metrop_accept_prob"]),
        diverging=np.stack(statistics["diverging"]),
    )


def _make_system(systems: Any, target: LogDensity, center: Floats, root: Floats) -> Any:
    """Return the density of z for Mici."""

    # Mici evaluates again at every draw; a closure, because Mici copies objects
    @lru_cache(REMEMBERED)
    def evaluate_at(z: bytes) -> tuple[float, Floats]:
        return target(center + root @ np.frombuffer(z))

    def energy(z: Floats) -> float:
        value, _ = evaluate_at(z.tobytes())
        return -value

    def slope(z: Floats) -> tuple[Floats, float]:
        value, gradient = evaluate_at(z.tobytes())
        return -(root.T @ gradient), -value

    return systems.EuclideanMetricSystem(energy, grad_neg_log_dens=slope)


def _make_adapters(adapters: Any, accept: float, P: int, warmup: int) -> list[Any]:
    """Return what the warm-up adapts: the step size and, if it is long, the metric."""
    step_size = adapters.DualAveragingStepSizeAdapter(
        accept,
        log_step_size_reg_target=math.log(STEP_SIZE * P**-0.25),
        log_step_size_reg_coefficient=HOLD,
    )
    if warmup < ENOUGH * P:
        return [step_size]

    return [step_size, adapters.OnlineVarianceMetricAdapter(reg_scale=1.0)]


def _estimate_curvature(target: LogDensity, center: Floats) -> Floats:
    """Return minus the Hessian at the fit, [P P], with eigenvalues made positive.

    It comes from differences of gradients, because warm-ups are too short to learn it.
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
