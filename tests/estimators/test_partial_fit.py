"""partial_fit: every call's rows are new, and their sites are added to the sums."""

import numpy as np
import pytest
from sklearn.base import clone

from cavity import BadOption
from cavity.kernels import RBF
from reference.brute_ep import build_model, probit_factors
from reference.gaussian import moments
from reference.kernels import rbf
from reference.solver import count_factors, gather, new_sites, shared_cavity, site_sums
from support import classifier, toy, without_warnings

NOISE, JITTER, SCALE = 0.3, 1e-6, 1.3


def growing(**options):
    given = dict(
        method="sep",
        learn=(),
        noise=NOISE,
        jitter=JITTER,
        kernel=RBF(SCALE),
        random_state=0,
    )
    return classifier(**(given | options))


def reference_sums(X, y, Z, C, calls, old=None, seen=()):
    """Whitened P and h after calls with these rows, by explicit matrices: P_c += Σ τ
    υυᵀ, cavity (1 − 1/n_c) P_c, n_c grown.

    `old`: whitened sums to begin with, of the rows `seen`.
    """
    latent = 1 if C == 2 else C
    model = build_model(
        np.repeat(Z[None], latent, axis=0),
        [lambda a, b: rbf(a, b, SCALE)] * latent,
        NOISE,
        JITTER,
    )

    def factors(rows):
        return (
            probit_factors(model, X[rows], 2 * y[rows] - 1)
            if C == 2
            else probit_factors(model, X[rows], y[rows])
        )

    L = np.linalg.cholesky(model.K)
    inverse = np.linalg.inv(L)
    P, h = (
        (np.zeros((latent, len(Z), len(Z))), np.zeros((latent, len(Z))))
        if old is None
        else old
    )
    P, h = (
        np.swapaxes(inverse, -1, -2) @ P @ inverse,
        np.einsum("cji,cj->ci", inverse, h),
    )
    counts = count_factors(factors(seen), latent) if len(seen) else np.zeros(latent)
    for rows in calls:
        batch = factors(rows)
        counts = counts + count_factors(batch, latent)
        cavity = moments(*shared_cavity(model, P, h, counts))
        P_new, h_new = site_sums(
            batch, *new_sites(batch, gather(cavity, batch)), latent
        )
        P, h = P + P_new, h + h_new
    return np.swapaxes(L, -1, -2) @ P @ L, np.einsum("cji,cj->ci", L, h)


def assert_sums(model, P, h):
    np.testing.assert_allclose(
        model._result.growing.state.sums.P, P, rtol=1e-7, atol=1e-8 * np.abs(P).max()
    )
    np.testing.assert_allclose(
        model._result.growing.state.sums.h, h, rtol=1e-7, atol=1e-8 * np.abs(h).max()
    )


@pytest.mark.parametrize("C", [2, 3])
def test_the_sums_are_those_of_the_reference(C):
    X, y = toy(60, C)
    Z = X[:8]
    calls = [range(0, 20), range(20, 21), range(21, 60)]
    model = growing(inducing=Z, batch_size=None)
    for k, rows in enumerate(calls):
        model.partial_fit(X[rows], y[rows], classes=range(C))
        assert_sums(model, *reference_sums(X, y, Z, C, calls[: k + 1]))
        assert model.predict_proba(X).shape == (60, C)
    assert model.n_epochs_ == len(model.history_) == 3


def test_counts_grow_by_the_rows_and_weights_count_as_rows():
    X, y = toy(40, 3)
    whole = np.repeat(np.arange(40), 2)
    twice, weighted = (
        growing(inducing=X[:8], batch_size=None),
        growing(inducing=X[:8], batch_size=None),
    )
    for rows in (slice(0, 20), slice(20, 40)):
        twice.partial_fit(
            X[np.repeat(np.arange(40)[rows], 2)],
            y[np.repeat(np.arange(40)[rows], 2)],
            classes=range(3),
        )
        weighted.partial_fit(X[rows], y[rows], range(3), np.full(20, 2.0))
    assert float(twice._result.growing.engine.total) == len(whole)
    np.testing.assert_allclose(
        twice._result.growing.engine.sites.counts,
        weighted._result.growing.engine.sites.counts,
    )
    np.testing.assert_allclose(
        twice.predict_proba(X), weighted.predict_proba(X), atol=1e-10
    )


def nll(model, X, y):
    return -model.predict_log_proba(X)[np.arange(len(y)), y].mean()


@pytest.mark.parametrize("C", [2, 4])
def test_one_pass_in_chunks_is_close_to_many_passes(C):
    X, y = toy(1500, C)
    train, test = slice(0, 1000), slice(1000, 1500)
    model = growing(inducing=X[:20], batch_size=50)
    for start in range(0, 1000, 250):
        rows = slice(start, start + 250)
        model.partial_fit(X[rows], y[rows], classes=range(C))
    with without_warnings():
        full = growing(inducing=X[:20], max_epochs=100).fit(X[train], y[train])
    assert abs(nll(model, X[test], y[test]) - nll(full, X[test], y[test])) < 0.02


def test_a_class_may_come_later():
    X, y = toy(120, 3)
    late = np.argsort(y, kind="stable")
    model = growing(n_inducing=10)
    model.partial_fit(X[late[:60]], y[late[:60]], classes=[2, 0, 1])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.partial_fit(X[late[60:]], y[late[60:]]).score(X, y) > 0.5


@pytest.mark.parametrize("method", ["ep", "rep", "pep", "gfitc", "vi"])
def test_methods_without_tied_sites_are_refused(method):
    X, y = toy(30, 3)
    with pytest.raises(BadOption, match="method='sep'"):
        classifier(method).partial_fit(X, y)


def test_a_model_of_another_method_cannot_grow():
    X, y = toy(30, 3)
    with without_warnings():
        model = classifier("ep", max_epochs=1, n_inducing=5).fit(X, y)
    with pytest.raises(BadOption, match="fitted with another method"):
        model.set_params(method="sep").partial_fit(X, y)


@pytest.mark.parametrize("method", ["auto", "sep"])
def test_the_sums_of_a_fit_are_added_to_and_its_sites_are_tied_from_then_on(method):
    X, y = toy(100, 3)
    seen, new = range(70), range(70, 100)
    with without_warnings():
        model = growing(
            method=method, inducing=X[:8], max_epochs=10, batch_size=None
        ).fit(X[seen], y[seen])
    old = tuple(t.numpy().copy() for t in model._result.growing.state.sums)
    assert len(model._result.growing.state.sites.tau) == 0
    model.partial_fit(X[new], y[new])
    assert_sums(model, *reference_sums(X, y, X[:8], 3, [new], old, seen))


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda m, X, y: m.partial_fit(X, np.full(len(y), 7)),
            "label 7.*first call, .0, 1, 2.",
        ),
        (lambda m, X, y: m.partial_fit(X[:, :1], y), "1 features"),
        (
            lambda m, X, y: m.partial_fit(X, y, classes=[0, 1]),
            "not those of the first call",
        ),
        (lambda m, X, y: m.partial_fit(X * np.nan, y), "NaN"),
        (
            lambda m, X, y: clone(m).partial_fit(X, np.zeros(len(y))),
            "only one class.*classes=",
        ),
        (
            lambda m, X, y: (
                clone(m).set_params(class_weight="balanced").partial_fit(X, y)
            ),
            "counts of all rows",
        ),
        (
            lambda m, X, y: (
                clone(m).set_params(training__optimizer="lbfgs").partial_fit(X, y)
            ),
            "optimizer='lbfgs' needs",
        ),
        (
            lambda m, X, y: (
                clone(m).set_params(training__schedule="inner-exact").partial_fit(X, y)
            ),
            "inner-exact",
        ),
    ],
)
def test_calls_that_do_not_fit_are_refused_and_leave_the_model_alone(call, words):
    X, y = toy(30, 3)
    model = growing(n_inducing=5).partial_fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match=words):
        call(model, X, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
