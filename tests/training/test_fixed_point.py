"""Sweeps at fixed hyper-parameters: rows are projected once, and extrapolation finds the same fixed point in fewer sweeps."""

from __future__ import annotations

import pytest
import torch

from cavity.distributed import Local
from cavity.kernels.prior import Prior
from cavity.training.fixed_point import find_fixed_point
from cavity.training.loop import Run, RunSettings
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
    assert all(torch.equal(a, b) for a, b in zip(leaves(state), leaves(plain), strict=True))


def test_another_jitter_is_another_projection(projections):
    run = problem("ep")
    engine = run.engine.freeze(run.state, run.rows)
    raised = run.state._replace(jitter=run.state.jitter * 1e4)
    got, _ = engine.step(raised, run.rows.whole(), Local(), None, True)
    expected, _ = run.step(raised)
    assert len(projections) == 3
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(expected), strict=True))


def test_rows_in_pieces_are_not_kept():
    """Memory does not grow with the table."""
    run = problem("ep", chunk=16)
    assert run.engine.freeze(run.state, run.rows) is run.engine


@pytest.mark.parametrize("method", ["ep", slow("sep"), slow("gfitc")])
def test_extrapolation_finds_the_fixed_point_in_fewer_sweeps(method):
    run = problem(method, damping=0.5)
    sweeps = []

    def enough(size, change):
        sweeps.append(size)
        return size < 1e-9

    around = Run(run.engine, run.rows, RunSettings(), run.state)
    found = find_fixed_point(around, run.state, enough, 500)
    assert found is not None and sweeps[-1] < 1e-9
    assert move(converge(run), found) < 1e-6
    state, plain = run.state, 0
    while plain < 500 and move(state, state := run.step(state)[0]) > 1e-9:
        plain += 1
    assert len(sweeps) < plain
