"""Right and wrong calls, for a type checker: a wrong one needs its `type: ignore`, a
right one must not. Never run.
"""

from typing import assert_type

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from cavity import GPClassifier, GPRegressor, Training, callbacks, load
from cavity.explain.partial_dependence import PartialDependence
from cavity.explain.permutation_importance import Importance
from cavity.explain.samples import HyperSamples
from cavity.kernels import RBF, Linear
from cavity.methods import BCM, REP
from cavity.prediction.ranked_rows import SuspectLabels

Array = npt.NDArray[np.float64]
X, y = np.zeros((4, 2)), ["a", "b", "a", "b"]

clf = GPClassifier(
    REP(epsilon=0.1),
    effort="fast",
    kernel=RBF() + Linear(),
    random_state=0,
    n_inducing=0.5,
)
GPClassifier(
    "ep",
    calibration=None,
    inducing=X,
    class_weight={"a": 2.0},
    callbacks=[callbacks.Callback()],
)
GPClassifier(
    ensemble=[LogisticRegression()],
    training=Training(learn=("kernel",), dtype="float32"),
)
GPClassifier(efort="fast")  # type: ignore[call-arg]
GPClassifier(effort="wrong")  # type: ignore[arg-type]
GPClassifier("svi")  # type: ignore[arg-type]
GPClassifier(inducing="grid")  # type: ignore[arg-type]
GPClassifier(calibration=True)  # type: ignore[arg-type]
GPClassifier(class_weight="even")  # type: ignore[arg-type]
GPClassifier(kernel="RBF")  # type: ignore[arg-type]
GPClassifier(ensemble="forest")  # type: ignore[arg-type]
GPClassifier("ep", "fast")  # type: ignore[call-arg]
GPClassifier(training=Training(optimizer="sgd"))  # type: ignore[arg-type]

assert_type(clf.fit(X, y, time_limit=10), GPClassifier)
clf.fit(X, y, eval_set=(X, y)).fit("rows.parquet", target="label")
clf.fit(X, y, epochs=3)  # type: ignore[call-arg]
clf.fit(X, y, time_limit="1 min")  # type: ignore[arg-type]
assert_type(clf.predict_proba(X), Array)
assert_type(clf.explain(X, y), Importance)
assert_type(clf.partial_dependence(X, "age"), PartialDependence)
assert_type(clf.suspect_labels(3), SuspectLabels)
assert_type(clf.sample_hyperparameters(X, y), HyperSamples)
clf.predict_probabilities(X)  # type: ignore[attr-defined]
clf.set_fit_request(sample_weight=True).set_params(effort="fast")

gp = GPRegressor(BCM(n_blocks=2), inducing="kmeans").fit(X, [1.0, 2.0, 3.0, 4.0])
assert_type(gp.predict(X), Array)
assert_type(gp.predict(X, return_std=True), tuple[Array, Array])
assert_type(gp.predict(X, return_cov=True), tuple[Array, Array])
gp.predict(X, True, True)  # type: ignore[call-overload]
GPRegressor("ep")  # type: ignore[arg-type]

assert_type(load("model.cavity"), GPClassifier | GPRegressor)
load(3)  # type: ignore[arg-type]
