"""Use an installed cavity as its users do: import it, fit, predict, save and load.

Run it outside the source tree.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

import cavity

root = Path(__file__).parents[1]
assert not Path(cavity.__file__).is_relative_to(root / "src"), (
    "this is the source tree, not the wheel"
)
X, y = load_iris(return_X_y=True)
clf = cavity.GPClassifier(
    n_inducing=10, max_epochs=20, training=cavity.Training(tol=1.0), random_state=0
).fit(X, y)
assert clf.score(X, y) > 0.9
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "iris.cavity"
    clf.save(path)
    np.testing.assert_array_equal(
        cavity.load(path).predict_proba(X), clf.predict_proba(X)
    )
print(
    f"cavity {cavity.__version__}: accuracy {clf.score(X, y):.3f} on iris, and the "
    f"same probabilities after load"
)
