"""Leave-one-out from the sites against explicit matrices: every site of a row is taken
out of the natural parameters.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity import GPClassifier, GPRegressor, Training
from cavity.callbacks import Callback
from cavity.common.ranks import Local
from cavity.engine.inference.batch_sites import site_totals
from cavity.engine.inference.leave_one_out import leave_one_out
from cavity.fitting.options import nest
from cavity.kernels import RBF
from cavity.methods import EP, GFITC, REP, SEP, VI, PowerEP
from support import slow


def problem(C, n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.argmax(X @ rng.normal(size=(2, C)) + 0.5 * rng.normal(size=(n, C)), 1)


class Keep(Callback):
    def start(self, run):
        self.run = run


def trained(method, C, weight=None, **options):
    X, y = problem(C)
    keep = Keep()
    options = (
        dict(
            kernel=RBF(lengthscale=1.5),
            n_inducing=7,
            learn=(),
            random_state=0,
            callbacks=[keep],
        )
        | options
    )
    clf = GPClassifier(method, **nest(**options)).fit(X, y, weight)
    return clf, keep.run, X, y


def by_matrices(run, row, site_of_row):
    """Mean and variance of f at a row from Λ and h with that row's sites subtracted,
    class by class.
    """
    engine, state = run.engine, run.state
    (batch,) = run.whole.split(engine.chunk)
    engine.load(state.theta)
    projection = engine.prior.project(batch.X, state.jitter)
    a, r = projection.a.double()[:, :, row], projection.r.double()[:, row]
    mean, var = [], []
    for c in range(len(a)):
        tau, nu = site_of_row[0][c], site_of_row[1][c]
        precision = torch.eye(a.shape[1], dtype=torch.float64) + state.sums.P[c]
        precision = precision - tau * torch.outer(a[c], a[c])
        shift = state.sums.h[c] - nu * a[c]
        mean.append(a[c] @ torch.linalg.solve(precision, shift))
        var.append(a[c] @ torch.linalg.solve(precision, a[c]) + r[c])
    return torch.stack(mean), torch.stack(var)


@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize(
    "method", [EP(), REP(epsilon=0.05), PowerEP(0.5)], ids=["ep", "rep", "pep"]
)
def test_own_sites_leave_as_explicit_matrices_say(method, C, weighted):
    weight = np.linspace(0.5, 3.0, 40) if weighted else None
    _, run, _, _ = trained(method, C, weight)
    ((batch, f),) = list(leave_one_out(run.engine, run.state, run.whole, Local()))
    classes = run.engine.factor.sites(batch.y)
    sites = run.engine.sites.stored(run.state, batch, classes).site
    share = run.engine.sites.share(batch.weight, run.engine.removal)
    totals = site_totals(sites, classes, f.mean.mT, share)
    for row in (0, 11, 39):
        mean, var = by_matrices(run, row, (totals.tau[:, row], totals.nu[:, row]))
        torch.testing.assert_close(f.mean[row], mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(f.var[row], var, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", [EP(), GFITC(), SEP()], ids=["ep", "gfitc", "sep"])
def test_a_sample_of_the_rows_has_the_marginals_of_these_rows(method):
    run = trained(method, 2)[1]
    ((_, all_rows),) = list(leave_one_out(run.engine, run.state, run.whole, Local()))
    chosen = torch.tensor([0, 3, 4, 5, 6, 21, 39])
    for chunk, sizes in ((40, [7]), (5, [5, 2])):
        engine = replace(run.engine, chunk=chunk)
        found = list(
            leave_one_out(engine, run.state, run.whole, Local(), chosen=chosen)
        )
        assert [len(batch.index) for batch, _ in found] == sizes
        assert torch.cat([batch.index for batch, _ in found]).equal(chosen)
        mean, var = (torch.cat([f[i] for _, f in found]) for i in range(2))
        torch.testing.assert_close(mean, all_rows.mean[chosen], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(var, all_rows.var[chosen], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [EP(), slow(GFITC()), slow(SEP()), slow(VI())],
    ids=["ep", "gfitc", "sep", "vi"],
)
def test_it_is_near_to_refits_without_the_row(method):
    """At fixed hyper-parameters: the mean of |Δ log p| over rows is small, and much
    smaller than that of the fit itself.
    """
    clf, _, X, y = trained(method, 2)
    rows = np.arange(0, 40, 4)
    own = rows, y[rows]
    near, seen = clf.loo_log_proba_[own], clf.predict_log_proba(X)[own]
    exact = np.array(
        [
            GPClassifier(
                method,
                kernel=RBF(lengthscale=1.5),
                inducing=clf.inducing_points_[0],
                training=Training(learn=()),
            )
            .fit(np.delete(X, i, 0), np.delete(y, i))
            .predict_log_proba(X[i : i + 1])[0, y[i]]
            for i in rows
        ]
    )
    assert np.abs(near - exact).mean() < 0.4 * np.abs(seen - exact).mean()
    assert np.abs(near - exact).mean() < 0.05


def test_rows_do_not_outlive_the_process(tmp_path):
    import pickle

    import cavity

    X, y = problem(3)
    clf = GPClassifier("ep", n_inducing=5, max_epochs=5, random_state=0).fit(X, y)
    assert clf.loo_log_proba_.shape == (40, 3)
    np.testing.assert_allclose(np.exp(clf.loo_log_proba_).sum(1), 1.0)
    clf.save(tmp_path / "m.cavity")
    for other in (pickle.loads(pickle.dumps(clf)), cavity.load(tmp_path / "m.cavity")):
        with pytest.raises(AttributeError, match="fit again"):
            other.loo_log_proba_


@pytest.mark.parametrize("noise", [0.1, 1e-8])
def test_targets_leave_as_explicit_matrices_say(noise):
    """Also where a row has hardly any noise, and 1 − τv no digits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.sin(X[:, 0]) + X[:, 1]
    weight = rng.integers(1, 4, 30)
    gp = GPRegressor(
        kernel=RBF(lengthscale=1.2),
        normalize_y=False,
        **nest(noise=noise, learn=(), jitter=0.0),
    ).fit(X, y, sample_weight=weight)
    square = ((X[:, None] - X) ** 2).sum(2)
    G = np.exp(-square / (2 * 1.2**2)) + np.diag(noise / weight)
    inverse = np.linalg.inv(G)
    off = inverse @ y / inverse.diagonal()
    var = 1 / inverse.diagonal() - noise / weight + noise
    share = weight / weight.sum()
    log_p = -0.5 * (off**2 / var + np.log(2 * np.pi * var))
    assert gp.estimate_.rmse == pytest.approx(np.sqrt(share @ off**2), rel=1e-4)
    assert gp.estimate_.log_density == pytest.approx(share @ log_p, abs=1e-3)
