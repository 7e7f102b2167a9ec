"""Rows that come in pieces: learn from each once, or read files that are never held
whole.

`partial_fit` is for rows that pass by: each call learns from its rows and forgets them,
so memory does not grow. If the rows can be read again, give `fit` the files instead: it
reads them in pieces, several times.
"""

# %% 6,000 rows in twenty deliveries, and 3,000 to judge
import tempfile
from pathlib import Path

import pandas as pd
from sklearn.datasets import make_classification

from cavity import GPClassifier, Training

X, y = make_classification(
    9000,
    8,
    n_informative=6,
    n_redundant=0,
    n_classes=3,
    n_clusters_per_class=3,
    class_sep=1.3,
    random_state=2,
)
table = pd.DataFrame(X, columns=[f"sensor{i}" for i in range(8)])
deliveries = [(table[i : i + 300], y[i : i + 300]) for i in range(0, 6000, 300)]
X_test = table[6000:]
y_test = y[6000:]

# %% One delivery after the other. The first call names all classes, since a delivery
# may lack one
stream = GPClassifier("sep", n_inducing=40, random_state=0)
curve = {}
for day, (rows, labels) in enumerate(deliveries, start=1):
    stream.partial_fit(rows, labels, classes=[0, 1, 2])
    if day in (1, 2, 5, 10, 20):
        curve[day] = stream.score(X_test, y_test)
        print(f"after {300 * day:5,} rows: accuracy {curve[day]:.3f}")

# %% The same rows in a folder of Parquet files: `fit` reads them in pieces, pass after
# pass
folder = Path(tempfile.mkdtemp())
for day, (rows, labels) in enumerate(deliveries):
    rows.assign(state=labels).to_parquet(folder / f"{day:02}.parquet", index=False)
files = GPClassifier(
    "sep",
    n_inducing=40,
    batch_size=300,
    effort="fast",
    training=Training(tol=10.0),
    random_state=0,
)
files.fit(folder, target="state")
again = files.score(X_test, y_test)
print(f"from files, {files.n_epochs_} passes: accuracy {again:.3f}")

# %% The number to check: the stream teaches the model, and more passes teach it a
# little more
print(
    f"19 more deliveries add {curve[20] - curve[1]:.3f} to the accuracy, more passes "
    f"{again - curve[20]:.3f}"
)
assert curve[20] > curve[1] + 0.05
