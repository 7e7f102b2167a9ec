"""Few defaults among many loans: what class weights do, and what to do with
probabilities instead.

The loans are made up; about one in fifteen is not paid back. A model that calls every
loan good is right for 93 % of them and useless. Suppose that a default costs ten times
as much as a good loan that you refuse. There are two ways to say so:

- weigh the rows of defaults ten times: predictions change, but probabilities no longer
  count loans;
- leave the probabilities alone, and refuse a loan if its probability of default is
  above 1/11.
"""

# %% Two thousand loans to learn from, four thousand to judge
import numpy as np
import pandas as pd

from cavity import GPClassifier


def draw_loans(n, seed):
    """Return made-up loans, and whether each defaults: debt and delays hurt, and more
    so together.
    """
    rng = np.random.default_rng(seed)
    debt = rng.beta(2, 4, n)  # share of the income
    delays = rng.poisson(0.5, n)  # late payments so far
    income = rng.lognormal(10.3, 0.5, n)
    purpose = rng.choice(["car", "house", "business"], n, p=[0.5, 0.3, 0.2])
    risk = (
        -6.5
        + 5 * debt
        + 0.8 * delays
        + 2.5 * debt * delays
        - 0.8 * np.log(income / 30_000)
    )
    risk += np.where(purpose == "business", 0.8, 0.0)
    loans = pd.DataFrame(
        {"debt": debt, "delays": delays, "income": income, "purpose": purpose}
    )
    return loans, np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "default", "paid")


X, y = draw_loans(2000, seed=0)
X_test, y_test = draw_loans(4000, seed=1)
COST = 10  # of a default; a refused good loan costs 1


def cost(refused):
    """Return the cost per 1,000 loans."""
    bad = y_test == "default"
    return 1000 * (COST * (bad & ~refused) + (~bad & refused)).mean()


# %% As it comes, with weights, and with a threshold
options = {"effort": "fast", "n_inducing": 30, "random_state": 0}
plain = GPClassifier(**options).fit(X, y)
weighted = GPClassifier(class_weight={"default": COST, "paid": 1}, **options).fit(X, y)
p = plain.predict_proba(X_test)[:, list(plain.classes_).index("default")]
q = weighted.predict_proba(X_test)[:, list(weighted.classes_).index("default")]
costs = {
    "refuse nobody": cost(np.zeros(4000, dtype=bool)),
    "predict": cost(plain.predict(X_test) == "default"),
    "predict, with class weights": cost(weighted.predict(X_test) == "default"),
    "refuse above 1/11": cost(p > 1 / (1 + COST)),
}
for rule, value in costs.items():
    print(f"{rule:30} {value:6.0f} per 1,000 loans")

# %% Only the model without weights says how many defaults to expect
share = (y_test == "default").mean()
print(
    f"\ndefaults: {share:.3f} of the loans; mean probability {p.mean():.3f}, with "
    f"class weights {q.mean():.3f}"
)

# %% The number to check: weights and threshold both save a third or more; the threshold
# keeps honest probabilities
saved = 1 - costs["refuse above 1/11"] / costs["predict"]
print(f"the threshold saves {saved:.0%} of the cost of plain predictions")
assert saved > 0.25 and costs["predict, with class weights"] < 0.8 * costs["predict"]
assert abs(p.mean() - share) < 0.02 < q.mean() - share
