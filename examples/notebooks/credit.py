# %% [markdown]
# # From a CSV file to a decision
#
# A bank has 1,500 old loans in a file, and 500 applications. A default costs ten times
# as much as a good loan that is refused. Which applications should it accept, which
# should a person read, and how much will that cost?
#
# The loans are made up, so that we can check the answers.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cavity import Costs, GPClassifier

rng = np.random.default_rng(0)
n = 6000
debt = rng.beta(2, 4, n)  # share of the income
delays = rng.poisson(0.5, n)  # late payments so far
income = rng.lognormal(10.3, 0.5, n)
purpose = rng.choice(["car", "house", "business"], n, p=[0.5, 0.3, 0.2])
risk = -6 + 5 * debt + 0.8 * delays + 2.5 * debt * delays
risk += np.where(purpose == "business", 0.8, 0.0) - 0.8 * np.log(income / 30_000)
chance = 1 / (1 + np.exp(-risk))
table = pd.DataFrame(
    {
        "debt": debt.round(3),
        "delays": delays,
        "income": np.where(rng.random(n) < 0.1, np.nan, income.round(-2)),
        "purpose": purpose,
        "outcome": np.where(rng.random(n) < chance, "default", "paid"),
    }
)
folder = Path(tempfile.mkdtemp())
table[:1500].to_csv(folder / "loans.csv", index=False)

# %% [markdown]
# ## Read and fit
#
# One income in ten is missing and the purpose is a text. The frame goes into `fit` as it
# is. `estimate_` says what to expect on new rows, next to class frequencies.

# %%
loans = pd.read_csv(folder / "loans.csv")
clf = GPClassifier(effort="fast", random_state=0)
clf.fit(loans.drop(columns="outcome"), loans["outcome"])
print(clf.estimate_)

# %% [markdown]
# ## Are the probabilities right?
#
# The other 4,500 rows are new to the model. Sort them by predicted risk: in each tenth,
# as many loans should default as the model says.

# %%
new = table[1500:]
X_new = new.drop(columns="outcome")
p = pd.Series(clf.predict_proba(X_new)[:, 0], index=new.index)
tenths = pd.qcut(p, 10, labels=False)
found = pd.DataFrame(
    {
        "predicted": p.groupby(tenths).mean(),
        "defaulted": (new["outcome"] == "default").groupby(tenths).mean(),
    }
)
found.round(3)

# %% [markdown]
# ## Decide
#
# Say what errors cost. `decide` picks the action of least expected cost. Asking a person
# costs 0.6: worth it only where both actions are expensive.

# %%
costs = Costs(positive="default", false_positive=1, false_negative=10, refuse=0.6)
decisions = clf.decide(X_new, costs)
action = pd.Series(decisions.action, index=new.index).fillna("ask a person")
pd.crosstab(action, new["outcome"], rownames=["decision"])

# %% [markdown]
# The decisions turn out to cost about what was expected. Predicting the most probable
# class costs about twice as much:

# %%
bad = new["outcome"] == "default"
cost = 10 * (bad & (action == "paid")) + 1 * (~bad & (action == "default"))
cost = cost + 0.6 * (action == "ask a person")
plain = 10 * (bad & (p < 0.5)) + 1 * (~bad & (p >= 0.5))
print(f"expected {decisions.cost.mean():.3f} per loan, found {cost.mean():.3f}")
print(f"most probable class: {plain.mean():.3f}")

# %% [markdown]
# ## Why was this loan refused?
#
# Take the refused loan with the smallest risk. `explain_rows` says how much each column
# contributes to its prediction, compared with the training rows.

# %%
refused = X_new.loc[[p[action == "default"].idxmin()]]
print(refused.to_string(index=False))
print(clf.explain_rows(refused, loans.drop(columns="outcome")))

# %%
dependence = clf.partial_dependence(loans.drop(columns="outcome"), "debt")
plt.figure(figsize=(5, 3), layout="constrained")
plt.plot(dependence.values, dependence.mean[:, 0])
plt.xlabel("debt, as a share of the income")
plt.ylabel("mean probability of default")

# %% [markdown]
# ## Keep the model
#
# The file holds tensors and JSON: loading it runs no code. `cavity decide model.cavity
# applications.csv --costs costs.toml` does the same without Python
# ([decisions and costs](../../docs/decisions-and-costs.md)).

# %%
clf.save(folder / "model.cavity")
assert abs(decisions.cost.mean() - cost.mean()) < 0.05
assert cost.mean() < 0.75 * plain.mean()
assert (found["predicted"] - found["defaulted"]).abs().max() < 0.08
