"""Rows about regression: thesis 2.1 and 4, review 1.2, 2.1 and 3, the slides."""

import numpy as np

from reference import sparse_regression as explicit

from .rows import LINE, NEW, Row, gap


def against(answer):
    """Errors of mean, covariance and evidence."""

    def error(gp):
        mean, cov = gp.predict(NEW, return_cov=True, noise=False)
        evidence = gap(gp.log_marginal_likelihood_, answer.log_evidence)
        return max(gap(mean, answer.mean), gap(cov, answer.cov), evidence)

    return error


def prior_moments(draws):
    return gap(np.cov(draws.T), LINE.k(LINE.X, LINE.X))


def posterior_moments(draws):
    return gap(np.cov(draws.T), LINE.exact.cov)


def linear(gp):
    """Ridge regression, w ~ N(0, I), on columns that the kernel centres."""
    center = LINE.X.mean(0)
    X = LINE.X - center
    w = np.linalg.solve(X.T @ X + LINE.noise * np.eye(2), X.T @ LINE.y)
    return gap(gp.predict(NEW), (NEW - center) @ w)


def features(gp):
    """Bayesian linear regression on the cosines and sines of the model."""
    angles = [rows @ gp.frequencies_.T for rows in (LINE.X, NEW)]
    scale = np.sqrt(1.7 / len(gp.frequencies_))
    phi, new = (scale * np.hstack([np.cos(a), np.sin(a)]) for a in angles)
    cov = np.linalg.inv(np.eye(phi.shape[1]) + phi.T @ phi / LINE.noise)
    return gap(gp.predict(NEW), new @ cov @ phi.T @ LINE.y / LINE.noise)


def committee(gp):
    """(4.10), with the members' rows found in the model."""
    members = [rows[np.isfinite(rows).all(1)] for rows in gp.inducing_points_]
    K, each = LINE.k(NEW, NEW), []
    for rows in members:
        at = (LINE.X[:, None] == rows).all(-1).any(1)
        blocks = explicit.kernels(LINE.k, LINE.X[at], LINE.X[at], NEW)
        each.append(explicit.exact(blocks, LINE.y[at], LINE.noise))

    precision = sum(np.linalg.inv(a.cov) for a in each)
    precision -= (len(each) - 1) * np.linalg.inv(K)
    pulls = sum(np.linalg.inv(a.cov) @ a.mean for a in each)
    mean = gp.predict(NEW, return_cov=True, noise=False)[0]
    return gap(mean, np.linalg.solve(precision, pulls))


def below(gp):
    """Distance of the bound from the collapsed one, which is the largest."""
    return abs(LINE.sparse("vi").log_evidence - gp.elbo_)


def meets(pair):
    return gap(*(gp.log_marginal_likelihood_ for gp in pair))


VI = against(LINE.sparse("vi"))
ROWS = [
    Row("t 1.2.1, figure 1.1", "linear regression with a normal prior of the weights",
        "GPRegressor('exact', **dict(fixed, kernel=Linear(1.0), "
        "training=Training(learn=(), noise=noise, jitter=1e-12))).fit(X, y)",
        "ridge regression", linear, 1e-8, LINE),
    Row("t 2.1, figure 2.1 (a)", "draws of the prior",
        "k.sample(X, 20000, random_state=0)", "covariance k(X, X), 20,000 draws",
        prior_moments, 0.1, LINE),
    Row("t 2.1, figure 2.1 (b)", "draws of the posterior",
        "GPRegressor('exact', **fixed).fit(X, y).sample_y(new, 20000, random_state=0).T",
        "the posterior's covariance, 20,000 draws", posterior_moments, 0.1, LINE),
    Row("t 2.1, r 1.2, s", "noise-free observations",
        "GPRegressor('exact', **dict(fixed, training=Training(learn=(), noise=0.0, "
        "jitter=1e-9))).fit(X, y)", "the mean passes through the targets",
        lambda gp: gap(gp.predict(LINE.X), LINE.y), 1e-6, LINE),
    Row("t 2.1, r 1.2.1, r (4), s", "regression with noise; its evidence",
        "GPRegressor('exact', **fixed).fit(X, y)", "the conditional by explicit matrices",
        against(LINE.exact), 1e-8, LINE),
    Row("t 1.2.1, 7.1, s", "weight-space view of basis functions: sparse spectrum",
        "GPRegressor('vi', **dict(fixed, inducing='spectrum', n_inducing=8)).fit(X, y)",
        "Bayesian linear regression on the features", features, 1e-8, LINE),
    Row("t 4.1.1, 4.2.2", "Nyström", "GPRegressor('nystrom', **sparse).fit(X, y)",
        "explicit N×N matrices", against(LINE.sparse("nystrom")), 1e-8, LINE),
    Row("t 4.2.1", "subset of regressors", "GPRegressor('sr', **sparse).fit(X, y)",
        "explicit N×N matrices", against(LINE.sparse("sr")), 1e-8, LINE),
    Row("t 4.2.3", "subset of data, all rows",
        "GPRegressor('sd', **dict(fixed, n_inducing=30)).fit(X, y)",
        "exact regression", against(LINE.exact), 1e-8, LINE),
    Row("t 4.2.4", "projected process", "GPRegressor('pp', **sparse).fit(X, y)",
        "explicit N×N matrices", against(LINE.sparse("pp")), 1e-8, LINE),
    Row("t 4.2.5", "Bayesian committee machine",
        "GPRegressor(BCM(n_blocks=3), **fixed).fit(X, y)",
        "(4.10) with explicit inverses", committee, 1e-6, LINE),
    Row("t 4.2.6", "conjugate gradients",
        "GPRegressor(ConjugateGradients(tol=1e-12), **sparse).fit(X, y).predict(new)",
        "exact regression", lambda mean: gap(mean, LINE.exact.mean), 1e-8, LINE),
    Row("t 4.3", "FITC", "GPRegressor('fitc', **sparse).fit(X, y)",
        "explicit N×N matrices", against(LINE.sparse("fitc")), 1e-8, LINE),
    Row("r 2.1.1", "collapsed bound of Titsias (vi-means)",
        "GPRegressor('vi', **sparse).fit(X, y)", "explicit N×N matrices", VI, 1e-8, LINE),
    Row("r 2.1.2 (8)", "stochastic variational inference, natural gradient (svi-natural)",
        "GPRegressor('svi', **sparse).fit(X, y)", "the collapsed optimum", VI, 1e-8, LINE),
    Row("r 2.1.2, 3.1", "gradient steps on μ and L_Σ by L-BFGS-B (svi-L-BFGS-B)",
        "GPRegressor(SVGP(q_update='gradient'), **dict(sparse, training=training()))"
        ".fit(X, y)", "the collapsed bound", below, 0.05, LINE),
    Row("r 3.1", "full gradient steps (svi-FG)",
        "GPRegressor(SVGP(q_update='gradient'), **dict(sparse, learning_rate=0.3, "
        "max_epochs=150, training=training(optimizer='gradient'))).fit(X, y)",
        "the collapsed bound", below, 0.05, LINE),
    Row("r 3.1", "stochastic average gradient (svi-SAG)",
        "GPRegressor(SVGP(q_update='gradient'), **dict(sparse, learning_rate=0.15, "
        "max_epochs=100, batch_size=10, training=training(optimizer='sag'))).fit(X, y)",
        "the collapsed bound", below, 0.05, LINE),
    Row("r 2.1.1, 3.3", "Newton's method with differences of gradients (means-PN)",
        "[GPRegressor('vi', training=Training(optimizer=o, learn=('kernel', 'noise'), "
        "tol=1e-9), **learnt).fit(X, y) for o in ('newton', 'lbfgs')]",
        "L-BFGS reaches the same bound (means-L-BFGS-B)", meets, 1e-3, LINE),
    Row("r 1.5, t 2.1", "hyper-parameters by the evidence",
        "[GPRegressor('exact', **dict(fixed, max_epochs=100, training=Training("
        "noise=noise, learn=learn))).fit(X, y) for learn in ((), ('kernel', 'noise'))]",
        "how much the evidence falls",
        lambda pair: max(
            pair[0].log_marginal_likelihood_ - pair[1].log_marginal_likelihood_, 0.0
        ), 0.0, LINE),
    Row("t 3.3.1, 7.1", "Markov chains over the hyper-parameters (NUTS)",
        "GPRegressor('exact', **dict(fixed, training=Training(noise=noise, "
        "learn='kernel'))).fit(X, y).sample_hyperparameters(X, y, n_samples=100, "
        "warmup=60, chains=2, random_state=0)",
        "R-hat is 1 if two chains agree",
        lambda s: max(gap(value, 1.0) for value in s.r_hat.values()), 0.1, LINE,
        slow=True),
]  # fmt: skip
