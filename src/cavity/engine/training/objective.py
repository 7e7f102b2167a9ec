"""log Z_q + log prior as a function of the hyper-parameters. [METHOD 7]

Sites converge at every point.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.engine.inference import Optimiser, State
from cavity.engine.inference.posterior import Sums
from cavity.engine.training.convergence import find_loose_tol
from cavity.engine.training.fixed_point import Rest, sweep_to_rest
from cavity.engine.training.guard import (
    MOST_JITTER,
    make_factorisation_error,
    raise_jitter,
)
from cavity.engine.training.loop import INNER_SWEEPS, INNER_TOL, Run

# of the sites: while they still move by more, a flat objective has not converged
SMALL_MOVE = 1e-2
LOOSE_MOVE = 0.3  # the same for a loose plan
# over √classes: sites that move less change the objective by less than its tolerance
TINY_MOVE = 0.05
# per point of a loose plan: most points need 3 to 17, and the line search rejects points
# that need more
LOOSE_SWEEPS = 30
DAMPINGS: tuple[float, ...] = (1.0, 0.5, 0.25)  # shares of the run's own, tried in turn


class Point(NamedTuple):
    """The objective at some hyper-parameters."""

    state: State  # with converged sites
    value: float
    evidence: float  # log Z_q alone
    gradient: Tensor  # [P], of the value


def evaluate(run: Run, theta: Tensor, rest: Rest | None = None) -> Point | None:
    """Return the objective at these hyper-parameters; None if it cannot be factorised.

    Sites start from the run's state.

    `rest`: when sites have converged, if not by the run's plan.
    """
    damping = run.state.damping
    rest = rest or _choose_rest(run)
    begin = run.state
    shares = DAMPINGS
    if run.engine.factor.linear and float(damping) == 1.0:
        # one sweep is the fixed point
        begin = _without_sites(run.state)
        rest = rest._replace(most=1)
        shares = (1.0,)

    for share in shares:
        state = begin._replace(theta=theta, damping=share * damping)
        found = _converge(run, run.engine.sites.place(state), rest)
        if found is not None:
            return found._replace(state=found.state._replace(damping=damping))

    return None


def evaluate_first(run: Run, theta: Tensor, rest: Rest | None = None) -> Point:
    """Evaluate with more and more jitter until that succeeds.

    No search could leave a start that fails.
    """
    repairs = 0
    while True:
        found = evaluate(run, theta, rest)
        if found is not None:
            return found
        if float(run.state.jitter) >= MOST_JITTER:
            raise make_factorisation_error(run.state, repairs)

        repairs += 1
        run.guard.repairs += 1
        run.state = run.state._replace(jitter=raise_jitter(run.state))


def _choose_rest(run: Run) -> Rest:
    if not run.plan.loose:
        return Rest(INNER_TOL, SMALL_MOVE, INNER_SWEEPS)

    C = run.engine.shape[0]
    tiny = TINY_MOVE / math.sqrt(C)
    return Rest(find_loose_tol(C), LOOSE_MOVE, LOOSE_SWEEPS, tiny, collect=True)


def _without_sites(state: State) -> State:
    """Return the state with the rows' sites set to zero.

    Sites of other hyper-parameters may leave no cavity, and would then never be
    updated.
    """
    if not len(state.sites.tau):
        return state

    tau, nu, P, h = map(torch.zeros_like, (*state.sites[:2], *state.sums))
    return state._replace(sites=state.sites._replace(tau=tau, nu=nu), sums=Sums(P, h))


def _converge(run: Run, state: State, rest: Rest) -> Point | None:
    engine = run.engine
    frozen = engine.freeze(state, run.rows, learn=not engine.exact)
    swept: State | None = state
    factored = None
    if engine.sites.sweeps:
        swept, factored = sweep_to_rest(run, state, rest, frozen)
    if swept is None:
        return None

    after, info = engine.thaw(frozen).step(
        swept, run.whole, run.reduce, Optimiser(), True, factored=factored
    )
    if bool(info.broken) or not math.isfinite(float(info.objective)):
        return None

    assert info.slope is not None
    return Point(after, float(info.objective), float(info.evidence), info.slope)
