"""The evidence of a model that knows nothing is that of guessing, with every method
that says so.
"""

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.fitting.options import nest
from cavity.fitting.options.library import method_names
from cavity.fitting.options.method import BOUND, EVIDENCE, OBJECTIVE
from cavity.kernels import RBF
from cavity.methods import REP, VI
from support import toy

METHODS = [kind() for kind in method_names("classification").values()]
METHODS += [REP(sites="tied"), VI(likelihood="softmax")]
N = 30


def per_row(method, C: int) -> float:
    """log Z_q per row, with latent functions that are noise alone."""
    X, y = toy(N, C)
    options = {"kernel": RBF(variance=1e-8), "learn": (), "max_epochs": 20, "tol": 1e-6}
    options |= {"noise": 0.01} if method.latent_noise else {}
    clf = GPClassifier(
        method, **nest(n_inducing=5, effort="fast", random_state=0, **options)
    ).fit(X, y)
    return clf.log_marginal_likelihood_ / N


@pytest.mark.parametrize("C", [2, 3, 5])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
def test_a_model_that_knows_nothing_guesses(method, C) -> None:
    found, guess, name = per_row(method, C), -np.log(C), method.name_evidence(C)
    if name == EVIDENCE:
        assert found == pytest.approx(guess, abs=0.01)
    elif name == BOUND:
        assert found <= guess + 1e-6
    else:
        assert name == OBJECTIVE and found < guess - 0.1
