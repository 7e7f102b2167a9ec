"""An option that has no meaning is refused with what has one."""

import numpy as np
import pytest
import torch

from cavity import BadOption, CavityError, kernels
from cavity.methods import REP
from estimators.test_bad_input import model, says

UNKNOWN = [
    ("method", "svgp", "'auto', 'ep', 'sep', 'pep', 'rep', 'gfitc', 'vi', 'laplace'"),
    ("inducing", "grid", "'random', 'kmeans', 'per-class'"),
    ("share", "all", "'auto', None, 'prior', 'kernel', 'inducing', 'both'"),
    ("learn", ("kernel", "lengthscale"), "'kernel', 'noise', 'inducing'"),
    ("learn", 5, "'kernel', 'noise', 'inducing'"),
    ("schedule", "inner", "'inner-approx', 'inner-exact', 'outer'"),
    ("optimizer", "sgd", "'auto', 'adam', 'sign', 'lbfgs'"),
    ("batch_size", "big", "'auto', None"),
    ("device", "gpu", "'auto', 'cpu', 'cuda'"),
    ("device", "meta", "'auto', 'cpu', 'cuda'"),
    ("dtype", "float16", "'float32', 'float64'"),
    ("dtype", torch.float16, "'float32', 'float64'"),
    ("dtype", None, "'float32', 'float64'"),
    ("class_weight", "even", "None, 'balanced', or a dict"),
    ("kernel", "rbf", "cavity.kernels"),
    ("kernel", kernels.RBF, "RBF()"),
    ("kernel", torch.nn.Linear(3, 2), "full, cross, diag"),
]


@pytest.mark.parametrize(("name", "value", "valid"), UNKNOWN, ids=lambda v: str(v)[:20])
def test_an_unknown_option_is_answered_with_the_valid_ones(three, name, value, valid):
    X, y, _ = three
    with pytest.raises(BadOption) as error:
        model(**{name: value}).fit(X, y)
    says(error, name, valid)


OUT_OF_RANGE = [
    *[
        ("n_inducing", v, "at least 1")
        for v in (0, -1, 1.5, 0.0, "10", None, True, float("nan"))
    ],
    *[
        ("noise", v, "variance")
        for v in (-0.1, np.nan, np.inf, [0.1, -0.1, 0.1], "much", None)
    ],
    ("noise", [0.1, 0.2], "2 values for 3 latent functions"),
    ("noise", 0, "leave 'noise' out of learn"),
    *[("learning_rate", v, "above 0") for v in (0, -1, "fast")],
    *[("damping", v, "above 0 and at most 1") for v in (0, 1.5, True)],
    *[("batch_size", v, "at least 1") for v in (0, 2.5)],
    *[("max_epochs", v, "at least 1") for v in (0, 1.5, "many")],
    *[("tol", v, "at least 0") for v in (-1, None, float("nan"))],
    *[("max_seconds", v, "above 0") for v in (0, -1)],
    *[("jitter", v, "at least 0") for v in (-1e-6, "none")],
    ("class_weight", {0: -1.0}, "not negative"),
    ("inducing", np.ones((4, 5)), "(M, 3), or (3, M, 3)"),
    ("inducing", np.ones((2, 4, 3)), "(M, 3), or (3, M, 3)"),
    ("inducing", np.ones((0, 3)), "(M, 3), or (3, M, 3)"),
    ("inducing", np.full((4, 3), np.nan), "NaN"),
    ("kernel", kernels.RBF(lengthscale=-1.0), "positive"),
    ("kernel", kernels.RBF(lengthscale=[1.0, 2.0]), "one value per column"),
    ("kernel", kernels.RBF(variance=[1.0, 2.0]), "2 values for 3 latent functions"),
]


@pytest.mark.parametrize(
    ("name", "value", "hint"), OUT_OF_RANGE, ids=lambda v: str(v)[:20]
)
def test_a_value_out_of_range_is_answered_with_the_range(three, name, value, hint):
    X, y, _ = three
    with pytest.raises(CavityError) as error:
        model(**{name: value}).fit(X, y)
    says(error, name if name != "kernel" else "of RBF", hint)


CONFLICTS = [
    ({"method": "sep", "schedule": "inner-exact"}, "use method='ep'"),
    ({"method": "sep", "schedule": "outer", "optimizer": "lbfgs"}, "or method='ep'"),
    (
        {"method": REP(sites="tied"), "optimizer": "lbfgs"},
        "gradient holds their sums fixed",
    ),
    ({"batch_size": 10, "schedule": "outer"}, "use batch_size=None"),
    ({"batch_size": 10, "optimizer": "sign"}, "optimizer='adam'"),
    ({"batch_size": 10, "optimizer": "lbfgs"}, "optimizer='adam'"),
]


@pytest.mark.parametrize(("options", "hint"), CONFLICTS, ids=str)
def test_options_that_exclude_each_other_say_what_to_change(three, options, hint):
    X, y, _ = three
    with pytest.raises(BadOption) as error:
        model(**options).fit(X, y)
    says(error, hint)


def test_an_absent_gpu(three, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    X, y, _ = three
    with pytest.raises(BadOption, match="device='cpu'"):
        model(device="cuda").fit(X, y)


def test_no_noise_is_allowed_where_it_is_not_learnt(three, method):
    X, y, new = three
    fitted = model(method, noise=0, learn=("kernel", "inducing")).fit(X, y)
    np.testing.assert_array_equal(fitted.noise_, np.zeros(3))
    np.testing.assert_allclose(fitted.predict_proba(new).sum(1), 1.0, atol=1e-12)
