# %% [markdown]
# # Digits, with doubt
#
# A classifier that knows when it does not know: which digits it is unsure of, what it
# says about pictures that are not digits, and how much better it gets if a person reads
# the doubtful ones.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from cavity import GPClassifier, report

X, y = load_digits(return_X_y=True)  # 8 × 8 pixels
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], y[order]
X_train, y_train = X[:500], y[:500]
X_test, y_test = X[500:], y[500:]

# %%
clf = GPClassifier(effort="fast", n_inducing=30, random_state=0).fit(X_train, y_train)
P = clf.predict_proba(X_test)
print(f"accuracy {clf.score(X_test, y_test):.3f}, log loss {log_loss(y_test, P):.3f}")
print(clf.estimate_)  # known before any test row was seen

# %% [markdown]
# ## The most doubtful digits
#
# `predict_uncertainty` splits the entropy of a prediction: overlap of the classes
# (aleatoric), and a lack of rows like this one (epistemic).

# %%
total, aleatoric, epistemic = clf.predict_uncertainty(X_test)
doubtful = np.argsort(-total)[:8]
figure, axes = plt.subplots(1, 8, figsize=(10, 1.9), layout="constrained")
for ax, row in zip(axes, doubtful, strict=True):
    first, second = np.argsort(-P[row])[:2]
    ax.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{first}: {P[row, first]:.2f}\n{second}: {P[row, second]:.2f}")
    ax.set_xlabel(f"is {y_test[row]}")
    ax.set_xticks([])
    ax.set_yticks([])

# %% [markdown]
# ## Let a person read them
#
# The error of the digits that remain, if the doubtful ones go to a person.

# %%
curve = report.rejection(P, y_test)
plt.figure(figsize=(5, 3), layout="constrained")
plt.step(curve.rejected, curve.error, where="post")
plt.xlabel("share of digits that a person reads")
plt.ylabel("error on the others")

# %%
tenth = curve.error[np.searchsorted(curve.rejected, 0.1)]
print(f"error {curve.error[0]:.3f}; if a person reads one in ten: {tenth:.3f}")

# %% [markdown]
# ## Pictures that are not digits
#
# `predict_novelty` is the share of training rows that are more usual. New digits are
# spread evenly between 0 and 1. Digits on their side, and noise, are not.

# %%
sideways = np.rot90(X_test.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)
noise = np.random.default_rng(1).uniform(0, 16, X_test.shape)
for name, rows in {"digits": X_test, "sideways": sideways, "noise": noise}.items():
    novelty = clf.predict_novelty(rows)
    P_rows = clf.predict_proba(rows)
    share = np.mean(novelty > 0.95)
    print(
        f"{name:9} novel: {share:4.0%}   mean largest probability: "
        f"{P_rows.max(1).mean():.2f}"
    )

# %%
assert tenth < 0.5 * curve.error[0]
assert np.mean(clf.predict_novelty(noise) > 0.95) > 0.95
assert np.mean(clf.predict_novelty(X_test) > 0.95) < 0.2
