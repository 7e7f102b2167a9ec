"""What a fitted model holds, keeps and reports; what a fit leaves alone."""

import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.common.column_statistics import Columns
from cavity.fitting.options import nest
from cavity.kernels import RBF, Constant, Linear, Matern52, RationalQuadratic


def model(method="ep", **options):
    return GPClassifier(
        method,
        **nest(
            **{"n_inducing": 8, "max_epochs": 5, "tol": 0.01, "random_state": 0}
            | options
        ),
    )


def numbers(value, seen=None):
    """Every array and tensor reachable from `value`."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | type):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray | torch.Tensor):
        yield value
        if isinstance(value, torch.Tensor) and value.grad is not None:
            yield value.grad
        return
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = list(value)
    else:
        inside = list(vars(value).values()) if hasattr(value, "__dict__") else []
    for part in inside:
        yield from numbers(part, seen)


# ---------------------------------------------------------------- attributes
@pytest.mark.parametrize("share", [None, "kernel", "inducing", "both"])
@pytest.mark.parametrize(
    "learn", [(), ("kernel", "noise", "inducing")], ids=["fixed", "learning"]
)
def test_attributes_have_the_documented_shapes(table, method, share, learn):
    X, y, new = table
    C = len(np.unique(y))
    L = 1 if C == 2 else C
    fitted = model(method, share=share, learn=learn).fit(X, y)
    shapes = {
        "classes_": (C,),
        "inducing_points_": (L, 8, 3),
        "noise_": (L,),
        "feature_relevance_": (3,),
    }
    for name, shape in shapes.items():
        assert (
            type(getattr(fitted, name)) is np.ndarray
            and getattr(fitted, name).shape == shape
        ), name
    assert type(
        fitted.kernel_.lengthscale
    ) is np.ndarray and fitted.kernel_.lengthscale.shape == (
        L,
        3,
    )
    assert type(
        fitted.kernel_.variance
    ) is np.ndarray and fitted.kernel_.variance.shape == (L,)
    assert (
        type(fitted.log_marginal_likelihood_) is float
        and fitted.log_marginal_likelihood_ < 0
    )
    assert (fitted.n_features_in_, fitted.n_epochs_) == (3, len(fitted.history_))
    np.testing.assert_allclose(fitted.feature_relevance_.sum(), 1.0)
    for part in fitted.predict_latent(new):
        assert (
            type(part) is np.ndarray
            and part.shape == ((len(new), L) if L > 1 else (len(new),))
            and part.dtype == np.float64
        )
    assert (
        fitted.predict_latent(new)[1] > fitted.noise_
    ).all()  # the noise is part of the variance


def test_learn_says_what_moves(table, method):
    X, y, _ = table
    start = {
        "kernel": RBF(lengthscale=[1.0, 4.0, 0.5], variance=1.5),
        "noise": 0.3,
        "inducing": X[:8],
    }
    for learn in ((), ("kernel",), ("noise",), ("inducing",)):
        fitted = model(method, learn=learn, **start).fit(X, y)
        moved = {
            "kernel": (
                fitted.kernel_.lengthscale / [1.0, 4.0, 0.5] - 1,
                fitted.kernel_.variance / 1.5 - 1,
            ),
            "noise": (fitted.noise_ / 0.3 - 1,),
            "inducing": (fitted.inducing_points_ - X[:8],),
        }
        for name, differences in moved.items():
            for difference in differences:
                assert (np.abs(difference).max() > 1e-3) == (name in learn), (
                    name,
                    learn,
                )
                if name not in learn:
                    np.testing.assert_allclose(difference, 0.0, atol=1e-14)
    np.testing.assert_array_equal(
        model(method, learn=(), **start).fit(X, y).noise_, fitted.noise_ * 0 + 0.3
    )


def test_the_relevance_of_a_sum_weighs_its_parts_by_their_variance():
    columns = Columns(np.zeros(2), np.array([2.0, 1.0]), 1.0)
    rbf = RBF(np.array([[1.0, 4.0]]), 3.0)
    linear = Linear(np.array([[8.0, 0.5]]), 1.0)
    np.testing.assert_allclose(
        (rbf + Constant(7.0)).relevance(columns), rbf.relevance(columns)
    )
    expected = np.sqrt(
        (3 * rbf.relevance(columns) ** 2 + linear.relevance(columns) ** 2) / 4
    )
    np.testing.assert_allclose((rbf + linear).relevance(columns), expected)
    np.testing.assert_allclose(
        (rbf + linear + Constant(7.0)).relevance(columns), expected
    )
    assert (rbf * linear + Constant(2.0)).weight() == 5.0


# ---------------------------------------------------------------- what is kept
@pytest.mark.parametrize(
    "kernel", [None, Matern52() + RationalQuadratic()], ids=["rbf", "sum"]
)
def test_a_fitted_model_holds_no_rows(make_table, method, kernel):
    """O(CM(M+D)) CPU numbers, whatever N is; the pickle, which would show hidden
    storage, agrees.

    Before it is pickled or saved, an estimator also has the leave-one-out marginals of
    its rows.
    """
    C = 3
    M = 8
    D = 3
    sizes = []
    for rows in (200, 2000):
        X, y, _ = make_table(C, rows=rows)
        fitted = pickle.loads(
            pickle.dumps(model(method, kernel=kernel, tol=0).fit(X, y))
        )
        held = list(numbers(fitted))
        assert all(rows not in part.shape for part in held)
        assert all(
            part.device.type == "cpu" for part in held if isinstance(part, torch.Tensor)
        )
        most = (
            8 if method == "sep" else 6
        )  # partial_fit goes on from the sums of a SEP model
        assert sum(part.nbytes for part in held) // 8 < most * C * M * (M + D)
        sizes.append(len(pickle.dumps(fitted)))
    assert (
        abs(sizes[1] - sizes[0]) < 200
    )  # digits of numbers in the history, a longer name


def test_only_warm_start_keeps_row_sites(make_table):
    X, y, _ = make_table(3, rows=200)
    kept = lambda **o: pickle.loads(pickle.dumps(model(**o).fit(X, y)))
    shapes = lambda **o: {tuple(part.shape) for part in numbers(kept(**o))}
    assert not any(200 in shape for shape in shapes())
    assert any(200 in shape for shape in shapes(warm_start=True))
    assert not any(200 in shape for shape in shapes(method="sep", warm_start=True))


# ---------------------------------------------------------------- what is left alone
def test_nothing_global_is_touched(table, method):
    X, y, new = table
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    flags = lambda: (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.get_num_interop_threads(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_device(),
        [type(h) for h in logging.getLogger().handlers],
        logging.getLogger("cavity").level,
        np.geterr(),
    )
    as_found = flags()
    for options in ({}, {"batch_size": 20}, {"dtype": "float32"}):
        model(method, **options).fit(X, y).predict_proba(new)
    assert flags() == as_found
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])


def test_a_foreign_default_dtype_changes_nothing(table):
    X, y, new = table
    expected = (
        model(dtype="float32").fit(X, y).predict_proba(new),
        model().fit(X, y).predict_proba(new),
    )
    torch.set_default_dtype(torch.float64)
    try:
        found = (
            model(dtype="float32").fit(X, y).predict_proba(new),
            model().fit(X, y).predict_proba(new),
        )
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 20}], ids=["full", "mini-batches"]
)
def test_two_threads_are_two_turns(make_table, method, options):
    tables = [make_table(3, seed=s) for s in range(2)]

    def work(table):
        fitted = model(method, max_epochs=4, **options).fit(table.X, table.y)
        return fitted.predict_log_proba(table.new), fitted.log_marginal_likelihood_

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, tables))
    for (p, evidence), table in zip(together, tables, strict=True):
        expected = work(table)
        np.testing.assert_array_equal(p, expected[0])
        assert evidence == expected[1]
