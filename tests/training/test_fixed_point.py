"""Sweeps at fixed hyper-parameters: rows are projected once, and extrapolation finds
the same fixed point in fewer sweeps.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from cavity.common.ranks import Local
from cavity.engine.kernels.prior import Prior
from cavity.engine.training.fixed_point import Rest, find_fixed_point
from cavity.engine.training.loop import Run
from cavity.engine.training.steps import Steps
from support import converge, machine, move, slow, toy


def problem(method, **options):
    X, y = toy(40, 3)
    return machine(X, y, X[:6], method=method, **options)


def leaves(state):
    return [t for t in (*state.sums, *state.sites[:2]) if t.numel()]


@pytest.fixture
def projections(monkeypatch):
    """The rows that were projected, call by call."""
    seen = []
    plain = Prior.project

    def project(self, X, jitter):
        seen.append(len(X))
        return plain(self, X, jitter)

    monkeypatch.setattr(Prior, "project", project)
    return seen


@pytest.mark.parametrize("method", ["ep", "sep", "rep", "gfitc", "laplace"])
def test_a_frozen_engine_projects_once_and_changes_no_bit(method, projections):
    run = problem(method)
    plain = run.state
    for _ in range(4):
        plain, info = run.step(plain)
    projections.clear()
    engine, state = run.engine.freeze(run.state, run.rows), run.state
    for _ in range(4):
        state, same = engine.step(state, run.rows.whole(), Local(), None, True)
    assert projections == [40]
    assert float(same.objective) == float(info.objective)
    assert all(
        torch.equal(a, b) for a, b in zip(leaves(state), leaves(plain), strict=True)
    )


@pytest.mark.parametrize("method", ["ep", "rep", "gfitc"])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_the_sums_are_those_of_the_sites_in_the_projection_of_theta(method, chunk):
    """After a sweep they are already, and after a move of the hyper-parameters a sweep
    would otherwise start from old ones.
    """
    run = problem(method)
    engine, (state, _) = replace(run.engine, chunk=chunk), run.step(run.state)
    whole = run.rows.whole()
    same = engine.collect(state, whole, Local())
    assert all(
        torch.allclose(a, b, atol=1e-12)
        for a, b in zip(leaves(same), leaves(state), strict=True)
    )
    moved = state._replace(theta=state.theta + 0.3)
    there, again = (
        engine.collect(moved, whole, Local()),
        engine.collect(same, whole, Local()),
    )
    assert not torch.allclose(there.sums.P, state.sums.P, atol=1e-3)
    back = engine.collect(there._replace(theta=state.theta), whole, Local())
    assert torch.equal(back.sums.P, again.sums.P) and torch.equal(
        back.sums.h, again.sums.h
    )


@pytest.mark.parametrize("method", ["ep", slow("sep"), slow("gfitc")])
def test_extrapolation_finds_the_fixed_point_in_fewer_sweeps(method):
    run = problem(method, damping=0.5)
    around = Run(run.engine, run.rows, Steps(), run.state)
    found = find_fixed_point(around, run.state, Rest(math.inf, 1e-9, 500))
    assert found is not None and around.sweeps < 500
    assert move(converge(run), found) < 1e-6
    state, plain = run.state, 0
    while plain < 500 and move(state, state := run.step(state)[0]) > 1e-9:
        plain += 1
    assert around.sweeps < plain
