"""What a fitted model holds, keeps and reports; what a fit leaves alone."""

import copy
import logging
import pickle
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier, __version__
from cavity.kernels import RBF, Deep, Matern52, RationalQuadratic

few = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def model(method="ep", **options):
    return GPClassifier(method, **{"n_inducing": 8, "max_epochs": 5, "random_state": 0} | options)


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


@few
@pytest.mark.parametrize("share", [None, "kernel", "inducing", "both"])
@pytest.mark.parametrize("learn", [(), ("kernel", "noise", "inducing")], ids=["fixed", "learning"])
def test_attributes_have_the_documented_shapes(table, method, share, learn):
    X, y, new = table
    C = len(np.unique(y))
    L = 1 if C == 2 else C
    fitted = model(method, share=share, learn=learn).fit(X, y)
    shapes = {"classes_": (C,), "inducing_points_": (L, 8, 3), "noise_": (L,), "feature_relevance_": (3,)}
    for name, shape in shapes.items():
        assert type(getattr(fitted, name)) is np.ndarray and getattr(fitted, name).shape == shape, name
    assert type(fitted.kernel_.lengthscale) is np.ndarray and fitted.kernel_.lengthscale.shape == (L, 3)
    assert type(fitted.kernel_.variance) is np.ndarray and fitted.kernel_.variance.shape == (L,)
    assert type(fitted.log_marginal_likelihood_) is float and fitted.log_marginal_likelihood_ < 0
    assert (fitted.n_features_in_, fitted.n_epochs_) == (3, len(fitted.history_))
    np.testing.assert_allclose(fitted.feature_relevance_.sum(), 1.0)
    for part in fitted.predict_latent(new):
        assert type(part) is np.ndarray and part.shape == (len(new), L) and part.dtype == np.float64
    assert (fitted.predict_latent(new)[1] > fitted.noise_).all()  # the noise is part of the variance


@few
def test_learn_says_what_moves(table, method):
    X, y, _ = table
    start = {"kernel": RBF(lengthscale=[1.0, 4.0, 0.5], variance=1.5), "noise": 0.3, "inducing": X[:8]}
    for learn in ((), ("kernel",), ("noise",), ("inducing",)):
        fitted = model(method, learn=learn, **start).fit(X, y)
        moved = {
            "kernel": (fitted.kernel_.lengthscale / [1.0, 4.0, 0.5] - 1, fitted.kernel_.variance / 1.5 - 1),
            "noise": (fitted.noise_ / 0.3 - 1,),
            "inducing": (fitted.inducing_points_ - X[:8],),
        }
        for name, differences in moved.items():
            for difference in differences:
                assert (np.abs(difference).max() > 1e-3) == (name in learn), (name, learn)
                if name not in learn:
                    np.testing.assert_allclose(difference, 0.0, atol=1e-14)
    np.testing.assert_array_equal(model(method, learn=(), **start).fit(X, y).noise_, fitted.noise_ * 0 + 0.3)


@few
def test_relevance_finds_the_column_that_matters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4)) * [1.0, 100.0, 1.0, 1e-3]
    y = (X[:, 1] > 50).astype(int) + (X[:, 1] > -50)
    relevance = model(max_epochs=100, n_inducing=20).fit(X, y).feature_relevance_
    assert relevance.argmax() == 1 and relevance[1] > 0.4


# ---------------------------------------------------------------- what is kept


@few
@pytest.mark.parametrize("kernel", [None, Matern52() + RationalQuadratic()], ids=["rbf", "sum"])
def test_a_fitted_model_holds_no_rows(make_table, method, kernel):
    """O(CM(M+D)) CPU numbers, whatever N is; the pickle, which would show hidden storage, agrees."""
    C, M, D, sizes = 3, 8, 3, []
    for rows in (200, 2000):
        X, y, _ = make_table(C, rows=rows)
        fitted = model(method, kernel=kernel, tol=0).fit(X, y)
        held = list(numbers(fitted))
        assert all(rows not in part.shape for part in held)
        assert all(part.device.type == "cpu" for part in held if isinstance(part, torch.Tensor))
        assert sum(part.nbytes for part in held) // 8 < 6 * C * M * (M + D)
        sizes.append(len(pickle.dumps(fitted)))
    assert abs(sizes[1] - sizes[0]) < 200  # digits of numbers in the history, a longer name


@few
def test_only_warm_start_keeps_row_sites(make_table):
    X, y, _ = make_table(3, rows=200)
    shapes = lambda **o: {tuple(part.shape) for part in numbers(model(**o).fit(X, y))}
    assert not any(200 in shape for shape in shapes())
    assert any(200 in shape for shape in shapes(warm_start=True))
    assert not any(200 in shape for shape in shapes(method="sep", warm_start=True))


@few
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_pickle_predicts_the_same_bits(table, method, dtype):
    X, y, new = table
    fitted = model(method, dtype=dtype, warm_start=True).fit(X, y)
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(other.predict_log_proba(new), fitted.predict_log_proba(new))
        assert other.log_marginal_likelihood_ == fitted.log_marginal_likelihood_
        np.testing.assert_array_equal(other.fit(X, y).predict_proba(new), copy.deepcopy(fitted).fit(X, y).predict_proba(new))


@few
def test_single_precision_says_nearly_the_same(table, method):
    X, y, new = table
    options = {"learn": (), "noise": 0.5, "tol": 1e-6, "max_epochs": 300}
    double, single = (model(method, dtype=d, jitter=1e-4, **options).fit(X, y) for d in ("float64", "float32"))
    np.testing.assert_allclose(single.predict_proba(new), double.predict_proba(new), atol=1e-3)
    assert single.predict_proba(new).dtype == np.float64


# ---------------------------------------------------------------- what is left alone


@few
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


@few
def test_a_foreign_default_dtype_changes_nothing(table):
    X, y, new = table
    expected = model(dtype="float32").fit(X, y).predict_proba(new), model().fit(X, y).predict_proba(new)
    torch.set_default_dtype(torch.float64)
    try:
        found = model(dtype="float32").fit(X, y).predict_proba(new), model().fit(X, y).predict_proba(new)
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


@few
@pytest.mark.parametrize("options", [{}, {"batch_size": 20}], ids=["full", "mini-batches"])
def test_two_threads_are_two_turns(make_table, method, options):
    tables = [make_table(3, seed=s) for s in range(4)]

    def work(table):
        fitted = model(method, max_epochs=15, **options).fit(table.X, table.y)
        return fitted.predict_log_proba(table.new), fitted.log_marginal_likelihood_

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, tables))
    for (p, evidence), table in zip(together, tables, strict=True):
        expected = work(table)
        np.testing.assert_array_equal(p, expected[0])
        assert evidence == expected[1]


@few
@pytest.mark.parametrize("options", [{}, {"batch_size": 20}, {"inducing": "random"}, {"inducing": "greedy"}], ids=str)
def test_the_same_seed_gives_the_same_bits(make_table, method, options):
    X, y, new = make_table(3)
    fit = lambda seed: model(method, random_state=seed, **options).fit(X, y).predict_log_proba(new)
    np.testing.assert_array_equal(fit(3), fit(3))
    np.testing.assert_array_equal(fit(np.random.RandomState(3)), fit(3))
    assert (fit(3) != fit(4)).any()


# ---------------------------------------------------------------- warm start


@few
def test_a_warm_start_goes_on(table, method):
    """Two fits of 20 epochs climb on from where the first ended; a cold second fit begins anew."""
    X, y, _ = table
    objective = lambda fitted: [row["objective"] for row in fitted.history_]
    warm, cold = (model(method, max_epochs=20, warm_start=w).fit(X, y) for w in (True, False))
    first = objective(warm)
    assert first == objective(cold)
    again, anew = objective(warm.fit(X, y)), objective(cold.fit(X, y))
    assert anew == first
    assert again[0] > first[-3] and again[-1] > first[-1]


def test_a_warm_start_from_a_settled_fit_settles_at_once(table, method):
    X, y, new = table
    fitted = model(method, learn=(), warm_start=True, max_epochs=None, tol=1e-6).fit(X, y)
    before = fitted.n_epochs_, fitted.predict_proba(new)
    fitted.fit(X, y)
    assert fitted.n_epochs_ <= 3 < before[0]
    np.testing.assert_allclose(fitted.predict_proba(new), before[1], atol=1e-3)


@few
def test_a_warm_start_on_another_table_is_a_fit(make_table, method):
    """What does not fit any more (rows, classes, columns) is left behind."""
    fitted = model(method, warm_start=True).fit(*make_table(3)[:2])
    for shape in ({"rows": 80}, {"classes": 4}, {"columns": 2}, {"classes": 2}):
        X, y, new = make_table(**{"classes": 3} | shape)
        assert fitted.fit(X, y).predict_proba(new).shape == (len(new), len(np.unique(y)))
        assert fitted.score(X, y) > 0.4


# ---------------------------------------------------------------- reports


@few
def test_history_has_a_row_an_epoch(table, method):
    X, y, _ = table
    for options in ({}, {"batch_size": 20}, {"learn": ()}, {"schedule": "outer", "max_epochs": 2}):
        fitted = model(method, tol=0, **options).fit(X, y)
        assert len(fitted.history_) == fitted.n_epochs_ == fitted.max_epochs
        assert [row["epoch"] for row in fitted.history_] == list(range(1, fitted.n_epochs_ + 1))
        seconds = [row["seconds"] for row in fitted.history_]
        assert seconds == sorted(seconds) and seconds[0] > 0
        for row in fitted.history_:
            assert np.isfinite(row["objective"]) and row["repairs"] == 0
            assert (row["learning_rate"] > 0) == (fitted.learn != ())
            assert all(isinstance(value, int | float) for value in row.values())


def test_training_does_not_stop_while_the_objective_climbs(table, method):
    X, y, _ = table
    history = [row["objective"] for row in model(method, max_epochs=None, tol=1e-3).fit(X, y).history_]
    assert history[-1] - history[-2] < 1e-3 * len(y)
    assert history[-1] > history[10]


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_seconds": 1e-3, "max_epochs": None}], ids=str)
@pytest.mark.parametrize("options", [{}, {"learn": (), "tol": 0}, {"batch_size": 20}], ids=str)
def test_a_limit_before_tol_is_a_convergence_warning(table, method, limit, options):
    X, y, _ = table
    with pytest.warns(ConvergenceWarning, match=r"after \d+ epochs.*raise max_epochs="):
        fitted = model(method, **options | limit).fit(X, y)
    assert fitted.n_epochs_ <= 2 and np.isfinite(fitted.log_marginal_likelihood_)


def test_a_fit_that_settles_does_not_warn(table, method):
    X, y, _ = table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = model(method, learn=(), max_epochs=None).fit(X, y)
        learnt = model(method, max_epochs=None, tol=1e-2).fit(X, y)
        model(method, max_epochs=None, batch_size=30, tol=1e-2).fit(X, y)
    change = [row["objective"] for row in fixed.history_[-2:]]
    assert abs(change[1] - change[0]) < 1e-4 * len(y)
    best = [row["objective"] for row in learnt.history_]
    assert max(best[-10:]) - max(best[:-10]) < 1e-2 * len(y)


@few
def test_verbose_shows_a_bar_with_objective_rate_and_time_left(table, capsys):
    X, y, _ = table
    model().fit(X, y)
    quiet = capsys.readouterr()
    assert quiet.out == quiet.err == ""
    model(verbose=1).fit(X, y)
    shown = capsys.readouterr().err
    assert re.search(r"\d+/5 \[\d\d:\d\d<", shown), shown
    assert "objective=" in shown and "rate=0.01" in shown


@few
def test_messages_go_to_the_logger(table, caplog):
    X, y, _ = table
    with caplog.at_level(logging.DEBUG):
        model().fit(X, y)
    ours = [record for record in caplog.records if record.name.split(".")[0] == "cavity"]
    assert len(ours) >= 5 and "objective" in ours[0].getMessage()


def test_the_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z.].*)?", __version__)


TIMING = """
import time
import sklearn, sklearn.utils.validation, torch
start = time.perf_counter()
import cavity
cavity.GPClassifier, cavity.kernels
print(time.perf_counter() - start)
"""


def test_the_import_adds_little_to_torch_and_sklearn():
    seconds = min(
        float(subprocess.run([sys.executable, "-c", TIMING], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert seconds < 0.3


@few
def test_a_deep_copy_of_the_kernel_is_not_shared_between_fits(table):
    X, y, _ = table
    kernel = Deep(torch.nn.Linear(3, 2), RBF())
    a, b = model(kernel=kernel).fit(X, y), model(kernel=kernel).fit(X, y)
    assert a.kernel_ is not b.kernel_ and a.kernel_.net is not b.kernel_.net is not kernel.net
