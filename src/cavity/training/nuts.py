"""Hamiltonian Monte Carlo over the hyper-parameters: log Z_q with q at rest plus the log prior, sampled by Mici's NUTS."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.errors import BadOption, NotPositiveDefinite
from cavity.inference import State
from cavity.training.fixed_point import find_fixed_point
from cavity.training.guard import MOST_JITTER, more_jitter, no_factor
from cavity.training.lbfgs import Probe
from cavity.training.loop import Run

Array = NDArray[np.float64]

TOL = 1e-6  # of the sites, which is also about the gradient's error
SWEEPS = 500
DEPTH = 7  # a trajectory of at most 2⁷ gradients, each of them a run to rest
SPREAD = 0.5  # of the chains' starts around the fit, in logarithms


class Target:
    """log Z_q + log prior as a function of the hyper-parameters alone: every call sweeps the sites from the same state to rest.

    At rest log Z_q is stationary in the sites, and the engine's gradient is that of the function.        [METHOD 6]
    """

    def __init__(self, run: Run, tol: float = TOL) -> None:
        self.run, self.tol = run, tol
        self.evaluations = 0
        self.linear = bool(getattr(run.engine.factor, "linear", False))
        if (
            not self.linear
        ):  # from no sites at all, whose cavities are sound everywhere, one sweep finds linear ones
            run.state = self.at(run.state.theta.double().cpu().numpy())

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Value and gradient; −∞ where there is no posterior."""
        self.evaluations += 1
        run, state = self.run, self._at_rest(theta)
        if state is not None:
            state, info = run.engine.step(state, run.whole, run.reduce, Probe(), True)
            value, gradient = float(info.objective), state.optimiser[0].double().cpu().numpy()
            if math.isfinite(value) and np.isfinite(gradient).all() and not bool(info.failed):
                return value, gradient
        return -math.inf, np.zeros_like(theta)

    def at(self, theta: Array) -> State:
        """The state at rest."""
        state = self._at_rest(theta)
        if state is None:
            raise NotPositiveDefinite(
                "the posterior could not be factorised at the fitted hyper-parameters: raise jitter= and fit again."
            )
        return state

    def _at_rest(self, theta: Array) -> State | None:
        """Swept from the run's own state; None where no damping helps."""
        run = self.run
        begin = run.engine.at(run.state, torch.from_numpy(np.ascontiguousarray(theta)).to(run.state.theta))
        if self.linear:
            undamped = begin._replace(
                damping=torch.ones_like(begin.damping)
            )  # one sweep is then the fixed point
            state, info = run.engine.step(undamped, run.whole, run.reduce, None, True)
            return None if bool(info.failed) else state
        for share in (1.0, 0.5, 0.25):
            damped = begin._replace(damping=share * run.state.damping)
            settled = find_fixed_point(run, damped, lambda size, _: size < self.tol, SWEEPS)
            if settled is not None:
                return settled._replace(damping=run.state.damping)
        return None


class Chains(NamedTuple):
    """Draws of the flat vector of hyper-parameters, and how they came about."""

    theta: Array  # [chains n P]
    log_density: Array  # [chains n]
    acceptance: Array  # [chains n], mean over the trajectory
    diverging: NDArray[np.bool_]  # [chains n]
    steps: NDArray[np.int64]  # [chains n], gradients taken


def sample(target: Target, n: int, warmup: int, chains: int, accept: float, seed: int) -> Chains:
    """NUTS with step size and a diagonal metric from the warm-up; chains start around the fit, one after the other."""
    mici = _mici()
    rng = np.random.default_rng(seed)
    center = target.run.state.theta.double().cpu().numpy()
    _footing(target, center)
    starts = [_start(target, center, rng) for _ in range(chains)]

    def slope(theta: Array) -> tuple[Array, float]:
        value, gradient = target(theta)
        return -gradient, -value

    system = mici.systems.EuclideanMetricSystem(lambda theta: -target(theta)[0], grad_neg_log_dens=slope)
    sampler = mici.samplers.DynamicMultinomialHMC(
        system, mici.integrators.LeapfrogIntegrator(system), rng, max_tree_depth=DEPTH
    )
    _, traces, statistics = sampler.sample_chains(
        warmup,
        n,
        starts,
        adapters=[
            mici.adapters.DualAveragingStepSizeAdapter(accept),
            mici.adapters.OnlineVarianceMetricAdapter(),
        ],
        trace_funcs=[lambda state: {"theta": state.pos, "value": -system.neg_log_dens(state)}],
        display_progress=False,
    )
    found = (np.stack(x) for x in (traces["theta"], traces["value"]))
    names = ("av_metrop_accept_prob", "diverging", "n_step")
    return Chains(*found, *(np.stack(statistics[name]) for name in names))


def _footing(target: Target, center: Array) -> None:
    """More jitter until there is a posterior at the fit, which may have needed more than it was asked for."""
    run = target.run
    while not math.isfinite(target(center)[0]):
        if float(run.state.jitter) >= MOST_JITTER:
            raise no_factor(run.state, 0)
        run.state = run.state._replace(jitter=more_jitter(run.state))


def _start(target: Target, center: Array, rng: np.random.Generator) -> Array:
    """Around the fit; nearer to it where there is no posterior."""
    away = SPREAD * rng.standard_normal(len(center))
    while not math.isfinite(target(center + away)[0]):
        away *= 0.5
    return np.asarray(center + away)


def _mici() -> Any:
    try:
        import mici
    except ImportError:
        raise BadOption(
            "sample_hyperparameters needs the sampler Mici: pip install 'cavity[mcmc]'."
        ) from None
    return mici
