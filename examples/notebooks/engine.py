# %% [markdown]
# # The engine, for researchers
#
# Arrays in, posterior out. A model is a value, a method is a value, and nothing is
# changed in place. This notebook compares four methods on one model, checks EP's
# evidence against an exact one, and climbs it with SciPy. The page
# [The engine](../../docs/engine.md) has the details.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from cavity.engine import EP, GP, SEP, VI, PowerEP, evidence, infer
from cavity.kernels import RBF
from cavity.likelihoods import BinaryProbit, ProbitPairs

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, 60))[:, None]
y = np.digitize(np.sin(X[:, 0]) + 0.3 * rng.normal(size=60), [-0.4, 0.4])
gp = GP(kernel=RBF(lengthscale=1.0), likelihood=ProbitPairs(3), inducing=X[::4])

# %% [markdown]
# ## A posterior
#
# `infer` finds the fixed point with the hyper-parameters as they are. `residual` is what
# one more sweep would move.

# %%
post = infer(gp, X, y, method=EP())
print(f"log Z_q = {post.log_evidence:.4f}, residual {post.residual:.1e}")
line = np.linspace(-4, 4, 161)[:, None]
P = np.asarray(post.predict(line))
plt.figure(figsize=(6, 3), layout="constrained")
plt.plot(line[:, 0], P)
plt.scatter(X[:, 0], np.full(60, -0.05), c=[f"C{k}" for k in y], s=8)
plt.ylabel("probability of each class")

# %% [markdown]
# ## Joint draws of the latent functions

# %%
draws = np.asarray(post.draw(line, n_draws=15))  # [S C n]
figure, axes = plt.subplots(1, 3, figsize=(9, 2.5), sharey=True, layout="constrained")
for c, ax in enumerate(axes):
    ax.plot(line[:, 0], draws[:, c].T, color=f"C{c}", alpha=0.4, linewidth=0.8)
    ax.set_title(f"latent function {c}")

# %% [markdown]
# ## One model, four methods
#
# All of them return the same kind of posterior.

# %%
for method in (EP(), PowerEP(removal=0.5), SEP(), VI()):
    found = infer(gp, X, y, method=method)
    p_own = np.asarray(found.predict(X))[np.arange(60), y]
    print(
        f"{type(method).__name__:8} {found.log_evidence:9.3f}   mean log p of the "
        f"training labels {np.log(p_own).mean():.3f}"
    )

# %% [markdown]
# ## EP against the exact evidence
#
# With two classes, a row is of class 1 if f > 0. The evidence is then an orthant
# probability of a normal distribution, which SciPy computes for a few rows.

# %%
few = np.array([[-1.5], [-0.7], [0.0], [0.4], [0.9], [2.0]])
labels = np.array([0, 1, 1, 1, 0, 0])
pair = GP(
    kernel=RBF(lengthscale=1.0), likelihood=BinaryProbit(), inducing=few, noise=0.1
)
sign = 2 * labels - 1
prior = np.exp(-0.5 * (few - few.T) ** 2) + 0.1 * np.eye(6)
orthant = multivariate_normal(
    cov=prior * sign * sign[:, None], abseps=1e-10, maxpts=10**7
)
exact_log_z = orthant.logcdf(np.zeros(6))
log_z = infer(pair, few, labels, method=EP()).log_evidence
print(f"exact {exact_log_z:.5f}, EP {log_z:.5f}")

# %% [markdown]
# ## Climb the evidence with SciPy
#
# `evidence` returns log Z_q and its gradient in `gp.theta`. Any optimiser or sampler can
# use them.


# %%
def negative(theta):
    value, gradient = evidence(gp.with_theta(theta), X, y, method=EP())
    return -value, -gradient.numpy()


start = gp.theta.numpy()
direction = rng.normal(size=start.size)
h = 1e-5
slope = (negative(start + h * direction)[0] - negative(start - h * direction)[0]) / (
    2 * h
)
exact = negative(start)[1] @ direction
print(f"gradient along a random direction {exact:.6f}, by differences {slope:.6f}")

# %%
best = minimize(negative, start, jac=True, method="L-BFGS-B", options={"maxiter": 15})
learnt = gp.with_theta(torch.from_numpy(best.x))
print(f"log Z_q: {post.log_evidence:.3f} → {-best.fun:.3f}")
print(learnt.kernel)

# %%
assert post.residual < 1e-6
assert abs(log_z - exact_log_z) < 0.02
assert abs(exact - slope) < 1e-3 * abs(exact)
assert -best.fun > post.log_evidence + 1
