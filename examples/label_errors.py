"""Find wrong labels: rows whose label the other rows contradict.

Somebody filed 1 of 20 wines under the wrong grower. `suspect_labels` ranks the rows of
the fit by the probability of their label, as seen by a model without that row. You look
at the first ones, not at all of them.
"""

# %% Wines of three growers; nine labels are wrong, and only this program knows which
import numpy as np
from sklearn.datasets import load_wine

from cavity import GPClassifier

X, y = load_wine(return_X_y=True)
rng = np.random.default_rng(0)
wrong = rng.choice(len(y), 9, replace=False)
given = y.copy()
given[wrong] = (y[wrong] + rng.integers(1, 3, size=9)) % 3

# %% Fit on the labels as they are, and ask which are suspicious
clf = GPClassifier(random_state=0).fit(X, given)
suspects = clf.suspect_labels(15)
rows, probability = suspects.rows, suspects.scores
print(" row  label  probability  suggested")
for row, p, other in zip(rows, probability, suspects.suggested, strict=True):
    print(
        f"{row:4}  {given[row]:5}  {p:11.4f}  {other:9}  "
        f"{'wrong' if row in wrong else ''}"
    )

# %% Put right the labels that are wrong by at least five to one, as the model sees it
fixed = given.copy()
sure = probability < 0.15
fixed[rows[sure]] = suspects.suggested[sure]
print(f"\nwrong labels: {(given != y).sum()} before, {(fixed != y).sum()} after")

# %% The number to check: how many of the nine wrong labels are among the first fifteen
# of 178 rows
found = np.isin(wrong, rows).sum()
print(f"{found} of 9 wrong labels are among the 15 most suspicious rows")
assert found >= 8 and (fixed != y).sum() <= 3
