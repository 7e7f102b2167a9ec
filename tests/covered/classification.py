"""Rows about classification: thesis 2 to 5 and 7, ICML 2 and 3, review 1.3 and 2.2."""

from functools import cache, partial

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm

from reference import bounds, brute_ep, variational
from reference.gibbs import gibbs, probabilities
from reference.laplace import logistic_laplace, softmax_laplace
from reference.textbook import full_binary_ep, full_binary_predict

from .rows import NEW, THREE, TWO, Classes, Row, gap


def cross(problem: Classes):
    """Per latent function: k(X, X), k(new, X) and the diagonal of k(new, new)."""
    X = problem.X
    return [(k(X, X), k(NEW, X), np.diag(k(NEW, NEW))) for k in problem.ks]


def against(problem: Classes, run, **options):
    """Errors of log Z_q and of probabilities at new rows."""

    def error(clf):
        judge = problem.judge(run, **options)
        evidence = gap(clf.log_marginal_likelihood_, judge.log_z)
        return max(
            evidence, gap(clf.predict_proba(NEW), brute_ep.predict_proba(judge, NEW))
        )

    return error


def textbook(clf):
    ((K, Kstar, kss),) = cross(TWO)
    judge = full_binary_ep(K, TWO.labels)
    expected = full_binary_predict(judge, K, Kstar, kss)
    evidence = gap(clf.log_marginal_likelihood_, judge.log_z)
    return max(evidence, gap(clf.predict_proba(NEW)[:, 1], expected))


def sequential(clf):
    K, Kstar, kss = zip(*cross(THREE), strict=True)
    judge = brute_ep.full_multiclass_ep(K, THREE.y, 1.0)
    expected = brute_ep.full_multiclass_predict(judge, Kstar, kss)
    evidence = gap(clf.log_marginal_likelihood_, judge.log_z)
    return max(evidence, gap(clf.predict_proba(NEW), expected))


def sampled(clf):
    K, Kstar, kss = zip(*cross(THREE), strict=True)
    draws = gibbs(K, THREE.y, 1.0, 3000)
    return gap(clf.predict_proba(NEW), probabilities(draws, K, 1.0, Kstar, kss))


def laplace(predict):
    """Errors of the evidence and of the averaged probability."""

    def error(clf):
        ((K, Kstar, kss),) = cross(TWO)
        judge = logistic_laplace(K, TWO.labels, Kstar, kss)
        evidence = gap(clf.log_marginal_likelihood_, judge.log_evidence)
        expected = [predict(*at) for at in zip(judge.mean, judge.var, strict=True)]
        return max(evidence, gap(clf.predict_proba(NEW)[:, 1], expected))

    return error


def integral(m, v):
    return quad(lambda z: norm.pdf(z) * expit(m + np.sqrt(v) * z), -9, 9)[0]


def scaled(m, v):
    return expit(m / np.sqrt(1 + np.pi * v / 8))


def coupled(clf):
    judge = softmax_laplace([K for K, _, _ in cross(THREE)], THREE.y)
    mean = clf.predict_latent(THREE.X)[0]
    evidence = gap(clf.log_marginal_likelihood_, judge.log_evidence)
    return max(evidence, gap(mean.T, judge.mode))


def best_bound(problem: Classes, expected):
    """The largest bound, found by SciPy."""

    def error(clf):
        return gap(clf.elbo_, variational.maximise(problem.whitened, expected).bound)

    return error


def alternation(solve, value):
    """The review's alternation between q and ξ."""

    def error(clf):
        (k,) = TWO.ks
        Z = TWO.Z[0]
        noisy = np.diag(k(TWO.X, TWO.X)) + TWO.noise
        K = bounds.Gram(k(Z, Z) + 1e-6 * np.eye(len(Z)), k(Z, TWO.X), noisy)
        *q, xi = solve(TWO.labels, K)
        return gap(clf.log_marginal_likelihood_, value(*q, xi, TWO.labels, K))

    return error


def spread(clf):
    """What two ways of the same model differ by."""
    return gap(clf[0].predict_proba(NEW), clf[1].predict_proba(NEW))


def slope(value_and_gradient):
    value, gradient = value_and_gradient
    steps = 1e-5 * np.eye(len(gradient))
    found = [(value(step) - value(-step)) / 2e-5 for step in steps]
    return gap(gradient, found) / np.abs(gradient).max()


@cache
def largest_objective():
    """The largest log Z_q plus log prior over the noises, by explicit matrices.

    The logs of the noises are normal around their start, with standard deviation 2.
    """

    def negative(gap_of_logs):
        noise = THREE.noise * np.exp(gap_of_logs)
        judge = brute_ep.sparse_ep(THREE.X, THREE.y, THREE.Z, THREE.ks, noise)
        return 0.5 * np.sum(gap_of_logs**2) / 2**2 - judge.log_z

    return -minimize(negative, np.zeros(3)).fun


def below_the_largest(clf):
    return abs(largest_objective() - clf.history_[-1]["objective"])


VI_SOFTMAX = variational.expected_softmax
VI_ROBUST = partial(variational.expected_robust_max, epsilon=1e-3)

LAPLACE = [
    Row("t 2.2, s", "binary classification, f through a sigmoid; here by Laplace's method",
        "GPClassifier('laplace', **plain).fit(X, y)",
        "Newton's steps with explicit inverses; E σ(f) by adaptive quadrature",
        laplace(integral), 1e-6, TWO),
    Row("t 3.1.1, r 1.3.1 (3), s", "Laplace: mode f̂ and evidence, r (5)",
        "GPClassifier(Laplace(predictive='mode'), **plain).fit(X, y)",
        "the same, σ(f̂)", laplace(lambda m, v: expit(m)), 1e-6, TWO),
    Row("s", "average of the logistic: σ(μ/√(1 + πs²/8))",
        "GPClassifier(Laplace(predictive='probit'), **plain).fit(X, y)",
        "the same, by the formula", laplace(scaled), 1e-6, TWO),
    Row("t 2.3, 3.1.1", "Laplace for more classes: softmax",
        "GPClassifier('laplace', **plain).fit(X, y)",
        "Newton's steps on all C·N values with explicit matrices", coupled, 1e-6, THREE),
]  # fmt: skip

EP_ROWS = [
    Row("t 3.1.3, algorithm 1; s", "EP, two classes, full Gaussian process",
        "GPClassifier('ep', **full).fit(X, y)",
        "EP as Rasmussen and Williams print it (3.6)", textbook, 1e-6, TWO),
    Row("t 2.3", "multi-class model: y is the class with the largest f",
        "GPClassifier('ep', **full).fit(X, y)",
        "sequential EP on all C·N values", sequential, 1e-5, THREE),
    Row("t 2.3, 3.3.2, algorithm 2", "the exact multi-class posterior, by Gibbs sampling",
        "GPClassifier(REP(epsilon=0), **full).fit(X, y)",
        "3,000 Gibbs sweeps over the latent values", sampled, 0.03, THREE, slow=True),
    Row("t 5.1, i 2.1", "sparse multi-class model, factors Φ for y against each rival",
        "GPClassifier('ep', **sparse).fit(X, y)",
        "EP with explicit matrices: log Z_q, probabilities",
        against(THREE, brute_ep.sparse_ep), 1e-7, THREE),
    Row("t 5.1, i 2.1", "the same for two classes",
        "GPClassifier('ep', **sparse).fit(X, y)",
        "EP with explicit matrices", against(TWO, brute_ep.sparse_ep), 1e-7, TWO),
    Row("t 5.2, B.1 to B.3, i 2.2", "posterior, cavity and site updates",
        "engine.infer(gp, X, y, method=engine.EP(), tol=1e-12)",
        "mean and covariance of q(u) by explicit inverses",
        lambda post: max(
            gap(post.q.mean, THREE.judge(brute_ep.sparse_ep).mean),
            gap(post.q.cov, THREE.judge(brute_ep.sparse_ep).cov),
        ), 1e-7, THREE),
    Row("t B.4, i 2.2", "log Z_q",
        "engine.infer(gp, X, y, method=engine.EP(), tol=1e-12).log_evidence",
        "the formula with explicit matrices",
        lambda value: gap(value, THREE.judge(brute_ep.sparse_ep).log_z), 1e-8, THREE),
    Row("t B.5, i 2.3", "gradient of log Z_q after convergence (\"outer\")",
        "(lambda d: engine.evidence(gp.with_theta(gp.theta.numpy() + d), X, y, "
        "method=engine.EP(), tol=1e-12).value, engine.evidence(gp, X, y, "
        "method=engine.EP(), tol=1e-12).gradient.numpy())",
        "central differences, EP converged again", slope, 1e-4, THREE, slow=True),
    Row("t 5.2, B.6", "predictive distribution",
        "engine.infer(gp, X, y, method=engine.EP(), tol=1e-12).predict(new)",
        "probability of the largest by quadrature",
        lambda p: gap(p, brute_ep.predict_proba(THREE.judge(brute_ep.sparse_ep), NEW)),
        1e-7, THREE),
    Row("t 5.1.1, 5.2.1", "robust likelihood: a share ε of the labels is random",
        "GPClassifier(REP(epsilon=0.1), **sparse).fit(X, y)",
        "robust EP with explicit matrices and panels",
        against(THREE, brute_ep.robust_ep, epsilon=0.1), 1e-6, THREE),
    Row("t 5.2.2, i 2.3.1", "stochastic EP: one shared site",
        "GPClassifier('sep', **sparse).fit(X, y)",
        "SEP with explicit matrices", against(THREE, brute_ep.sep), 1e-7, THREE),
    Row("t 5.2.2", "robust SEP",
        "GPClassifier(REP(epsilon=0.1, sites='tied'), **sparse).fit(X, y)",
        "the same with robust factors",
        against(THREE, brute_ep.robust_ep, epsilon=0.1, tied=True), 1e-6, THREE),
    Row("t 5.2.2, i 2.3.2", "mini-batches",
        "GPClassifier('ep', **dict(sparse, batch_size=5)).fit(X, y)",
        "EP with explicit matrices", against(THREE, brute_ep.sparse_ep), 1e-4, THREE),
    Row("t 4.3, i 3", "GFITC, sites on f",
        "GPClassifier('gfitc', **sparse).fit(X, y)",
        "EP on the training values under the FITC prior",
        against(THREE, brute_ep.gfitc), 1e-6, THREE),
    Row("t 7.1", "power EP",
        "GPClassifier(PowerEP(power=0.5), **sparse).fit(X, y)",
        "power EP with explicit matrices",
        against(THREE, brute_ep.power_ep, power=0.5), 1e-6, THREE),
    Row("t 7.1", "sparse spectrum of the kernel",
        "[GPClassifier('ep', **dict(sparse, inducing='spectrum', n_inducing=3000, "
        "random_state=0)).fit(X, y), GPClassifier('ep', **dict(sparse, inducing=None))"
        ".fit(X, y)]",
        "the full process; 1,500 frequencies", spread, 0.05, TWO, slow=True),
    *[
        Row("t 5.2, i 2.3, figure 1", f'schedule "{schedule}" of sites and hyper-parameters',
            f"GPClassifier('ep', training=Training(schedule='{schedule}', learn='noise', "
            "noise=noise), **learnt).fit(X, y)",
            "the largest objective by SciPy, EP with explicit matrices",
            below_the_largest, 1e-4, THREE)
        for schedule in ("inner-approx", "inner-exact", "outer")
    ],
]  # fmt: skip

VI_ROWS = [
    Row("t 3.1.2, r 2.2 (12)", "variational inference, logistic, two classes",
        "GPClassifier('vi', **sparse).fit(X, y)",
        "the largest bound by SciPy, averages by panels",
        best_bound(TWO, variational.expected_logistic), 1e-6, TWO),
    Row("t 5.3", "variational inference, softmax",
        "GPClassifier(VI(likelihood='softmax'), **sparse).fit(X, y)",
        "the largest bound by SciPy, product quadrature",
        best_bound(THREE, VI_SOFTMAX), 1e-5, THREE, slow=True),
    Row("t 5.3, i 3", "variational inference, robust-max (Hensman)",
        "GPClassifier(VI(likelihood='robust-max'), **sparse).fit(X, y)",
        "the largest bound by SciPy", best_bound(THREE, VI_ROBUST), 1e-5, THREE, slow=True),
    Row("r 2.2", "gradient steps on μ and the Cholesky factor of Σ",
        "GPClassifier(VI(q_update='gradient'), **sparse).fit(X, y)",
        "the largest bound by SciPy",
        best_bound(TWO, variational.expected_logistic), 1e-5, TWO),
    Row("r 2.3.1 (13), (14)", "bound of Jaakkola and Jordan",
        "GPClassifier(VI(bound='jaakkola'), **sparse).fit(X, y)",
        "the review's alternation, explicit matrices",
        alternation(bounds.jaakkola, bounds.jaakkola_bound), 1e-6, TWO),
    Row("r 2.3.2", "Taylor expansion",
        "GPClassifier(VI(bound='taylor'), **sparse).fit(X, y)",
        "the review's alternation, explicit matrices",
        alternation(bounds.taylor, bounds.taylor_value), 1e-6, TWO),
    Row("s", "VI predicts by σ(μ/√(1 + πs²/8))",
        "GPClassifier(VI(predictive='probit'), **sparse).fit(X, y)",
        "the formula at its own latent mean and variance",
        lambda clf: gap(
            clf.predict_proba(NEW)[:, 1],
            scaled(*clf.predict_latent(NEW)),
        ), 1e-9, TWO),
]  # fmt: skip
ROWS = [*LAPLACE, *EP_ROWS, *VI_ROWS]
