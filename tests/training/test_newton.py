"""Projected Newton on the evidence of a regression. [review 3.3]"""

import numpy as np
import pytest

from cavity import GPRegressor, Training
from cavity.engine.training.newton import ascent_direction
from cavity.errors import BadOption


def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (40, 2))
    return X, np.sin(X).sum(1) + 0.1 * rng.normal(size=40)


def fit(method, optimizer, **options):
    training = Training(optimizer=optimizer, learn=("kernel", "noise"))
    common = {"n_inducing": 10, "training": training, "random_state": 0}
    X, y = problem()
    model = GPRegressor(method, device="cpu", **common | options)
    return model.fit(X, y, eval_set=(X, y))  # judged without refits


@pytest.mark.parametrize("method", ["vi", "exact", "fitc"])
def test_newton_and_lbfgs_meet_and_newton_takes_fewer_steps(method):
    newton = fit(method, "newton")
    lbfgs = fit(method, "lbfgs")
    ends = [model.history_[-1]["objective"] for model in (newton, lbfgs)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)
    assert newton.n_epochs_ < lbfgs.n_epochs_


def test_the_direction_is_newton_s_where_the_objective_is_concave():
    root = np.random.default_rng(1).normal(size=(4, 4))
    hessian = -(root @ root.T + np.eye(4))
    gradient = np.arange(4.0)
    expected = -np.linalg.solve(hessian, gradient)
    assert ascent_direction(hessian, gradient) == pytest.approx(expected, rel=1e-10)


def test_the_direction_ascends_whatever_the_curvature():
    rng = np.random.default_rng(2)
    for _ in range(20):
        root = rng.normal(size=(5, 5))
        gradient = rng.normal(size=5)
        assert gradient @ ascent_direction(root + root.T, gradient) > 0


def test_newton_needs_all_rows_and_few_parameters():
    with pytest.raises(BadOption, match="method='vi', 'exact' or 'fitc'"):
        fit("svi", "newton")
    many = Training(optimizer="newton")
    with pytest.raises(BadOption, match="leave 'inducing' out of learn"):
        fit("vi", "newton", inducing=np.zeros((101, 2)), training=many)
