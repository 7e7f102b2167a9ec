"""Ascent on quadratics, and agreement with torch's Adam."""

import numpy as np
import pytest
import torch

from cavity.engine.training.optimisers import (
    OPTIMISERS,
    Adam,
    Ascent,
    AverageGradient,
    SignRule,
)

RULES = OPTIMISERS | {
    "gradient": Ascent(rows=2.0),
    "sag": AverageGradient(rows=2.0, batches=3),
}
TOP = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
CURVATURE = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)


def slope(theta):
    """Gradient of −½ Σ k (θ − top)²."""
    return -CURVATURE * (theta - TOP)


def climb(optimiser, steps, rate):
    theta = torch.zeros(3, dtype=torch.float64)
    state = optimiser.init(theta)
    for _ in range(steps):
        theta, state = optimiser.step(
            state, theta, slope(theta), torch.tensor(rate, dtype=torch.float64)
        )
    return theta


@pytest.mark.parametrize(
    ("name", "steps", "rate"),
    [
        ("adam", 2000, 0.01),
        ("sign", 600, 0.01),
        ("gradient", 2000, 0.1),
        ("sag", 4000, 0.05),
    ],
)
def test_reaches_the_top_of_a_quadratic(name, steps, rate):
    np.testing.assert_allclose(climb(RULES[name], steps, rate), TOP, atol=2e-3)


def test_the_average_gradient_remembers_one_of_each_batch():
    rule = AverageGradient(rows=10.0, batches=3)
    theta = torch.zeros(2, dtype=torch.float64)
    rate = torch.tensor(0.5, dtype=torch.float64)
    state = rule.init(theta)
    seen = []
    for i in range(7):
        seen.append(torch.tensor([1.0 * i, 2.0], dtype=torch.float64))
        after, state = rule.step(state, theta, seen[-1], rate)
        expected = theta + 0.5 / 10 * torch.stack(seen[-3:]).mean(0)
        torch.testing.assert_close(after, expected)
        theta = after


def test_adam_is_torch_s_adam():
    theirs = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    rule = torch.optim.Adam([theirs], lr=0.05, maximize=True)
    theta = torch.zeros(3, dtype=torch.float64)
    state = Adam().init(theta)
    for _ in range(50):
        theirs.grad = slope(theirs.detach())
        rule.step()
        theta, state = Adam().step(
            state, theta, slope(theta), torch.tensor(0.05, dtype=torch.float64)
        )
        torch.testing.assert_close(theta, theirs.detach(), rtol=1e-10, atol=1e-12)


def test_the_sign_rule_by_hand():
    """+2 % while the sign holds, half when it flips, no move where the gradient is
    zero.
    """
    rule, rate = SignRule(), torch.tensor(0.1, dtype=torch.float64)
    theta = torch.zeros(1, dtype=torch.float64)
    state = rule.init(theta)
    moves = []
    for gradient in (3.0, 0.2, -5.0, -1.0, 0.0, 4.0):
        new, state = rule.step(
            state, theta, torch.tensor([gradient], dtype=torch.float64), rate
        )
        moves.append(float(new - theta))
        theta = new
    np.testing.assert_allclose(
        moves, [0.1, 0.102, -0.051, -0.05202, 0.0, 0.05202], rtol=1e-12
    )


def test_the_sign_rule_has_a_largest_step():
    theta = climb_up = torch.zeros(1, dtype=torch.float64)
    rule, one = SignRule(), torch.ones(1, dtype=torch.float64)
    state = rule.init(theta)
    for _ in range(300):
        before = climb_up
        climb_up, state = rule.step(
            state, climb_up, one, torch.tensor(0.01, dtype=torch.float64)
        )
    assert float(climb_up - before) == pytest.approx(0.01 * rule.largest)


@pytest.mark.parametrize("name", RULES)
def test_steps_are_pure_and_a_zero_rate_moves_nothing(name):
    """Neither the state nor the parameters are written to."""
    rule, theta = RULES[name], torch.zeros(3, dtype=torch.float64)
    state = rule.init(theta)
    kept = [t.clone() for t in state]
    rule.step(state, theta, slope(theta), torch.tensor(0.1, dtype=torch.float64))
    assert (theta == 0).all()
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))
    assert torch.equal(climb(RULES[name], 3, 0.0), torch.zeros(3, dtype=torch.float64))
