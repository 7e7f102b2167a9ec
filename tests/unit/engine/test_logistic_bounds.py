"""Parabolas in place of log σ. [review 2.3]"""

import pytest
import torch
from torch.nn.functional import logsigmoid

from cavity.engine.likelihoods.logistic_bounds import SMALL, Jaakkola, curvature
from cavity.likelihoods import Latents

GRID = torch.linspace(-12, 12, 97, dtype=torch.float64)


def test_the_parabola_lies_below_and_touches_at_both_ends():
    """log σ(x) ≥ log σ(ξ) + (x − ξ)/2 − λ(ξ)(x² − ξ²), with equality at ±ξ."""
    for xi in torch.tensor([1e-6, 0.3, 2.0, 9.0], dtype=torch.float64):
        slope = curvature(xi)

        def bound(x, xi=xi, slope=slope):
            return logsigmoid(xi) + (x - xi) / 2 - slope * (x.square() - xi.square())

        assert (bound(GRID) <= logsigmoid(GRID) + 1e-12).all()
        for end in (xi, -xi):
            assert float(bound(end) - logsigmoid(end)) == pytest.approx(0, abs=1e-12)


def test_the_series_of_the_curvature_meets_its_formula():
    near = SMALL * torch.tensor([0.999, 1.001], dtype=torch.float64)
    inside, outside = curvature(near).tolist()
    assert inside == pytest.approx(outside, rel=1e-8)
    assert float(curvature(torch.zeros(()))) == 0.125


def test_the_best_parabola_makes_the_derivative_that_of_the_value():
    """∂E/∂m by differences: ξ maximises E, so it may move."""
    y = torch.tensor([0, 1])
    mean = torch.tensor([[0.7], [-1.2]], dtype=torch.float64)
    var = torch.tensor([[0.5], [2.0]], dtype=torch.float64)
    none = torch.zeros_like(var)

    def average(move):
        return Jaakkola().average(Latents(mean + move, var, none), y)

    step = 1e-5
    slope = (average(step).value - average(-step).value) / (2 * step)
    torch.testing.assert_close(average(0.0).dm[:, 0], slope, rtol=1e-7, atol=0)
