"""From a table to a report: a CSV file with text columns and missing cells, a model,
predictions, one HTML page.

The table is made up, in the likeness of the Palmer penguins: three species, two
measurements, an island and a sex. One bill in twenty was not measured, one sex in ten
is unknown. Nothing has to be scaled, encoded or filled in.
"""

# %% Write the table, as somebody would send it to you
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from cavity import GPClassifier, report

rng = np.random.default_rng(0)
kind = rng.integers(3, size=300)
# share of each species on each island
lives = np.array([[0.3, 0.35, 0.35], [0.05, 0.9, 0.05], [0.95, 0.03, 0.02]])
table = pd.DataFrame(
    {
        "bill": (np.array([38, 48, 47])[kind] + rng.normal(0, 2.5, 300)).round(1),
        "mass": (np.array([3700, 3750, 5050])[kind] + rng.normal(0, 400, 300)).round(),
        "island": [
            rng.choice(["Biscoe", "Dream", "Torgersen"], p=lives[k]) for k in kind
        ],
        "sex": rng.choice(["female", "male", None], 300, p=[0.45, 0.45, 0.1]),
        "species": np.array(["Adelie", "Chinstrap", "Gentoo"])[kind],
    }
)
table.loc[rng.random(300) < 0.05, "bill"] = None
folder = Path(tempfile.mkdtemp())
table.to_csv(folder / "penguins.csv", index=False)

# %% Read it, and keep a third of the rows for the report
table = pd.read_csv(folder / "penguins.csv")
print(table.head(), "\n")
X = table.drop(columns="species")
y = table["species"]
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=1 / 3, stratify=y, random_state=0
)

# %% Fit. The frame goes in as it is; `estimate_` says how good the model will be on new
# rows
clf = GPClassifier(random_state=0).fit(X_train, y_train)
print(clf.estimate_, "\n")

# %% Probabilities of five birds, and what moved the first of them
print(pd.DataFrame(clf.predict_proba(X_test[:5]), columns=clf.classes_).round(3), "\n")
print(clf.explain_rows(X_test[:1], X_train), "\n")

# %% One HTML page for others: scores, calibration, which columns matter. It needs no
# network
report.write_report(clf, folder / "report.html", X_test, y_test)
print("open", folder / "report.html")
# `cavity predict`, `cavity serve` and `cavity export` take this file
clf.save(folder / "penguins.cavity")

# %% The number to check: the model names about 19 of 20 new birds, as many as it said
# before
accuracy = clf.score(X_test, y_test)
print(
    f"accuracy on 100 new rows: {accuracy:.2f} (estimated before: "
    f"{clf.estimate_.accuracy:.2f})"
)
assert accuracy > 0.9 and abs(accuracy - clf.estimate_.accuracy) < 0.08
