"""When training may stop: not while sites burn in, not on a single high epoch, not on
top of a hill.
"""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier
from cavity.engine.training.convergence import (
    find_loose_tol,
    have_full_epochs_converged,
    have_loose_epochs_converged,
)
from cavity.fitting.options import nest
from support import toy

ROWS, TOL = 60.0, 1e-4


def first_stop(objectives, promises=None):
    """The number of epochs after which the rule stops, or None."""
    promises = [0.0] * len(objectives) if promises is None else promises
    counts = range(1, len(objectives) + 1)
    return next(
        (
            n
            for n in counts
            if have_full_epochs_converged(objectives[:n], promises[:n], TOL, ROWS)
        ),
        None,
    )


def test_a_run_goes_on_while_it_still_gains():
    """SEP's first epochs: q overshoots, then sites burn in, then the hyper-parameters
    learn.
    """
    burn_in = [
        -46.0,
        -47.1,
        -48.0,
        -48.6,
        -49.0,
        -49.2,
        -49.3,
        -49.35,
        -49.38,
        -49.4,
        -49.4,
        -49.4,
    ]
    series = burn_in + [-49.4 + 0.1 * i for i in range(60)]
    assert first_stop(series) is None
    series = [-32.0 + 0.0011 * i for i in range(100)]
    series[50] += 0.02
    assert first_stop(series) is None
    epochs = np.arange(80)
    assert first_stop(list(-90 - 1e-3 * (epochs - 40.0) ** 2)) is None


def test_a_settled_objective_ends_the_run_near_its_top():
    """Ten epochs gain less than tol long before the top: from epoch 425 on, with 0.07
    nats to go.
    """
    series = [-30 - 20 * 0.8**i for i in range(100)]
    stop = first_stop(series)
    assert 40 < stop < 80
    assert -30 - series[stop - 1] < 1e-2
    series = [-30 - 5 * np.exp(-i / 100) for i in range(1000)]
    stop = first_stop(series)
    assert -30 - series[stop - 1] < TOL * ROWS
    climb = [-30 + 0.01 * i for i in range(400)]
    assert first_stop(climb[-50:] + [climb[-1]] * 50) is not None
    assert first_stop(climb + [climb[-1]] * 50) is None


def test_a_flat_objective_is_not_the_end_while_the_gradient_promises_more():
    """SEP's objective is not what its gradient climbs: it may rest while
    hyper-parameters are on their way.
    """
    flat, promise = [-30.0] * 200, TOL * ROWS / 5  # per epoch: twice tol in ten epochs
    assert first_stop(flat, [promise] * 200) is None
    assert 100 < first_stop(flat, [promise] * 100 + [0.0] * 100) < 110


def test_a_loose_plan_ends_where_an_epoch_gains_less_than_its_sites_can_tell():
    gain = ROWS * find_loose_tol(300)
    assert gain == pytest.approx(5 * ROWS * find_loose_tol(60))
    assert have_loose_epochs_converged([-400.0, -300.0, -300.0 + 0.9 * gain], 300, ROWS)
    assert not have_loose_epochs_converged(
        [-400.0, -300.0, -300.0 + 1.1 * gain], 300, ROWS
    )
    assert have_loose_epochs_converged(
        [-300.0, -300.0], 300, ROWS
    ) and not have_loose_epochs_converged([-300.0], 300, ROWS)


def test_a_loose_plan_ends_after_five_epochs_that_gain_little_per_row_and_little_of_what_is_left():
    def ends(epochs, gain, last):
        """Whether a plan ends whose objective per row grew steadily to `last`."""
        steps = np.arange(epochs) - (epochs - 1)
        return have_loose_epochs_converged(list((last + gain * steps) * ROWS), 3, ROWS)

    for last, enough in (
        (-0.9, 0.01),
        (-0.2, 0.003),
        (-0.02, 0.0003),
    ):  # .02, or 3 % of what is left, in two epochs
        assert ends(5, 0.9 * enough, last) and not ends(4, 0.9 * enough, last)
        assert not ends(5, 1.1 * enough, last) and not ends(15, 1.1 * enough, last)


def test_a_patient_loose_plan_judges_more_epochs():
    still = [-0.9 * ROWS] * 4
    climb = [-1.2 * ROWS, -1.1 * ROWS, *still]
    assert have_loose_epochs_converged(climb, 3, ROWS)
    assert not have_loose_epochs_converged(climb, 3, ROWS, patience=5)
    assert not have_loose_epochs_converged(climb, 3, ROWS, patience=6)
    assert have_loose_epochs_converged([*climb, *still], 3, ROWS, patience=6)


def fit_and_listen(method, table, **options):
    """A fit, and whether it says that it stopped before it converged."""
    options = {"n_inducing": 10, "random_state": 0, "device": "cpu"} | options
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = GPClassifier(method, **nest(**options)).fit(*table)
    return model, any(issubclass(w.category, ConvergenceWarning) for w in found)


def test_a_fit_that_still_rises_at_the_limit_says_so():
    """SEP of 60 rows gains more than a nat after these epochs.

    It stopped after 164 without a word.
    """
    model, warned = fit_and_listen("sep", toy(60, 2), max_epochs=200)
    assert warned and model.n_epochs_ == 200


def test_a_smaller_tolerance_trains_longer_and_ends_higher():
    fits = [fit_and_listen("ep", toy(60, 2), tol=tol)[0] for tol in (1e-1, 1e-2, 1e-3)]
    epochs, evidence = (
        [getattr(f, name) for f in fits]
        for name in ("n_epochs_", "log_marginal_likelihood_")
    )
    assert epochs == sorted(set(epochs)) and evidence == sorted(set(evidence))


def test_every_epoch_of_full_batches_records_what_its_step_promises():
    """To first order: a small step gains what its gradient promised."""
    model, _ = fit_and_listen(
        "ep", toy(60, 2), tol=0.0, max_epochs=60, learning_rate=1e-3, schedule="outer"
    )
    gain = np.diff([row["objective"] for row in model.history_])
    promised = np.array([row["promised_gain"] for row in model.history_])[:-1]
    assert (promised > 0).all()
    assert gain.sum() == pytest.approx(promised.sum(), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("method", ["ep", "sep"])
def test_real_tables_end_near_the_best_or_with_a_warning(method, load):
    """The best: L-BFGS for EP; for SEP, whose gradient L-BFGS cannot use, a run of four
    times the default's epochs.
    """
    table = load(return_X_y=True)
    options = {"tol": 0.0, "max_epochs": 2000}
    if method == "ep":
        options = {
            "tol": 1e-7,
            "max_epochs": 100,
            "schedule": "outer",
            "optimizer": "lbfgs",
        }
    usual, warned = fit_and_listen(method, table, n_inducing="auto")
    best, _ = fit_and_listen(method, table, n_inducing="auto", **options)
    assert (
        warned or usual.log_marginal_likelihood_ > best.log_marginal_likelihood_ - 0.1
    )
