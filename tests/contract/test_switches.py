"""Every choice of `GPClassifier` has a switch, and docs/default.md names it."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from cavity import GPClassifier, Training
from cavity.kernels import RBF
from cavity.options import nest, read_classifier

PAGE = Path(__file__).parents[2] / "docs" / "default.md"
SECTION = re.search(
    r"^## Every choice has a switch\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.M | re.S
)[1]
CELLS = [line.strip("| ").split(" | ")[2] for line in SECTION.splitlines() if line.startswith("| ")][1:]
DEFAULTS = {
    name: p.default
    for kind in (GPClassifier, Training)
    for name, p in inspect.signature(kind).parameters.items()
}
SWITCHES = [
    (name, value)
    for cell in CELLS
    for name, values in re.findall(r"`(?:Training\()?(\w+)=((?:[\w\"()]+`(?:, `\"[\w-]+\"`)*)?)", cell)
    for value in re.findall(r'"([\w-]+)"', values)
]


def test_the_table_names_a_switch_for_each_parameter_that_is_chosen() -> None:
    named = {name for cell in CELLS for name in re.findall(r"`(?:Training\()?(\w+)=", cell)}
    chosen = {name for name, default in DEFAULTS.items() if isinstance(default, str) and default == "auto"}
    automatic = {"kernel", "learning_rate", "damping", "max_epochs", "jitter", "effort", "tol"}
    assert chosen | automatic <= named
    assert named <= {*DEFAULTS} | {"kinds"}  # of Preparation


@pytest.mark.parametrize(("name", "value"), SWITCHES)
def test_the_values_of_the_table_are_accepted(name: str, value: str) -> None:
    config = read_classifier(GPClassifier(**nest(**{name: value})).get_params(deep=False))
    assert config.arguments[name] == value


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
