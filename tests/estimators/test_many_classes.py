"""Five hundred classes: correct, and within memory."""

import subprocess
import sys

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.engine.inference import Engine
from cavity.fitting.options.policy.training import LBFGS_EPOCHS


@pytest.mark.slow
def test_three_hundred_classes_with_two_rows_take_few_sweeps(monkeypatch):
    """In counts, since seconds depend on the machine: a sweep takes as long as all
    small operations of a smaller fit together.
    """
    sweeps, step = [], Engine.step
    monkeypatch.setattr(
        Engine, "step", lambda self, *rest: sweeps.append(rest[3]) or step(self, *rest)
    )
    rng = np.random.default_rng(0)
    y = np.arange(600) % 300
    X = 3.0 * rng.normal(size=(300, 10))[y] + rng.normal(size=(600, 10))
    fitted = GPClassifier(effort="fast", random_state=0).fit(X, y)
    learnt = sum(optimiser is not None for optimiser in sweeps)
    assert fitted.history_[-1]["settling_sweeps"] <= 10
    assert learnt <= 2 * LBFGS_EPOCHS["fast"] and len(sweeps) <= 90


PEAK = """
import resource
import sys
import warnings
import numpy as np
from cavity import GPClassifier

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
y = np.arange(1500) % 500
X = 3.0 * rng.normal(size=(500, 10))[y] + rng.normal(size=(1500, 10))
fitted = GPClassifier(sys.argv[1], max_epochs=2, random_state=0).fit(X, y)
p = fitted.predict_proba(X[:300])
assert p.shape == (300, 500) and np.allclose(p.sum(1), 1.0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_five_hundred_classes_stay_below_four_gigabytes(method):
    """1,500 rows, 10 columns, 100 inducing points per class: fit and predict."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, method], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4.0
