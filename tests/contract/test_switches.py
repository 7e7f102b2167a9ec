"""Every choice of `GPClassifier` has a switch; docs/api.md names them."""

import numpy as np

from cavity import GPClassifier, Training
from cavity.kernels import RBF


def test_with_every_switch_set_nothing_is_chosen() -> None:
    z = np.random.default_rng(0).standard_normal((60, 2))
    X, y = np.exp(4 * z), np.arange(60) % 3
    clf = GPClassifier(
        effort="fast", calibration=None, ensemble=None, kernel=RBF(), n_inducing=7, inducing="random",
        learning_rate=0.01, batch_size=None, max_epochs=3, device="cpu", random_state=0,
        training=Training(share=None, optimizer="sign", damping=0.5, tol=0.0, jitter=1e-6),
    ).fit(X, y)  # fmt: skip
    assert clf.calibration_ == "none" and clf.temperature_ == 1.0
    assert clf.ensemble_weights_.tolist() == [1.0]
    assert clf.n_epochs_ == 3 and clf.inducing_points_.shape[1] == 7


def test_one_switch_turns_off_one_stage() -> None:
    X, y = np.random.default_rng(0).standard_normal((40, 2)), np.arange(40) % 2
    common = {"n_inducing": 5, "max_epochs": 2, "random_state": 0}
    plain = GPClassifier(**common, calibration=None).fit(X, y)
    assert plain.temperature_ == 1.0 and plain.calibration_ == "none"
    fitted = GPClassifier(**common, ensemble=None).fit(X, y)
    assert fitted.calibration_ != "none" and len(fitted.ensemble_weights_) == 1
